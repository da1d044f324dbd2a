"""Lists of partners, one for each feature: for sparse rows that have few features in common.

`bigsvm.core.gram.listed_span` multiplies rows with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core import csr

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I4, I8

    Floats = F4 | F8
    Integers = NDArray[np.integer[Any]]

ENTRIES_PER_MATCH = 3.0
"""Lists are used where a row of a tile has at least this many entries for each feature that it
shares with a partner: multiplying by a list costs as much more than multiplying by a tile."""
FULL_LIST = 8
"""A list with at least 1 / FULL_LIST of the partners of its tile has all of them, because such a
list is added up by vector instructions."""
LEAST_SPARSE = 4
"""Lists have at most 1 / LEAST_SPARSE of the partners on average: longer ones take as much memory
as a tile."""
COLUMNS_PER_ENTRY = 64
"""Most columns for each entry of a tile of lists: its directory has two bits of each column."""
DOUBT = 2.0
"""All tiles of a run are planned as lists only if a sample passes the rule by this factor: tiles
have other rows."""
MORE_BYTES = 1.25
"""Planned bytes over those of a sample: other rows may take more."""


def lists_of(data: Floats, indices: Integers, indptr: I8, used: I4, place: I4) -> tuple[I4, Floats]:
    """Lay CSR rows out in lists of the features used: the lists with their directory, and values.

    `place` is scratch, (n_features,).
    """
    p, n_words = len(indptr) - 1, -(-len(place) // 32)
    place[used] = 0
    csr.csr_counts(indices, indptr, place)
    starts = np.zeros(len(used) + 1, np.int32)
    np.cumsum(_lengths(place[used], p), out=starts[1:])
    head, n_listed = 1 + 2 * n_words, int(starts[-1])
    part = np.zeros(head + len(starts) + n_listed, np.int32)
    part[0], part[head : head + len(starts)] = n_words, starts
    directory = part[1:head].view(np.uint32).reshape(n_words, 2)
    values = np.zeros(n_listed, data.dtype)
    partners = part[head + len(starts) :]
    csr.csr_lists(data, indices, indptr, used, starts, place, directory, partners, values)
    return part, values


def share_few(
    indices: Integers, indptr: I8, n_columns: int, *, entries_per_match: float = ENTRIES_PER_MATCH
) -> bool:
    """Whether CSR rows have so few features in common that lists of them are faster than a tile."""
    p, n_entries = len(indptr) - 1, int(indptr[-1])
    if n_columns > COLUMNS_PER_ENTRY * n_entries:
        return False
    counts = np.zeros(n_columns, np.int32)
    csr.csr_counts(indices, indptr, counts)
    counts = counts[counts > 0]
    if LEAST_SPARSE * _lengths(counts, p).sum() > len(counts) * p:
        return False
    matches = np.square(counts, dtype=np.float64).sum()
    return bool(entries_per_match * matches <= n_entries * p)


def _lengths(counts: I4, p: int) -> I4:
    """Lengths of the lists of features, of which each has `counts` of p partners."""
    return np.where(FULL_LIST * counts >= p, np.int32(p), counts)


def listed_bytes(rows: sp.csr_array, *, most_features: int) -> float | None:
    """Bytes of a row in lists of float32, to plan memory by; None if rows may be laid out in tiles.

    The rows are a sample of as many as a tile has, which may have `most_features` features.
    """
    n_rows, n_columns = rows.shape
    values, indices, indptr = csr.csr_take(rows.data, rows.indices, rows.indptr, np.arange(n_rows))
    used = np.unique(indices).astype(np.int32)
    surely = {"entries_per_match": DOUBT * ENTRIES_PER_MATCH}
    if len(used) < DOUBT * most_features or not share_few(indices, indptr, n_columns, **surely):
        return None
    data, place = values.astype(np.float32, copy=False), np.empty(n_columns, np.int32)
    lists = lists_of(data, indices, indptr, used, place)
    return MORE_BYTES * float(sum(part.nbytes for part in lists) / n_rows)
