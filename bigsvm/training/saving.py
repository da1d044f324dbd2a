"""Saver: when a run is saved, and how a saved one is taken up."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from bigsvm.errors import MemoryBudgetError
from bigsvm.training import events
from bigsvm.training.state import Counters, Phase, RowState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.training.checkpoint import Content, Generation
    from bigsvm.training.state import SearchState

_OF_THE_INTERVAL = 0.9
"""Share of the interval that is planned for: the next slice or save may take longer than the last
ones."""


class Generations(Protocol):
    """Where a run is saved to: a checkpoint, or the part of one that belongs to the run."""

    def save(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> int:
        """Write a new generation; returns its number."""

    def latest(self, content: Content | None = None) -> Generation | None:
        """Read the newest generation with valid contents; None if there is none."""


class Saver:
    """Saves a run to its checkpoint at intervals; a kill may cost `every` seconds of work.

    The listener is told of every generation written. `times_asked` returns how often the run was
    asked to save itself now; it does where the number has changed. `keeps_ends` says whether a run
    is saved before its certificate, so that a finished run that is resumed certifies to the same
    bits. That is not needed where its result is kept.
    """

    def __init__(
        self,
        checkpoint: Generations,
        *,
        every: float,
        listener: events.Listener,
        times_asked: Callable[[], int] = lambda: 0,
        keeps_ends: bool = True,
    ) -> None:
        self._checkpoint, self._every, self._listener = checkpoint, every, listener
        self.keeps_ends = keeps_ends
        self._times_asked = times_asked
        self._answered = times_asked()
        self._snapshot = self._last_look = time.monotonic()
        self._slices = [0.0, 0.0]  # the longest of this interval and of the one before
        self._saves = [0.0, 0.0]

    def is_due(self) -> bool:
        """Whether to save now; asked between two slices of work.

        Work is safe once the save after it is complete, so the next slice and the next save are
        counted in advance, by the longest of the last ones.
        """
        now = time.monotonic()
        self._slices[0] = max(self._slices[0], now - self._last_look)
        complete = now + max(self._slices) + max(self._saves)
        self._last_look = now
        due = complete - self._snapshot >= _OF_THE_INTERVAL * self._every
        return due or self._times_asked() != self._answered

    def latest(self, content: Content) -> Generation | None:
        """Read the state from which the run continues, checked by `content`; None for a new run."""
        return self._checkpoint.latest(content)

    def save(self, state: RowState | SearchState, count: Counters) -> None:
        """Write a generation."""
        self.write(state._asdict(), asdict(count))

    def write(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
        """Write a generation of any arrays and plain values."""
        self._snapshot = time.monotonic()
        self._answered = self._times_asked()
        generation = self._checkpoint.save(arrays, values)
        seconds = time.monotonic() - self._snapshot
        self._saves = [seconds, self._saves[0]]
        self._slices = [0.0, self._slices[0]]
        self._last_look = time.monotonic()
        self._listener(events.Checkpointed(generation, seconds))


def resume(saved: Generation, plan: TrainingPlan) -> tuple[RowState, Counters]:
    """Take up a saved run, without its active rows where this memory has no room for them.

    A run that was saved in the middle of a sweep with them needs them, and is refused there.
    """
    count = Counters(**{**saved.values, "phase": Phase(saved.values["phase"])})
    state = RowState(**saved.arrays)
    if count.phase in (Phase.GROW, Phase.FILL):  # these go through rows by pieces
        return state, count
    largest = state.working_set.largest
    if len(state.active) > plan.active_rows or largest > plan.widest_set:
        if len(state.sums):  # f is still that of the last sweep
            state = state.without_sums()
            count.columns_done = count.columns_end = count.rows_done = 0
        elif count.phase is Phase.SWEEP and count.rows_done:
            check_room(max(len(state.active), largest), plan.active_rows)
        count.phase = Phase.SELECT
    return state, count


def check_room(size: int, most: int) -> None:
    """Refuse to continue a sweep with more rows than this memory holds."""
    if size > most:
        raise MemoryBudgetError(
            f"the checkpoint is in the middle of a sweep with {size} rows, "
            f"and this memory holds {most}; resume with as much memory as before"
        )
