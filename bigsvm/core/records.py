"""Rows as records of 32-bit words: scattered over buckets, and gathered in another order.

The record of a row is its head, of `head_words` words, the last of which is its number of entries
n; then, if rows are sparse, the n column numbers; then the n values, of one or two words each.
Records of rows that were scattered together follow one another in a piece. The first of its
`PIECE_HEAD` words is the number of its rows; the others are not read here.

Words are copied as they are, so that their type does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.int32]
    Places: TypeAlias = NDArray[np.int64]

PIECE_HEAD = 4
# Places are unsigned: Numba looks whether a signed one is negative, and then copies word by word.
_ONE = np.uint64(1)


@compiled(allocates=True)
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
    """Write rows as records, bucket by bucket; in a bucket they keep their order.

    The last word of each head, (m, head_words), is filled in here. Entries are CSR, with
    `value_words` words a value; there are no columns at all if rows are dense. `out` is filled with
    the records, and `edges`, (n_buckets + 1,), with the place in it where each bucket begins, and
    its end.
    """
    n_head, n_value = np.uint64(head.shape[1]), np.uint64(value_words)
    is_sparse = columns.shape[0] > 0
    n_entry = n_value + np.uint64(is_sparse)
    edges[:] = 0
    for i in range(bucket.shape[0]):
        n = np.uint64(indptr[i + 1] - indptr[i])
        edges[bucket[i] + 1] += np.int64(n_head + n * n_entry)
    for b in range(edges.shape[0] - 1):
        edges[b + 1] += edges[b]
    ends = edges[:-1].astype(np.uint64)
    for i in range(bucket.shape[0]):
        at = ends[bucket[i]]
        start, n = np.uint64(indptr[i]), np.uint64(indptr[i + 1] - indptr[i])
        for k in range(n_head - _ONE):
            out[at + k] = head[i, k]
        at += n_head
        out[at - _ONE] = np.int32(n)
        if is_sparse:
            for k in range(n):
                out[at + k] = columns[start + k]
            at += n
        start *= n_value
        n *= n_value
        for k in range(n):
            out[at + k] = values[start + k]
        ends[bucket[i]] = at + n


@compiled
def find(words: Words, head_words: int, entry_words: int, places: Places, numbers: Words) -> None:
    """Find the records in whole pieces, one after the other.

    A head has `head_words`, an entry with its column number `entry_words`. `places`, (n_rows,), is
    filled with the place of each record, and `numbers`, (n_rows, 2), with the first two words of
    each head.
    """
    at, row = 0, 0
    while row < places.shape[0]:
        end = row + words[at]
        at += PIECE_HEAD
        while row < end:
            places[row] = at
            numbers[row, 0], numbers[row, 1] = words[at], words[at + 1]
            at += head_words + words[at + head_words - 1] * entry_words
            row += 1


@compiled
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
    """Copy the records at m `places` in pieces to arrays, in this order.

    The arrays are head (m, head_words), indptr (m + 1,), columns (nnz,) and values (nnz *
    value_words,); columns are empty if rows are dense. `first_column` is subtracted from the column
    numbers.
    """
    n_head, n_value = np.uint64(head.shape[1]), np.uint64(value_words)
    is_sparse = columns.shape[0] > 0
    first = np.int32(first_column)
    start = np.uint64(0)
    indptr[0] = 0
    for i in range(places.shape[0]):
        at = np.uint64(places[i])
        for k in range(n_head):
            head[i, k] = words[at + k]
        at += n_head
        n = np.uint64(words[at - _ONE])
        if is_sparse:
            for k in range(n):
                columns[start + k] = words[at + k] - first
            at += n
        for k in range(n * n_value):
            values[start * n_value + k] = words[at + k]
        start += n
        indptr[i + 1] = np.int64(start)
