"""Searches of pipelines: each fold fits the scalers on the rows that it trains on, in blocks."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from sklearn import svm as peers
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import bigsvm
from bigsvm.errors import BigsvmError, DataError
from bigsvm.selection import steps as steps_module

X, Y = make_classification(120, 5, flip_y=0.1, random_state=1)
X = X * [1, 10, 100, 1, 5] + 3
X[:, 3] = 7  # of no use, and constant
GRID = {"svc__C": [0.5, 4.0]}
STANDARD = make_pipeline(StandardScaler(), bigsvm.SVC(tol=1e-5))


def search_of(pipeline=STANDARD, grid=GRID, **options):
    return bigsvm.SearchCV(clone(pipeline), grid, cv=3, **options)


def assert_same_scores(found, expected):
    assert found["params"] == expected["params"]
    for name, values in expected.items():
        if "test" in name or "train" in name:
            np.testing.assert_allclose(found[name], values, atol=1e-9)


@pytest.mark.parametrize(
    "scalers",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [MinMaxScaler((-1, 3))],
        [MaxAbsScaler(), "passthrough", StandardScaler()],
        [],
    ],
    ids=str,
)
def test_results_are_those_of_scikit_learn(scalers):
    ours, theirs = (make_pipeline(*scalers, svm.SVC(tol=1e-5)) for svm in (bigsvm, peers))
    found = search_of(ours, return_train_score=True).fit(X, Y)
    expected = GridSearchCV(theirs, GRID, cv=3, return_train_score=True).fit(X, Y)
    assert_same_scores(found.cv_results_, expected.cv_results_)
    assert found.best_params_ == expected.best_params_
    assert isinstance(found.best_estimator_, Pipeline)
    for predicting in (found, found.best_estimator_):
        np.testing.assert_array_equal(predicting.predict(X), expected.predict(X))
        np.testing.assert_allclose(
            predicting.decision_function(X), expected.decision_function(X), atol=1e-3
        )
    assert found.score(X, Y) == expected.score(X, Y)
    assert found.n_features_in_ == found.best_estimator_.n_features_in_ == 5


def test_scalers_are_searched_too():
    grid = [
        {"standardscaler__with_mean": [True, False], "svc__C": [1.0]},
        {"standardscaler": [MinMaxScaler(), "passthrough"], "svc__C": [1.0, 2.0]},
    ]
    found = search_of(grid=grid).fit(X, Y)
    theirs = make_pipeline(StandardScaler(), peers.SVC(tol=1e-5))
    expected = GridSearchCV(theirs, grid, cv=3).fit(X, Y).cv_results_
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected["mean_test_score"], atol=1e-9
    )
    np.testing.assert_array_equal(found.predict(X), found.best_estimator_.predict(X))


@pytest.mark.parametrize("kind", ["store", "shuffled store", "zarr", "dask", "frame"])
def test_containers_have_the_same_scores_in_blocks(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(steps_module, "BLOCK_BYTES", 2 * 30 * 5 * 8)
    labels, rows = np.array(["no", "yes"])[Y], X
    if "store" in kind:
        labels = Y
        given = bigsvm.write_store(tmp_path / "x", X, Y, shuffle="shuffled" in kind)
        rows = given.rows.read(0, len(X))
        truth, y = given.labels(), None
    else:
        truth = y = labels
        if kind == "frame":
            given = pd.DataFrame(X, columns=list("abcde"))
        elif kind == "dask":
            given = da.from_array(X, chunks=(30, 5))
        else:
            given = zarr.array(X, chunks=(30, 5), store=str(tmp_path / "x.zarr"))
    sizes = []

    class Watched(StandardScaler):
        def partial_fit(self, X, y=None, sample_weight=None):
            sizes.append(len(X))
            return super().partial_fit(X, y, sample_weight)

    monkeypatch.setitem(steps_module.METHODS, Watched, "standard")
    pipeline = Pipeline([("scale", Watched()), ("svc", bigsvm.SVC(tol=1e-5))])
    found = search_of(pipeline).fit(given, y)
    expected = search_of().fit(rows, truth)
    assert_same_scores(found.cv_results_, expected.cv_results_)
    if kind in ("dask", "frame"):  # others read whole chunks
        assert max(sizes) <= 30
    np.testing.assert_array_equal(np.asarray(found.predict(given)), expected.predict(rows))
    assert found.score(given, y) == expected.score(rows, truth)
    if kind == "frame":
        np.testing.assert_array_equal(found.best_estimator_.predict(given), found.predict(given))


def test_sparse_rows_are_scaled_by_what_keeps_zeros():
    rows = sp.random_array((200, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    labels = np.where(rows[:, :5].sum(axis=1) > 0.5, 1, 0)
    ours, theirs = (make_pipeline(MaxAbsScaler(), svm.SVC(tol=1e-5)) for svm in (bigsvm, peers))
    found, expected = search_of(ours).fit(rows, labels), GridSearchCV(theirs, GRID, cv=3)
    assert_same_scores(found.cv_results_, expected.fit(rows, labels).cv_results_)
    with pytest.raises(BigsvmError, match="with_mean=False"):
        search_of(error_score="raise").fit(rows, labels)


def test_rows_of_weight_0_are_not_scaled_by():
    weights = np.where(np.arange(len(X)) % 4 == 0, 0.0, 1.0)
    far = np.where(weights[:, None] > 0, X, 1e6)
    kept = weights > 0
    found = search_of(grid={"svc__gamma": [0.1]}).fit(far, Y, weights)
    expected = search_of(grid={"svc__gamma": [0.1]}).fit(X[kept], Y[kept])
    assert_same_scores(found.cv_results_, expected.cv_results_)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_the_default_grid_has_the_names_of_the_pipeline():
    found = search_of(grid=None, refit=False).set_params(cv=2).fit(X[:40], Y[:40])
    assert found.best_params_.keys() == {"svc__C", "svc__gamma"}


def test_a_killed_search_goes_on_with_the_same_scalers(tmp_path, monkeypatch):
    rows, labels = make_classification(1100, 5, flip_y=0.1, random_state=1)
    search = search_of(halving=2, refit=False).set_params(cv=2)
    expected = search.fit(rows, labels).cv_results_
    fit, left = bigsvm.SVC._fit_rows, iter(range(5))

    def some(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return fit(*arguments)

    monkeypatch.setattr(bigsvm.SVC, "_fit_rows", some)
    search.set_params(checkpoint=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        search.fit(rows, labels)
    left = iter(range(100))
    assert_same_scores(search.fit(rows, labels).cv_results_, expected)
    other = search.set_params(estimator__standardscaler__with_mean=False)
    with pytest.raises(BigsvmError, match="scalers"):
        other.fit(rows, labels)


def test_folds_of_a_pipeline_have_pipelines():
    found = bigsvm.cross_validate(STANDARD, X, Y, cv=3, return_estimator=True)
    folds = StratifiedKFold(3).split(X, Y)
    for estimator, score, (train, test) in zip(
        found["estimator"], found["test_score"], folds, strict=True
    ):
        np.testing.assert_allclose(estimator[0].mean_, X[train].mean(axis=0))
        assert estimator.score(X[test], Y[test]) == score


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (make_pipeline(PCA(2), bigsvm.SVC()), "pca is a PCA"),
        (make_pipeline(MinMaxScaler(clip=True), bigsvm.SVC()), "clip=True"),
        (make_pipeline(StandardScaler(), bigsvm.SVC(kernel="precomputed")), "no scale"),
        (make_pipeline(StandardScaler(), RandomForestClassifier()), "RandomForestClassifier"),
        (make_pipeline(StandardScaler(), bigsvm.SVC(checkpoint="x")), "only one fit can use"),
    ],
    ids=["pca", "clip", "matrix", "forest", "checkpoint"],
)
def test_pipelines_that_cannot_be_fitted_in_blocks_are_refused(pipeline, message):
    with pytest.raises(BigsvmError, match=message):
        bigsvm.SearchCV(pipeline, {}).fit(X, Y)


@pytest.mark.parametrize("grid", [{"C": [1]}, {"svc": [1]}, {"svc__memory": [1]}])
def test_names_that_no_step_has_are_refused(grid):
    with pytest.raises(BigsvmError, match="no parameter"):
        search_of(grid=grid).fit(X, Y)


def test_a_step_that_is_no_scaler_is_refused():
    with pytest.raises(BigsvmError, match="standardscaler is a PCA"):
        search_of(grid={"standardscaler": [PCA()]}).fit(X, Y)


def test_rows_of_a_scaled_store_are_not_scaled_twice(tmp_path):
    store = bigsvm.write_store(tmp_path / "x", X, Y)
    scaled = bigsvm.scale_store(store, tmp_path / "y", method="minmax")
    with pytest.raises(DataError, match="once more"):
        search_of().fit(scaled)
