"""Few rows as records of 32-bit words, by NumPy: the same words as of `bigsvm.core.records`.

That is faster, but has to be compiled, or at least loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.int32]
    Places: TypeAlias = NDArray[np.int64]


PIECE_HEAD = 4
"""Words before the records of a piece, as in `bigsvm.core.records`."""


def scatter(
    bucket: Places,
    head: Words,
    indptr: Places,
    columns: Words,
    values: Words,
    value_words: int,
    edges: Places,
    out: Words,
) -> None:
    """Write rows as records, bucket by bucket; in a bucket they keep their order."""
    n_head, n_entries = head.shape[1], np.diff(indptr)
    column_words = int(columns.shape[0] > 0)
    head[:, -1] = n_entries
    sizes = n_head + n_entries * (column_words + value_words)
    edges[0] = 0
    np.cumsum(np.bincount(bucket, sizes, len(edges) - 1).astype(np.int64), out=edges[1:])
    order = np.argsort(bucket, kind="stable")
    at = np.empty(len(bucket), np.int64)
    at[order] = np.cumsum(sizes[order]) - sizes[order]
    out[at[:, None] + np.arange(n_head)] = head
    at += n_head
    if column_words:
        out[_places(at, n_entries)] = columns
        at += n_entries
    out[_places(at, n_entries * value_words)] = values


def find(words: Words, head_words: int, entry_words: int, places: Places, numbers: Words) -> None:
    """Find the records in whole pieces, one after the other."""
    at, row, found = 0, 0, []
    # One word after the other is read faster here than from an array.
    read = np.ascontiguousarray(words).data
    while row < len(places):
        end = row + read[at]
        at += PIECE_HEAD
        while row < end:
            found.append(at)
            at += head_words + read[at + head_words - 1] * entry_words
            row += 1
    places[:] = found
    numbers[:] = words[places[:, None] + np.arange(2)]


def gather(
    words: Words,
    places: Places,
    first_column: int,
    value_words: int,
    head: Words,
    indptr: Places,
    columns: Words,
    values: Words,
) -> None:
    """Copy the records at m `places` in pieces to arrays, in this order."""
    n_head = head.shape[1]
    head[:] = words[places[:, None] + np.arange(n_head)]
    n_entries = head[:, -1].astype(np.int64)
    indptr[0] = 0
    np.cumsum(n_entries, out=indptr[1:])
    at = places + n_head
    if columns.shape[0] > 0:
        columns[:] = words[_places(at, n_entries)] - np.int32(first_column)
        at += n_entries
    values[:] = words[_places(at, n_entries * value_words)]


def _places(starts: Places, sizes: Places) -> Places:
    """Numbers of the words of spans that begin at `starts`, one span after the other."""
    ends = np.cumsum(sizes)
    places: Places = np.arange(int(sizes.sum())) + np.repeat(starts - (ends - sizes), sizes)
    return places
