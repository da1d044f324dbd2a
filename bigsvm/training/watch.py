"""What a run has cost so far, and whether it has to end."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from bigsvm.core.smo import REFRESH
from bigsvm.training.result import StopReason
from bigsvm.training.state import Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.executor import Partial
    from bigsvm.gram import KernelTiles
    from bigsvm.training.state import Counters, Limits


class Watch:
    """Adds the costs of this process to those of earlier processes of a run.

    Parameters
    ----------
    count : Counters
        As an earlier process left it.
    """

    def __init__(
        self, count: Counters, *, source: RowSource, tiles: KernelTiles, limits: Limits
    ) -> None:
        self.count, self._source, self._tiles, self._limits = count, source, tiles, limits
        self._started = time.monotonic()
        self._in_passes = 0
        # Several runs may share the tiles; each counts its own evaluations.
        evaluations = count.n_kernel_evaluations - tiles.n_evaluations
        self._before = (count.seconds, evaluations, count.bytes_read)

    def seconds(self) -> float:
        """Time of training so far."""
        return self._before[0] + time.monotonic() - self._started

    def add(self, partial: Partial, *, threads: int) -> None:
        """Add what a block of a pass has cost on `threads` threads."""
        self.count.sweep_seconds += partial.seconds
        self.count.thread_seconds += threads * partial.seconds
        self.count.cpu_seconds += partial.cpu_seconds
        self._in_passes += partial.evaluations

    @contextmanager
    def timing(self, phase: Literal["certificate", "sweep", "row", "step"]) -> Iterator[None]:
        """Add the time of the block to a phase."""
        name, began = f"{phase}_seconds", time.monotonic()
        try:
            yield
        finally:
            seconds = getattr(self.count, name) + time.monotonic() - began
            setattr(self.count, name, seconds)

    def account(self) -> None:
        """Bring the counters up to date."""
        _, evaluations, read = self._before
        self.count.seconds = self.seconds()
        self.count.n_kernel_evaluations = evaluations + self._tiles.n_evaluations + self._in_passes
        self.count.bytes_read = read + self._source.bytes_read

    def check(self) -> None:
        """Raise `Stopped` if the run is to end."""
        if self._limits.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        if time.monotonic() - self._started >= self._limits.max_seconds:
            raise Stopped(StopReason.TIME_LIMIT)

    @property
    def counts_steps(self) -> bool:
        """Whether there is a max_iter."""
        return self._limits.max_iter >= 0

    def steps_left(self) -> int:
        """Count the steps until max_iter."""
        if not self.counts_steps:
            return sys.maxsize
        return max(0, self._limits.max_iter - self.count.n_iter)

    def steps_allowed(self, slices: int = 1) -> int:
        """Pair steps of the next slices; 0 where max_iter has been reached."""
        return min(slices * REFRESH, self.steps_left())
