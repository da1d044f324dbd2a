"""Fits that start from a model of the store before it was changed: the same optimum, in less."""

import json

import numpy as np
import pytest
from command_line import answer
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.errors import DataError, ParameterError

N, MORE = 1500, 150


def make_rows(kind="classes", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N + MORE, 4))
    value = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(len(X))
    return X, (value > 0.8).astype(float) if kind == "classes" else value


ESTIMATORS = {
    "SVC": (bigsvm.SVC, {}, "classes"),
    "squared hinge": (bigsvm.SVC, {"loss": "squared_hinge"}, "classes"),
    "NuSVC": (bigsvm.NuSVC, {"nu": 0.2}, "classes"),
    "SVR": (bigsvm.SVR, {"epsilon": 0.05}, "values"),
    "OneClassSVM": (bigsvm.OneClassSVM, {"nu": 0.1}, "classes"),
    "CrammerSingerSVC": (bigsvm.CrammerSingerSVC, {}, "classes"),
    "L2SVC": (bigsvm.L2SVC, {}, "classes"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("memory", ["1GB", "12MB"])
def test_the_larger_store_is_trained_to_the_same_optimum(tmp_path, name, memory):
    kind, given, target = ESTIMATORS[name]
    X, y = make_rows(target)
    store = bigsvm.write_store(tmp_path / "s", X[:N], y[:N])
    options = {"gamma": 0.5, "tol": 1e-4, "memory": memory, **given}
    model = kind(**options, warm_start=True).fit(store)
    fresh_steps = model.n_iter_
    larger = bigsvm.append(store, X[N:], y[N:])
    model.fit(larger)
    fresh = kind(**options).fit(bigsvm.write_store(tmp_path / "whole", X, y))
    for fit in (model, kind(**options).fit(larger)):
        assert fit.converged_
        assert fit.objective_ == pytest.approx(fresh.objective_, rel=1e-3)
    assert np.sum(model.n_iter_) < np.sum(fresh.n_iter_)
    assert np.sum(fresh_steps) > 0
    assert model.shape_fit_ == (N + MORE, 4)
    # Support vectors are numbered as rows of the larger store.
    rows = larger.rows.take(model.support_)
    np.testing.assert_array_equal(model.support_vectors_, rows)
