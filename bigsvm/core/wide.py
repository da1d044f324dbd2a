"""Moments of the columns of sparse rows, and new column numbers.

Where columns are very many and few of them occur, no function takes memory for a column without
entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inner
def _slot(column: int, columns: Integers, table: NDArray[np.int32], shift: int) -> int:
    """Place of a column in `table`, or the free place for it (linear probing, Knuth)."""
    mask = table.shape[0] - 1
    at = np.int64((np.uint64(column) * _GOLDEN) >> np.uint64(shift))
    while table[at] != 0 and columns[table[at] - 1] != column:
        at = (at + 1) & mask
    return int(at)


@compiled
def fill_table(columns: Integers, n: int, table: NDArray[np.int32], shift: int) -> None:
    """Enter n columns into a table of zeros as their place plus 1.

    table (2**k,) with more than n places; shift 64 − k.
    """
    for i in range(n):
        table[_slot(columns[i], columns, table, shift)] = i + 1


@compiled
def add_moments(
    indices: Integers,
    values: Floats,
    table: NDArray[np.int32],
    shift: int,
    columns: Integers,
    counts: NDArray[np.int64],
    means: NDArray[np.float64],
    deviations: NDArray[np.float64],
    minima: Floats,
    maxima: Floats,
    n: int,
) -> int:
    """Add entries to the moments of their columns; returns the new number of columns.

    The moments of a column are the number of its entries, their mean, the sum of their squared
    deviations from it (Welford 1962), the least and the largest; all arrays have room for every
    new column.
    """
    for k in range(indices.shape[0]):
        column, value = indices[k], values[k]
        at = _slot(column, columns, table, shift)
        i = table[at] - 1
        if i < 0:
            i = n
            n += 1
            table[at] = n
            columns[i], counts[i], means[i], deviations[i] = column, 0, 0.0, 0.0
            minima[i], maxima[i] = value, value
        counts[i] += 1
        delta = np.float64(value) - means[i]
        means[i] += delta / counts[i]
        deviations[i] += delta * (np.float64(value) - means[i])
        minima[i] = min(minima[i], value)
        maxima[i] = max(maxima[i], value)
    return n


@compiled
def add_zeros(
    counts: NDArray[np.int64],
    means: NDArray[np.float64],
    deviations: NDArray[np.float64],
    minima: Floats,
    maxima: Floats,
    n_rows: int,
) -> None:
    """Add the zeros that are not stored, and turn sums of squared deviations into variances.

    For n rows, the mean m and the sum M of c entries become ``m c / n`` and
    ``M + m² c (n − c) / n`` (Chan, Golub, LeVeque 1983, with zeros as the second part).
    """
    zero = minima.dtype.type(0)
    for i in range(counts.shape[0]):
        absent = n_rows - counts[i]
        if absent > 0:
            share = counts[i] / n_rows
            deviations[i] += means[i] * means[i] * share * absent
            means[i] *= share
            minima[i] = min(minima[i], zero)
            maxima[i] = max(maxima[i], zero)
        deviations[i] /= n_rows


@compiled
def find_columns(
    indices: Integers,
    columns: Integers,
    starts: NDArray[np.int32],
    shift: int,
    out: NDArray[np.int32],
    spread: int,
) -> int:
    """Find column numbers in a list; returns the place of a wrong number, or −1 if there is none.

    With `spread` 0, a number that is not listed is wrong; a number out of range is always wrong.

    Parameters
    ----------
    columns : (m,) integers
        The list, ascending.
    starts : (b + 1,) int32
        Entry i is the place in `columns` of the first number with ``number >> shift >= i``.
    out : (n,) int32
        Place p of each number in the list, or where it would be inserted. With `spread` 1, the
        result is ``2 p + 1`` for listed numbers and ``2 p`` for others, which keeps the order and
        keeps the two apart.
    """
    for k in range(indices.shape[0]):
        column = indices[k]
        bucket = column >> shift
        if column < 0 or bucket >= starts.shape[0] - 1:
            return k
        low, high = starts[bucket], starts[bucket + 1]
        while low < high:
            middle = (low + high) // 2
            if columns[middle] < column:
                low = middle + 1
            else:
                high = middle
        is_listed = low < columns.shape[0] and columns[low] == column
        if spread:
            out[k] = 2 * low + is_listed
        elif is_listed:
            out[k] = low
        else:
            return k
    return -1


@compiled
def add_entries(
    columns: Integers,
    values: Floats,
    filled: NDArray[np.int64],
    sums: NDArray[np.float64],
    minima: NDArray[np.float64],
    maxima: NDArray[np.float64],
) -> bool:
    """Add entries, in their order, to the sums of their columns; False if a column is out of range.

    Then some entries have been added. `filled` is the number of entries of each column.
    """
    for k in range(columns.shape[0]):
        # Unsigned, a negative number is too large.
        j, value = np.uint64(columns[k]), np.float64(values[k])
        if j >= np.uint64(filled.shape[0]):
            return False
        filled[j] += 1
        sums[j] += value
        minima[j] = min(minima[j], value)
        maxima[j] = max(maxima[j], value)
    return True


@compiled
def add_deviations(
    columns: Integers,
    values: Floats,
    means: NDArray[np.float64],
    deviations: NDArray[np.float64],
) -> None:
    """Add the squared deviations of entries from the means of their columns, in their order."""
    for k in range(columns.shape[0]):
        j = np.uint64(columns[k])
        difference = np.float64(values[k]) - means[j]
        deviations[j] += difference * difference
