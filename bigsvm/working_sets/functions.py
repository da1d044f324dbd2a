"""Rows of several functions, each of which may have its own working set."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.duals.functions import functions_in_turn
from bigsvm.duals.picking import Wanted
from bigsvm.interruption import check_interrupt
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.choice import FILL, SMALLEST_SET, Choice, WorkingSet
from bigsvm.working_sets.lanes import FunctionProblems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.dual import Dual, Point, Standing
    from bigsvm.working_sets.lanes import LaneLimits
    from bigsvm.working_sets.subproblem import Memory, WorkingProblem

MANY_FUNCTIONS = 64
"""From this many functions on, each has a working set of its own among all rows if memory holds few
active rows."""
SMALLEST_FUNCTION_SET = 64
"""Fewest variables of one of very many functions, each of which has few rows that matter."""


class ActiveFunctions(ActiveRows):
    """Rows of functions that share nothing but the kernel.

    Few active rows are one working set for all functions, which share its kernel rows. Among many
    active rows, each function has its own working set with shorter kernel rows; their changes are
    added up together.
    """

    def choose(self, choice: Choice, *, tol: float, once: bool = False) -> tuple[WorkingSet, float]:
        """Choose all rows, or rows for each function that is not optimal yet."""
        standing = self.optimality()
        everything = np.arange(len(self) if standing.gap > tol else 0)
        loose_tol = choice.loose_tol(standing, tol)
        if standing.gap <= tol or choice.takes_all(len(self)):
            return self.started(everything), tol
        if choice.solves_together(len(self)):
            return self.started(everything), loose_tol
        sets = [self._function(c, *views).choose(choice, tol=tol)[0] for c, views in self._views()]
        # Another round is a pass over the active rows. It costs more than the steps that a loose
        # tolerance saves, unless the functions are few and move the same rows.
        return _joined(sets), loose_tol if once or self.dual.alike else tol

    def is_all(self, working: WorkingSet) -> bool:
        """Whether all functions are solved together."""
        return not len(working.sizes)

    def problem(
        self, working: WorkingSet, start: Point, *, memory: Memory, limits: LaneLimits
    ) -> WorkingProblem:
        """Make one sub-problem of all functions, or one of each."""
        if self.is_all(working):
            # Each function needs other rows: all that fit are of use from the first.
            memory = memory._replace(first_slots=None)
            return self.of_rows(working.rows, start, memory=memory, tiles=self.tiles)
        return FunctionProblems(
            np.split(working.rows, np.cumsum(working.sizes)[:-1]), start,
            make=[self._function(c, *views).of_rows for c, views in self._views()],
            tiles=self.tiles, memory=memory, limits=limits,
        )  # fmt: skip

    def absorb(self, working: WorkingSet) -> bool:
        """Take over the solved sets of the functions, and add up the changes of all."""
        if self.is_all(working):
            return super().absorb(working)
        change, function = np.zeros_like(self.alpha), working.functions
        places = self.places(working.rows)
        change[places, function] = working.alpha - self.alpha[places, function]
        self.outputs += self.product(self.dual.formulation.per_output(change))
        edges = itertools.pairwise(np.cumsum([0, *working.sizes]))
        for c, (start, stop) in enumerate(edges):
            part = slice(start, stop)
            f = self.dual.functions[c].outputs_from(
                working.gradient[part], working.alpha[part], working.rows[part]
            )
            self.outputs[places[part], c] = f
        self.alpha[places, function] = working.alpha
        return bool(change.any())

    def _function(self, c: int, alpha: F8, outputs: F8) -> ActiveRows:
        """Rows of one function alone."""
        return ActiveRows(
            self.dual.functions[c], self.tiles, self.rows, self.indices, alpha, outputs,
            executor=self.executor,
        )  # fmt: skip

    def _views(self) -> list[tuple[int, list[F8]]]:
        """Each function's number, and its alpha and outputs."""
        return [
            (c, [self.alpha[:, c], self.outputs[:, c]]) for c in range(len(self.dual.functions))
        ]


class FunctionSets(ActiveFunctions):
    """All rows, among which each function has its own working set; see `FunctionChoice`.

    The sweep adds up the changes as a sparse matrix.
    """

    has_all_rows = True

    def choose(self, choice: Choice, *, tol: float, once: bool = False) -> tuple[WorkingSet, float]:
        """Choose rows for each function that is not optimal yet."""
        # The memory of active rows with all functions holds this many variables of each.
        most = choice.plan.widest_set
        wanted = Wanted(most, min(SMALLEST_FUNCTION_SET, most), FILL, choice.rng, tol)
        sets = []
        for c, (alpha, outputs) in functions_in_turn(self.alpha, self.outputs):
            check_interrupt()
            function = self._function(c, alpha, outputs)
            standing, places = function.dual.optimality(alpha, outputs), np.empty(0, np.int64)
            if standing.gap > tol:
                places = function.dual.select(alpha, outputs, standing, wanted)
            sets.append(function.started(places))
        return _joined(sets), tol


class FunctionChoice(Choice):
    """Gives each of very many functions its own working set among all rows; no row is active.

    An active row takes memory for every function, so few rows can be active with very many
    functions, and sweeps of the active rows alone would not converge.
    """

    @staticmethod
    def suits(dual: Dual[Any], source: RowSource, plan: TrainingPlan) -> bool:
        """Whether the functions are many, and memory holds few active rows of theirs."""
        few_rows = plan.active_rows < min(SMALLEST_SET, source.n_rows)
        return len(dual.functions) >= MANY_FUNCTIONS and few_rows and source.row_alignment <= 1

    def scope_after(self, scope: int) -> int:
        """Return the number of all rows."""
        return self._n_rows

    def active_rows(
        self, alpha: F8, outputs: F8, standing: Standing, *, after_full_sweep: bool
    ) -> tuple[I8, bool]:
        """Return no rows."""
        return np.empty(0, np.int64), False


def _joined(sets: Sequence[WorkingSet]) -> WorkingSet:
    """Join the working sets of functions, in their order."""
    rows, _, alphas, gradients = zip(*sets, strict=True)
    sizes = np.array(list(map(len, rows))) if any(map(len, rows)) else sets[0].sizes
    return WorkingSet(
        np.concatenate(rows), sizes, np.concatenate(alphas), np.concatenate(gradients)
    )


def moved_in(working: WorkingSet, alpha: F8) -> sp.csr_array:
    """Change of alpha of all rows, (n, k), in the working sets of functions."""
    rows, function = working.rows, working.functions
    moved = working.alpha - alpha[rows, function]
    some = np.flatnonzero(moved)
    return sp.csr_array((moved[some], (rows[some], function[some])), shape=alpha.shape)
