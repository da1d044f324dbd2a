"""How many rows of a store are different, for stores that are read in a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.rows import is_sparse
from bigsvm.errors import BigsvmError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.store import Store

MOST_BYTES = 64 << 20
"""Bytes of rows that are read for it: about a second."""
BLOCK_BYTES = 8 << 20
"""Bytes of rows in memory at a time."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""The odd number next to 2⁶⁴ divided by the golden ratio, which spreads bits upwards."""


def n_different_rows(store: Store) -> int | None:
    """Count the different rows of a store; those with another label are others.

    Rows are compared by 64-bit hashes of their values: of a million rows, two different ones have
    the same hash with a chance of 3e-8. None where reading the rows takes long, or fails.
    """
    source = store.rows
    if store.place.is_far or source.n_rows * source.bytes_per_row > MOST_BYTES:
        return None
    try:
        return _count(store)
    except BigsvmError:  # of a damaged store the rest is told
        return None


def _count(store: Store) -> int:
    source = store.rows
    hashes = _mixed(store.label_numbers()) * _keys(np.array([source.n_columns]))
    for start, rows in source.blocks(BLOCK_BYTES):
        hashes[start : start + rows.shape[0]] += _hashes(rows)
    return len(np.unique(hashes))


def _keys(columns: NDArray[Any]) -> NDArray[np.uint64]:
    """Make a random number of each column's number, as SplitMix64 does: columns may be billions."""
    bits = (columns.astype(np.uint64) + np.uint64(1)) * SPREAD
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _hashes(rows: Any) -> NDArray[np.uint64]:  # noqa: ANN401 (dense, CSR)
    """Hash rows, (m, d) dense or CSR; zeros that are stored count as none."""
    sums = np.zeros(rows.shape[0], np.uint64)
    if not is_sparse(rows):
        np.sum(_mixed(rows) * _keys(np.arange(rows.shape[1])), axis=1, out=sums)
        return sums
    # A sum of a row from the sums of all before it; both wrap around alike.
    before = np.zeros(len(rows.data) + 1, np.uint64)
    np.cumsum(_mixed(rows.data) * _keys(rows.indices), out=before[1:])
    sums += before[rows.indptr[1:]] - before[rows.indptr[:-1]]
    return sums


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Spread the bits of numbers, so that also their low bits differ; 0 stays 0."""
    numbers = np.ascontiguousarray(values, np.float64) + 0.0  # 0 and -0 are the same value
    bits = numbers.view(np.uint64) * SPREAD
    return (bits ^ (bits >> np.uint64(32))) * SPREAD
