"""SubProblem: the dual restricted to a working set, solved by pair steps on rows on demand."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.cache.resident import BATCH, ComputedRows, KernelRowCache, WithSlack
from bigsvm.core import smo
from bigsvm.data.rows import rows_at
from bigsvm.tiles import Columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.cache.resident import RowBuffer, RowTier
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.duals.box import BoxDual
    from bigsvm.tiles import KernelTiles


EVICTING_BATCH = 12
"""Kernel rows computed at once when each takes the place of another: as many as the dense
micro-kernel does in the time of one. With them HMG on all 12 000 rows of mnist takes 77 instead of
130 s with 120 slots; of sparse rows each takes its time, and HMG 12 s by computing one alone. Where
slots are few only at first a batch saves what each call costs: w8a 0.6 instead of 0.9 s."""


class Progress(IntEnum):
    """Why `SubProblem.advance` returned."""

    CONVERGED = smo.CONVERGED
    STEPS_SPENT = smo.STEPS_SPENT
    STALLED = smo.STALLED


class SubProblem:
    """The dual restricted to a working set, solved by pair steps on kernel rows made on demand.

    Parameters
    ----------
    dual : BoxDual
    tiles : KernelTiles
    rows : Rows or RowsAt
        The working set's rows, (m, d).
    working_set : (m,) int64
    alpha, gradient : (m,) or (m, faces) float64
        Where to start.
    buffer : RowBuffer
        Memory for kernel rows.
    first_slots : int, optional
        How many rows of it are used at first; see `KernelRowCache`.
    tier : callable, optional
        Puts a tier between memory and the computation of rows.
    pair : (2,) int64, optional
        The last pair of an interrupted run, which HMG goes on from.
    steps : int
        Steps already done.
    """

    def __init__(
        self,
        dual: BoxDual,
        tiles: KernelTiles,
        rows: Rows | RowsAt,
        working_set: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        buffer: RowBuffer,
        first_slots: int | None = None,
        tier: Callable[[RowTier], RowTier] = lambda computed: computed,
        pair: NDArray[np.int64] | None = None,
        steps: int = 0,
    ) -> None:
        self.size = len(working_set)
        self._dual, self._formulation = dual, dual.formulation
        # A variable more, without a row: where no sum is bound, it takes up the rest.
        self._n_slack = int(not dual.formulation.sums_are_bound)
        rows = rows_at(rows)
        sparse = not isinstance(rows.rows, np.ndarray)
        self.columns = Columns(tiles, rows, sparse_partners=sparse)
        segments = dual.formulation.segments(working_set)
        self.state = smo.make_state(
            self._with_slack(np.stack(dual.formulation.split(alpha, working_set)), 0.0),
            self._with_slack(np.atleast_2d(gradient.T), 0.0),
            self._with_slack(np.stack([segment.box.lower for segment in segments]), -np.inf),
            self._with_slack(np.stack([segment.box.upper for segment in segments]), np.inf),
            self._with_slack(tiles.diagonal(self.columns)[None, :], 0.0)[0],
            ridge=self._with_slack(
                np.stack([np.broadcast_to(s.ridge, self.size) for s in segments]), 0.0
            ),
            n_groups=dual.formulation.n_groups,
        )
        if pair is not None:
            self.state.pair[:] = pair
        self.state.counters[0] = steps
        below = tier(ComputedRows(tiles, rows, self.columns))
        n_all = self.size + self._n_slack
        self.cache = KernelRowCache(
            WithSlack(below, self.size) if self._n_slack else below,
            n_variables=n_all,
            width=smo.row_width(n_all),
            buffer=buffer,
            first_slots=first_slots,
            evicting_batch=1 if sparse and first_slots is None else EVICTING_BATCH,
        )

    def _with_slack(self, values: NDArray[np.float64], end: float) -> NDArray[np.float64]:
        """Append the slack variable's value, where there is one, to (n_segments, m)."""
        if not self._n_slack:
            return values
        return np.pad(values, ((0, 0), (0, 1)), constant_values=end)

    def close(self) -> None:
        """Hand the kernel rows to whatever keeps them."""
        self.cache.close()

    @property
    def alpha(self) -> NDArray[np.float64]:
        """(m,) or (m, faces) float64, as far as it has got."""
        return self._formulation.join(list(smo.spread_of(self.state, self.state.alpha, self.size)))

    @property
    def gradient(self) -> NDArray[np.float64]:
        """(m,) or (m, faces) float64, within the working set."""
        gradient = smo.spread_of(self.state, self.state.gradient, self.size)
        return gradient.T if self._formulation.n_faces > 1 else gradient[0]

    @property
    def gap(self) -> float:
        """KKT gap within the working set; 0 where nothing may rise, or nothing fall."""
        i, j = smo.exact_extremes(self.state)
        if i < 0 or j < 0:
            return 0.0
        return float(max(self.state.gradient[i] - self.state.gradient[j], 0.0))

    @property
    def steps(self) -> int:
        """Pair steps done."""
        return int(self.state.counters[0])

    def advance(
        self,
        *,
        tol: float,
        max_steps: int = smo.REFRESH,
        look: Callable[[], None] = lambda: None,
    ) -> Progress:
        """Take up to `max_steps` pair steps, fetching rows as asked for.

        `look` is called before rows are computed; where it raises, the slice is not done.
        """
        s, cache = self.state, self.cache
        goal = self.steps + max_steps
        while True:
            status, row = self._dual.advance(
                s, cache.rows, cache.slots, cache.used, tol, goal - self.steps
            )
            if status != smo.NEED_ROW:
                return Progress(status)
            look()
            wanted, quiet = self._most_wanted(row, tol)
            cache.ensure(wanted, stamp=int(s.counters[1]), quiet=quiet)

    def _most_wanted(self, row: int, tol: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """List the row asked for, then the worst violators without a row, up to a batch.

        And say which variables are quiet: at a bound, and pushed against it.
        """
        n_all = self.size + self._n_slack
        score, quiet = np.empty(n_all), np.empty(n_all, np.bool_)
        smo.violations(self.state, self.cache.slots, score, quiet)
        score[row] = np.inf
        candidates = np.flatnonzero(score > 0.5 * tol)
        count = min(BATCH, self.cache.largest_batch(quiet), len(candidates))
        if count < len(candidates):
            worst = np.argpartition(score[candidates], len(candidates) - count)
            candidates = np.sort(candidates[worst[len(candidates) - count :]])
        return candidates[np.argsort(-score[candidates], kind="stable")], quiet
