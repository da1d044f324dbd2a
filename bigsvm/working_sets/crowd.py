"""Crowds: neighbourhoods of the active rows, solved side by side and joined by a line search.

Where more rows are free or violate than one working set holds, several disjoint sets are solved
from the same point, each as if the others stood still. Neighbours have the largest kernel values
with one another, so sets of neighbours hardly disturb one another. The sum of their directions is
followed as far as the dual objective rises, no farther than its end: the objective is quadratic
along it, and a sum of feasible directions of disjoint sets is feasible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.lanes import FunctionProblems

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Point
    from bigsvm.working_sets.choice import WorkingSet
    from bigsvm.working_sets.lanes import LaneLimits
    from bigsvm.working_sets.subproblem import Memory, WorkingProblem

SETS = 4
"""Neighbourhoods of a crowd that are solved at once; 2 and 8 gain less with four threads."""


class CrowdedRows(ActiveRows):
    """More active rows than a working set holds; of a crowd, several sets are solved at once.

    The number of sets does not depend on the threads, and so bits do not either. Once sets have
    disturbed one another, one set at a time is chosen.
    """

    n_sets = SETS

    def is_all(self, working: WorkingSet) -> bool:
        """Whether one working set has all of these rows: several may disturb one another."""
        return not len(working.sizes) and super().is_all(working)

    def problem(
        self, working: WorkingSet, start: Point, *, memory: Memory, limits: LaneLimits
    ) -> WorkingProblem:
        """Make one sub-problem, or one of each set."""
        if not len(working.sizes):
            return super().problem(working, start, memory=memory, limits=limits)
        return FunctionProblems(
            np.split(working.rows, np.cumsum(working.sizes)[:-1]), start,
            make=[self.of_rows] * len(working.sizes),
            tiles=self.tiles, memory=memory._replace(first_slots=None), limits=limits,
        )  # fmt: skip

    def absorb(self, working: WorkingSet) -> bool:
        """Take over a solved working set, or go where several together lead.

        If several lead nowhere, one alone may still lead somewhere: that counts as a change.
        """
        if not len(working.sizes):
            return super().absorb(working)
        rows, _, alpha, _ = working
        places = self.places(rows)
        before, outputs = self.alpha[places], self.outputs[places]
        direction = alpha - before
        change = self.dual.formulation.per_output(direction)
        others = np.ones(len(self), np.bool_)
        others[places] = False
        rest = np.flatnonzero(others)
        # Nothing is changed before the last of these, as each may be interrupted.
        added = self._product(rest, places, change)
        added_here = self._added_among(working, places, change)
        slope = self.dual.gradient(before, outputs, rows)
        slope_at_end = self.dual.gradient(alpha, outputs + added_here, rows)
        share, self.gain = best_share(direction, slope, slope_at_end)
        if share < 1.0:
            self.n_sets = 1
            # Rounding must not leave the box.
            ends = np.minimum(before, alpha), np.maximum(before, alpha)
            alpha = self.dual.formulation.netted(np.clip(before + share * direction, *ends))
        self.outputs[rest] += share * added
        self.outputs[places] += share * added_here
        self.alpha[places] = alpha
        return True

    def _added_among(self, working: WorkingSet, places: I8, change: F8) -> F8:
        """Return what the sets add to the outputs of one another, and each to its own, (m,)."""
        solved = self.dual.outputs_from(working.gradient, working.alpha, working.rows)
        added: F8 = solved - self.outputs[places]
        number = np.repeat(np.arange(len(working.sizes)), working.sizes)
        for k in range(len(working.sizes)):
            own, other = number == k, number != k
            added[own] += self._product(places[own], places[other], change[other])
        return added


def best_share(direction: F8, slope: F8, slope_at_end: F8) -> tuple[float, float]:
    """Share in [0, 1] of a direction, (m, …), at which a quadratic objective is largest; its gain.

    The slopes are the gradient where the direction begins and where it ends.
    """
    rise = float(np.vdot(slope, direction))
    bend = rise - float(np.vdot(slope_at_end, direction))
    if rise <= 0.0:
        return 0.0, 0.0
    share = min(1.0, rise / bend) if bend > 0.0 else 1.0
    return share, share * (rise - 0.5 * share * bend)
