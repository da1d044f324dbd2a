"""Packed products: against NumPy in float64, and bit by bit wherever a value is computed."""

import numpy as np
import pytest
from numba import config

from bigsvm.core import products

DTYPES = [np.float32, np.float64]
# Without the compiler a product of a few hundred values takes as long as a million with it.
SMALL = config.DISABLE_JIT


def width(dtype):
    return products.NR32 if dtype == np.float32 else products.NR64


def pack(rows):
    packed = np.full((-(-len(rows) // products.MR), rows.shape[1], products.MR), 7, rows.dtype)
    products.pack_rows(rows, np.arange(len(rows)), np.zeros(rows.shape[1]), packed)
    return packed


def multiply(rows, columns):
    """All dot products (m, p) by the packed functions."""
    nr = width(rows.dtype)
    panels = np.full((-(-len(columns) // nr), rows.shape[1], nr), 7, rows.dtype)
    products.pack_columns(columns, panels)
    packed = pack(rows)
    out = np.full((len(packed) * products.MR, len(panels) * nr), np.nan, rows.dtype)
    products.multiply_packed(packed, panels, out)
    assert np.isfinite(out).all()
    assert not out[len(rows) :].any()
    assert not out[:, len(columns) :].any()
    return out[: len(rows), : len(columns)]


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


@pytest.mark.skipif(SMALL, reason="only compiled code fuses the multiplication and the addition")
def test_additions_are_fused():
    tiny = np.float32(2.0**-12)
    rows = np.array([[1 + tiny, 1]], np.float32)
    columns = np.array([[1 + tiny, -1 - 2 * tiny]], np.float32)
    assert multiply(columns, rows)[0, 0] == 0  # the first product is rounded before the second
    assert multiply(rows[:, ::-1].copy(), columns[:, ::-1].copy())[0, 0] == tiny * tiny


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(value):
    rows = np.ones((3, 2), np.float32)
    rows[1, 1] = value
    nr = width(np.float32)
    panels = np.zeros((1, 2, nr), np.float32)
    products.pack_columns(np.ones((2, 2), np.float32), panels)
    out = np.zeros((products.MR, nr), np.float32)
    with np.errstate(invalid="ignore"):
        products.multiply_packed(pack(rows), panels, out)
    np.testing.assert_array_equal(out[:3, :2], rows.sum(axis=1, keepdims=True).repeat(2, axis=1))


def test_vector_width_is_one_the_micro_kernel_knows():
    assert products.VECTOR_BYTES in (16, 32, 64)
    assert (products.NR32, products.NR64) == (
        products.VECTOR_BYTES // 2,
        products.VECTOR_BYTES // 4,
    )
