"""Rows of a source that workers read: those that this process asks for are sent here."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.row_source import RowSource
from bigsvm.data.wrappers import DerivedRows
from bigsvm.errors import ClusterError
from bigsvm.executors.units import units_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RemoteBlocks
    from bigsvm.data.rows import Rows
    from bigsvm.executors.units import Units
    from bigsvm.executors.workforce import Workforce

ALONE_SECONDS = 10.0
"""How long rows are waited for where all workers have gone; this process then reads them itself."""


class WorkerRows(DerivedRows):
    """Rows that workers read, or have as results of Dask, and send here if they are asked for.

    They wait for workers as any task of a run does, once, and at most for `patience` seconds. While
    there are none then, or later, this process reads rows itself. `bytes_read` are those that it
    has read, without those that it has read again to check workers.

    Parameters
    ----------
    source : RowSource
        It has to be portable, or to have remote blocks.
    workforce : Workforce
    patience : float
        The time limit of the run: it ends with what it has.
    """

    def __init__(
        self, source: RowSource, workforce: Workforce, *, patience: float = math.inf
    ) -> None:
        super().__init__(source)
        self.is_fetched = True
        self._force, self._patience, self._lock = workforce, patience, threading.RLock()
        self._units: Units | None = None
        self._read_before = source.bytes_read

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        self._check_span(start, stop)
        return self.take(np.arange(start, stop))

    def take(self, indices: I8) -> Rows:
        """Rows at `indices`, in that order."""
        with self._lock:
            if len(indices) and self._are_there_workers():
                try:
                    with self._force.waiting_at_most(ALONE_SECONDS):
                        return self._found_units().take(np.asarray(indices, np.int64))
                except ClusterError:
                    if self._force.is_doubtful:
                        raise
            return self._source.take(indices)

    def values(
        self, function: Callable[[Rows], NDArray[Any]], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return a function of all rows, (n,), which workers compute; see `Units.values`."""
        with self._lock:
            if self._force.wait_for_workers(at_most=self._patience):
                return self._found_units().values(function, dtype)
            return self._source.values(function, dtype)

    def rows_with(self, indices: I8, max_bytes: int) -> Rows:
        """Rows at ascending `indices`; this process does not read the blocks that hold them."""
        return self.take(indices)

    def column_means(self) -> F8:
        """Mean of each column; where that takes a pass, workers send the rows."""
        return RowSource.column_means(self) if self._takes_pass else super().column_means()

    def total_variance(self) -> float:
        """Variance of all entries; see `column_means`."""
        return RowSource.total_variance(self) if self._takes_pass else super().total_variance()

    @property
    def _takes_pass(self) -> bool:
        """Whether statistics of the source are by a pass of this process over its blocks."""
        kind = type(self._source)
        return (kind.column_means, kind._survey) == (RowSource.column_means, RowSource._survey)

    def placed(self) -> tuple[RowSource, None]:
        """Return the source, which this process can read itself."""
        return self._source, None

    def portable(self) -> RowSource | None:
        """Return the source, if another process can read it."""
        return self._source.portable()

    def remote_blocks(self) -> RemoteBlocks | None:
        """Blocks of the source on workers."""
        return self._source.remote_blocks()

    @property
    def bytes_read(self) -> int:
        """Bytes of rows that this process has read for the run, but for those of checks."""
        read = self._source.bytes_read - self._read_before
        return read - self._force.traffic.bytes_checked

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        return self._source._end_of_block(start, stop, max_bytes)

    def _are_there_workers(self) -> bool:
        if self._force.is_closed:
            return False
        if self._units is None:
            return self._force.wait_for_workers(at_most=self._patience)
        return bool(self._force.ready())

    def _found_units(self) -> Units:
        # Their size depends on the workers that there are by now.
        if self._units is None:
            self._units, _ = units_of(self._force, self._source)
        return self._units


def of_workers(source: RowSource, workforce: Workforce, *, patience: float = math.inf) -> RowSource:
    """Have workers read the rows of a source, if they can; see `WorkerRows`."""
    if source.row_alignment <= 1:
        return source
    if source.portable() is None and source.remote_blocks() is None:
        return source
    return WorkerRows(source, workforce, patience=patience)
