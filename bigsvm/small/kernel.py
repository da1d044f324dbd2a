"""The kernel matrix of few rows, by NumPy in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import is_sparse
from bigsvm.kernels import LARGEST, RBF, Linear, Polynomial, Sigmoid

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.data.rows import Rows
    from bigsvm.kernels import Kernel

MOST_DENSE = 1 << 22
"""Values of sparse rows up to which they are multiplied as dense ones, which is faster: 32 MB."""
ROWS_AT_ONCE = 64
"""Rows of a block, which stays in the L2 cache between its passes."""


def kernel_matrix(kernel: Kernel, rows: Rows, centre: F8 | None) -> F8 | None:
    """Kernel values of all rows with one another, (n, n).

    Parameters
    ----------
    kernel : Kernel
        Linear, polynomial, rbf, sigmoid or precomputed.
    rows : (n, d) array or CSR
        Of a precomputed kernel with the number of each row in column 0.
    centre : (d,) float64 or None
        Subtracted from dense rows, so that distances far from the origin are accurate.

    Returns
    -------
    (n, n) float64, or None
        None where a value is beyond float32, which the usual run refuses.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = _values(kernel, rows, centre)
    is_bounded = isinstance(kernel, RBF | Sigmoid)
    # A NaN compares as False.
    if not (is_bounded or max(matrix.max(), -matrix.min()) <= LARGEST):
        return None
    return matrix


def _values(kernel: Kernel, rows: Rows, centre: F8 | None) -> F8:
    if kernel.product == "lookup":
        numbers = rows[:, 0].astype(np.int64)
        looked_up: F8 = rows[:, numbers].astype(np.float64)
        # Values of a pair may differ by rounding; LIBSVM and the certificate read the same one.
        return np.ascontiguousarray(0.5 * (looked_up + looked_up.T))
    if is_sparse(rows):
        if rows.shape[0] * rows.shape[1] > MOST_DENSE:
            exact = rows.astype(np.float64)
            products: F8 = (exact @ exact.T).toarray()
            return _formula(kernel, products)
        rows, centre = rows.toarray(), None
    values: F8 = rows.astype(np.float64, copy=False)
    if centre is not None:
        values = values - centre
    if isinstance(kernel, RBF):
        return _rbf(values, kernel.gamma)
    return _formula(kernel, values @ values.T)


def _formula(kernel: Kernel, matrix: F8) -> F8:
    """Make kernel values of products, (n, n), in place."""
    match kernel:
        case Linear():
            return matrix
        case Polynomial():
            matrix *= kernel.gamma
            matrix += kernel.coef0
            np.power(matrix, kernel.degree, out=matrix)
        case Sigmoid():
            matrix *= kernel.gamma
            matrix += kernel.coef0
            np.tanh(matrix, out=matrix)
        case RBF():
            norms = kernel.gamma * matrix.diagonal()
            matrix *= 2.0 * kernel.gamma
            matrix -= norms
            matrix -= norms[:, None]
            np.minimum(matrix, 0.0, out=matrix)
            np.exp(matrix, out=matrix)
        case _:
            raise TypeError(f"there is no matrix of the kernel {kernel.name}")
    return matrix


def _rbf(values: F8, gamma: float) -> F8:
    """``exp(-gamma |a - b|²)`` of all rows, (n, n): the upper blocks, and their mirror images.

    Norms are columns of the factors, so that a block is one product and one pass.
    """
    n = len(values)
    matrix = np.empty((n, n))
    norms, ones = gamma * np.einsum("ij,ij->i", values, values)[:, None], np.ones((n, 1))
    left = np.hstack([values, norms, ones])
    right = np.ascontiguousarray(np.hstack([2.0 * gamma * values, -ones, -norms]).T)
    for start in range(0, n, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, n)
        block = left[start:stop] @ right[:, start:]
        np.minimum(block, 0.0, out=block)
        np.exp(block, out=block)
        matrix[start:stop, start:] = block
        matrix[stop:, start:stop] = block[:, stop - start :].T
    np.fill_diagonal(matrix, 1.0)
    return matrix
