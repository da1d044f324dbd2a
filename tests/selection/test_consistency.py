"""One-class models without labels: the most complex one that is consistent with nu."""

import numpy as np
import pytest
from sklearn import svm as peers
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm
from bigsvm.errors import BigsvmError
from tests.command_line import answer

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
GAMMAS = [0.01, 0.1, 1.0, 10.0, 100.0]


@pytest.mark.parametrize("nu", [0.05, 0.3])
def test_the_most_complex_consistent_model_is_found(nu, tmp_path):
    scores = []
    for gamma in GAMMAS:
        of_folds = []
        for train, test in KFold(3).split(X):
            model = peers.OneClassSVM(nu=nu, gamma=gamma, tol=1e-5).fit(X[train])
            outside = np.mean(model.predict(X[test]) == -1)
            error = np.sqrt(nu * (1 - nu) * (1 / len(test) + 1 / len(train)))
            bound = nu + 3 * error
            of_folds.append(np.nan if outside > bound else len(model.support_))
        scores.append(np.mean(of_folds))
    assert np.isfinite(scores[0])
    assert np.isnan(scores[-1])
    search = bigsvm.SearchCV(
        bigsvm.OneClassSVM(nu=nu, tol=1e-5), {"gamma": GAMMAS}, cv=3, checkpoint=tmp_path / "run"
    )
    for _ in range(2):  # the second time from the record
        found = search.fit(X)
        np.testing.assert_allclose(found.cv_results_["mean_test_score"], scores, atol=1)
        assert found.best_params_ == {"gamma": GAMMAS[int(np.nanargmax(scores))]}


def test_the_default_grid_keeps_nu():
    pipeline = make_pipeline(StandardScaler(), bigsvm.OneClassSVM(nu=0.1))
    found = bigsvm.SearchCV(pipeline, cv=3).fit(X * [1, 100])
    assert found.best_params_.keys() == {"oneclasssvm__gamma"}
    fresh = RNG.normal(size=(2000, 2)) * [1, 100]
    assert 0.05 < np.mean(found.predict(fresh) == -1) < 0.2


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (bigsvm.SVC(), {"scoring": "consistency"}, "c-svc has none"),
        (bigsvm.L2OneClassSVM(), {"scoring": ["consistency"], "refit": "consistency"}, "has none"),
        (bigsvm.L2OneClassSVM(), {}, "scoring is None"),
        (bigsvm.OneClassSVM(), {"param_grid": {"nu": [0.1, 0.2]}}, "nu is searched"),
        (bigsvm.OneClassSVM(), {"scoring": "accuracy"}, "y is None"),
        (bigsvm.OneClassSVM(), {"scoring": "consistensy"}, "did you mean consistency"),
        (bigsvm.OneClassSVM(), {"param_grid": {"gamma": [1e4]}}, "smaller values of gamma"),
    ],
)
def test_what_cannot_be_consistent_is_refused(estimator, options, message):
    y = None if isinstance(estimator, bigsvm.OneClassSVM) else X[:, 0] > 0
    with pytest.raises(BigsvmError, match=message):
        bigsvm.SearchCV(estimator, cv=2, **options).fit(X[:60], y)


def test_weighted_rows_are_not_counted():
    weights = np.linspace(0.5, 2, len(X))
    with pytest.raises(BigsvmError, match="consistency counts rows"):
        bigsvm.cross_validate(bigsvm.OneClassSVM(), X, sample_weight=weights)


def test_labels_decide_where_they_are_asked_for():
    far = np.concatenate([X, RNG.uniform(5, 9, size=(20, 2))])
    labels = np.where(np.arange(len(far)) < len(X), 1, -1)
    order = RNG.permutation(len(far))
    far, labels = far[order], labels[order]
    grid = {"nu": [0.05, 0.5], "gamma": [0.1]}
    search = bigsvm.SearchCV(bigsvm.OneClassSVM(), grid, cv=3, scoring="accuracy")
    assert search.fit(far, labels).best_params_["nu"] == 0.05
    both = bigsvm.cross_validate(
        bigsvm.OneClassSVM(nu=0.2), far, labels, cv=3, scoring=["accuracy", "consistency"]
    )
    assert 0.7 < both["mean_test_accuracy"] < 0.95
    assert both["mean_test_consistency"] > 0.2 * 200


def test_commands_judge_rows_without_two_labels_by_consistency(tmp_path):
    bigsvm.write_store(tmp_path / "x.zarr", X, np.ones(len(X)))
    words = ("--formulation", "one-class", "--nu", "0.1", "--folds", "3")
    found = answer("search", tmp_path / "x.zarr", *words, "--grid", "gamma=0.1,1,100")
    assert found["score"] == "consistency"
    assert found["best_params"]["gamma"] in (0.1, 1)
    assert found["best_score"] >= 0.1 * 200
