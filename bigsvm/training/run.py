"""Run: where a training run is, and how it is measured, stopped and saved."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.training import events
from bigsvm.training.check_saved import RunContent
from bigsvm.training.result import StopReason
from bigsvm.training.saving import resume
from bigsvm.training.state import Counters, Limits, Phase, Stopped, first_state
from bigsvm.working_sets.subproblem import REFRESH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.dual import Dual
    from bigsvm.executors.executor import Partial
    from bigsvm.gram import KernelTiles
    from bigsvm.training.result import KnownPoint
    from bigsvm.training.saving import Saver


class Watch:
    """Adds the costs of this process to `count`, those of earlier processes of a run.

    `counts_steps` says whether there is a max_iter.
    """

    def __init__(
        self, count: Counters, *, source: RowSource, tiles: KernelTiles, limits: Limits
    ) -> None:
        self.count, self._source, self._tiles, self._limits = count, source, tiles, limits
        self.counts_steps = limits.max_iter >= 0
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

    def steps_left(self) -> int:
        """Count the steps until max_iter."""
        if not self.counts_steps:
            return sys.maxsize
        return max(0, self._limits.max_iter - self.count.n_iter)

    def steps_allowed(self, slices: int = 1) -> int:
        """Pair steps of the next slices; 0 where max_iter has been reached."""
        return min(slices * REFRESH, self.steps_left())


class Run:
    """State, counters and random numbers of a run: new, or as its checkpoint has them.

    `is_new` says whether nothing has been resumed, `computed_outputs` whether this process computed
    all outputs and kernel rows that it uses.

    Parameters
    ----------
    source : RowSource
        In random order, for good speed: the first rows are a sample of all.
    tiles : KernelTiles
        float32.
    start : (n,) or (n, faces) float64, optional
        A feasible point to start from instead of 0; the first scope has all rows that it moves. The
        attribute is the point that a new scope starts from, or None.
    point : KnownPoint, optional
        A feasible point to start from, whose outputs need not be computed.
    watch : Watch, optional
        Watch of the search that found `start`; its cost and time are added to this run's.
    seed : int
        Seed of the choice among too many violators.
    saver : Saver, optional
        Saves the run, and reads the state from which it continues.
    """

    def __init__(
        self,
        source: RowSource,
        dual: Dual[Any],
        tiles: KernelTiles,
        plan: TrainingPlan,
        *,
        start: F8 | None = None,
        point: KnownPoint | None = None,
        watch: Watch | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        listener: events.Listener = events.ignore,
        saver: Saver | None = None,
    ) -> None:
        self.source, self.dual, self.tiles, self.plan = source, dual, tiles, plan
        self.listener, self.saver = listener, saver
        self.rng = np.random.default_rng(seed)
        saved = None if saver is None else saver.latest(RunContent(dual, source.n_rows))
        if saved is not None and saved.values["phase"] == Phase.SEARCH:
            saved = None  # it has led to `start`
        if saved is None:
            self.state = first_state(
                dual.formulation.zeros(source.n_rows), n_outputs=dual.formulation.n_outputs
            )
            self.count = watch.count if watch else Counters()
            self.count.phase = Phase.FILL
            if start is not None and point is None:
                # A run that is stopped before it has used this, as while it waits for workers, has
                # it in its checkpoint: a search that has led to it is not done again.
                moved = np.flatnonzero(start.reshape(len(start), -1).any(axis=1))
                self.state = self.state._replace(
                    active=moved, active_alpha=start[moved],
                    active_outputs=self.state.outputs[moved],
                )  # fmt: skip
            if point is not None:
                self.state = self.state._replace(alpha=point.alpha, outputs=point.outputs)
                self.count.phase, self.count.scope = Phase.SELECT, source.n_rows
                self.count.knew_outputs = True
        else:
            self.state, self.count = resume(saved, plan)
            self.rng.bit_generator.state = self.count.random_state
            is_filling = self.count.phase is Phase.FILL and len(self.state.active)
            if is_filling and not self.state.alpha.any():
                # What the run was to start from has not been added up yet.
                start = self.state.alpha.copy()
                start[self.state.active] = self.state.active_alpha
        self.start = start
        self.is_new = self.computed_outputs = saved is None
        if point is not None:
            self.computed_outputs &= point.computed_here
        self.watch = watch or Watch(
            self.count, source=source, tiles=tiles, limits=limits or Limits()
        )

    def of_scope(self) -> tuple[F8, F8]:
        """Alpha and outputs of the rows of the scope; views."""
        scope = self.count.scope
        return self.state.alpha[:scope], self.state.outputs[:scope]

    @property
    def knows_all_outputs(self) -> bool:
        """Whether the outputs of all rows were known after a sweep, or at the start."""
        return self.count.n_sweeps > 0 or self.count.knew_outputs

    @property
    def has_all_rows(self) -> bool:
        """Whether all rows take part."""
        return self.count.scope == self.source.n_rows

    def per_output(self, alpha: F8) -> F8:
        """Weights of kernel rows; see `Problem.per_output`."""
        return self.dual.formulation.per_output(alpha)

    def make_room_for_sums(self) -> None:
        """Set the sums to 0, unless a pass that was interrupted has begun to add up."""
        if not len(self.state.sums):
            sums = np.zeros_like(self.state.outputs[: self.count.scope])
            self.state = self.state._replace(sums=sums)

    def give_back_memory(self) -> None:
        """Keep the holes between arrays out of the budget, where rows come from a store.

        Where rows are in memory, fresh memory would cost more time than this saves memory.
        """
        if self.source.row_alignment > 1:
            give_back_freed_memory()

    def pause(self) -> None:
        """Stop if asked to, and save if it is time; called where the state is whole."""
        self.watch.check()
        if self.saver is not None and self.saver.is_due():
            self.save()

    def save(self) -> None:
        """Bring the counters up to date, and save the run if it has a checkpoint."""
        self.watch.account()
        self.count.random_state = dict(self.rng.bit_generator.state)
        if self.saver is not None:
            self.saver.save(self.state, self.count)
