"""Core vector machine, Frank-Wolfe and modified Frank-Wolfe as Frandi et al. 2013 has them.

Each iteration draws a fresh random sample and finds the row of it that is farthest from the centre
(algorithms 1, 2 and 3 with the sampling of section 5.2.3). If that row is outside the ball, one
step follows, or of the core vector machine the row joins the core set, which is solved again from
where it was. The search ends at the first sample without a row outside, or after as many of them in
a row as the caller asks for.

Kernel values of several samples with the core set are computed together: samples do not depend on
the steps. Rows that are likely to join, being the farthest of a sample as the block of samples
begins, have their kernel values with the block computed at the same time.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.balls.batched import SampledSearch
from bigsvm.balls.core_set import CoreSet
from bigsvm.balls.search import Search
from bigsvm.core import sampled_steps as steps
from bigsvm.data.rows import RowsAt, stack_rows
from bigsvm.duals.ball import Solver
from bigsvm.gram import Partners
from bigsvm.training.result import StopReason
from bigsvm.training.state import SearchState

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.balls.random_rows import RandomRows
    from bigsvm.budget import TrainingPlan
    from bigsvm.gram import KernelTiles
    from bigsvm.training.state import Counters

FEWEST_SAMPLES = 8
"""Least samples of a block."""
MOST_SAMPLES = 64
"""Most samples of a block: what is computed for samples after the end of a search is wasted."""
SHARE_OF_STEPS = 0.25
"""Samples of a block, as a share of the steps so far."""
BLOCK_SHARE = 0.25
"""Share of the active rows' memory, and of the kernel rows', that a block of samples takes."""
AHEAD = 8
"""Rows whose kernel values with a block are computed together when those of one are needed."""
FRESH = 4
"""Most rows of a block, for each of its samples, whose kernel values with it are computed."""
OF_A_BLOCK = ("n_iter", "rows_drawn", "empty_samples")
"""Counters that change during a block."""
STEPS_OF_A_POINT = 4
"""Frank-Wolfe steps for each point that end a search if sweeps follow: at a fine tolerance it may
need millions, and sweeps are faster."""
STEPS_OF_A_SOLVED_POINT = 256
"""The same for a core set that is solved exactly."""


class SampleBlock(NamedTuple):
    """The samples of a block: as compiled code takes them, their rows, and the rows as partners."""

    samples: steps.Samples
    rows: RowsAt
    partners: Partners


class StepwiseSearch(Search):
    """One search that takes a step for each sample; see the module's docstring."""

    core: CoreSet
    ends_as_published = True
    _at_beginning: tuple[SearchState, dict[str, Any]] | None = None

    def _plan_of_core(self, plan: TrainingPlan) -> TrainingPlan:
        self._block_rows = max(1, int(BLOCK_SHARE * plan.active_rows))
        self._block_values = int(BLOCK_SHARE * plan.gram_bytes)
        # A plan has room for four copies of an active row. There are three of a point at most, and
        # two of a quarter as many rows of a block.
        least = CoreSet.least_values() * np.dtype(np.float32).itemsize
        return replace(plan, gram_bytes=max(plan.gram_bytes - self._block_values, least))

    def _most_points(self, plan: TrainingPlan, tiles: KernelTiles) -> int:
        n_values = plan.gram_bytes // tiles.dtype.itemsize
        return min(CoreSet.most_points(n_values), plan.active_rows)

    def _make_core(self, plan: TrainingPlan, tiles: KernelTiles, capacity: int) -> CoreSet:
        return CoreSet(
            self._dual, tiles, capacity=capacity, is_sparse=self._source.is_sparse,
            n_values=plan.gram_bytes // tiles.dtype.itemsize,
        )  # fmt: skip

    @property
    def _is_exact(self) -> bool:
        return self._dual.solver is Solver.CVM

    def _begin(self, rows: RandomRows) -> None:
        self._mark()
        super()._begin(rows)
        if self.watch.steps_left():
            self.core.drop_weightless()
            self._at_beginning = None

    def _mark(self) -> None:
        """Save the state at the beginning of the first ball or of a block."""
        state, count = super()._state()
        self._at_beginning = _copy_of(state), {name: getattr(count, name) for name in OF_A_BLOCK}

    def _state(self) -> tuple[SearchState, Counters]:
        if self._at_beginning is None:
            return super()._state()
        # In the middle of the first ball or of a block, which a resumed run repeats.
        state, counters = self._at_beginning
        return state, replace(self.count, **counters)

    def _round(self, rows: RandomRows) -> StopReason | None:
        """Iterate for a block of samples."""
        core, count = self.core, self.count
        if not self.watch.steps_left():
            return StopReason.MAX_ITER
        drawn, n_samples = count.rows_drawn, self._samples_of_block()
        core.counters[[steps.STEPS, steps.SAMPLE]] = count.n_iter, 0
        core.counters[steps.EMPTY_SAMPLES] = count.empty_samples
        core.counters[steps.FARTHEST] = -1
        with self.watch.timing("sweep"):
            block = self._drawn(rows, n_samples) if n_samples else self._farthest(rows)
        self._mark()
        reason = self._iterate(block)
        n_done = min(int(core.counters[steps.SAMPLE]), max(n_samples, 1))
        count.rows_drawn = drawn + n_done * self._sample
        count.empty_samples = int(core.counters[steps.EMPTY_SAMPLES])
        self._absorb(block)
        self._report()
        if reason is not None:
            return reason
        self._at_beginning = None
        if not self._is_exact:
            core.drop_weightless()
        self._limit_drift()
        most = STEPS_OF_A_SOLVED_POINT if self._is_exact else STEPS_OF_A_POINT
        if self._certify and count.n_iter > most * len(core):
            return StopReason.SAMPLED
        return StopReason.MAX_ITER if self.watch.steps_left() == 0 else None

    def _iterate(self, block: SampleBlock) -> StopReason | None:
        """Iterate until the samples are used up; returns why the search ends, if it does."""
        core, dual = self.core, self._dual
        scale = self._tol + 0.5 * self._tol**2, dual.largest
        away = dual.solver is Solver.MODIFIED_FRANK_WOLFE
        size = 1 if len(block.samples.row) < self._sample else self._sample
        stop_at = sys.maxsize
        if self.watch.counts_steps:
            stop_at = self.count.n_iter + self.watch.steps_left()
        self._joined, products = len(core), np.empty(size)
        while True:
            with self.watch.timing("step"):
                code, what, gap = steps.run(
                    core.points, core.kept, block.samples, core.counters, products, scale,
                    (away, not self._is_exact), self._empty_samples, stop_at,
                )  # fmt: skip
            self._gap, self.count.n_iter = max(gap, 0.0), int(core.counters[steps.STEPS])
            if code == steps.NEED_VALUES:
                with self.watch.timing("row"):
                    self._evaluate(block, products)
            elif code == steps.NEED_ROW:
                self._absorb(block)
                with self.watch.timing("row"):
                    core.fetch(np.array([what]))
            elif code == steps.JOINED:
                self._absorb(block)
                with self.watch.timing("step"):
                    self._solve()
                core.counters[steps.STEPS] = self.count.n_iter
                if not self.watch.steps_left():
                    return StopReason.MAX_ITER
            elif code == steps.EMPTY:
                return StopReason.SAMPLED
            elif code == steps.FULL:
                if not core.widen():
                    return StopReason.CORE_FULL
            elif code == steps.STEPS_SPENT:
                return StopReason.MAX_ITER
            else:
                return None

    def _samples_of_block(self) -> int:
        """Count the samples of the next block; 0 if the rows of one are too many to hold."""
        wanted = int(SHARE_OF_STEPS * self.count.n_iter)
        wanted = min(max(wanted, FEWEST_SAMPLES), MOST_SAMPLES)
        most = self._block_values // self._tiles.dtype.itemsize // self._sample
        while wanted and (
            wanted * self._sample > self._block_rows
            or wanted * (len(self.core) + (1 + FRESH) * wanted) > most
        ):
            wanted //= 2
        return wanted

    def _drawn(self, rows: RandomRows, n_samples: int) -> SampleBlock:
        """Draw the samples of a block."""
        parts = list(rows.draw(n_samples * self._sample))
        indices = np.concatenate([names for names, _ in parts])
        held = parts[0][1]
        if len(parts) > 1:
            pieces = [part.rows[part.places] for _, part in parts]
            source = self._source
            joined = stack_rows(pieces, source.n_columns, source.dtype, sparse=source.is_sparse)
            held = RowsAt(joined, np.arange(len(indices)))
        return self._block(indices, held, n_samples)

    def _block(self, indices: I8, held: RowsAt, n_samples: int) -> SampleBlock:
        """Compute the kernel values of all points with the rows of some samples."""
        core, tiles, m = self.core, self._tiles, len(indices)
        formulation = self._dual.formulation
        (segment,) = formulation.segments(indices)
        partners = Partners(tiles.values, held, for_sparse_rows=self._source.is_sparse)
        values = np.empty((len(core) + n_samples, m), tiles.dtype)
        tiles.evaluate(core.rows(), partners, values)
        samples = steps.Samples(
            indices,
            np.ascontiguousarray(segment.box.linear),
            np.ascontiguousarray(np.broadcast_to(segment.ridge, m)),
            formulation.has_variable(indices),
            core.places(indices),
            values,
            np.empty((FRESH * n_samples, m), tiles.dtype),
            np.full(m, -1, np.int32),
        )
        self._n_fresh = 0
        return SampleBlock(samples, held, partners)

    def _evaluate(self, block: SampleBlock, products: F8) -> None:
        """Compute the kernel values of the next rows of the block with all of them."""
        samples, core = block.samples, self.core
        left = len(samples.row) // len(products) - int(core.counters[steps.SAMPLE])
        n_free = len(samples.fresh) - self._n_fresh - left  # one of each sample may be needed
        wanted = np.empty(min(max(n_free, 1), AHEAD), np.int64)
        n = steps.next_farthest(core.points, samples, core.counters, products, wanted)
        wanted = wanted[:n]
        where = np.arange(self._n_fresh, self._n_fresh + len(wanted))
        base, places = block.rows
        self._tiles.evaluate(
            RowsAt(base, places[wanted]), block.partners, samples.fresh, slots=where
        )
        samples.fresh_of[wanted] = where
        self._n_fresh += len(wanted)

    def _absorb(self, block: SampleBlock) -> None:
        """Keep the rows of the block that have become points since this was last called."""
        new = self.core.indices[self._joined :]
        if not len(new):
            return
        order = np.argsort(block.samples.row, kind="stable")
        wanted = order[np.searchsorted(block.samples.row, new, sorter=order)]
        base, places = block.rows
        self.core.absorb(base[places[wanted]])
        self._joined = len(self.core)

    def _farthest(self, rows: RandomRows) -> SampleBlock:
        """Draw one sample of more rows than are held together, and keep the farthest of them."""
        core, formulation = self.core, self._dual.formulation
        best, least, row = -1, np.inf, None
        for indices, part in rows.draw(self._sample):
            products = formulation.signs(indices) * core.outputs(part)
            point = core.places(indices)
            of_point = np.inf if self._is_exact else -core.gradient[point]
            products = np.where(point >= 0, of_point, products)
            products[~formulation.has_variable(indices)] = np.inf
            k = int(np.lexsort((indices, products))[0])
            if row is None or (products[k], indices[k]) < (least, best):
                best, least = int(indices[k]), float(products[k])
                row = part.rows[part.places[[k]]]
            del part  # free these rows before the next are read
        return self._block(np.array([best]), RowsAt(row, np.zeros(1, np.int64)), 1)


def _copy_of(state: SearchState) -> SearchState:
    arrays: list[Any] = [array.copy() for array in state]
    return SearchState(*arrays)


def search_of(solver: str) -> Callable[..., Search]:
    """Return the search of a solver: several samples a round, or a step for each sample."""
    return SampledSearch if solver == Solver.PAIRWISE else StepwiseSearch
