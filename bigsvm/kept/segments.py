"""Segments: parts of kernel rows in a file.

A kernel row has a value for each row that is trained, in the order of training. Training adds rows
in that order, so a kernel row is kept in segments, of which the first ones are needed first. A
segment is a row of a `RowFile`, with a hash of its own.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.papers.row_file import RowFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.arrays import F4, I8, Mask

logger = logging.getLogger(__name__)

WIDTH = 1024
"""Values of a segment: a page. To read a longer one for few of its values would cost more."""
TABLE_BYTES = 16
"""Bytes of memory for a segment: its hash, and its owner while the file is opened."""
AT_ONCE = 1024
"""Rows whose segments are looked at together when a file is opened."""
MOST_WARNINGS = 5
"""Most warnings of damaged segments, as a file that was overwritten has very many."""


class Segments:
    """Segments of kernel rows among n rows, by the number of the row and of the segment.

    A row gets room for all of its segments when the first one is written, until the room is used
    up. Segments are read and written by several threads.

    An OSError is raised if the file cannot be used or has no room for a row. Later errors of the
    disk are logged, and end reading and writing.

    Parameters
    ----------
    folder, fingerprint, capacity_bytes
        As for `RowFile`.
    n_rows : int
    table_bytes : int
        Bytes of memory for the tables; fewer segments are kept if they need more.

    Attributes
    ----------
    per_row : int
        Segments of a row; values past the last row are not used.
    n_rows_kept : int
        Rows that there is room for.
    has_earlier : bool
        Whether the file existed before.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, str],
        *,
        n_rows: int,
        capacity_bytes: int,
        table_bytes: int,
    ) -> None:
        self.n_rows, self.per_row = n_rows, -(-n_rows // WIDTH)
        most = min(n_rows, table_bytes // (TABLE_BYTES * self.per_row))
        if most < 1:
            raise OSError(f"{table_bytes} bytes of memory are too few for a table of segments")
        self._file = RowFile(
            folder, {**fingerprint, "parts": "segments"},
            n_variables=WIDTH, capacity_bytes=capacity_bytes, n_rows=most * self.per_row,
        )  # fmt: skip
        self.n_rows_kept = self._file.n_slots // self.per_row
        self.has_earlier = not self._file.is_new
        if not self.n_rows_kept:
            self._file.close(remove=self._file.is_new)
            raise OSError(f"{capacity_bytes} bytes hold no kernel row of {n_rows} values")
        self._lock = threading.Lock()
        self._place = np.full(n_rows, -1, np.int32)
        self._free = self._take_stock()
        self._n_damaged, self._reads, self._writes = 0, True, True

    def _take_stock(self) -> list[int]:
        """Find out which rows are in the file; return the free places, the last one first."""
        owners = self._file.owners()[: self.n_rows_kept * self.per_row]
        owners = owners.reshape(self.n_rows_kept, self.per_row)
        for first in range(0, self.n_rows_kept, AT_ONCE):
            self._take_places(first, owners[first : first + AT_ONCE])
        is_free = np.ones(self.n_rows_kept, np.bool_)
        is_free[self._place[self._place >= 0]] = False
        self._digests[is_free] = 0
        free: list[int] = np.flatnonzero(is_free)[::-1].tolist()
        return free

    def _take_places(self, first: int, owners: I8) -> None:
        """Take the rows at places from `first` on, whose segments have these owners, (m, per_row).

        The first valid segment of a place says whose it is, and the first place of a row counts.
        """
        valid = (owners % self.per_row == np.arange(self.per_row)) & (owners >= 0)
        rows = owners // self.per_row
        row = rows[np.arange(len(rows)), valid.argmax(axis=1)]
        self._digests[first : first + len(rows)][~valid | (rows != row[:, None])] = 0
        fits = valid.any(axis=1) & (row < self.n_rows)
        found, place = np.unique(row[fits], return_index=True)
        new = self._place[found] < 0
        self._place[found[new]] = first + np.flatnonzero(fits)[place[new]]

    @property
    def _digests(self) -> NDArray[np.uint64]:
        """Hashes of the segments, (n_rows_kept, per_row): 0 where there is none; a view."""
        size = self.n_rows_kept * self.per_row
        return self._file.digests[:size].reshape(self.n_rows_kept, self.per_row)

    @property
    def has_room(self) -> bool:
        """Whether another row may be kept."""
        return bool(self._free) and self._writes

    def held(self, rows: I8, segment: int) -> Mask:
        """Whether a segment of some rows, (m,), is in the file."""
        places = self._place[rows]
        held: Mask = (self._digests[places, segment] != 0) & (places >= 0) & self._reads
        return held

    def read(self, row: int, segment: int, out: F4) -> bool:
        """Read a segment to out (WIDTH,); False if it is not there as it was written."""
        place = int(self._place[row])
        if place < 0 or not self._reads:
            return False
        try:
            if self._file.read(place * self.per_row + segment, self._name(row, segment), out):
                return True
        except OSError as error:
            # Nothing is read any more, as each further error could take a long time.
            logger.warning("%s: %s; kernel rows are computed from now on", self._file.path, error)
            self._reads = self._writes = False
            return False
        with self._lock:
            self._digests[place, segment] = 0
            self._n_damaged += 1
        if self._n_damaged <= MOST_WARNINGS:
            logger.warning("%s: damaged, so computed again: a part of row %d", self._file.path, row)
        return False

    def write(self, row: int, segment: int, values: F4) -> None:
        """Keep the values of a segment, (WIDTH,), if there is room for the row."""
        with self._lock:
            if not self._writes:
                return
            if self._place[row] < 0:
                if not self._free:
                    return
                self._place[row] = self._free.pop()
            slot = int(self._place[row]) * self.per_row + segment
            try:
                self._file.write(slot, self._name(row, segment), values)
            except OSError as error:
                self._writes = False
                logger.warning("%s: %s; no more rows are written", self._file.path, error)

    def _name(self, row: int, segment: int) -> int:
        return row * self.per_row + segment

    def close(self, *, remove: bool = False) -> None:
        """Close the file; with `remove`, or if it has no row, delete it."""
        if self._n_damaged > MOST_WARNINGS:
            logger.warning("%s: %d segments were damaged", self._file.path, self._n_damaged)
        self._file.close(remove=remove or not (self._place >= 0).any())
