"""ShrinkingProblem: a working set that settled rows leave; Chang & Lin 2001, section 4.

Rows whose variables are pushed against a bound (`bigsvm.core.smo.settle`) are left out: pair steps
pass over the others alone, whose kernel rows are shorter. Settled rows are looked for after every
``min(m, 1000)`` steps. When the gap among the rows in play is at most ten times the tolerance for
the first time, all rows come back: their gradient is computed from what has moved since the working
set began, and the working set ends. The next one leaves settled rows out again, from correct
gradients, and is solved to the tolerance.

LIBSVM keeps sums of the kernel rows of variables at their upper bound for that gradient. Here it
is that of the beginning plus what the moves since then have added, and needs no other sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.duals.dual import NO_PAIR, Point
from bigsvm.duals.kept_rows import kept_of, with_kept
from bigsvm.gram import Partners
from bigsvm.gram.partners import rows_at, weighted_rows
from bigsvm.interruption import check_interrupt
from bigsvm.working_sets.subproblem import (
    REFRESH,
    Costs,
    Memory,
    Progress,
    SubProblem,
    WorkingProblem,
)

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.data.rows import Rows
    from bigsvm.duals.dual import Dual
    from bigsvm.gram import KernelTiles

PERIOD = 1000
"""Steps after which settled rows are looked for; fewer for fewer rows. LIBSVM's value."""
NEAR = 10.0
"""Times the tolerance: the gap at which all rows come back for the first time, LIBSVM's too."""
LEAST_SETTLED = 0.05
"""Share of the rows that must be settled for them to leave: the others are packed anew."""
VALUES_AT_ONCE = 1 << 24
"""Kernel values between two looks at what else there is to do: a tenth of a second."""


class ShrinkingProblem(WorkingProblem):
    """A `SubProblem` of the rows that are not settled, which become fewer; the dual `shrinks`.

    The rows depend on the steps taken alone, and are saved in `last` too. The gradient of rows left
    out is not read, and the tier of the memory is not used: rows on disk are whole.
    """

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        rows: Rows | RowsAt,
        working_set: I8,
        start: Point,
        memory: Memory,
        *,
        origin: tuple[F8, F8] | None = None,
    ) -> None:
        self._dual, self._tiles, self._rows = dual, tiles, rows_at(rows)
        self._working_set = working_set
        self._memory = Memory(memory.buffer, memory.first_slots, spare=memory.spare)
        self._alpha, self._gradient = start.alpha.copy(), start.gradient.copy()
        self._origin = origin or (self._alpha.copy(), self._gradient.copy())
        self._period = min(len(working_set), PERIOD)
        self._earlier_costs = Costs()
        self._kept = np.ones(len(working_set), np.bool_)
        # A problem of all rows at the beginning: its gap and its first leap are needed.
        self._part = self._of_rows(self._kept, Point(*self._origin, n_done=start.n_done))
        self._began_at, self._due = self._part.gap, self._part.long_steps.next_leap()
        if start.n_done:
            self._part.let_go()
            kept = kept_of(start.last, len(working_set))
            self._set_part(kept, last=start.last[:2], steps=start.n_done)

    def _of_rows(self, kept: Mask, start: Point) -> SubProblem:
        """Make the sub-problem of the rows kept; `start` has alpha and gradient of all rows."""
        base, places = self._rows
        # A leap is of all rows.
        memory = self._memory if kept.all() else self._memory._replace(spare=0)
        return SubProblem(
            self._dual, self._tiles, RowsAt(base, places[kept]), self._working_set[kept],
            start._replace(alpha=start.alpha[kept], gradient=start.gradient[kept]), memory,
            origin=(self._origin[0][kept], self._origin[1][kept]),
        )  # fmt: skip

    def _set_part(self, kept: Mask, *, last: I8, steps: int) -> None:
        """Continue with the rows kept, (m,) bool."""
        self._kept = kept
        self._part = self._of_rows(kept, Point(self._alpha, self._gradient, last, steps))

    def _take_over(self) -> Point:
        """Bring alpha and gradient of the rows in play up to date."""
        point = self._part.point
        self._alpha[self._kept], self._gradient[self._kept] = point.alpha, point.gradient
        return point

    def _end_part(self) -> None:
        """Take over alpha and gradient of the rows in play, and count what they have cost."""
        self._take_over()
        self._earlier_costs = self.costs

    @property
    def _is_narrow(self) -> bool:
        return not self._kept.all()

    @property
    def size(self) -> int:
        return self._part.size

    @property
    def point(self) -> Point:
        """`last` is the last pair among the rows in play; with a mask of these if rows are out."""
        _, _, last, n_done = self._take_over()
        last = with_kept(last, self._kept) if self._is_narrow else last
        return Point(self._alpha, self._gradient, last, n_done)

    @property
    def gap(self) -> float:
        return self._part.gap

    @property
    def costs(self) -> Costs:
        return self._earlier_costs.plus(self._part.costs)

    @property
    def _n_done(self) -> int:
        return self._part.steps.n_done

    def close(self) -> None:
        self._part.close()

    def advance(self, *, tol: float, max_steps: int = REFRESH) -> Progress:
        """Take up to `max_steps` steps; see `WorkingProblem.advance`.

        It has converged, in the end with all rows, where the gap among the rows in play is at most
        `tol` or, of a working set that began far from it, ten times as much.
        """
        goal = self._n_done + max_steps
        begins_near = self._began_at <= NEAR * tol
        if begins_near and self._n_done == 0:
            self._shrink()
        while True:
            if self._is_narrow and self._n_done == self._due:
                self._widen()
            stop = min(goal, (self._n_done // self._period + 1) * self._period)
            if self._is_narrow:
                stop = min(stop, self._due)
            progress = self._part.advance(
                tol=tol if begins_near else NEAR * tol, max_steps=stop - self._n_done
            )
            if progress is not Progress.STEPS_SPENT:
                self.bring_up_to_date()
                return progress
            if self._n_done % self._period == 0:
                self._shrink()
            if self._n_done >= goal:
                return progress

    def bring_up_to_date(self) -> None:
        """Bring all rows back into play, with the gradient of exactly this alpha."""
        if self._is_narrow:
            self._widen()

    def _shrink(self) -> None:
        """Leave out settled rows, if there are enough of them."""
        part, settles = self._part, self._part.steps.settles
        if settles is None:
            raise TypeError(f"the steps of {type(self._dual).__name__} cannot leave rows out")
        settled = settles.settled()
        if np.count_nonzero(settled) < LEAST_SETTLED * len(settled) or settled.all():
            return
        if not self._is_narrow:
            self._due = self._part.long_steps.next_leap()
        self._end_part()
        among = ~settled
        part.let_go()
        kept = self._kept.copy()
        kept[kept] = among
        self._set_part(kept, last=settles.last_among(among), steps=part.steps.n_done)
        part.hand_over(self._part, among)

    def _widen(self) -> None:
        """Bring all rows back into play."""
        self._end_part()
        self._part.let_go()
        rest = np.flatnonzero(~self._kept)
        numbers = self._working_set[rest]
        origin_alpha, origin_gradient = (values[rest] for values in self._origin)
        outputs = self._dual.outputs_from(origin_gradient, origin_alpha, numbers)
        outputs = outputs + self._moved(rest)
        gradient = self._dual.gradient(self._alpha[rest], outputs, numbers)
        self._gradient[rest] = gradient
        # Hybrid maximum gain starts without a pair again.
        self._set_part(np.ones_like(self._kept), last=NO_PAIR, steps=self._n_done)

    def _moved(self, rest: I8) -> F8:
        """By how much moves since the beginning have changed the outputs of some rows."""
        change = self._dual.formulation.per_output(self._alpha - self._origin[0])
        moved = weighted_rows(change)
        added = np.zeros((len(rest), *change.shape[1:]))
        if not len(moved):
            return added
        base, places = self._rows
        partners = Partners.of_rows_like(self._tiles.values, RowsAt(base, places[moved]))
        weights = self._tiles.prepared(partners, change[moved])
        step = max(1, VALUES_AT_ONCE // partners.n)
        for first in range(0, len(rest), step):
            check_interrupt()
            part = slice(first, first + step)
            self._tiles.multiply(RowsAt(base, places[rest[part]]), partners, weights, added[part])
        return added
