"""Active rows of several functions, each of which may have its own working set."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.duals.dual import Start
from bigsvm.duals.functions import functions_in_turn
from bigsvm.interruption import check_interrupt
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.choice import WorkingSet
from bigsvm.working_sets.lanes import FunctionProblems
from bigsvm.working_sets.subproblem import all_that_fit

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.working_sets.choice import Choice
    from bigsvm.working_sets.lanes import LaneLimits
    from bigsvm.working_sets.subproblem import Memory, WorkingProblem


class ActiveFunctions(ActiveRows):
    """Rows of functions that share nothing but the kernel.

    Few active rows are one working set for all functions, which share its kernel rows. Among many
    active rows, each function has its own working set with shorter kernel rows; their changes are
    added up together.

    An active row takes memory for every function, so few rows can be active with very many
    functions. Then each function has its working set among all rows instead (`has_all_rows`), and
    the sweep adds up the changes as a sparse matrix.
    """

    def choose(
        self,
        choice: Choice,
        *,
        tol: float,
        once: bool = False,
    ) -> tuple[WorkingSet, float]:
        """Choose all rows, or rows for each function that is not optimal yet."""
        goal = tol
        if not self.has_all_rows:
            standing = self.optimality()
            everything = np.arange(len(self) if standing.gap > tol else 0)
            loose_tol = choice.loose_tol(standing, tol)
            if standing.gap <= tol or choice.takes_all(len(self)):
                return self.started(everything), tol
            if choice.solves_together(len(self)):
                return self.started(everything), loose_tol
            # Another round is a pass over the active rows. It costs more than the steps that a
            # loose tolerance saves, unless the functions are few and move the same rows.
            goal = loose_tol if once or self.dual.alike else tol
        sets = []
        pairs = functions_in_turn(self.alpha, self.outputs) if self.has_all_rows else self._views()
        for c, (alpha, outputs) in pairs:
            if self.has_all_rows:
                check_interrupt()
            sets.append(self._function(c, alpha, outputs).choose(choice, tol=tol)[0])
        rows, _, alphas, gradients = zip(*sets, strict=True)
        sizes = np.array(list(map(len, rows))) if any(map(len, rows)) else sets[0].sizes
        together = WorkingSet(
            np.concatenate(rows), sizes, np.concatenate(alphas), np.concatenate(gradients)
        )
        return together, goal

    def is_all(self, working: WorkingSet) -> bool:
        """Whether all functions are solved together."""
        return not len(working.sizes)

    def problem(
        self, working: WorkingSet, *, last: I8, n_done: int, memory: Memory, limits: LaneLimits
    ) -> WorkingProblem:
        """Make one sub-problem of all functions, or one of each."""
        start = Start(working.alpha, working.gradient, last, n_done)
        if self.is_all(working):
            # Each function needs other rows: all that fit are of use from the first.
            memory = memory._replace(first_slots=all_that_fit)
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
            has_all_rows=self.has_all_rows, executor=self.executor,
        )  # fmt: skip

    def _views(self) -> list[tuple[int, list[F8]]]:
        """Each function's number, and its alpha and outputs."""
        return [
            (c, [self.alpha[:, c], self.outputs[:, c]]) for c in range(len(self.dual.functions))
        ]


def moved_in(working: WorkingSet, alpha: F8) -> sp.csr_array:
    """Change of alpha of all rows, (n, k), in the working sets of functions."""
    rows, function = working.rows, working.functions
    moved = working.alpha - alpha[rows, function]
    some = np.flatnonzero(moved)
    return sp.csr_array((moved[some], (rows[some], function[some])), shape=alpha.shape)
