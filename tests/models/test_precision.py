"""Decision values of float32 rows: as precise as margins are told apart, however large C is."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm import L2SVC, SVC, SVR, Kernel
from bigsvm.gram import KernelTiles, Partners
from bigsvm.models import prediction
from bigsvm.models.prediction import ENOUGH, Packed


def scaled_rows(n=300, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return (scale * (rng.normal(size=(n, 4)) + 0.8 * y[:, None])).astype(np.float32), y


def dtypes_used(monkeypatch):
    """List the dtypes of the partners that predictions are made with, in turn."""
    found = []

    class Noted(Partners):
        def __init__(self, values, *given, **named):
            found.append(np.dtype(values.dtype))
            super().__init__(values, *given, **named)

    monkeypatch.setattr(prediction, "Partners", Noted)
    return found


@pytest.mark.usefixtures("compiled_predictions")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("kernel", "C", "scale"), [
    ("rbf", 1e6, 1.0), ("linear", 1.0, 3000.0), ("poly", 100.0, 3.0),
])  # fmt: skip
def test_decision_values_use_float64_where_float32_is_too_little(kernel, C, scale, sparse):
    X, y = scaled_rows(scale=scale)
    kind = sp.csr_array if sparse else np.asarray
    model = SVC(C=C, kernel=kernel, gamma=0.3, coef0=1.0).fit(kind(X), y)
    single = model.decision_function(kind(X))
    double = model.decision_function(kind(X.astype(np.float64)))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6 * np.abs(double).max())
    assert model.score(kind(X), y) == model.score(kind(X.astype(np.float64)), y)


@pytest.mark.usefixtures("compiled_predictions")
def test_float32_is_used_where_it_is_enough(monkeypatch):
    X, y = scaled_rows()
    model = SVC(C=1.0, gamma=0.3).fit(X, y)
    found = dtypes_used(monkeypatch)
    single, double = model.decision_function(X), model.decision_function(X.astype(np.float64))
    assert found == [np.float32, np.float64]
    assert 0 < np.abs(single - double).max() < ENOUGH


@pytest.mark.usefixtures("compiled_predictions")
def test_float64_is_used_where_float32_is_not_enough(monkeypatch):
    X, y = scaled_rows()
    model = SVC(C=1e6, gamma=0.3).fit(X, y)
    found = dtypes_used(monkeypatch)
    model.decision_function(X)
    assert found == [np.float32, np.float64]


@pytest.mark.parametrize("of_several", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_estimated_rounding_is_close_to_measured_rounding(kernel, of_several):
    rng = np.random.default_rng(0)
    X, y = scaled_rows(400, scale=1.0 if kernel == "rbf" else 100.0)
    fitted = SVC(kernel=kernel, gamma=0.3).fit(X, y).model_
    weights = 1e4 * rng.normal(size=(400, 3) if of_several else 400)
    weights = sp.csr_array(weights) if of_several else weights
    sums = []
    for dtype in (np.float32, np.float64):
        with KernelTiles(fitted.kernel, dtype=dtype) as tiles:
            partners = Partners(tiles.values, X, for_sparse_rows=False)
            out = np.zeros((400, 3) if of_several else 400)
            tiles.multiply(X, partners, tiles.prepared(partners, weights), out)
            sums.append(out)
            if dtype == np.float32:
                packed = Packed(tiles, X, weights, for_sparse_rows=False, most_bytes=1 << 20)
                estimate = packed.rounding()
    seen = np.abs(sums[0] - sums[1])
    assert estimate / 30 < np.median(seen) < 3 * estimate
    assert seen.max() < 30 * estimate


def test_a_function_of_no_vectors_has_no_rounding():
    X, y = scaled_rows()
    kernel = SVC(gamma=0.3).fit(X, y).model_.kernel
    with KernelTiles(kernel) as tiles:
        packed = Packed(tiles, X[:0], np.zeros(0), for_sparse_rows=False, most_bytes=1 << 20)
        assert packed.rounding() == 0.0


@pytest.mark.parametrize("machine", [SVC, SVR, L2SVC])
def test_decision_values_of_a_kernel_matrix_are_in_float64(machine):
    X, y = scaled_rows()
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2)).astype(np.float32)
    model = machine(C=1e6, kernel="precomputed", max_iter=20000).fit(K, y).model_
    found, beta = model.decision_function(K), np.asarray(model.coefficients)
    assert np.abs(beta).max() > 1e4  # a unit in the last place of float32 is 0.001
    expected = K[:, model.support].astype(np.float64) @ beta + model.intercept
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * np.abs(beta).sum())


@dataclass(frozen=True, kw_only=True)
class Cauchy(Kernel):
    name = "cauchy of precision"

    def from_products(self, dots, norms_rows, norms_columns):
        return 1 / (1 + np.maximum(np.add.outer(norms_rows, norms_columns) - 2 * dots, 0))


@pytest.mark.parametrize("machine", [SVC, SVR, L2SVC])
def test_what_a_formula_loses_far_from_the_origin_is_not_lost_in_float32(machine):
    X, y = scaled_rows()
    X += np.float32(1000)
    model = machine(kernel=Cauchy()).fit(X, y).model_
    rows = X.astype(np.float64)
    K = 1 / (1 + ((rows[:, None] - rows[model.support]) ** 2).sum(axis=2))
    expected = K @ np.asarray(model.coefficients) + model.intercept
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=0, atol=1e-5)
