"""Labels that are words: kept by stores, known to models, predicted and written."""

import json

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn import svm
from sklearn.datasets import make_blobs

import bigsvm
from bigsvm.data.schema import KEY, MOST_CLASS_NAMES, checksum
from bigsvm.errors import DataCorruptionError, DataError, ModelError
from bigsvm.interchange import to_scikit_learn, write_libsvm_model
from bigsvm.selection.split import split_store

WORDS = np.array(["cat", "ant", "bee"])
X, PLACES = make_blobs(120, centers=3, cluster_std=2.5, random_state=0)
Y = WORDS[PLACES]
FORMS = {
    "text": Y,
    "objects": Y.astype(object),
    "list": Y.tolist(),
    "string type": Y.astype(np.dtypes.StringDType()),
    "series": pd.Series(Y),
    "categories": pd.Series(Y).astype("category"),
    "dask": da.from_array(Y, chunks=50),
}


@pytest.fixture
def store(tmp_path):
    return bigsvm.write_store(tmp_path / "words", X, Y)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [X, da.from_array(X, chunks=(50, 2))], ids=["array", "dask"])
def test_a_store_keeps_words(form, rows, tmp_path):
    store = bigsvm.write_store(tmp_path / "s", rows, FORMS[form])
    assert store.class_names == ("ant", "bee", "cat")
    assert store.labels().dtype == object
    np.testing.assert_array_equal(store.in_input_order(store.labels()), Y)
    np.testing.assert_array_equal(store.labels(7, 9), store.labels()[7:9])
    again = bigsvm.open_store(tmp_path / "s")
    again.verify()
    np.testing.assert_array_equal(again.labels(), store.labels())


def test_scaled_and_copied_stores_keep_words(store, tmp_path):
    scaled = bigsvm.scale_store(store, tmp_path / "scaled")
    labels = store.row_values(store.labels(), order="store")
    copied = bigsvm.write_store(tmp_path / "copied", store, labels)
    for other in (scaled, copied):
        assert other.class_names == store.class_names
    np.testing.assert_array_equal(scaled.labels(), store.labels())
    words = dict(zip(store.rows.read(0, 120)[:, 0], store.labels(), strict=True))
    assert [words[value] for value in copied.rows.read(0, 120)[:, 0]] == copied.labels().tolist()


CLASSIFIERS = {
    "pairs": bigsvm.SVC(),
    "each against the rest": bigsvm.SVC(multiclass="ovr"),
    "balls": bigsvm.L2SVC(),
    "crammer-singer": bigsvm.CrammerSingerSVC(),
    "weighted": bigsvm.SVC(class_weight={"ant": 1, "bee": 3, "cat": 2}),
}


@pytest.mark.fault("labels")
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_models_of_a_store_know_words(kind, store, tmp_path):
    order = store.original_rows()
    in_memory = CLASSIFIERS[kind].fit(X[order], Y[order])
    expected, shares = in_memory.predict(X), in_memory.dual_coef_
    fitted = CLASSIFIERS[kind].fit(store)
    assert fitted.classes_.tolist() == fitted.model_.classes == ["ant", "bee", "cat"]
    np.testing.assert_array_equal(fitted.dual_coef_, shares)
    np.testing.assert_array_equal(fitted.predict(store, order="input").compute(), expected)
    assert fitted.score(store) == pytest.approx((expected == Y).mean())
    fitted.save(tmp_path / "m")
    assert bigsvm.load(tmp_path / "m").score(store) == fitted.score(store)


def test_two_words_are_calibrated(tmp_path):
    two = Y != "bee"
    store = bigsvm.write_store(tmp_path / "s", X[two], Y[two])
    order = store.original_rows()
    in_memory = bigsvm.SVC(calibration="sigmoid").fit(X[two][order], Y[two][order])
    expected = in_memory.predict_proba(X)
    np.testing.assert_array_equal(in_memory.fit(store).predict_proba(X), expected)


@pytest.mark.parametrize("form", ["text", "objects", "list", "series", "categories"])
@pytest.mark.parametrize("estimator", [bigsvm.SVC(), bigsvm.CrammerSingerSVC()], ids=str)
def test_classes_have_the_type_that_scikit_learn_gives_them(form, estimator):
    ours, theirs = estimator.fit(X, FORMS[form]), svm.SVC().fit(X, FORMS[form])
    assert ours.classes_.dtype == theirs.classes_.dtype
    assert ours.predict(X).dtype == theirs.predict(X).dtype
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)


def test_a_regression_and_one_class_on_words(store):
    with pytest.raises(DataError, match="y must be numbers, for a regression"):
        bigsvm.SVR().fit(store)
    assert bigsvm.OneClassSVM().fit(store).converged_


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.array(["a", None, "b"], object), r"y has None in row 1 \(from 0\), and words"),
        (np.array(["a", 1, "b"], object), r"y has 1 in row 1 \(from 0\), and words elsewhere"),
        (pd.Series(["a", pd.NA, "b"], dtype="string"), r"y has <NA> in row 1"),
        (np.array([1, "a", 2], object), "y has type object; labels must be numbers or words"),
        (np.array([b"a", b"b", b"a"]), r"y has type \|S1; labels must be numbers or words"),
        (np.array(["a", "\ud800", "b"]), "which is no valid text"),
    ],
    ids=str,
)
def test_labels_that_are_not_all_words_are_refused(wrong, message, tmp_path):
    with pytest.raises(DataError, match=message):
        bigsvm.write_store(tmp_path / "s", np.eye(3), wrong)


def test_names_of_rows_are_refused(tmp_path):
    n = MOST_CLASS_NAMES + 1
    with pytest.raises(DataError, match=r"y: has more than 65536 different words as labels"):
        bigsvm.write_store(tmp_path / "s", np.zeros((n, 1), np.float32), np.arange(n).astype(str))


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "names",
    [["ant", "bee"], ["bee", "ant", "cat"], ["ant", "ant", "bee"], [], ["a", 1, "c"], "abc"],
    ids=str,
)
def test_forged_names_are_refused(store, names):
    path = store.path / "zarr.json"
    content = json.loads(path.read_text())
    record = content["attributes"][KEY]
    record["class_names"] = names
    record["checksum"] = checksum(record)
    path.write_text(json.dumps(content))
    with pytest.raises(DataCorruptionError, match="attributes are not valid"):
        bigsvm.open_store(store.path)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("counts", ["kept", None])
def test_labels_without_a_name_are_refused(counts, tmp_path):
    """A store of numbers that is said to be one of words."""
    store = bigsvm.write_store(tmp_path / "s", X, PLACES - 0.5)
    path = store.path / "zarr.json"
    content = json.loads(path.read_text())
    record = content["attributes"][KEY]
    record |= {"class_names": ["ant", "bee", "cat"], "label_counts": None}
    if counts == "kept":
        record["label_counts"] = [[k, 40] for k in range(3)]
    record["checksum"] = checksum(record)
    path.write_text(json.dumps(content))
    with pytest.raises(DataCorruptionError, match="no place in its 3 class names"):
        bigsvm.open_store(store.path).labels(0, 40)


def test_folds_of_a_store_of_words(store):
    order = store.original_rows()
    ours = bigsvm.cross_validate(bigsvm.SVC(), store, cv=3)["test_score"]
    theirs = bigsvm.cross_validate(bigsvm.SVC(), X[order], Y[order], cv=3)["test_score"]
    np.testing.assert_allclose(ours, theirs)
    assert ours.mean() > 0.4


@pytest.mark.fault("model-forms")
def test_words_of_a_store_are_exported(store, tmp_path):
    fitted = bigsvm.SVC().fit(store)
    fitted.save(tmp_path / "m")
    expected = fitted.predict(X)
    loaded = bigsvm.load(tmp_path / "m")
    for model in (fitted, loaded, loaded.model_):
        np.testing.assert_array_equal(to_scikit_learn(model).predict(X), expected)
        with pytest.raises(ModelError, match=r"labels are whole numbers .* the label 'ant'"):
            write_libsvm_model(model, tmp_path / "theirs")


def test_parts_of_a_store_keep_words(store, tmp_path):
    parts = split_store(store, [tmp_path / "a", tmp_path / "b"])
    for part in parts:
        assert part.class_names == store.class_names
        counts = {word: (part.labels() == word).sum() for word in WORDS}
        assert counts == {word: 20 for word in WORDS}
