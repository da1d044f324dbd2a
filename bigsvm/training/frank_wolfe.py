"""The sampled search: a ball found from random samples, at a cost that does not grow with n.

Of r random rows the farthest from the centre is among the farthest 5 % of all with probability
``1 − 0.95^r`` (frank-wolfe.txt, section 5.2.3). Several samples are looked at together, in one
product with the core set; the farthest of each join it, and the solver takes its steps there. The
search ends when half of the samples, or a quarter where sweeps follow, has no point outside the
ball, which proves nothing about the other rows: only a full sweep does, see
`bigsvm.training.decomposition`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.core.smo import row_width
from bigsvm.data.blocks import stack_rows
from bigsvm.data.random_rows import random_rows, room_for
from bigsvm.duals.ball import Solver
from bigsvm.errors import MemoryBudgetError
from bigsvm.training import events
from bigsvm.training.choice import MANY_TOGETHER
from bigsvm.training.core_set import CoreSet
from bigsvm.training.result import Certificate, StopReason, TrainingResult
from bigsvm.training.saved import RunContent
from bigsvm.training.saving import Saver
from bigsvm.training.state import Counters, Limits, Phase, SearchState, Stopped
from bigsvm.training.watch import Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.random_rows import RandomRows
    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.ball import BallDual
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.checkpoint import Checkpoint

FIRST_POINTS = 20
"""Random rows of the initial ball (frank-wolfe.txt, section 5.2.2)."""
AT_ONCE = 8
"""A round looks at one sample for so many points of the core set."""
FEWEST_SAMPLES, MOST_SAMPLES = 16, 64
"""Of a round; with fewer, a search may end as soon as it has begun."""
POINTS_OF_A_SAMPLE = 4
"""So many of the farthest of each sample join. Seconds and accuracy with 1, 4 and 12, pairwise: 0-4
against 5-9 of mnist, C 64, 4.6, 2.1 and 2.2 s, 98.35, 98.37 and 98.19 %; w8a, C 8, 0.21, 0.14 and
0.19 s, 99.02, 99.02 and 98.99 % (all with the first empty sample as the end). But no more than half
of a sample: of 4 rows, all and two, mnist, C 50, 3.4 and 3.0 s, 97.4 and 97.3 %."""
STEPS_PER_POINT = 4
"""Most steps of a round for each point that joined, and for each sample with a point of the core
set outside, each a thousandth of what looking for it took;
CVM solves the core set exactly."""
EMPTY, EMPTY_ALONE = 0.25, 0.5
"""Share of a round's samples without a point outside that ends the search, if sweeps follow and if
none do: with 60 rows, about 2 and 1 % of all rows may be outside then. The first such sample, where
the paper stops, comes by chance. Seconds and accuracy of w8a, C 64, with 0.125, 0.25 and 0.5:
pairwise 0.04, 0.24 and 0.55 s, 97.41, 98.88 and 99.34 %, mfw 0.07, 0.15 and 1.08 s, 97.74, 98.27
and 99.30 %; certified 99.4 %, in 0.8 and 1.0 s with 0.25 and 0.5."""
WORTH_CERTIFYING = 0.08
"""Share of all rows in the core set from which a sweep costs no more than to look for others. Of
certified training the seconds with all that fit, 0.125, 0.06 and 0.03: a9a, C 1, 4.4, 2.6, 2.8 and
3.7; floors of kernel values, mnist, C 64: 4.83, 4.15, 3.26 and 3.00; w8a finds it before."""
SHOWING = 256
"""Points of a core set that show how many rows are outside."""
FEW_POINTS = 2048
"""Of which a core set is always worth while."""
MOST_ROWS = 1 << 14
"""Rows of one product with the core set."""
SHARE_OF_DRAWN = 0.5
"""Least share of the active rows' memory for rows drawn in a pass: with less, there would be more
passes; with more, the core set would fill earlier."""
MOST_STEPS = 10**6
"""Of an exact solution, which pair steps may not reach in float32."""
RECOMPUTED_EVERY = 2.0
"""Growth of the core set after which its gradient is computed from scratch."""
ENDS = (StopReason.SAMPLED, StopReason.CORE_FULL)
"""Of a search that was not stopped from outside: nothing more would come of it."""


class Farthest(NamedTuple):
    """Of each sample the rows farthest from the centre.

    Attributes
    ----------
    indices : (n_samples, k) int64
    products : (n_samples, k) float64
        ``(K̃a)_i``, of which the least are the farthest.
    of_core : (n_samples,) float64
        The least of those rows of a sample that are in the core set already.
    found : list
        Pairs of indices and rows, which include all rows in `indices`.
    share_outside : float
        Of the rows that were looked at.
    """

    indices: NDArray[np.int64]
    products: NDArray[np.float64]
    of_core: NDArray[np.float64]
    found: list[tuple[NDArray[np.int64], Rows]]
    share_outside: float

    def rows(self, indices: NDArray[np.int64], like: RowSource) -> Rows:
        """Rows at ascending `indices`, in the form of a source's rows."""
        names = np.concatenate([names for names, _ in self.found])
        parts = [rows for _, rows in self.found]
        joined = stack_rows(parts, like.n_columns, like.dtype, sparse=like.is_sparse)
        order = np.argsort(names, kind="stable")
        chosen: Rows = joined[order[np.searchsorted(names, indices, sorter=order)]]
        return chosen


class SampledSearch:
    """One sampled search; see the module's docstring.

    Parameters
    ----------
    source : RowSource
        See `bigsvm.data.random_rows` for how rows are drawn from it.
    dual : BallDual
    tiles : KernelTiles
        float32, with the offset of the dual's formulation.
    plan : TrainingPlan
    ball_tol : float
        ε: a point is outside if it is farther from the centre than (1 + ε) times the radius.
    sampling : int, float or "all"
        Rows of a sample, or the share of all rows.
    certify : bool
        Whether full sweeps follow, which do better than a search for very many points.
    seed : int
    limits, checkpoint, checkpoint_every, listener, saver
        As `Decomposition` has them.
    """

    def __init__(
        self,
        source: RowSource,
        dual: BallDual,
        tiles: KernelTiles,
        plan: TrainingPlan,
        *,
        ball_tol: float,
        sampling: float | str,
        certify: bool,
        seed: int,
        limits: Limits,
        checkpoint: Checkpoint | None,
        checkpoint_every: float = 60.0,
        listener: events.Listener = events.ignore,
        saver: Saver | None = None,
    ) -> None:
        self._source, self._dual, self._plan = source, dual, plan
        self._tol, self._listener = ball_tol, listener
        self._saver = saver or Saver(checkpoint, every=checkpoint_every, listener=listener)
        self._sample = sample_size(sampling, source.n_rows)
        self._seed, self._certify = seed, certify
        self._enough = EMPTY if certify else EMPTY_ALONE
        capacity, self._room = largest_core(plan), 0
        in_order = self._sample >= source.n_rows
        if source.row_alignment > 1 and not (source.is_shuffled or in_order):
            capacity, self._room = share_with_drawn(capacity, plan, source)
        if certify:
            enough = max(FEW_POINTS, int(WORTH_CERTIFYING * source.n_rows))
            capacity = min(capacity, enough)
        self.core = CoreSet(dual, tiles, capacity=capacity, is_sparse=source.is_sparse)
        saved = self._saver.latest(RunContent(dual, source.n_rows))
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
            self.core.restore(source, *state)
        self.watch = Watch(self.count, source=source, tiles=tiles, limits=limits)
        self._gap = np.inf

    @staticmethod
    def is_next(saver: Saver, dual: BallDual, n_rows: int) -> bool:
        """Whether a run has still to search: a new one, or one saved in its search."""
        saved = saver.latest(RunContent(dual, n_rows))
        return saved is None or saved.values["phase"] == Phase.SEARCH

    def run(self) -> StopReason:
        """Search until a sample has no point outside the ball, or the run is stopped."""
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
            room=self._room,
            # Equal rows are one with the weight of all: a tenth of w8a, unseen, would be wrong.
            weights=self._dual.formulation.sample_weight,
            look=self.watch.look,
        )
        try:
            if not len(self.core):
                self._begin()
            while (reason := self._round(rows)) is None:
                self.watch.look()
                if self._saver.is_due():
                    self.save()
        except Stopped as stopped:
            reason = stopped.reason
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
        core = self.core
        state = SearchState(core.indices, core.weights, core.gradient, core.parts)
        self._saver.save(state, self.count)

    def alpha(self) -> NDArray[np.float64]:
        """(n,) float64: the signed dual's α = y a / R, of which margins are 1."""
        alpha = np.zeros(self._source.n_rows)
        alpha[self.core.indices] = self.core.beta / self._dual.energy(self.core.energy)
        return alpha

    def result(self, reason: StopReason) -> TrainingResult:
        """Give the model of the search alone, of whose rows nothing is known but the core set."""
        core, count = self.core, self.count
        energy = self._dual.energy(core.energy) if len(core) else None
        found = None if energy is None else 0.5 / energy
        support = np.flatnonzero(core.weights)
        order = support[np.argsort(core.indices[support])]
        alpha = core.beta[order] if energy is None else core.beta[order] / energy
        certificate = Certificate(
            converged=False, stop_reason=reason, tol=self._tol, objective=found,
            gap=None, duality_gap=None, n_support=len(support), n_bounded=0, n_sweeps=0,
            n_iter=count.n_iter, n_kernel_evaluations=count.n_kernel_evaluations, row_misses=0,
            row_reads=0, n_working_sets=0, rows_swept=0, bytes_read=count.bytes_read,
            seconds=count.seconds, seconds_by_phase=count.seconds_by_phase(), drift=count.drift,
        )  # fmt: skip
        return TrainingResult(core.indices[order], alpha, (0.0,), certificate)

    def _goal(self) -> float:
        """Frank-Wolfe gap at which a point is no longer outside."""
        return self._dual.goal_on_simplex(self._tol, self.core.energy)

    def _begin(self) -> None:
        """Make the exact ball of some random rows, of each class one at least."""
        formulation, n = self._dual.formulation, self._source.n_rows
        rng = np.random.default_rng(self._seed)
        weighted = formulation.movable_by_class()
        chosen = rng.integers(0, n, min(FIRST_POINTS, n))
        chosen = chosen[formulation.has_variable(chosen)]
        for rows in weighted:
            if not rows[chosen].any() and rows.any():
                chosen = np.append(chosen, rng.choice(np.flatnonzero(rows)))
        chosen = np.unique(chosen)
        self.core.add(chosen, self._source.take(chosen, look=self.watch.look))
        self.core.weights[:] = 1.0 / len(chosen)
        self.core.recompute()
        self.count.n_iter += self.core.advance(
            tol=self._goal(), max_steps=min(MOST_STEPS, self.watch.steps_left()), exactly=True
        )

    def _round(self, rows: RandomRows) -> StopReason | None:
        """Look at some samples, and let the farthest points of each join the core set."""
        take = max(1, min(POINTS_OF_A_SAMPLE, self._sample // 2))
        n_samples = int(np.clip(len(self.core) // (AT_ONCE * take), FEWEST_SAMPLES, MOST_SAMPLES))
        # Another sample of all rows would be the same.
        most = 1 if self._sample >= self._source.n_rows else MOST_ROWS // self._sample
        n_samples = max(1, min(n_samples, most))
        n_rows = n_samples * self._sample
        energy, goal = self.core.energy, self._goal()
        with self.watch.timing("sweep"):
            found = self._farthest(rows, n_samples, take, limit=energy - goal)
        outside = energy - found.products > goal
        farthest = min(found.products.min(), found.of_core.min())
        self._gap = max(float(energy - farthest), 0.0)
        unsolved = energy - found.of_core > goal
        n_empty = np.count_nonzero(~(outside.any(axis=1) | unsolved))
        # Where nothing can join, steps on the core set are all that is left: of fw without end.
        if n_empty > self._enough * n_samples or not outside.any():
            self.count.rows_drawn += n_rows
            self._tell()
            return StopReason.SAMPLED
        if self._is_for_sweeps(found.share_outside):
            return StopReason.CORE_FULL
        joined = np.unique(found.indices[outside])
        room = self.core.capacity - len(self.core)
        fresh = joined[:room]
        if len(fresh):
            with self.watch.timing("row"):
                self.core.add(fresh, found.rows(fresh, self._source))
            with self.watch.timing("step"):
                self._step(len(fresh) + int(np.count_nonzero(unsolved)), goal)
        # Count the rows last: a round that was interrupted is repeated.
        self.count.rows_drawn += n_rows
        self._tell()
        if len(joined) > room:
            return StopReason.CORE_FULL
        return StopReason.MAX_ITER if self.watch.steps_left() == 0 else None

    def _step(self, n_points: int, goal: float) -> None:
        """Take the solver's steps for points of the core set that are outside."""
        core, exact = self.core, self._dual.solver is Solver.CVM
        steps = MOST_STEPS if exact else STEPS_PER_POINT * n_points
        self.count.n_iter += core.advance(tol=goal, max_steps=min(steps, self.watch.steps_left()))
        if len(core) >= RECOMPUTED_EVERY * self.count.core_exact:
            self.count.drift = max(self.count.drift, core.recompute())
            self.count.core_exact = len(core)
        core.spare()

    def _is_for_sweeps(self, share_outside: float) -> bool:
        """Whether so many rows are outside that they had better step together."""
        many = share_outside * self._source.n_rows > MANY_TOGETHER
        return self._certify and len(self.core) >= SHOWING and many and self._dual.model_rank > 0

    def _farthest(self, rows: RandomRows, n_samples: int, take: int, *, limit: float) -> Farthest:
        """Find the farthest rows of each of some samples, in the core set and not.

        Rows whose product is less than `limit` are outside.
        """
        formulation, size = self._dual.formulation, self._sample
        shape = (n_samples, take)
        best, least = np.full(shape, -1), np.full(shape, np.inf)
        of_core = np.full(n_samples, np.inf)
        done, n_outside, kept = 0, 0, []
        for indices, values in rows.draw(n_samples * size):
            products = formulation.signs(indices) * self.core.outputs(values)
            products[~formulation.has_variable(indices)] = np.inf
            sample = (done + np.arange(len(indices))) // size
            there = np.flatnonzero(self.core.holds(indices))
            np.minimum.at(of_core, sample[there], self.core.products(indices[there]))
            products[there] = np.inf
            n_outside += int(np.count_nonzero(products < limit))
            for k in range(sample[0], sample[-1] + 1):
                part = slice(*np.searchsorted(sample, (k, k + 1)))
                among = np.append(least[k], products[part])
                names = np.append(best[k], indices[part])
                order = np.argsort(among, kind="stable")[:take]
                best[k], least[k] = names[order], among[order]
            done += len(indices)
            far = np.isin(indices, best[sample[0] : sample[-1] + 1])
            kept.append((indices[far], values.rows[values.places[far]]))
            del values  # free these rows before the next are read
        return Farthest(best, least, of_core, kept, n_outside / (n_samples * size))

    def _tell(self) -> None:
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
    """Most points whose rows and whose whole Gram matrix a plan has room for."""
    size = int(np.sqrt(plan.gram_bytes / 4))
    while size > 1 and 4 * size * row_width(size) > plan.gram_bytes:
        size -= 1
    return min(size, plan.active_rows)


def share_with_drawn(capacity: int, plan: TrainingPlan, source: RowSource) -> tuple[int, int]:
    """Most points of a core set if drawn rows are held too, and most drawn rows."""
    capacity = min(capacity, max(1, int((1 - SHARE_OF_DRAWN) * plan.active_rows)))
    left = plan.active_rows - capacity
    return capacity, max(left, room_for(source, left * plan.active_row_bytes))


def sample_size(sampling: float | str, n_rows: int) -> int:
    """Rows of a sample: a number, a share of all rows, or ``"all"``."""
    if isinstance(sampling, str):
        return n_rows
    if isinstance(sampling, float) and sampling <= 1:  # 1 is a row, 1.0 all of them
        return max(1, round(sampling * n_rows))
    return min(int(sampling), n_rows)
