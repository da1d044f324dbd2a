"""Column statistics in one pass, in float64: of all columns, or of those that occur.

If sparse rows have more than `MOST_DENSE` columns, and at least half of these never occur, only the
columns that occur are listed, and memory is proportional to their number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.core import wide
from bigsvm.data.rows import is_sparse
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

FEW_ENTRIES = 1 << 16
"""Most entries of sparse rows that NumPy adds up, in their order and so to the same bits, which
takes some milliseconds; compiled code is faster, but has to be loaded."""
_BLOCK_VALUES = 1 << 17
"""Values looked at together: 1 MiB of float64, which stays in the L2 cache between the passes."""


EQUAL = 3.6e-15
"""Largest standard deviation of equal values, as a share of their mean: 16 float64 roundings."""
MOST_DENSE = 1 << 16
"""Most columns for which statistics of all are always kept: they take less than a quarter of the
smallest memory that a conversion accepts."""
DENSE_BYTES = 80
"""Bytes per column while statistics of all columns are taken: ten float64 arrays at the peak."""
LISTED_BYTES = 48
"""Bytes per listed column while statistics are taken: 36 for its number and moments, up to 11 for
its place in a table."""


class Statistics(NamedTuple):
    """Statistics of all columns or of the listed ones, (m,) float64, with population variance.

    Zeros count. `columns` lists the columns, (m,) integers, ascending; all others are 0 in every
    row. It is None if all n_columns columns are present.
    """

    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    n_columns: int
    columns: NDArray[np.integer[Any]] | None = None

    @property
    def _n_absent(self) -> int:
        return self.n_columns - len(self.mean)

    def smallest(self) -> float:
        """Return the smallest entry of X."""
        return float(min(self.minimum.min(initial=np.inf), 0.0 if self._n_absent else np.inf))

    def largest(self) -> float:
        """Return the largest entry of X."""
        return float(max(self.maximum.max(initial=-np.inf), 0.0 if self._n_absent else -np.inf))

    def n_constant(self) -> int:
        """Count the columns that have one value in all rows."""
        return int(np.count_nonzero(self.minimum == self.maximum)) + self._n_absent

    def total_mean(self) -> float:
        """Mean of all entries of X."""
        return float(self.mean.sum()) / self.n_columns

    def total_variance(self) -> float:
        """Return the population variance of all entries: within the columns plus between them."""
        total_mean = self.mean.sum() / self.n_columns
        sums = (self.variance + (self.mean - total_mean) ** 2).sum()
        sums += self._n_absent * total_mean**2
        return beyond_rounding(float(sums / self.n_columns), float(total_mean))


def beyond_rounding(variance: float, mean: float) -> float:
    """Return a variance, or 0 where it is only rounding of the mean: all values are equal."""
    # Roots, as the square of a large mean overflows.
    return 0.0 if math.sqrt(max(variance, 0.0)) <= EQUAL * abs(mean) else variance


def may_be_listed(n_columns: int, *, sparse: bool) -> bool:
    """Whether only occurring columns may be listed: rows are sparse, and columns are many."""
    return sparse and n_columns > MOST_DENSE


def is_listed(n_occurring: int, n_columns: int) -> bool:
    """Whether only the columns of sparse rows that occur are kept."""
    return n_columns > MOST_DENSE and n_occurring <= n_columns // 2


def statistics_of(
    n_columns: int,
    *,
    sparse: bool,
    dtype: np.dtype[Any] | type = np.float64,
    most_bytes: float = float("inf"),
) -> ColumnStatistics | ListedStatistics:
    """Start to take the statistics of rows, which come as CSR if `sparse`.

    The type is that of the rows; float64 holds every row type. The statistics may take
    `most_bytes`; the limit only applies to sparse rows.
    """
    if not may_be_listed(n_columns, sparse=sparse):
        return ColumnStatistics(n_columns)
    return ListedStatistics(n_columns, np.dtype(dtype), most_bytes=most_bytes)


def statistics_of_rows(rows: Rows) -> Statistics:
    """Statistics of rows in memory."""
    taken = statistics_of(rows.shape[1], sparse=is_sparse(rows))
    taken.add(rows)
    return taken.result()


class Moments(NamedTuple):
    """Moments of the columns of n rows, n > 0; each array is (n_columns,) float64.

    `deviations` has sums of squared deviations from the mean. Zeros count.
    """

    n: int
    n_nonzero: int
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviations: NDArray[np.float64]


def moments_of(rows: Rows) -> Iterator[Moments]:
    """Yield the moments of rows, (m, n_columns): of parts that stay in the cache if dense."""
    if is_sparse(rows):
        if rows.shape[0]:
            yield _moments_of_csr(rows)
        return
    step = max(1, _BLOCK_VALUES // max(rows.shape[1], 1))
    for start in range(0, rows.shape[0], step):
        block = np.asarray(rows[start : start + step], np.float64)
        n_nonzero = int(np.count_nonzero(block))
        minimum, maximum, mean = block.min(axis=0), block.max(axis=0), block.mean(axis=0)
        block = block - mean
        deviations = np.einsum("ij,ij->j", block, block)
        yield Moments(len(block), n_nonzero, minimum, maximum, mean, deviations)


def _moments_of_csr(rows: Any) -> Moments:
    n, d = rows.shape
    indices, values = rows.indices, rows.data
    filled, mean, deviations = np.zeros(d, np.int64), np.zeros(d), np.zeros(d)
    minimum, maximum = np.full(d, np.inf), np.full(d, -np.inf)
    is_few = len(indices) <= FEW_ENTRIES
    if is_few:
        is_right = not len(indices) or (indices.min() >= 0 and indices.max() < d)
        if is_right:
            # NumPy's `at` is fast for values of the type of the result only.
            values = values.astype(np.float64, copy=False)
            filled += np.bincount(indices, minlength=d)
            mean += np.bincount(indices, values, minlength=d)
            np.minimum.at(minimum, indices, values)
            np.maximum.at(maximum, indices, values)
    else:
        is_right = wide.add_entries(indices, values, filled, mean, minimum, maximum)
    if not is_right:
        raise DataError(f"X has a column number that is not one of its {d} columns")
    mean /= n
    if is_few:
        differences = values - mean[indices]
        deviations += np.bincount(indices, differences * differences, minlength=d)
    else:
        wide.add_deviations(indices, values, mean, deviations)
    deviations += (n - filled) * mean**2
    for extreme, keep in ((minimum, np.minimum), (maximum, np.maximum)):
        extreme[filled < n] = keep(extreme[filled < n], 0.0)
    return Moments(n, rows.nnz, minimum, maximum, mean, deviations)


class ColumnStatistics:
    """Statistics of the rows added so far.

    With the mean m and the sum M of squared deviations of n_a and n_b rows, and
    delta = m_b - m_a, both together have (Chan, Golub, LeVeque 1983)::

        m = m_a + delta n_b / n,    M = M_a + M_b + delta**2 n_a n_b / n
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
        for moments_of_part in moments_of(rows):
            self.merge(moments_of_part)

    def merge(self, part: Moments) -> None:
        """Add the moments of other rows."""
        self.n_nonzero += part.n_nonzero
        np.minimum(self._minimum, part.minimum, out=self._minimum)
        np.maximum(self._maximum, part.maximum, out=self._maximum)
        total = self._n + part.n
        delta = part.mean - self._mean
        self._mean += delta * (part.n / total)
        self._deviations += part.deviations + delta**2 * (self._n / total * part.n)
        self._n = total

    def result(self) -> Statistics:
        """Return the statistics; of no rows, all NaN but for the infinite extremes."""
        variance = self._deviations / self._n if self._n else np.full_like(self._mean, np.nan)
        return Statistics(self._minimum, self._maximum, self._mean, variance, len(variance))


class ListedStatistics:
    """Statistics of the sparse rows added so far, of the columns that occur.

    The statistics may take `most_bytes`.
    """

    _SMALLEST = 1 << 10
    """Initial room, in columns."""

    def __init__(self, n_columns: int, dtype: np.dtype[Any], *, most_bytes: float) -> None:
        self.n_nonzero = 0
        self._n_columns, self._most_bytes = n_columns, most_bytes
        self._n_rows = self._n = 0
        number: type = np.int32 if n_columns <= 2**31 else np.int64
        self._columns: NDArray[Any] = np.empty(0, number)
        self._counts = np.empty(0, np.int64)
        self._means, self._deviations = np.empty(0), np.empty(0)
        self._minima: NDArray[Any] = np.empty(0, dtype)
        self._maxima: NDArray[Any] = np.empty(0, dtype)
        self._table = np.zeros(1, np.int32)

    def add(self, rows: Any) -> None:
        """Add CSR rows, (m, n_columns)."""
        self.n_nonzero += rows.nnz
        self._n_rows += rows.shape[0]
        for start in range(0, rows.nnz, _BLOCK_VALUES):
            part = slice(start, min(start + _BLOCK_VALUES, rows.nnz))
            self._make_room(part.stop - part.start)
            self._n = wide.add_moments(
                rows.indices[part], rows.data[part], self._table, self._shift, self._columns,
                self._counts, self._means, self._deviations, self._minima, self._maxima, self._n,
            )  # fmt: skip
            if self._n * LISTED_BYTES > self._most_bytes:
                raise MemoryBudgetError(
                    f"{self._n} of {self._n_columns} columns have occurred so far; their "
                    f"statistics take {self._n * LISTED_BYTES} bytes, more than a quarter of the "
                    "memory given: give more, or hash the features into fewer columns"
                )

    @property
    def _shift(self) -> int:
        return 65 - len(self._table).bit_length()

    def _make_room(self, more: int) -> None:
        """Make room for `more` new columns; unused room takes no memory."""
        needed = min(self._n + more, self._n_columns)
        if needed > len(self._columns):
            size = min(max(needed, 2 * len(self._columns), self._SMALLEST), self._n_columns)
            for name in ("_columns", "_counts", "_means", "_deviations", "_minima", "_maxima"):
                held = getattr(self, name)
                grown = np.empty(size, held.dtype)
                grown[: self._n] = held[: self._n]
                setattr(self, name, grown)
        if 4 * needed > 3 * len(self._table):
            self._table = np.zeros(1 << (4 * needed // 3).bit_length(), np.int32)
            wide.fill_table(self._columns, self._n, self._table, self._shift)

    def result(self) -> Statistics:
        """Return the statistics; nothing can be added afterwards.

        They are those of all columns if more than half of the columns occur.
        """
        self._table = np.zeros(0, np.int32)
        moments: list[NDArray[Any]] = [
            array[: self._n]
            for array in (self._minima, self._maxima, self._means, self._deviations)
        ]
        minima, maxima, means, variances = moments
        wide.add_zeros(self._counts[: self._n], means, variances, minima, maxima, self._n_rows)
        self._counts = np.empty(0, np.int64)
        columns = self._columns[: self._n]
        if is_listed(self._n, self._n_columns):
            order = np.argsort(columns)
            minimum, maximum, mean, variance = (
                array[order].astype(np.float64, copy=False) for array in moments
            )
            columns = columns[order]
            return Statistics(minimum, maximum, mean, variance, self._n_columns, columns)
        minimum, maximum, mean, variance = (self._of_all(columns, values) for values in moments)
        return Statistics(minimum, maximum, mean, variance, self._n_columns)

    def _of_all(self, columns: NDArray[Any], values: NDArray[Any]) -> NDArray[np.float64]:
        every = np.zeros(self._n_columns)
        every[columns] = values
        return every


def far_columns(
    mean: NDArray[np.float64], total_variance: float, n_columns: int
) -> NDArray[np.float64]:
    """Give the centre that sparse rows may be given: their mean, in few columns, else 0.

    In those where the square of the mean exceeds all variance there is, three times: they are what
    makes squared lengths so much larger than distances that float32 loses the latter. Because
    ``mean² ≤ share filled · mean square``, three of four rows have an entry there, and few are
    filled in.

    `mean`, (m,), is of all or of the listed columns; `n_columns` counts them all. `total_variance`
    is that of all entries together.
    """
    squares = mean**2
    total_mean = mean.sum() / n_columns
    between = ((mean - total_mean) ** 2).sum() + (n_columns - len(mean)) * total_mean**2
    within = n_columns * (total_variance - float(between / n_columns))
    # Far enough from 0 the difference is nothing but rounding, and may be anything.
    within = max(within, 1e-9 * float(squares.sum()))
    return np.where(squares >= 3 * within, mean, 0.0)
