"""Factors of kernel matrices: their product is the matrix, and they are as narrow as is said."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import rows_at

from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.low_rank import factor
from bigsvm.interruption import checked_by
from bigsvm.kernels import RBF, Laplacian, Linear, Polynomial, Sigmoid


def gram_of(tiles, rows):
    gram = np.empty((len(rows.places), len(rows.places)))
    tiles.evaluate(rows, Partners.of_rows_like(tiles.values, rows), gram)
    return gram


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, 2.5])
@pytest.mark.parametrize(("kernel", "width"), [
    (Linear(), 3),
    (Polynomial(gamma=0.5, coef0=1.0, degree=2), 10),
    (Polynomial(gamma=0.5, coef0=1.0, degree=3), 20),
    (Polynomial(gamma=0.5, coef0=0.0, degree=2), 10),
    (Polynomial(gamma=0.0, coef0=0.0, degree=2), 10),
    (Polynomial(gamma=0.5, coef0=1.0, degree=0), 1),
])  # fmt: skip
def test_the_product_is_the_kernel_matrix(kernel, width, offset, sparse):
    rows = rows_at(40, 3, sparse=sparse)
    with KernelTiles(kernel, dtype=np.float64, offset=offset) as tiles:
        found, gram = factor(tiles, rows), gram_of(tiles, rows)
        assert tiles.values.factor_width(rows) == width + (offset > 0)
    assert found.shape[1] <= width + (offset > 0)
    np.testing.assert_allclose(found @ found.T, gram, atol=1e-9 * max(1, np.abs(gram).max()))


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 10**6), st.integers(1, 3),
       st.sampled_from([1e-3, 1.0, 1e3]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_factor_of_any_polynomial(m, d, seed, degree, scale):
    rows = rows_at(m, d, seed, scale=scale)
    with KernelTiles(Polynomial(gamma=1.0, coef0=1.0, degree=degree), dtype=np.float64) as tiles:
        if tiles.values.factor_width(rows) == math.inf:
            assert math.comb(d + degree, degree) >= m
            return
        found, gram = factor(tiles, rows), gram_of(tiles, rows)
    np.testing.assert_allclose(found @ found.T, gram, atol=1e-10 * np.abs(gram).max())


def test_repeated_rows_make_the_factor_narrower():
    X = np.repeat(np.arange(1.0, 5.0, dtype=np.float32)[:, None], 10, axis=0)
    rows = RowsAt(X, np.arange(40))
    with KernelTiles(Polynomial(gamma=1.0, coef0=1.0, degree=5), dtype=np.float64) as tiles:
        found = factor(tiles, rows)
    assert found.shape == (40, 4)


@pytest.mark.parametrize("kernel", [RBF(gamma=1.0), Laplacian(gamma=1.0), Sigmoid(gamma=1.0)])
def test_other_kernels_have_no_narrow_factor(kernel):
    with KernelTiles(kernel, dtype=np.float64) as tiles:
        assert tiles.values.factor_width(rows_at(1000, 2)) == math.inf


@pytest.mark.parametrize(("m", "width"), [(3, math.inf), (4, 3)])
def test_factor_is_never_wider_than_its_rows(m, width):
    with KernelTiles(Linear(), dtype=np.float64) as tiles:
        assert tiles.values.factor_width(rows_at(m, 3)) == width


def test_interrupt_ends_the_factorisation():
    def check():
        raise KeyboardInterrupt

    kernel = Polynomial(gamma=1.0, coef0=1.0, degree=2)
    with (
        KernelTiles(kernel, dtype=np.float64) as tiles,
        checked_by(check),
        pytest.raises(KeyboardInterrupt),
    ):
        factor(tiles, rows_at(40, 3))
