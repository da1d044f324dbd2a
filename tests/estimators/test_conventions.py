"""What people do with scikit-learn's estimators, done with each of ours."""

import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.errors import DataError, ParameterError

# An estimator, and a parameter of it to search: the first value is the worse one.
KINDS = {
    "hinge": (bigsvm.SVC(gamma=1.0), {"C": [1e-3, 10.0]}),
    "squared hinge": (bigsvm.SVC(gamma=1.0, loss="squared_hinge"), {"C": [1e-3, 10.0]}),
    "nu-svc": (bigsvm.NuSVC(gamma=1.0), {"nu": [0.95, 0.2]}),
    "crammer-singer": (bigsvm.CrammerSingerSVC(gamma=1.0), {"C": [1e-3, 10.0]}),
    "l2-svc": (bigsvm.L2SVC(gamma=1.0), {"C": [1e-3, 10.0]}),
    "one-class": (bigsvm.OneClassSVM(gamma=1.0), {"nu": [0.9, 0.1]}),
    "l2-one-class": (bigsvm.L2OneClassSVM(gamma=1.0), {"C": [1e-3, 1e3]}),
    "eps-svr": (bigsvm.SVR(gamma=1.0), {"C": [1e-3, 10.0]}),
    "nu-svr": (bigsvm.NuSVR(gamma=1.0), {"C": [1e-3, 10.0]}),
}
ONE_CLASS = ("one-class", "l2-one-class")
MOONS, LABELS = make_moons(150, noise=0.2, random_state=0)
TARGETS = np.sin(2 * MOONS[:, 0]) + MOONS[:, 1]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def estimator(kind):
    return clone(KINDS[kind][0])


@pytest.fixture
def target(kind):
    ones = dict.fromkeys(ONE_CLASS, np.ones(len(MOONS)))
    return {**ones, "eps-svr": TARGETS, "nu-svr": TARGETS}.get(kind, LABELS)


def values_of(estimator, X):
    """What it says of each row, without the rounding of labels."""
    found = getattr(estimator, "decision_function", estimator.predict)(X)
    return np.asarray(found)


def share_inside(estimator, X, y=None):
    return float((estimator.predict(X) == 1).mean())


def scoring_of(kind):
    return share_inside if kind in ONE_CLASS else None


def test_a_pipeline_is_its_steps(estimator, target):
    pipeline = make_pipeline(StandardScaler(), estimator).fit(MOONS * [1, 100], target)
    scaled = StandardScaler().fit_transform(MOONS * [1, 100])
    alone = clone(estimator).fit(scaled, target)
    np.testing.assert_array_equal(values_of(pipeline, MOONS * [1, 100]), values_of(alone, scaled))


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of the worse value
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_search_finds_the_better_value(kind, estimator, target, form):
    [(name, values)] = KINDS[kind][1].items()
    search = GridSearchCV(
        make_pipeline(StandardScaler(with_mean=False), estimator),
        {f"{type(estimator).__name__.lower()}__{name}": values},
        cv=3,
        scoring=scoring_of(kind),
        error_score="raise",
    ).fit(form(MOONS), target)
    [best] = search.best_params_.values()
    assert best == values[1]
    assert search.best_score_ > 0.8
    assert getattr(search.best_estimator_[-1], name) == best


def test_scores_are_cross_validated(kind, estimator, target):
    scores = cross_val_score(estimator, MOONS, target, cv=3, scoring=scoring_of(kind))
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_a_clone_has_the_parameters_and_nothing_learnt(kind, estimator, target):
    fitted = estimator.set_params(max_iter=10**6, **{n: v[1] for n, v in KINDS[kind][1].items()})
    fitted.fit(MOONS, target)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    np.testing.assert_array_equal(
        values_of(copy.fit(MOONS, target), MOONS), values_of(fitted, MOONS)
    )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_a_pickled_estimator_says_the_same(estimator, target, form):
    fitted = estimator.fit(form(MOONS), target)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(values_of(again, form(MOONS)), values_of(fitted, form(MOONS)))
    assert again.get_params() == fitted.get_params()
    assert again.certificate_ == fitted.certificate_
    assert again.model_.provenance == fitted.model_.provenance


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_estimator_fitted_on_a_store_is_pickled_without_the_store(
    estimator, target, layout, tmp_path
):
    path = tmp_path / "rows.zarr"
    bigsvm.write_store(path, MOONS, target, layout=layout, dtype="float64")
    fitted = estimator.fit(path)
    expected = values_of(fitted, path)
    pickled = pickle.dumps(fitted)
    path.rename(tmp_path / "elsewhere.zarr")
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(values_of(again, tmp_path / "elsewhere.zarr"), expected)
    rows = bigsvm.open_store(tmp_path / "elsewhere.zarr").rows.read(0, len(MOONS))
    np.testing.assert_allclose(values_of(again, rows), expected, atol=1e-12)


def test_scikit_learn_knows_the_kind_of_each_estimator(kind, estimator):
    kinds = [check(estimator) for check in (is_classifier, is_regressor, is_outlier_detector)]
    expected = {**dict.fromkeys(ONE_CLASS, 2), "eps-svr": 1, "nu-svr": 1}.get(kind, 0)
    assert [index for index, is_one in enumerate(kinds) if is_one] == [expected]


FAR = 1_600_000_000
"""Neighbouring float32 are 128 apart there."""


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, da.from_array])
def test_integers_beyond_float32_are_not_rounded(estimator, target, form):
    """Nor are those that are predicted for."""
    near = np.round(MOONS * 50)
    far = near.astype(np.int64) + FAR
    expected = clone(estimator.set_params(gamma=1e-3)).fit(near, target)
    found = estimator.fit(form(far), target)
    np.testing.assert_allclose(values_of(found, form(far)), values_of(expected, near), atol=1e-2)


def test_whole_numbers_of_sparse_rows_are_float64(estimator, target):
    X = sp.csr_array(np.round(MOONS * 50).astype(np.int64))
    estimator.set_params(gamma="scale")
    assert estimator.fit(X, target).support_vectors_.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32])
def test_small_integer_types_become_float32(estimator, target, dtype):
    estimator.set_params(gamma="scale")
    fitted = estimator.fit((MOONS * 50 + 100).astype(dtype), target)
    assert fitted.support_vectors_.dtype == np.float32


def test_weights_that_are_no_numbers_are_refused_beside_a_dask_array(estimator, target):
    X = da.from_array(MOONS, chunks=50)
    with pytest.raises(DataError, match="sample_weight must be numbers"):
        estimator.fit(X, target, sample_weight=["heavy"] * len(MOONS))


def test_an_empty_name_is_no_checkpoint(estimator, target):
    """It would be the folder one is in."""
    with pytest.raises(ParameterError, match="checkpoint is ''; it must be a path or None"):
        estimator.set_params(checkpoint="").fit(MOONS, target)
