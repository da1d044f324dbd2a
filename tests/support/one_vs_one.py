"""Fits of all pairs of classes, and what their functions say, by definition."""

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels

from bigsvm.data.sources import as_row_source
from bigsvm.fit.one_vs_one import OneVsOneReduction
from bigsvm.parameters import TrainingParameters
from support.reductions import trained_by


def train(X, y, weights=None, hooks=None, **parameters):
    parameters = {"tol": 1e-6, "threads": 1, **parameters}
    given = TrainingParameters(**parameters)
    return trained_by(OneVsOneReduction, as_row_source(X), y, weights, given, hooks)


def values(trained, X_train, X, *, offset=0.0):
    """Functions of all pairs, (m, n_pairs), in float64."""
    found, kernel = trained.functions, trained.model.kernel
    options = {} if kernel.name == "linear" else {"gamma": kernel.gamma}
    K = pairwise_kernels(X, X_train[found.support], metric=kernel.name, **options)
    return K @ found.coefficients.toarray() + found.intercepts


def voted(trained, X_train, X):
    """Labels by votes: of equal ones, the first class."""
    h, k = values(trained, X_train, X), len(trained.classes)
    votes = np.zeros((len(X), k))
    pairs = [(a, b) for a in range(k) for b in range(a + 1, k)]
    for (a, b), column in zip(pairs, h.T, strict=True):
        votes[:, a] += column <= 0
        votes[:, b] += column > 0
    return trained.classes[votes.argmax(axis=1)]


def peers_coefficients(peer, n_rows):
    """LIBSVM's (k - 1, n_sv) coefficients as (n_rows, n_pairs), positive for the second class."""
    k, starts = len(peer.n_support_), np.append(0, np.cumsum(peer.n_support_))
    found = []
    for a in range(k):
        for b in range(a + 1, k):
            column = np.zeros(n_rows)
            for own, other in ((a, b - 1), (b, a)):
                part = slice(starts[own], starts[own + 1])
                column[peer.support_[part]] = -peer.dual_coef_[other, part]
            found.append(column)
    return np.stack(found, axis=1)
