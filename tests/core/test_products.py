"""Packed products: against NumPy in float64, and bit by bit wherever a value is computed."""

import numpy as np
import pytest
from numba import config

from bigsvm.core import gram, products

DTYPES = [np.float32, np.float64]
# Without the compiler a product of a few hundred values takes as long as a million with it.
SMALL = config.DISABLE_JIT
LINEAR = gram.Formula(gram.LINEAR, 1.0, 0.0, 1, 0.0)


def width(dtype):
    return gram.NR32 if dtype == np.float32 else gram.NR64


def pack(rows):
    packed = np.full((-(-len(rows) // gram.MR), rows.shape[1], gram.MR), 7, rows.dtype)
    products.pack_rows(rows, np.arange(len(rows)), np.zeros(rows.shape[1]), packed)
    return packed


def multiply(rows, columns):
    """All dot products (m, p) by the packed functions."""
    nr = width(rows.dtype)
    panels = np.full((-(-len(columns) // nr), rows.shape[1], nr), 7, rows.dtype)
    products.pack_partners(columns, panels)
    return products_of(rows, panels, len(columns))


def products_of(rows, panels, p, *, panels_per_tile=1):
    """What `dense_span` stores for the linear kernel, tile by tile, in slots in reverse order."""
    packed, (m, dtype) = pack(rows), (len(rows), rows.dtype)
    block = np.full((len(packed) * gram.MR, panels_per_tile * width(dtype)), np.nan, dtype)
    out = np.full((m, p), np.nan, dtype)
    gram.dense_span(
        packed, np.zeros(m, dtype), panels, np.zeros(p, dtype), None, LINEAR,
        block, np.empty(0), np.empty(0), out, np.arange(m)[::-1].copy(),
    )  # fmt: skip
    return out[::-1]


def norms(rows):
    out = np.full(len(rows), np.nan, rows.dtype)
    products.squared_norms(pack(rows), out)
    return out


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 33, 5), (12, 32, 1), (5, 70, 3), (40, 7, 19)])
def test_products_are_those_of_numpy(dtype, shape):
    m, p, d = shape
    rows, columns = normal(m, d, dtype=dtype), normal(p, d, dtype=dtype, seed=1)
    exact = rows.astype(float) @ columns.astype(float).T
    bound = np.abs(rows).astype(float) @ np.abs(columns).astype(float).T
    error = np.abs(multiply(rows, columns) - exact)
    assert (error <= (d + 1) * np.finfo(dtype).eps * bound).all()


@pytest.mark.skipif(SMALL, reason="two million products take minutes without the compiler")
def test_many_features():
    rows, columns = normal(50, 2000, dtype=np.float64), normal(20, 2000, dtype=np.float64, seed=1)
    np.testing.assert_allclose(multiply(rows, columns), rows @ columns.T, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_place(dtype):
    m, p, d = (20, 40, 4) if SMALL else (60, 150, 37)
    rows, columns = normal(m, d, dtype=dtype), normal(p, d, dtype=dtype, seed=1)
    whole = multiply(rows, columns)
    rng = np.random.default_rng(2)
    for m_part, p_part in ((1, 1), (5, 31), (13, 33), (m, p)):
        i, j = rng.permutation(m)[:m_part], rng.permutation(p)[:p_part]
        np.testing.assert_array_equal(multiply(rows[i], columns[j]), whole[np.ix_(i, j)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_symmetric_and_its_diagonal_is_the_norms_bit_by_bit(dtype):
    rows = normal(30, 3 if SMALL else 61, dtype=dtype)
    gram = multiply(rows, rows)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_array_equal(np.diag(gram), norms(rows))


@pytest.mark.parametrize("m", [1, 11, 12, 13, 25])
def test_norms_are_those_of_numpy(m):
    rows = normal(m, 6, dtype=np.float64)
    np.testing.assert_allclose(norms(rows), (rows**2).sum(axis=1), rtol=1e-14)


def test_additions_are_fused():
    tiny = np.float32(2.0**-12)
    rows = np.array([[1 + tiny, 1]], np.float32)
    columns = np.array([[1 + tiny, -1 - 2 * tiny]], np.float32)
    assert multiply(columns, rows)[0, 0] == 0  # the first product is rounded before the second
    assert multiply(rows[:, ::-1].copy(), columns[:, ::-1].copy())[0, 0] == tiny * tiny


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_nonfinite_values_stay_in_the_products(value):
    rows = np.ones((3, 2), np.float32)
    rows[1, 1] = value
    nr = width(np.float32)
    panels = np.zeros((1, 2, nr), np.float32)
    products.pack_partners(np.ones((2, 2), np.float32), panels)
    with np.errstate(invalid="ignore"):
        out = products_of(rows, panels, 2)
    np.testing.assert_array_equal(out, rows.sum(axis=1, keepdims=True).repeat(2, axis=1))


def test_vector_width_is_one_the_micro_kernel_knows():
    assert gram.VECTOR_BYTES in (16, 32, 64)
    assert (gram.NR32, gram.NR64) == (gram.VECTOR_BYTES // 2, gram.VECTOR_BYTES // 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("panels_per_tile", [1, 2])
def test_a_span_adds_sums_tile_by_tile(dtype, panels_per_tile):
    """Weighted sums of the values that it stores; what is neither asked for nor a slot stays."""
    nr = width(dtype)
    m, p = gram.MR + 1, 2 * nr + 3
    rows, columns = normal(m, 3, dtype=dtype), normal(p, 3, dtype=dtype, seed=1)
    panels = np.zeros((3, 3, nr), dtype)
    products.pack_partners(columns, panels)
    weights = np.random.default_rng(2).normal(size=p)
    formula = gram.Formula(gram.POLYNOMIAL, 0.5, 1.0, 2, 0.25)
    block = np.empty((2 * gram.MR, panels_per_tile * nr), dtype)
    packed, nothing, slots = pack(rows), np.empty(0), np.arange(m) + 1
    sums, out = np.ones(m), np.full((m + 2, p + 1), 7, dtype)
    for w, s, o in ((weights, slots[:0], out[:0]), (nothing, slots, out)):
        gram.dense_span(
            packed, norms(rows), panels, norms(columns), None, formula, block, w, sums, o, s
        )
    exact = (0.5 * rows.astype(float) @ columns.T.astype(float) + 1) ** 2 + 0.25
    np.testing.assert_allclose(out[1:-1, :-1], exact, rtol=60 * np.finfo(dtype).eps)
    np.testing.assert_allclose(sums, 1 + out[1:-1, :-1].astype(float) @ weights, rtol=1e-12)
    assert (out[[0, -1]] == 7).all()
    assert (out[:, -1] == 7).all()
