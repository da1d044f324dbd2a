"""SearchCV is scikit-learn's GridSearchCV, with fewer steps."""

import numpy as np
import pytest
from sklearn import svm as peers
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV

import bigsvm
from bigsvm.errors import BigsvmError, DataError
from bigsvm.selection import lines
from bigsvm.selection.grid import rounds_of

X, Y = make_classification(300, 6, flip_y=0.1, random_state=1)
X3, Y3 = make_blobs(150, centers=3, cluster_std=4.0, random_state=0)
GRID = {"C": [4.0, 0.25, 1.0], "gamma": ["scale", 0.1]}


def test_results_are_those_of_scikit_learn():
    found = bigsvm.SearchCV(
        bigsvm.SVC(tol=1e-5), GRID, cv=3, return_train_score=True
    ).fit(X, Y)  # fmt: skip
    expected = GridSearchCV(peers.SVC(tol=1e-5), GRID, cv=3, return_train_score=True).fit(X, Y)
    assert found.cv_results_.keys() == {*expected.cv_results_, "n_iter"}
    for name, values in expected.cv_results_.items():
        if "test" in name or "train" in name:
            np.testing.assert_allclose(found.cv_results_[name], values, atol=1e-9)
        elif name.startswith("param_"):
            assert found.cv_results_[name].tolist() == values.tolist()
    assert found.cv_results_["params"] == expected.cv_results_["params"]
    for name in ("best_params_", "best_index_", "n_splits_", "n_features_in_"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.best_score_ == pytest.approx(expected.best_score_)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    assert found.score(X, Y) == expected.score(X, Y)
    assert is_classifier(found)
    assert not hasattr(found, "predict_proba")


def test_warm_starts_take_fewer_steps_to_the_same_scores():
    grid = {"C": [1.0, 2.0, 4.0, 8.0], "gamma": [0.1]}
    search = bigsvm.SearchCV(bigsvm.SVC(tol=1e-5), grid, cv=3, refit=False)
    warm = search.fit(X, Y).cv_results_
    cold = clone(search).set_params(warm_starts=False).fit(X, Y).cv_results_
    np.testing.assert_array_equal(warm["mean_test_score"], cold["mean_test_score"])
    assert warm["n_iter"].sum() < cold["n_iter"].sum()


def test_many_classes_and_stores(tmp_path):
    store = bigsvm.write_store(tmp_path / "x.zarr", X3, Y3)
    found = bigsvm.SearchCV(bigsvm.SVC(), GRID, cv=3).fit(store)
    rows = store.rows.read(0, 150)
    expected = GridSearchCV(peers.SVC(), GRID, cv=3).fit(rows, store.labels())
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )
    assert found.score(store) == found.best_estimator_.score(store)


def test_halving_ends_with_all_rows():
    X, Y = make_classification(2000, 6, flip_y=0.1, random_state=1)
    grid = {"C": [0.01, 0.1, 1.0, 10.0], "gamma": [0.01, 0.1]}
    found = bigsvm.SearchCV(bigsvm.SVC(), grid, cv=3, halving=2).fit(X, Y)
    assert found.cv_results_["iter"].tolist() == [0] * 8 + [1] * 4 + [2] * 2
    assert found.cv_results_["n_resources"].tolist() == [500] * 8 + [1000] * 4 + [2000] * 2
    full = bigsvm.SearchCV(bigsvm.SVC(), grid, cv=3).fit(X, Y)
    assert found.best_score_ > full.best_score_ - full.cv_results_["std_test_score"].max()
    place = full.cv_results_["params"].index(found.best_params_)
    assert found.best_score_ == full.cv_results_["mean_test_score"][place]
    ranks = found.cv_results_["rank_test_score"]
    assert ranks[found.best_index_] == 1
    assert ranks[:8].min() > ranks[-2:].max()


@pytest.mark.parametrize(
    ("candidates", "rows", "factor", "expected"),
    [
        (25, 32561, 3, [(25, 3617), (9, 10853), (3, 32561)]),
        (25, 1000, 3, [(25, 1000)]),
        (2, 10**6, 3, [(2, 10**6)]),
        (8, 10**6, None, [(8, 10**6)]),
    ],
)
def test_rounds(candidates, rows, factor, expected):
    assert [tuple(step) for step in rounds_of(candidates, rows, factor)] == expected


@pytest.mark.parametrize("halving", [None, 2])
def test_killed_search_has_the_same_table(halving, tmp_path, monkeypatch):
    X, Y = make_classification(1200, 6, flip_y=0.1, random_state=1)
    search = bigsvm.SearchCV(bigsvm.SVC(), GRID, cv=3, halving=halving, refit=False)
    expected = search.fit(X, Y).cv_results_
    left = iter(())

    def some(train):
        def counted(*arguments, **options):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return train(*arguments, **options)

        return counted

    # Folds with a number for gamma are trained together.
    monkeypatch.setattr(bigsvm.SVC, "_fit_rows", some(bigsvm.SVC._fit_rows))
    monkeypatch.setattr(lines, "train_together", some(lines.train_together))
    search.set_params(checkpoint=tmp_path / "run")
    for _ in range(3):
        left = iter(range(3))
        with pytest.raises(KeyboardInterrupt):
            search.fit(X, Y)
    left = iter(range(100))
    found = search.fit(X, Y).cv_results_
    for name, values in expected.items():
        if "time" not in name and name != "params":
            np.testing.assert_array_equal(found[name], values)
    assert len(list((tmp_path / "run" / "fits").iterdir())) == len(found["params"]) * 3
    for folder in ("models", "runs"):
        assert not list((tmp_path / "run" / folder).iterdir())


def test_points_that_cannot_be_trained_have_no_score():
    labels = np.where(np.arange(300) < 30, 1, 0)
    search = bigsvm.SearchCV(bigsvm.NuSVC(), {"nu": [0.9, 0.1]}, cv=3)
    with pytest.warns(Warning, match=r"'nu': 0.9. cannot be trained"):
        search.fit(X, labels)
    assert search.best_params_ == {"nu": 0.1}
    assert np.isnan(search.cv_results_["mean_test_score"][0])
    with pytest.raises(BigsvmError, match="nu"):
        search.set_params(error_score="raise").fit(X, labels)


def test_rows_of_one_class_are_refused_before_any_point_is_tried():
    with pytest.raises(DataError, match=r"y has one class only \(0\.0\); two are needed"):
        bigsvm.SearchCV(bigsvm.SVC(), GRID).fit(X, np.zeros(300))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"param_grid": {"speed": [1]}}, "which is no parameter of SVC"),
        ({"param_grid": {"C": []}}, "the grid is"),
        ({"halving": 1}, "at least 2"),
        ({"scoring": ["accuracy", "f1"]}, "name the one that decides: accuracy, f1"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, message):
    search = bigsvm.SearchCV(bigsvm.SVC(), GRID).set_params(**changes)
    with pytest.raises(BigsvmError, match=message):
        search.fit(X, Y)


def test_unconverged_fits_are_told_of():
    search = bigsvm.SearchCV(
        bigsvm.SVC(gamma=0.1, max_time=1e-9), {"C": [1.0, 10.0]}, cv=2, refit=False
    )
    with pytest.warns(ConvergenceWarning, match="did not converge in 4 of 4 fits"):
        search.fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 of 2 fits"):
        bigsvm.cross_validate(bigsvm.SVC(gamma=0.1, max_time=1e-9), X, Y, cv=2)


def test_kernel_matrices_have_folds_but_no_samples():
    X, Y = make_classification(1100, 6, flip_y=0.1, random_state=1)
    K = rbf_kernel(X, gamma=0.1)
    search = bigsvm.SearchCV(bigsvm.SVC(kernel="precomputed"), {"C": [1.0, 4.0]}, cv=2, refit=False)
    found = search.fit(K, Y).cv_results_["mean_test_score"]
    rows = clone(search).set_params(estimator=bigsvm.SVC(gamma=0.1)).fit(X, Y)
    np.testing.assert_allclose(found, rows.cv_results_["mean_test_score"], atol=2e-3)
    with pytest.raises(BigsvmError, match="halving fits some of the rows"):
        search.set_params(halving=2, error_score="raise").fit(K, Y)
