"""Rows in memory that come from elsewhere when they are asked for; `hold` chooses what is held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import HELD_SHARE
from bigsvm.data.rows import RowsAt, check_indices, stack_rows
from bigsvm.data.wrappers import HeldRows, RowsInMemory
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows

AT_ONCE_BYTES = 64 << 20
"""Bytes of rows that are fetched together, as they are there twice for a moment."""


LEAST_GROWTH = 8
"""Rows that are fetched are at least 1 / this of those that are here: so they are fetched few
times, however few of them are asked for at a time."""


class FetchedRows(RowsInMemory):
    """Rows of a source that are like rows in memory, but only those that were asked for are there.

    Training on them takes the way of `HeldRows`, to the last bit. The rows of `source` come from
    the workers of a cluster, so each of them is taken once; some come before they are asked for.
    """

    def __init__(self, source: RowSource) -> None:
        super().__init__(source)
        self.row_alignment = 1
        self._lock = threading.RLock()
        self._rows: Any = stack_rows([], self.n_columns, self.dtype, sparse=True)
        if not self.is_sparse:
            # The system gives memory to those rows of it that are written.
            self._rows = np.empty((self.n_rows, self.n_columns), self.dtype)
        self._is_here = np.zeros(self.n_rows, np.bool_)
        # Sparse rows are in the order in which they came.
        self._places = np.zeros(self.n_rows if self.is_sparse else 0, np.int64)

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; a view, if they are dense."""
        self._check_span(start, stop)
        rows, places = self._lent(np.arange(start, stop))
        return rows[places] if self.is_sparse else rows[start:stop]

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        rows, places = self.lend(indices)
        return rows[places]

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are."""
        check_indices(indices, self.n_rows)
        check_interrupt()
        return self._lent(np.asarray(indices, np.int64))

    def values(
        self, function: Callable[[Rows], NDArray[Any]], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return a function of all rows, (n,); see `RowSource.values`."""
        return self._source.values(function, dtype)

    def _lent(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`; those that are not here are fetched."""
        with self._lock:
            if not self._is_here[indices].all():
                self._fetch(np.unique(indices[~self._is_here[indices]]))
            return RowsAt(self._rows, self._places[indices] if self.is_sparse else indices)

    def _fetch(self, missing: NDArray[np.int64]) -> None:
        more = int(np.count_nonzero(self._is_here)) // LEAST_GROWTH - len(missing)
        if more > 0:
            absent = ~self._is_here
            absent[missing] = False
            missing = np.union1d(missing, np.flatnonzero(absent)[:more])
        step = max(1, int(AT_ONCE_BYTES / max(self.bytes_per_row, 1.0)))
        for low in range(0, len(missing), step):
            some = missing[low : low + step]
            rows = self._source.take(some)
            if self.is_sparse:
                held = self._rows.shape[0]
                self._places[some] = held + np.arange(len(some))
                pieces = [self._rows, rows] if held else [rows]
                self._rows = stack_rows(pieces, self.n_columns, self.dtype, sparse=True)
            else:
                self._rows[some] = rows
            self._is_here[some] = True


def hold(source: RowSource, memory: int) -> RowSource:
    """Keep the rows of a source that costs reading, where they take a small share of `memory`."""
    size = source.n_rows * source.bytes_per_row
    if source.row_alignment <= 1 or size > HELD_SHARE * memory:
        return source
    if source.is_fetched:
        return FetchedRows(source)
    return HeldRows(source, source.read_whole())
