"""What sampled searches share: their state, when they end, checkpoints and the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bigsvm.balls.random_rows import most_rows_in, random_rows
from bigsvm.core import smo
from bigsvm.errors import MemoryBudgetError
from bigsvm.gram import Partners
from bigsvm.interruption import check_interrupt, checked_by
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.training import events
from bigsvm.training.check_saved import RunContent
from bigsvm.training.result import Certificate, StopReason, TrainingResult
from bigsvm.training.run import Watch
from bigsvm.training.state import SURROUNDINGS_FAILED, Counters, Limits, Phase, SearchState, Stopped
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.balls.core_set import CoreSet
    from bigsvm.balls.random_rows import RandomRows
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.duals.ball import BallDual
    from bigsvm.duals.dual import Dual
    from bigsvm.gram import KernelTiles
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.saving import Saver

FIRST_POINTS = 20
"""Random rows of the initial ball (Frandi et al. 2013, section 5.2.2)."""
WORTH_CERTIFYING = 0.08
"""With this share of all rows in the core set, a sweep costs no more than looking for others."""
FEW_POINTS = 2048
"""A core set may have this number of points whatever the number of rows."""
SHARE_OF_DRAWN = 0.5
"""Least share of the active rows' memory for rows drawn in a pass: with less, there would be more
passes; with more, the core set would fill earlier."""
MOST_STEPS = 10**6
"""Most steps to an exact solution, which pair steps may not reach in float32."""
RECOMPUTED_EVERY = 2.0
"""Growth of the core set after which its gradient is computed from scratch."""
ENDS = (StopReason.SAMPLED, StopReason.CORE_FULL)
"""Stop reasons of a finished search: continuing it would change nothing."""


class FirstPoints(StrEnum):
    """The points of the initial ball (Frandi et al. 2013, section 3)."""

    RANDOM = "random"
    PAIR = "pair"


class Search(ABC):
    """One sampled search, among rows that `bigsvm.balls.random_rows` draws from the source.

    The tiles have the offset of the dual's formulation. A point is outside if it is farther from
    the centre than (1 + `ball_tol`) times the radius. If full sweeps follow (`certify`), these do
    better than a search for very many points.
    """

    core: CoreSet
    ends_as_published: ClassVar[bool] = False
    """Whether a search without a certificate ends as its paper has it, whatever that takes."""

    def __init__(
        self,
        source: RowSource,
        dual: BallDual,
        tiles: KernelTiles,
        plan: TrainingPlan,
        parameters: TrainingParameters,
        *,
        limits: Limits,
        listener: events.Listener = events.ignore,
        saver: Saver | None,
    ) -> None:
        self._source, self._dual, self._tiles, self._plan = source, dual, tiles, plan
        self._listener, self._saver = listener, saver
        self._tol, self._seed = parameters.ball_tol, parameters.seed
        self._sample = sample_size(parameters.sampling, source.n_rows)
        self._certify, self._empty_samples = parameters.certify, parameters.empty_samples
        self._begins_with_pair = FirstPoints(parameters.first_points) is FirstPoints.PAIR
        of_core = self._plan_of_core(plan)
        capacity, self._most_drawn = self._most_points(of_core, tiles), 0
        in_order = self._sample >= source.n_rows
        if source.row_alignment > 1 and not (source.is_shuffled or in_order):
            capacity, self._most_drawn = share_with_drawn(capacity, of_core, source)
        if parameters.certify:
            enough = max(FEW_POINTS, int(WORTH_CERTIFYING * source.n_rows))
            capacity = min(capacity, enough)
        elif not self.ends_as_published and _has_test_error(parameters, source.n_rows):
            # A growing part of the rows makes a model sooner than a search for so many points.
            capacity = min(capacity, FEW_POINTS)
        self.core = self._make_core(of_core, tiles, capacity)
        saved = None if saver is None else saver.latest(RunContent(dual, source.n_rows))
        self.count = Counters(phase=Phase.SEARCH)
        if saved is not None:
            self.count = Counters(**{**saved.values, "phase": Phase.SEARCH})
            arrays = {name: np.array(array) for name, array in saved.arrays.items()}
            state = SearchState(**arrays)
            if len(state.core) > self.core.capacity:
                raise MemoryBudgetError(
                    f"the checkpoint has a core set of {len(state.core)} points, and this memory "
                    f"holds {self.core.capacity}; resume with as much memory as before"
                )
            self.core.restore(source, state)
        self.watch = Watch(self.count, source=source, tiles=tiles, limits=limits)
        self._gap = np.inf

    def _plan_of_core(self, plan: TrainingPlan) -> TrainingPlan:
        """Return the part of the plan for the core set and the rows drawn for it."""
        return plan

    @abstractmethod
    def _most_points(self, plan: TrainingPlan, tiles: KernelTiles) -> int:
        """Most points of a core set in this memory."""

    @abstractmethod
    def _make_core(self, plan: TrainingPlan, tiles: KernelTiles, capacity: int) -> CoreSet:
        """Make an empty core set."""

    @abstractmethod
    def _round(self, rows: RandomRows) -> StopReason | None:
        """Look at the next samples; returns why the search ends, if it does."""

    @staticmethod
    def is_next(saver: Saver | None, dual: Dual[Any], n_rows: int) -> bool:
        """Whether a run has to search: it is new, or was saved during its search."""
        saved = None if saver is None else saver.latest(RunContent(dual, n_rows))
        return saved is None or saved.values["phase"] == Phase.SEARCH

    def run(self) -> StopReason:
        """Search until samples have no point outside the ball, or the run is stopped."""
        plan, source = self._plan, self._source
        self._listener(
            events.Planned(source.n_rows, source.n_features, self.core.capacity, plan.projected, 0)
        )
        rows = random_rows(
            source,
            plan.block_bytes,
            self._seed,
            self.count.rows_drawn,
            sample=self._sample,
            most_held=self._most_drawn,
            # Equal rows are one row with the weight of all, so it is drawn as often as all of them.
            weights=self._dual.formulation.sample_weight,
        )
        try:
            with checked_by(self.watch.check):
                if not len(self.core):
                    self._begin(rows)
                while (reason := self._round(rows)) is None:
                    check_interrupt()
                    if self._saver is not None and self._saver.is_due():
                        self.save()
        except Stopped as stopped:
            reason = stopped.reason
        except SURROUNDINGS_FAILED:
            self.save()
            raise
        finally:
            rows.close()
        if reason in ENDS:
            self.count.drift = max(self.count.drift, self.core.recompute())
        self.watch.account()
        if reason not in ENDS:
            self.save()
        return reason

    def save(self) -> None:
        """Write a generation of the checkpoint."""
        self.watch.account()
        if self._saver is not None:
            self._saver.save(*self._state())

    def _state(self) -> tuple[SearchState, Counters]:
        """Return the state that a resumed run continues from."""
        core = self.core
        return SearchState(core.indices, core.weights, core.gradient, core.parts), self.count

    def alpha(self) -> F8:
        """(n,) float64: the signed dual's α = y a / R, of which margins are 1."""
        alpha = np.zeros(self._source.n_rows)
        alpha[self.core.indices] = self.core.beta / self._dual.energy(self.core.energy)
        return alpha

    def result(self, reason: StopReason) -> TrainingResult:
        """Make the model of the search alone; other rows than the core set are not certified."""
        core, count = self.core, self.count
        energy = self._dual.energy(core.energy) if len(core) else None
        objective = None if energy is None else 0.5 / energy
        support = np.flatnonzero(core.weights)
        order = support[np.argsort(core.indices[support])]
        alpha = core.beta[order] if energy is None else core.beta[order] / energy
        certificate = Certificate(
            converged=False, stop_reason=reason, tol=self._tol, objective=objective,
            gap=None, duality_gap=None, n_support=len(support), n_bounded=0, n_sweeps=0,
            n_iter=count.n_iter, n_kernel_evaluations=count.n_kernel_evaluations, row_misses=0,
            row_reads=0, n_working_sets=0, rows_swept=0, bytes_read=count.bytes_read,
            seconds=count.seconds, seconds_by_phase=count.seconds_by_phase(), drift=count.drift,
        )  # fmt: skip
        return TrainingResult(core.indices[order], alpha, (0.0,), certificate)

    def _begin(self, rows: RandomRows) -> None:
        """Make the exact ball of the first points."""
        self.core.add(*self._first_rows(rows))
        self.core.weights[:] = 1.0 / len(self.core)
        self.core.recompute()
        self._solve()

    def _solve(self) -> None:
        """Take pair steps until the ball of the points is exact."""
        most = min(MOST_STEPS, self.watch.steps_left())
        self.count.n_iter += self.core.solve(tol=self._goal(), max_steps=most)

    def _limit_drift(self) -> None:
        """Compute the gradient from scratch if the core set has grown much since."""
        if len(self.core) >= RECOMPUTED_EVERY * self.count.core_exact:
            self.count.drift = max(self.count.drift, self.core.recompute())
            self.count.core_exact = len(self.core)

    def _goal(self) -> float:
        """Frank-Wolfe gap at which a point is no longer outside."""
        return self._dual.goal_on_simplex(self._tol, self.core.energy)

    def _first_rows(self, rows: RandomRows) -> tuple[I8, Rows]:
        """Choose the first points, (q,) ascending, and read them."""
        rng, source = np.random.default_rng(self._seed), self._source
        if self._begins_with_pair:
            return self._pair(rng, rows)
        formulation, n = self._dual.formulation, source.n_rows
        weighted = formulation.movable_by_class()
        chosen = rng.integers(0, n, min(FIRST_POINTS, n))
        chosen = chosen[formulation.has_variable(chosen)]
        for of_class in weighted:
            if not of_class[chosen].any() and of_class.any():
                chosen = np.append(chosen, rng.choice(np.flatnonzero(of_class)))
        chosen = np.unique(chosen)
        return chosen, source.take(chosen)

    def _pair(self, rng: np.random.Generator, rows: RandomRows) -> tuple[I8, Rows]:
        """Choose a random row, and the row of a sample that is the farthest from it."""
        formulation, source = self._dual.formulation, self._source
        movable = np.logical_or.reduce(formulation.movable_by_class())
        a = rng.choice(np.flatnonzero(movable), 1)
        first = source.take(a)
        partners = Partners(self._tiles.values, first, for_sparse_rows=source.is_sparse)
        sign, best, farthest = formulation.signs(a), a, -np.inf
        for indices, part in rows.draw(self._sample):
            sample = Partners(self._tiles.values, part, for_sparse_rows=source.is_sparse)
            (segment,) = formulation.segments(indices)
            values = np.zeros(len(indices))
            self._tiles.multiply(part, partners, sign, values)
            apart = (
                self._tiles.values.diagonal(sample.norms)
                + segment.ridge
                - 2 * segment.box.linear * values
            )
            apart[~formulation.has_variable(indices) | (indices == a)] = -np.inf
            k = int(np.argmax(apart))
            if apart[k] > farthest:
                best, farthest = indices[[k]], apart[k]
        self.count.rows_drawn += self._sample
        pair = np.unique(np.concatenate([a, best]))
        return pair, source.take(pair)

    def _report(self) -> None:
        squared = self._dual.squared_radius(self.core.energy)
        self._listener(
            events.Searching(
                len(self.core),
                self.count.n_iter,
                float(np.sqrt(squared)),
                2 * self._gap / squared if squared > 0 else 0.0,
                2 * self._tol + self._tol**2,
            )
        )


def largest_core(plan: TrainingPlan) -> int:
    """Most points for whose rows and Gram matrix a plan has memory."""
    size = int(np.sqrt(plan.gram_bytes / 4))
    while size > 1 and 4 * size * smo.row_width(size) > plan.gram_bytes:
        size -= 1
    return min(size, plan.active_rows)


def share_with_drawn(capacity: int, plan: TrainingPlan, source: RowSource) -> tuple[int, int]:
    """Most points of a core set if drawn rows are held too, and most drawn rows."""
    capacity = min(capacity, max(1, int((1 - SHARE_OF_DRAWN) * plan.active_rows)))
    left = plan.active_rows - capacity
    return capacity, max(left, most_rows_in(source, left * plan.active_row_bytes))


def sample_size(sampling: float | str, n_rows: int) -> int:
    """Rows of a sample: a number, a share of all rows, or ``"all"``."""
    if isinstance(sampling, str):
        return n_rows
    if isinstance(sampling, float) and sampling <= 1:  # 1 is a row, 1.0 all of them
        return max(1, round(sampling * n_rows))
    return min(int(sampling), n_rows)


def _has_test_error(parameters: TrainingParameters, n_rows: int) -> bool:
    """Whether training on a growing part of the rows knows its test error, and when to end."""
    return parameters.formulation in CLASSIFIERS and n_rows > DIRECT_ROWS
