"""Column statistics in one pass, merged block by block in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.blocks import is_sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

_BLOCK_VALUES = 1 << 17
"""Values looked at together: 1 MiB of float64, which stays in the L2 cache between the passes."""


class Statistics(NamedTuple):
    """Of each column, (n_columns,) float64; zeros of sparse rows count; population variance."""

    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    def total_mean(self) -> float:
        """Mean of all entries of X."""
        return float(self.mean.mean())

    def total_variance(self) -> float:
        """Return the population variance of all entries: within the columns plus between them."""
        return float((self.variance + (self.mean - self.mean.mean()) ** 2).mean())


class ColumnStatistics:
    """Statistics of the rows added so far.

    With the mean m and the sum M of squared deviations of n_a and n_b rows, and
    delta = m_b - m_a, both together have (Chan, Golub, LeVeque 1983)::

        m = m_a + delta n_b / n,    M = M_a + M_b + delta**2 n_a n_b / n

    Parameters
    ----------
    n_columns : int
    """

    def __init__(self, n_columns: int) -> None:
        self._n = 0
        self.n_nonzero = 0
        self._minimum = np.full(n_columns, np.inf)
        self._maximum = np.full(n_columns, -np.inf)
        self._mean = np.zeros(n_columns)
        self._deviations = np.zeros(n_columns)

    def add(self, rows: Rows) -> None:
        """Add rows, (m, n_columns). The last bits of the result depend on how rows are cut."""
        if is_sparse(rows):
            self._add_csr(rows)
            return
        step = max(1, _BLOCK_VALUES // max(rows.shape[1], 1))
        for start in range(0, rows.shape[0], step):
            block = np.asarray(rows[start : start + step], np.float64)
            self.n_nonzero += int(np.count_nonzero(block))
            np.minimum(self._minimum, block.min(axis=0), out=self._minimum)
            np.maximum(self._maximum, block.max(axis=0), out=self._maximum)
            mean = block.mean(axis=0)
            block = block - mean
            self._merge(len(block), mean, np.einsum("ij,ij->j", block, block))

    def _add_csr(self, rows: Any) -> None:
        n, d = rows.shape
        if n == 0:
            return
        self.n_nonzero += rows.nnz
        values = rows.data.astype(np.float64)
        filled = np.bincount(rows.indices, minlength=d)
        # Of no entries at all, the weighted counts are integers.
        mean = np.bincount(rows.indices, values, minlength=d).astype(np.float64) / n
        squares = (values - mean[rows.indices]) ** 2
        deviations = np.bincount(rows.indices, squares, minlength=d).astype(np.float64)
        deviations += (n - filled) * mean**2
        for extreme, keep in ((self._minimum, np.minimum), (self._maximum, np.maximum)):
            keep.at(extreme, rows.indices, values)
            extreme[filled < n] = keep(extreme[filled < n], 0.0)
        self._merge(n, mean, deviations)

    def _merge(self, n: int, mean: NDArray[np.float64], deviations: NDArray[np.float64]) -> None:
        total = self._n + n
        delta = mean - self._mean
        self._mean += delta * (n / total)
        self._deviations += deviations + delta**2 * (self._n / total * n)
        self._n = total

    def result(self) -> Statistics:
        """Return the statistics; of no rows, all NaN but for the infinite extremes."""
        variance = self._deviations / self._n if self._n else np.full_like(self._mean, np.nan)
        return Statistics(self._minimum, self._maximum, self._mean, variance)


def far_columns(mean: NDArray[np.float64], total_variance: float) -> NDArray[np.float64]:
    """Give the centre that sparse rows may be given: their mean, in few columns, else 0.

    In those where the square of the mean exceeds all variance there is, three times: they are what
    makes squared lengths so much larger than distances that float32 loses the latter. Because
    ``mean² ≤ share filled · mean square``, three of four rows have an entry there, and few are
    filled in.

    Parameters
    ----------
    mean : (n_columns,) float64
        Of each column.
    total_variance : float
        Of all entries together.
    """
    squares = mean**2
    within = len(mean) * (total_variance - float(np.var(mean)))
    # Far enough from 0 the difference is nothing but rounding, and may be anything.
    within = max(within, 1e-9 * float(squares.sum()))
    return np.where(squares >= 3 * within, mean, 0.0)
