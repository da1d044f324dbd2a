"""Labels that no model can name, beside rows whose labels nobody but bigsvm looks at."""

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.base import clone

import bigsvm
from bigsvm.errors import DataError

CLASSIFIERS = {
    "pairs": bigsvm.SVC(),
    "each against the rest": bigsvm.SVC(multiclass="ovr"),
    "balls": bigsvm.L2SVC(),
    "held out": bigsvm.SVC(calibration="sigmoid"),
    "crammer-singer": bigsvm.CrammerSingerSVC(),
}
DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
NAMES = {
    "bytes": (np.array([b"a", b"b", b"c"]), "label b'a' is a bytes"),
    "days": (DAYS, r"label datetime.date\(2020, 1, 1\) is a date"),
    "longdouble": (np.array([1, 2, 3], np.longdouble), "is a longdouble"),
    "both ends": (np.array([2**63 + 1, -3, 5], object), "no type of number in common"),
    "rounded": (np.array([1.5, 2**53 + 1, 5], object), "no type of number in common"),
    "an object that is nan": (np.array([0.5, np.nan, 5.0], object), "no type of number in common"),
    "nan": (np.array([0.0, np.nan, 5.0]), "y of row 1 is nan, which is no class"),
    "infinite": (np.array([0.0, np.inf, 5.0]), "y of row 1 is inf, which is no class"),
    "mixed": (np.array(["a", 1, "b"], object), "have no order"),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("k", [2, 3])
def test_ambiguous_labels_are_refused_before_training(kind, names, k):
    labels, words = NAMES[names]
    X = da.from_array(np.eye(6), chunks=3)
    if kind == "held out" and k == 3:
        words = f"{words}|Only binary classification"
    with pytest.raises(DataError, match=words):
        clone(CLASSIFIERS[kind]).fit(X, labels[np.arange(6) % k])


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("other", [1, None, 2.5])
def test_labels_without_an_order_are_refused(kind, other):
    with pytest.raises(DataError, match="have no order"):
        clone(CLASSIFIERS[kind]).fit(np.eye(6), np.array(["a", other] * 3, object))


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize(
    "names",
    [
        np.array([True, False]),
        np.array([-0.0, 1.0]),
        np.array([2**64 - 1, 3], np.uint64),
        np.array([-(2**63), 2**63 - 1]),
        np.array(["", "é"]),
        np.array([2**53 + 1, 5], object),
        np.array([2**70, 5], object),
    ],
    ids=str,
)
def test_labels_are_saved_with_their_types(kind, names, tmp_path):
    X = np.repeat(np.eye(2), 20, axis=0)
    estimator = clone(CLASSIFIERS[kind]).fit(da.from_array(X, chunks=10), np.repeat(names, 20))
    assert estimator.predict(np.eye(2)).tolist() == names.tolist()
    estimator.model_.save(tmp_path / "m")
    assert bigsvm.KernelExpansion.load(tmp_path / "m").classes == sorted(names.tolist())


SOURCES = ("arrays", "store", "dask", "zarr")


def fit_from(source, estimator, X, y, folder):
    """Fit an estimator on rows and labels that lie in memory, in a store, or elsewhere."""
    if source == "arrays":
        return estimator.fit(X, y)
    if source == "store":
        return estimator.fit(bigsvm.write_store(folder / "store", X, y))
    if source == "dask":
        return estimator.fit(da.from_array(X, chunks=8), da.from_array(y, chunks=8))
    rows = zarr.create_array(folder / "X", data=X)
    return estimator.fit(rows, zarr.create_array(folder / "y", data=y))


@pytest.mark.fault("labels")
@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n_values", [2, 30])
def test_targets_of_a_regression_are_refused(kind, source, n_values, tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.arange(30) % n_values + 0.25
    with pytest.raises(DataError, match=r"0\.25 is a target .*SVR \(--formulation eps-svr\)"):
        fit_from(source, clone(CLASSIFIERS[kind]), X, y, tmp_path)


@pytest.mark.fault("labels")
@pytest.mark.parametrize("kind", ["pairs", "each against the rest", "balls", "crammer-singer"])
@pytest.mark.parametrize("source", SOURCES)
def test_many_distinct_labels_warn_once(kind, source, tmp_path):
    X = np.random.default_rng(0).normal(size=(24, 2))
    y = np.arange(24) % 13  # 13 classes of 24 rows, one more than half as many
    with pytest.warns(UserWarning, match="13 classes in 24 rows; .* SVR") as warned:
        fit_from(source, clone(CLASSIFIERS[kind]), X, y, tmp_path)
    assert len(warned) == 1


@pytest.mark.parametrize("source", SOURCES)
def test_float_labels_that_are_integers_are_classes(source, tmp_path):
    X = np.random.default_rng(0).normal(size=(24, 2))
    y = (np.arange(24) % 12).astype(np.float64)  # 12 classes, half of the rows
    fitted = fit_from(source, bigsvm.SVC(), X, y, tmp_path)
    assert fitted.classes_.tolist() == list(range(12))
