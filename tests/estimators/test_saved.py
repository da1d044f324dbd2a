"""Estimators that are saved and loaded, also from models of LIBSVM and of the command line."""

import dataclasses

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError

import bigsvm
from bigsvm.errors import DataError, ModelError
from bigsvm.interchange import to_scikit_learn, write_libsvm_model
from bigsvm.models import KernelExpansion

N_ROWS, N_COLUMNS = 160, 4
WORDS = np.array(["ant", "bee", "cat"])
ESTIMATORS = {
    "two classes": (bigsvm.SVC(C=3, gamma=0.05, tol=1e-4), 2),
    "squared hinge": (bigsvm.SVC(loss="squared_hinge", kernel="poly", degree=2, coef0=1), 2),
    "calibrated": (bigsvm.SVC(gamma=0.05, calibration="isotonic"), 2),
    "weighted": (bigsvm.NuSVC(nu=0.5, kernel="linear", class_weight={10: 2, 11: 1}), 2),
    "pairs": (bigsvm.SVC(gamma=0.05, decision_function_shape="ovo", class_weight="balanced"), 3),
    "ties": (bigsvm.SVC(gamma=0.05, break_ties=True), 3),
    "graph": (bigsvm.L2SVC(gamma=0.05, multiclass="ddag"), 3),
    "each against the rest": (bigsvm.SVC(gamma=0.05, multiclass="ovr"), 3),
    "crammer-singer": (bigsvm.CrammerSingerSVC(gamma=0.05, warm_start=True), 3),
    "SVR": (bigsvm.SVR(C=2, epsilon=0.3, gamma="auto"), 0),
    "NuSVR": (bigsvm.NuSVR(C=2, nu=0.3, random_state=5), 0),
    "OneClassSVM": (bigsvm.OneClassSVM(nu=0.2), 1),
    "L2OneClassSVM": (bigsvm.L2OneClassSVM(C=4), 1),
}
SOURCES = ("array", "sparse", "store", "scaled store")
HISTORIES = {"history_", "working_set_history_"}
METHODS = ("predict", "decision_function", "predict_proba", "score_samples")


def data(k):
    """Rows of `k` classes, or targets where there are none."""
    X, y = make_blobs(220, centers=max(k, 2), n_features=N_COLUMNS, cluster_std=3, random_state=0)
    X[np.abs(X) < 1] = 0
    y = X[:, 0] - 2 * X[:, 1] if k == 0 else y + 10
    return X[:N_ROWS], y[:N_ROWS], X[N_ROWS:], y[N_ROWS:]


def fitted(name, source, folder):
    estimator, k = ESTIMATORS[name]
    X, y, rows, _ = data(k)
    estimator = clone(estimator)
    if source == "array":
        return estimator.fit(X, y), rows
    if source == "sparse":
        return estimator.fit(sp.csr_array(X), y), sp.csr_array(rows)
    store = bigsvm.write_store(folder / "s", X, y)
    if source == "scaled store":
        store = bigsvm.scale_store(store, folder / "t")
    return estimator.fit(store), rows


def assert_predicts_the_same(loaded, estimator, rows):
    for method in METHODS:
        if hasattr(estimator, method):
            values = getattr(loaded, method)(rows)
            expected = getattr(estimator, method)(rows)
            np.testing.assert_array_equal(values, expected)
            assert values.dtype == expected.dtype


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize(
    ("name", "source"),
    [(name, SOURCES[i % len(SOURCES)]) for i, name in enumerate(ESTIMATORS)]
    + [("two classes", source) for source in SOURCES[1:]],
)
def test_a_loaded_estimator_is_the_one_that_was_saved(name, source, tmp_path):
    estimator, rows = fitted(name, source, tmp_path)
    estimator.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert type(loaded) is type(estimator)
    expected = estimator.get_params()
    if expected.get("class_weight") is not None:
        sizes = np.bincount(data(ESTIMATORS[name][1])[1] - 10)
        of_classes = N_ROWS / (len(sizes) * sizes)
        given = expected["class_weight"]
        weights = of_classes if given == "balanced" else list(given.values())
        expected["class_weight"] = dict(zip(estimator.classes_.tolist(), weights, strict=True))
    if expected["random_state"] is None:
        expected["random_state"] = 0
    assert loaded.get_params() == expected
    assert_predicts_the_same(loaded, estimator, rows)
    fitted_names = {name for name in vars(estimator) if name.endswith("_")} - HISTORIES
    assert {name for name in vars(loaded) if name.endswith("_")} == fitted_names
    assert loaded.n_features_in_ == N_COLUMNS
    assert loaded.converged_


def test_a_loaded_estimator_can_be_fitted_again(tmp_path):
    X, y, _, _ = data(3)
    estimator = bigsvm.SVC(C=3, multiclass="ovr").fit(X, y)
    estimator.save(tmp_path / "m")
    again = clone(bigsvm.load(tmp_path / "m")).fit(X, y)
    np.testing.assert_array_equal(again.dual_coef_, estimator.dual_coef_)


def test_folders_and_threads_of_the_training_are_not_kept(tmp_path):
    X, y, _, _ = data(2)
    estimator = bigsvm.SVC(n_jobs=1, checkpoint=tmp_path / "run", cache_dir=tmp_path).fit(X, y)
    estimator.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert (loaded.n_jobs, loaded.checkpoint, loaded.cache_dir) == (None, None, None)


def test_models_without_an_estimator_are_loaded(tmp_path):
    X, y, rows, labels = data(3)
    estimator = bigsvm.SVC(gamma=0.05, break_ties=True).fit(X, y)
    estimator.model_.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert loaded.break_ties
    assert loaded.score(rows, labels) == estimator.score(rows, labels)


@pytest.mark.fault("model-forms")
def test_a_loaded_estimator_checks_names_as_scikit_learn_does(tmp_path):
    X, y, rows, _ = data(2)
    frame, other = (pd.DataFrame(given, columns=list("abcd")) for given in (X, rows))
    in_memory = bigsvm.SVC().fit(frame, y)
    bigsvm.write_store(tmp_path / "s", frame, y)
    for estimator in (in_memory, bigsvm.SVC().fit(tmp_path / "s")):
        estimator.save(tmp_path / "m")
        loaded = bigsvm.load(tmp_path / "m")
        assert loaded.feature_names_in_.tolist() == list("abcd")
        np.testing.assert_array_equal(loaded.predict(other), estimator.predict(other))
        for swapped in (list("badc"), list("abcx")):
            renamed = pd.DataFrame(rows, columns=swapped)
            with pytest.raises(ValueError, match="feature names should match") as ours:
                loaded.predict(renamed)
            with pytest.raises(ValueError, match="feature names should match") as theirs:
                to_scikit_learn(in_memory).predict(renamed)
            assert str(ours.value) == str(theirs.value)


def test_words_are_classes_of_loaded_estimators(tmp_path):
    X, y, rows, labels = data(3)
    estimator = bigsvm.SVC().fit(X, WORDS[y - 10])
    estimator.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert loaded.classes_.tolist() == WORDS.tolist()
    assert loaded.score(rows, WORDS[labels - 10]) == estimator.score(rows, WORDS[labels - 10])


def test_a_kernel_of_ones_own_is_loaded(tmp_path):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Halved(bigsvm.Kernel):
        name = "halved"
        factor: float = 0.5

        def from_products(self, dots, norms_rows, norms_columns):
            return self.factor * dots

    X, y, rows, _ = data(2)
    estimator = bigsvm.SVC(kernel=Halved(factor=0.25)).fit(X, y)
    estimator.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert loaded.kernel == Halved(factor=0.25)
    np.testing.assert_array_equal(loaded.predict(rows), estimator.predict(rows))


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize("name", ["two classes", "pairs", "SVR", "NuSVR", "OneClassSVM"])
def test_models_of_libsvm_are_loaded(name, tmp_path):
    estimator, rows = fitted(name, "array", tmp_path)
    write_libsvm_model(estimator, tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m", n_features=N_COLUMNS)
    assert type(loaded) is type(estimator)
    assert (loaded.kernel, loaded.gamma) == ("rbf", estimator.model_.kernel.gamma)
    assert (loaded.converged_, loaded.n_features_in_) == (None, N_COLUMNS)
    np.testing.assert_allclose(loaded.predict(rows), estimator.predict(rows), rtol=1e-5)


def test_probabilities_of_libsvm_are_loaded(tmp_path):
    X, y, rows, _ = data(2)
    estimator = bigsvm.SVC(gamma=0.05, calibration="sigmoid").fit(X, y)
    write_libsvm_model(estimator, tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert loaded.calibration == "sigmoid"
    np.testing.assert_allclose(loaded.predict_proba(rows), estimator.predict_proba(rows))


def test_a_model_of_libsvm_does_not_tell_its_columns(tmp_path):
    X, y, rows, _ = data(2)
    estimator = bigsvm.SVC(gamma=0.05).fit(X, y)
    write_libsvm_model(estimator, tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    assert not hasattr(loaded, "n_features_in_")
    np.testing.assert_array_equal(loaded.predict(rows), estimator.predict(rows))
    wide = np.hstack([rows, np.zeros((len(rows), 2))])
    store = bigsvm.write_store(tmp_path / "s", wide, np.zeros(len(wide)), shuffle=False)
    for given in (wide, sp.csr_array(wide), store, store.rows, da.from_array(wide)):
        np.testing.assert_array_equal(loaded.predict(given), estimator.predict(rows))
    with pytest.raises(DataError, match="the rows have 3 columns"):
        loaded.predict(rows[:, :3])
    with pytest.raises(DataError, match=r"uses the first 4; read it with n_features=6"):
        loaded.model_.decision_function(wide)
    known = bigsvm.load(tmp_path / "m", n_features=6)
    np.testing.assert_array_equal(known.predict(wide), estimator.predict(rows))
    for given in (rows, bigsvm.write_store(tmp_path / "t", rows, np.zeros(len(rows)))):
        with pytest.raises(ValueError, match=r"6|columns"):
            known.predict(given)


def test_arguments_for_libsvm_are_refused_beside_other_models(tmp_path):
    X, y, _, _ = data(2)
    bigsvm.SVC().fit(X, y).save(tmp_path / "m")
    for name, value in (("n_features", 4), ("range_file", tmp_path / "r")):
        with pytest.raises(ModelError, match=f"is a model of bigsvm, .*leave {name} out"):
            bigsvm.load(tmp_path / "m", **{name: value})


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "text").write_text("1 1:2\n")
    with pytest.raises(ModelError, match="is no model, neither of"):
        bigsvm.load(tmp_path / "text")
    with pytest.raises(ModelError, match="cannot read the model"):
        bigsvm.load(tmp_path / "absent")
    with pytest.raises(NotFittedError):
        bigsvm.SVC().save(tmp_path / "m")


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "forged",
    [
        {"parameters": {"C": "much"}},
        {"parameters": {"multiclass": "all"}},
        {"parameters": {"class_weight": [1.0, 2.0, 3.0]}},
        {"estimator": {"decision_function_shape": "both"}},
        {"estimator": {"break_ties": "yes"}},
    ],
    ids=str,
)
def test_parameters_that_no_training_has_are_refused(forged, tmp_path):
    X, y, _, _ = data(2)
    model = bigsvm.SVC().fit(X, y).model_
    provenance = {name: {**model.provenance.get(name, {}), **forged[name]} for name in forged}
    forged = dataclasses.replace(model, provenance={**model.provenance, **provenance})
    forged.save(tmp_path / "m")
    KernelExpansion.load(tmp_path / "m")
    with pytest.raises(ModelError, match="has parameters that no training has"):
        bigsvm.load(tmp_path / "m")


def test_estimators_are_saved_to_and_loaded_from_urls(tmp_path):
    pytest.importorskip("fsspec")
    X, y, rows, _ = data(2)
    estimator = bigsvm.SVC().fit(X, y)
    estimator.save("memory://models/saved")
    np.testing.assert_array_equal(
        bigsvm.load("memory://models/saved").predict(rows), estimator.predict(rows)
    )
    with pytest.raises(ModelError, match="memory://models/saved is a URL, and n_features"):
        bigsvm.load("memory://models/saved", n_features=4)


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("k", [2, 3])
def test_sparse_rows_of_any_index_type_are_predicted(index, k, tmp_path):
    X, y, rows, _ = data(k)
    X, rows = sp.csr_array(X), sp.csr_array(rows)
    for matrix in (X, rows):
        matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    estimator = bigsvm.SVC(gamma=0.05).fit(X, y)
    estimator.save(tmp_path / "m")
    loaded = bigsvm.load(tmp_path / "m")
    expected = estimator.predict(rows)
    for exported in (loaded, to_scikit_learn(loaded), to_scikit_learn(loaded.model_)):
        given = rows if exported is loaded else sp.csr_array(rows.toarray())
        np.testing.assert_array_equal(exported.predict(given), expected)


def test_a_model_of_a_kernel_matrix_is_loaded(tmp_path):
    X, y, rows, _ = data(2)
    estimator = bigsvm.SVC(kernel="precomputed").fit(X @ X.T, y)
    estimator.save(tmp_path / "ours")
    write_libsvm_model(estimator, tmp_path / "theirs")
    for loaded in (
        bigsvm.load(tmp_path / "ours"),
        bigsvm.load(tmp_path / "theirs", n_features=N_ROWS),
    ):
        assert loaded.kernel == "precomputed"
        np.testing.assert_array_equal(loaded.predict(rows @ X.T), estimator.predict(rows @ X.T))
