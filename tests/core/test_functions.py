"""Sums of kernel values for several functions: of all weights, or of those that are not zero."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.core import functions

SHAPES = [(1, 1, 1), (3, 5, 2), (2, 40, 7), (70, 9, 4), (5, 0, 3), (0, 4, 2), (4, 6, 0)]
"""Rows, columns, functions."""


def problem(m, p, q, *, share=0.5, dtype=np.float32):
    """Values with columns to spare, and weights (q, p)."""
    rng = np.random.default_rng(m + 10 * p + 100 * q)
    weights = rng.standard_normal((q, p)) * (rng.random((q, p)) < share)
    return rng.standard_normal((m, p + 3)).astype(dtype), weights.astype(dtype)


def add_all(values, weights, *, spare=2):
    """Sums on top of ones; between the functions are others without a weight."""
    q = len(weights)
    out = np.ones((q * spare, len(values)))
    chosen = np.arange(q) * spare
    functions.add_all(values, chosen, weights, out)
    rest = np.setdiff1d(np.arange(q * spare), chosen)
    np.testing.assert_array_equal(out[rest], 1)
    return out[chosen]


def add_some(values, weights, *, stride=functions.TRANSPOSED_STRIDE):
    """Sums on top of ones."""
    q, p = weights.shape
    part = sp.csr_array(weights)
    turned = np.empty((p, stride))
    out = np.ones((q, len(values)))
    functions.add_some(
        values, np.arange(q), part.indptr.astype(np.int64), part.indices.astype(np.int32),
        part.data, turned, out,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("add", [add_all, add_some])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_those_of_fsum(shape, add, dtype):
    values, weights = problem(*shape, dtype=dtype)
    p = weights.shape[1]
    exact = [
        [1 + math.fsum(w.astype(float) * row[:p].astype(float)) for row in values] for w in weights
    ]
    exact = np.reshape(exact, (len(weights), len(values)))
    np.testing.assert_allclose(add(values, weights), exact, rtol=0, atol=1e-14 * (p + 1))


@pytest.mark.parametrize("add", [add_all, add_some])
@pytest.mark.parametrize("shape", [(150, 37, 5), (66, 64, 2)])
def test_bits_of_a_row_do_not_depend_on_the_rows_beside_it(shape, add):
    values, weights = problem(*shape)
    whole = add(values, weights)
    for rows in ([0], [65, 3], np.arange(60, 66)):
        np.testing.assert_array_equal(add(values[rows], weights), whole[:, rows])


def test_bits_of_a_function_do_not_depend_on_the_function_beside_it():
    values, weights = problem(9, 45, 5)
    whole = add_all(values, weights)
    for chosen in ([0], [4, 1], [3, 2, 0]):
        np.testing.assert_array_equal(add_all(values, weights[chosen]), whole[chosen])
