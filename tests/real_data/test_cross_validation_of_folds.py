"""On real data the folds predict what scikit-learn's predict."""

import numpy as np
import pytest
from sklearn import svm as peers
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import StratifiedKFold, cross_validate

import bigsvm

CLEAR = 0.01
"""Values beyond this have the same sign in both."""


class Kept:
    """A scorer that keeps predictions and values, fold by fold."""

    def __init__(self):
        self.folds = []

    def __call__(self, estimator, X, y):
        values = np.asarray(estimator.decision_function(X))
        self.folds.append((np.asarray(estimator.predict(X)), values))
        return float((self.folds[-1][0] == y).mean())


@pytest.mark.parametrize(
    "name",
    ["heart_scale", pytest.param("a1a", marks=pytest.mark.slow), "satimage.scale"],
)
def test_labels_are_those_of_scikit_learn(name, real, tmp_path):
    X, y = load_svmlight_file(real(name))
    store = bigsvm.write_store(tmp_path / "x.zarr", X, y, shuffle=False, dtype="float64")
    options = {"C": 2.0, "class_weight": "balanced", "decision_function_shape": "ovo"}
    ours, theirs = Kept(), Kept()
    cv = StratifiedKFold(3)
    found = bigsvm.cross_validate(bigsvm.SVC(**options), store, cv=cv, scoring=ours)
    cross_validate(peers.SVC(**options), X, y, cv=cv, scoring=theirs)
    n_clear = 0
    for (mine, values), (other, _) in zip(ours.folds, theirs.folds, strict=True):
        clear = np.abs(values).reshape(len(values), -1).min(axis=1) > CLEAR
        np.testing.assert_array_equal(mine[clear], other[clear])
        n_clear += clear.sum()
    assert n_clear > 0.9 * len(y)
    assert all(certificate["converged"] for certificate in found["certificate"])


@pytest.mark.slow
def test_r2_is_that_of_scikit_learn(real):
    X, y = load_svmlight_file(real("abalone_scale"))
    found = bigsvm.cross_validate(bigsvm.SVR(C=10), X, y, cv=3)
    expected = cross_validate(peers.SVR(C=10), X, y, cv=3)
    np.testing.assert_allclose(found["test_score"], expected["test_score"], atol=1e-3)
