"""Sums over the entries of sparse rows, for each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


@compiled
def add_entries(
    columns: Integers,
    values: Floats,
    filled: NDArray[np.int64],
    sums: NDArray[np.float64],
    minima: NDArray[np.float64],
    maxima: NDArray[np.float64],
) -> bool:
    """Add entries, in their order, to the sums of their columns.

    Parameters
    ----------
    columns, values : (nnz,)
    filled, sums, minima, maxima : (n_columns,)
        Number of entries of each column, their sum, the least and the largest.

    Returns
    -------
    bool
        False if a column is out of range; then some entries have been added.
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
