"""Rows parsed from LIBSVM text, and counts of its lines, entries and comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_INDEX = 2**31 - 2
"""Largest feature index: a count of columns, which is one more than the last column, is an int32
too. The compiled parser has its own, as a file of the core imports no other one."""


class TextRows(NamedTuple):
    """Parsed rows in CSR form, indices as they are written.

    labels : (m,) float64; indptr : (m + 1,) int64; indices : (nnz,) int32;
    values : (nnz,) float32 or float64.
    """

    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32] | NDArray[np.float64]


@dataclass
class TextCounts:
    """What has been read so far; the indices are None while there is no entry."""

    rows: int = 0
    entries: int = 0
    empty_lines: int = 0
    comments: int = 0
    qids: int = 0
    smallest_index: int | None = None
    largest_index: int | None = None
    bytes_read: int = 0

    def add(self, more: TextCounts) -> None:
        """Add the counts of one chunk; its bytes are counted where they are read."""
        self.rows += more.rows
        self.entries += more.entries
        self.empty_lines += more.empty_lines
        self.comments += more.comments
        self.qids += more.qids
        lows, highs = (
            [index for index in both if index is not None]
            for both in (
                (self.smallest_index, more.smallest_index),
                (self.largest_index, more.largest_index),
            )
        )
        self.smallest_index = min(lows, default=None)
        self.largest_index = max(highs, default=None)
