"""Rows that are equal bit by bit, found in one pass over rows in memory, or on workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.core import duplicates as core
from bigsvm.data.rows import is_sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Indices, Rows

KEY_SEED = 20


class Groups(NamedTuple):
    """Rows by groups of equal ones.

    `rows` has the members of the first group, ascending, then those of the second, … `starts`,
    (n_groups + 1,), says where each group begins in it, and where the last one ends.
    """

    rows: Indices
    starts: NDArray[np.int64]

    @property
    def first(self) -> Indices:
        """(n_groups,) the first row of each group."""
        return self.rows[self.starts[:-1]]

    def __len__(self) -> int:
        return len(self.starts) - 1


def equal_rows(source: RowSource, kind: NDArray[np.integer[Any]], candidates: Indices) -> Groups:
    """Group those of the rows `candidates` of a source that are equal and of one kind.

    Zero and negative zero differ, and so do a stored zero and a missing one: rows that are not
    found equal are only kept twice. The rows are dense, or CSR with sorted indices. Rows of two
    kinds (labels), (n,) integers, are never equal. The candidates ascend.
    """
    if source.is_fetched:
        hashes = source.values(hashes_of, np.dtype(np.uint64))
    else:
        hashes = hashes_of(source.read(0, source.n_rows))
    hashes ^= kind.astype(np.uint8)  # a hint, as the hashes are
    order = candidates[np.argsort(hashes[candidates], kind="stable")]
    before, after = order[:-1], order[1:]
    same = hashes[before] == hashes[after]
    same &= kind[before] == kind[after]
    pairs = np.flatnonzero(same)
    equal = np.empty(len(pairs), np.bool_)
    if len(pairs):
        lent = source.lend(np.concatenate([before[pairs], after[pairs]]).astype(np.int64))
        first, second = lent.places.astype(order.dtype).reshape(2, -1)
        rows: Any = lent.rows
        if is_sparse(rows):
            bits = rows.data.view(f"u{rows.data.itemsize}")
            core.same_sparse(bits, rows.indices, rows.indptr, first, second, equal)
        else:
            core.same_dense(rows.view(f"u{rows.itemsize}"), first, second, equal)
    same[pairs] = equal
    differs = np.ones(len(order) + 1, np.bool_)
    differs[1:-1] = ~same
    starts = np.flatnonzero(differs) if len(order) else np.zeros(1, np.int64)
    return Groups(order, starts)


def hashes_of(values: Rows) -> NDArray[np.uint64]:
    """Hash of each row; workers compute it too."""
    keys = np.random.default_rng(KEY_SEED).integers(0, 1 << 64, values.shape[1], np.uint64) | 1
    hashes = np.empty(values.shape[0], np.uint64)
    rows: Any = values
    if is_sparse(rows):
        bits = rows.data.view(f"u{rows.data.itemsize}")
        core.hash_sparse(bits, rows.indices, rows.indptr, keys, hashes)
    else:
        core.hash_dense(rows.view(f"u{rows.itemsize}"), keys, hashes)
    return hashes
