"""The optimum of a dense problem, in float64, to which fitted estimators are held."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import pairwise_kernels

SOLVERS = ("pairwise", "mfw", "fw", "cvm")
"""All solvers of balls."""
KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.7},
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
    "laplacian": {"kernel": "laplacian", "gamma": 0.3},
}
FINE = 1e-6
"""Tolerance of balls that are held to the dense problem."""


def kernel_of(model, X):
    """K (n, n) float64 of a fitted estimator's kernel, by scikit-learn's formulas."""
    described = dict(model.model_.kernel.describe())
    return pairwise_kernels(X, metric=described.pop("name"), **described)


def coefficients_of(model, n):
    """Coefficients of a fitted estimator of one function, also scikit-learn's; zeros included."""
    beta = np.zeros(n)
    found = model.dual_coef_  # sparse where the rows are
    beta[model.support_] = (found.toarray() if sp.issparse(found) else found).ravel()
    return beta


def optimum_of_ball(model, X, y=None, *, weights=None):
    """Coefficients (n,) at the optimum of a ball, and its kernel: K, or K + 1 of two classes."""
    n = len(X)
    sign = np.ones(n) if y is None else np.where(y == model.classes_[1], 1.0, -1.0)
    K = kernel_of(model, X) + (y is not None)
    bound = model.C * (np.ones(n) if weights is None else weights)
    beta, there = np.zeros(n), bound > 0
    s = sign[there]
    problem = K[np.ix_(there, there)] * np.outer(s, s) + np.diag(1 / bound[there])
    beta[there] = s * naive.l2_svc(problem)
    return beta, K


def is_the_optimum_of_its_ball(model, X, y=None, *, weights=None):
    """Hold objective, coefficients and values to the dense problem."""
    expected, K = optimum_of_ball(model, X, y, weights=weights)
    beta = coefficients_of(model, len(X))
    assert model.converged_
    assert model.stop_reason_ == "converged"
    assert model.objective_ == pytest.approx(0.5 * np.abs(expected).sum(), rel=1e-6)
    np.testing.assert_allclose(beta, expected, atol=1e-4 * np.abs(expected).max())
    intercept = -1.0 if y is None else pytest.approx(beta.sum())
    assert model.intercept_[0] == intercept
    values = K @ expected - (y is None)
    np.testing.assert_allclose(model.decision_function(X), values, atol=1e-4)
    if y is None:
        np.testing.assert_allclose(model.score_samples(X), values + 1, atol=1e-4)
        assert model.offset_ == [1.0]
    assert model.gap_ <= model.certificate_["tol"]
