"""The sampled search: a ball found from random samples, at a cost that does not grow with n.

Of r random rows the farthest from the centre is among the farthest 5 % of all with probability
``1 − 0.95^r`` (Frandi et al. 2013, section 5.2.3). Several samples are looked at together, in one
product with the core set; the farthest of each join it, and the solver takes its steps there. The
search ends when half of the samples, or a quarter where sweeps follow, has no point outside the
ball, which proves nothing about the other rows: only a full sweep does, see
`bigsvm.training.loop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.balls.core_set import FullCoreSet
from bigsvm.balls.search import Search, largest_core
from bigsvm.data.rows import stack_rows
from bigsvm.training.result import StopReason
from bigsvm.working_sets.choice import MANY_TOGETHER

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.balls.random_rows import RandomRows
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram import KernelTiles

AT_ONCE = 8
"""Points of the core set for each sample of a round."""
FEWEST_SAMPLES = 16
"""Least samples of a round: with fewer a search may end as soon as it has begun."""
MOST_SAMPLES = 64
"""Most samples of a round."""
POINTS_OF_A_SAMPLE = 4
"""Farthest rows of each sample that join the core set, but at most half of the sample."""
STEPS_PER_POINT = 4
"""Most steps of a round for each point that joined, and for each sample with a point of the core
set outside; a step takes a thousandth of the time of the search for the point."""
EMPTY = 0.25
"""The search ends when this share of a round's samples have no point outside, if sweeps follow.
With samples of 60 rows, about 2 % of all rows may be outside then."""
EMPTY_ALONE = 0.5
"""The same if no sweeps follow; about 1 % of all rows may be outside then."""
SHOWING = 256
"""Least points of a core set from which the share of rows outside is taken."""
MOST_ROWS = 1 << 14
"""Rows of one product with the core set."""


class Farthest(NamedTuple):
    """The rows of each sample that are farthest from the centre.

    Attributes
    ----------
    indices, products : (n_samples, k) int64, float64
        The rows, and their ``(K̃a)_i``; the least are the farthest.
    of_core : (n_samples,) float64
        Least product of the rows of a sample that are in the core set already.
    blocks : list
        Pairs of indices and rows, which include all rows in `indices`.
    share_outside : float
        Share of the rows of all samples that are outside the ball.
    """

    indices: I8
    products: F8
    of_core: F8
    blocks: list[tuple[I8, Rows]]
    share_outside: float

    def rows(self, indices: I8, like: RowSource) -> Rows:
        """Rows at ascending `indices`, in the form of a source's rows."""
        names = np.concatenate([names for names, _ in self.blocks])
        parts = [rows for _, rows in self.blocks]
        joined = stack_rows(parts, like.n_columns, like.dtype, sparse=like.is_sparse)
        order = np.argsort(names, kind="stable")
        chosen: Rows = joined[order[np.searchsorted(names, indices, sorter=order)]]
        return chosen


class SampledSearch(Search):
    """One search that looks at several samples together; see the module's docstring."""

    core: FullCoreSet

    def _most_points(self, plan: TrainingPlan, tiles: KernelTiles) -> int:
        return largest_core(plan)

    def _make_core(self, plan: TrainingPlan, tiles: KernelTiles, capacity: int) -> FullCoreSet:
        return FullCoreSet(self._dual, tiles, capacity=capacity, is_sparse=self._source.is_sparse)

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
            candidates = self._farthest(rows, n_samples, take, limit=energy - goal)
        outside = energy - candidates.products > goal
        farthest = min(candidates.products.min(), candidates.of_core.min())
        self._gap = max(float(energy - farthest), 0.0)
        unsolved = energy - candidates.of_core > goal
        n_empty = np.count_nonzero(~(outside.any(axis=1) | unsolved))
        # If no row can join, only steps on the core set would follow; fw would take them for ever.
        enough = EMPTY if self._certify else EMPTY_ALONE
        if n_empty > enough * n_samples or not outside.any():
            self.count.rows_drawn += n_rows
            self._report()
            return StopReason.SAMPLED
        if self._is_for_sweeps(candidates.share_outside):
            return StopReason.CORE_FULL
        joined = np.unique(candidates.indices[outside])
        n_free = self.core.capacity - len(self.core)
        fresh = joined[:n_free]
        if len(fresh):
            with self.watch.timing("row"):
                self.core.add(fresh, candidates.rows(fresh, self._source))
            with self.watch.timing("step"):
                self._step(len(fresh) + int(np.count_nonzero(unsolved)), goal)
        # Count the rows last: a round that was interrupted is repeated.
        self.count.rows_drawn += n_rows
        self._report()
        if len(joined) > n_free:
            return StopReason.CORE_FULL
        return StopReason.MAX_ITER if self.watch.steps_left() == 0 else None

    def _step(self, n_points: int, goal: float) -> None:
        """Take steps for points of the core set that are outside."""
        core, steps = self.core, STEPS_PER_POINT * n_points
        self.count.n_iter += core.solve(tol=goal, max_steps=min(steps, self.watch.steps_left()))
        self._limit_drift()
        core.drop_weightless()

    def _is_for_sweeps(self, share_outside: float) -> bool:
        """Whether so many rows are outside that steps of all of them together are faster."""
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
            places = self.core.places(indices)
            there = np.flatnonzero(places >= 0)
            np.minimum.at(of_core, sample[there], -self.core.gradient[places[there]])
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
