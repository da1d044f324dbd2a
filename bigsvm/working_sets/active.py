"""The active rows: kept current between two sweeps, so that only they need working on.

Rows that cannot matter now are left out; a sweep brings them exactly up to date afterwards. Where
the active rows are more than a working set, they are solved by several working sets in turn, each
followed by a small sweep over the active rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.executors.executor import Products
from bigsvm.gram import Partners
from bigsvm.working_sets.choice import WorkingSet
from bigsvm.working_sets.newton_problem import NewtonProblem
from bigsvm.working_sets.subproblem import SubProblem

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Dual, Point, Standing
    from bigsvm.executors.working_rows import Gathered
    from bigsvm.gram import KernelTiles
    from bigsvm.working_sets.choice import Choice
    from bigsvm.working_sets.lanes import LaneLimits
    from bigsvm.working_sets.subproblem import Memory, WorkingProblem


class ActiveRows:
    """Some rows, ascending, their alpha and outputs, (b,) each, and the dual restricted to them.

    `absorb` changes alpha and outputs in place. The executor computes large products; by default
    this process does.
    """

    has_all_rows = False
    """Whether these are all rows, whose outputs a sweep brings up to date instead of `absorb`."""
    n_sets = 1
    """Most working sets that are chosen together."""
    gain: float | None = None
    """By how much the last sets that were joined have raised the objective."""

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        rows: Gathered,
        indices: I8,
        alpha: F8,
        outputs: F8,
        *,
        executor: Products | None = None,
    ) -> None:
        self.executor = executor or Products(rows.source)
        self.dual, self.tiles, self.rows, self.indices = dual, tiles, rows, indices
        self.alpha, self.outputs = alpha, outputs

    def __len__(self) -> int:
        return len(self.indices)

    def places(self, rows: I8) -> I8:
        """Places of some of these rows, (m,)."""
        return np.searchsorted(self.indices, rows)

    def optimality(self) -> Standing:
        """Return the standing of these rows."""
        standing: Standing = self.dual.optimality(self.alpha, self.outputs, rows=self.indices)
        return standing

    def n_violating(self, tol: float) -> int:
        """Count these rows that violate by more than `tol`."""
        standing = self.optimality()
        scores = self.dual.scores(self.alpha, self.outputs, standing, tol=tol, rows=self.indices)
        return int(np.count_nonzero(scores.score > tol))

    def choose(self, choice: Choice, *, tol: float, once: bool = False) -> tuple[WorkingSet, float]:
        """Choose a working set, or several disjoint ones, and the KKT gap that each is to reach.

        The set is empty if the rows are within `tol` of optimal. `once` says that no other set
        follows.
        """
        standing = self.optimality()
        if standing.gap <= tol:
            return self.started(np.empty(0, np.int64)), tol
        sets, tol = choice.working_set(
            self.dual, self.alpha, self.outputs, standing,
            rows=self.indices, near=self.kernel_row, tol=tol, n_sets=self.n_sets,
        )  # fmt: skip
        if len(sets) == 1:
            return self.started(sets[0]), tol
        working = self.started(np.concatenate(sets))
        return working._replace(sizes=np.array([len(places) for places in sets])), tol

    def started(self, places: I8) -> WorkingSet:
        """Return the working set of all variables at some places, (m,)."""
        alpha, rows = self.alpha[places], self.indices[places]
        gradient = self.dual.gradient(alpha, self.outputs[places], rows)
        return WorkingSet(rows, np.empty(0, np.int64), alpha, gradient)

    def is_all(self, working: WorkingSet) -> bool:
        """Whether a working set has all of these rows."""
        return len(working.rows) == len(self)

    def problem(
        self, working: WorkingSet, start: Point, *, memory: Memory, limits: LaneLimits
    ) -> WorkingProblem:
        """Make the problem of a working set, at its start or where it continues.

        The limits are for working sets of several functions.
        """
        return self.of_rows(working.rows, start, memory=memory, tiles=self.tiles)

    def of_rows(
        self, rows: I8, start: Point, *, memory: Memory, tiles: KernelTiles
    ) -> WorkingProblem:
        """Make the sub-problem of rows with all their variables."""
        places = self.places(rows)
        given = self.dual, tiles, self.rows.at_places(places), rows, start
        if self.tiles.dtype == np.float64:
            # Also for a function that does not need it itself.
            return NewtonProblem(*given, most_bytes=memory.buffer.values.nbytes)
        origin = self.started(places)
        make = memory.problem or SubProblem
        return make(*given, memory, origin=(origin.alpha, origin.gradient))

    def absorb(self, working: WorkingSet) -> bool:
        """Take over a solved working set, and bring the outputs of the other rows up to date.

        The set has the gradient of this very alpha. Returns whether any alpha has changed.
        """
        rows, _, alpha, gradient = working
        places = self.places(rows)
        change = self.dual.formulation.per_output(alpha - self.alpha[places])
        others = np.ones(len(self), np.bool_)
        others[places] = False
        rest = np.flatnonzero(others)
        added = self._product(rest, places, change)
        self.outputs[rest] += added
        self.outputs[places] = self.dual.outputs_from(gradient, alpha, rows)
        moved_any = bool((alpha != self.alpha[places]).any())
        self.alpha[places] = alpha
        return moved_any

    def kernel_row(self, place: int) -> F8:
        """Kernel values, (b,), of these rows with the one at `place`."""
        everything, partner = np.arange(len(self)), np.array([place])
        return self._product(everything, partner, np.ones(1))

    def product(self, change: F8) -> F8:
        """``K @ change`` among these rows, (b,) or (b, k); half of K among moved rows is used."""
        moved = change.reshape(len(self), -1).any(axis=1)
        places, rest = np.flatnonzero(moved), np.flatnonzero(~moved)
        product, among = np.empty_like(change), np.zeros_like(change[places])
        product[rest] = self._product(rest, places, change[places])
        if len(places):
            rows = self.rows.at_places(places)
            partners = Partners.of_rows_like(self.tiles.values, rows)
            self.tiles.multiply_symmetric(rows, partners, change[places], among)
        product[places] = among
        return product

    def _product(self, at: I8, places: I8, weights: F8) -> F8:
        """``K(at, places) @ weights``."""
        return self.executor.among(self.rows, at, places, weights, tiles=self.tiles)
