"""Functions of few numbers: their values by NumPy, row by row the same, and those of compiled code.

`FEW_NUMBERS` is the switch: 0 for compiled code alone.
"""

from dataclasses import dataclass, replace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import bigsvm
from bigsvm import Kernel, KernelExpansion
from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import DataError
from bigsvm.executors import local
from bigsvm.executors.workforce import Workforce
from bigsvm.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed, Sigmoid
from bigsvm.models import prediction, small
from bigsvm.models.small import FEW_NUMBERS


@dataclass(frozen=True, kw_only=True)
class Rational(Kernel):
    name = "rational of small functions"

    def from_products(self, dots, norms_rows, norms_columns):
        return 1 / (1 + np.maximum(np.add.outer(norms_rows, norms_columns) - 2 * dots, 0))


KERNELS = [
    RBF(gamma=0.3),
    Laplacian(gamma=0.2),
    Linear(),
    Polynomial(gamma=0.5, coef0=1.0, degree=3),
    Sigmoid(gamma=0.1, coef0=-0.2),
    Rational(),
]


def model_of(kernel, vectors, n_functions=None, *, seed=0):
    rng = np.random.default_rng(seed)
    p = vectors.shape[0]
    if n_functions is None:
        coefficients, intercept = rng.normal(size=p), 0.25
    else:
        coefficients = sp.csr_array(rng.normal(size=(p, n_functions)))
        intercept = rng.normal(size=n_functions)
    several = n_functions is not None
    return KernelExpansion(
        kernel=kernel, support_vectors=vectors, coefficients=coefficients, intercept=intercept,
        centre=None, support=np.arange(p), classes=list(range(n_functions)) if several else [0, 1],
        rule="ovr" if several else None,
    )  # fmt: skip


def by_compiled_code(model, rows):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prediction, "FEW_NUMBERS", 0)
        return model.decision_function(rows)


@pytest.fixture
def compiled_code_is_refused(monkeypatch):
    def refuse(*given, **named):
        raise AssertionError("compiled code was asked for")

    monkeypatch.setattr(prediction, "KernelTiles", refuse)


@pytest.mark.parametrize("n_functions", [None, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_values_are_those_of_compiled_code(kernel, sparse, dtype, n_functions):
    rng = np.random.default_rng(1)
    kind = sp.csr_array if sparse else np.asarray
    vectors, rows = (kind(rng.normal(size=(n, 4)).round(1).astype(dtype)) for n in (9, 40))
    model = model_of(kernel, vectors, n_functions)
    # float32 rows: compiled code computes these in float32.
    found, expected = model.decision_function(rows), by_compiled_code(model, rows.astype("f8"))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("compiled_code_is_refused")
@settings(max_examples=60, deadline=None)
@given(
    kernel=st.sampled_from(KERNELS), p=st.integers(1, 70), d=st.integers(1, 40),
    n_functions=st.sampled_from([None, 2, 5]), m=st.integers(1, 80), data=st.data(),
)  # fmt: skip
def test_a_row_has_the_same_bits_whatever_rows_are_beside_it(kernel, p, d, n_functions, m, data):
    rng = np.random.default_rng(p * 1000 + d)
    model = model_of(kernel, rng.normal(size=(p, d)), n_functions)
    rows = rng.normal(size=(m, d))
    expected = model.decision_function(rows)
    start = data.draw(st.integers(0, m - 1))
    stop = data.draw(st.integers(start + 1, m))
    np.testing.assert_array_equal(model.decision_function(rows[start:stop]), expected[start:stop])
    np.testing.assert_array_equal(model.decision_function(sp.csr_array(rows)), expected)


def test_blocks_and_threads_change_no_bits(monkeypatch):
    rng = np.random.default_rng(0)
    model, rows = model_of(RBF(gamma=0.3), rng.normal(size=(30, 5)), 3), rng.normal(size=(900, 5))
    expected = model.decision_function(rows)
    monkeypatch.setattr(small, "ROWS_TOGETHER", 128)
    monkeypatch.setattr(small, "VALUES_TOGETHER", 100)
    blocks = da.from_array(rows, chunks=(350, 5))
    for source in (rows, blocks):
        np.testing.assert_array_equal(model.decision_function(source, threads=3), expected)
    monkeypatch.setattr(local, "VALUES_AT_ONCE", 3 * 50)
    parts = []
    model.decide(rows, keep=lambda part, values: parts.append(part))
    assert max(part.stop - part.start for part in parts) == 50
    assert parts[-1].stop == 900


@pytest.mark.parametrize("n_functions", [None, 3])
def test_values_are_looked_up_in_a_kernel_matrix(n_functions):
    rng = np.random.default_rng(0)
    K = rng.normal(size=(20, 60))
    numbers = np.zeros((8, 61))
    numbers[:, 0] = np.arange(5, 13)
    numbers = sp.csr_array(numbers)
    model = model_of(Precomputed(), numbers, n_functions)
    weights = model.coefficients if n_functions is None else model.coefficients.toarray()
    expected = K[:, 4:12] @ weights + model.intercept
    np.testing.assert_allclose(model.decision_function(K), expected, rtol=1e-12)
    np.testing.assert_allclose(by_compiled_code(model, K), expected, rtol=1e-12)


@pytest.mark.usefixtures("compiled_code_is_refused")
def test_what_is_small_is_a_matter_of_the_model():
    most = model_of(RBF(gamma=1.0), np.zeros((FEW_NUMBERS // 8, 8)))
    assert most.decision_function(np.ones((2, 8))).shape == (2,)
    for vectors, n_functions in [((FEW_NUMBERS // 8 + 1, 8), None), ((FEW_NUMBERS // 8, 2), 9)]:
        model = model_of(RBF(gamma=1.0), np.zeros(vectors), n_functions)
        with pytest.raises(AssertionError, match="compiled code"):
            model.decision_function(np.ones((2, vectors[1])))
    # One vector of a linear function is all that there is to compute.
    assert model_of(Linear(), np.zeros((2000, 8))).decision_function(np.ones((2, 8))).shape == (2,)


@pytest.mark.parametrize("scale", [1e200, 1e154])
def test_rows_too_long_for_kernel_values_are_refused(scale):
    model = model_of(RBF(gamma=1.0), np.ones((3, 2)))
    with pytest.raises(DataError, match="a row has the squared length"):
        model.decision_function(np.full((2, 2), scale))


def test_rows_far_from_the_origin_keep_their_distances():
    X = np.random.default_rng(0).normal(size=(30, 3))
    here, there = model_of(RBF(gamma=0.5), X), model_of(RBF(gamma=0.5), X + 1e6)
    np.testing.assert_allclose(
        there.decision_function(X + 1e6), here.decision_function(X), rtol=0, atol=1e-8
    )


def test_a_model_of_no_support_vectors_is_its_intercept():
    model = model_of(RBF(gamma=0.5), np.ones((0, 3)))
    np.testing.assert_array_equal(model.decision_function(np.ones((4, 3))), np.full(4, 0.25))


@pytest.mark.slow
def test_workers_compute_the_same_bits(client, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4)).astype("f4")
    store = bigsvm.write_store(tmp_path / "rows.zarr", X, np.arange(900) % 2, shuffle=False)
    model = replace(model_of(RBF(gamma=0.5), X[:20]), rule=None)
    expected = model.decision_function(ArrayRows(X))
    workers = Workforce(client)
    np.testing.assert_array_equal(model.decision_function(store, client=workers), expected)
    assert workers.traffic.bytes_read > 0  # they have read the rows
    workers.close()
