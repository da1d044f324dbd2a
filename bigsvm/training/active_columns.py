"""The active rows of several functions, each of which has working sets of its own."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.duals.column_problems import ColumnProblems, sets_of_columns
from bigsvm.training.active import ActiveRows, WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.duals.column_problems import Room
    from bigsvm.duals.dual import Standing
    from bigsvm.duals.shrinking import ShrinkingProblem
    from bigsvm.duals.subproblem import SubProblem
    from bigsvm.training.choice import Choice


class ActiveColumns(ActiveRows):
    """Active rows of functions that nothing but the kernel ties together.

    Few rows are one working set for all functions, whose kernel rows they share. The rows that
    matter to any function are many more than those that matter to one, though: of many rows each
    function has a working set of its own, whose kernel rows are short, and what has moved in all of
    them is added up together. Such a working set is of variables, numbered ``column · b + place``,
    and its alpha and gradient are (m,) instead of (m, k).
    """

    def choose(self, choice: Choice, at: Standing, *, tol: float, once: bool) -> WorkingSet:
        """Choose all rows, or variables of each function that is not optimal yet."""
        everything = np.arange(len(self))
        if choice.takes_all(len(self)):
            return self._start(everything, tol)
        loosely = choice.loosely(at, tol)
        if choice.solves_together(len(self)):
            return self._start(everything, loosely)
        found = []
        for c, column in enumerate(self._columns()):
            stands = column.optimality()
            if stands.gap > tol:
                part = column.choose(choice, stands, tol=tol, once=once)
                found.append(part._replace(places=part.places + c * len(self)))
        return WorkingSet(
            np.concatenate([part.places for part in found]),
            np.concatenate([part.alpha for part in found]),
            np.concatenate([part.gradient for part in found]),
            # Another round would be a pass over the active rows, for more than the steps cost that
            # solving loosely saves while the gap is large.
            loosely if once else tol,
        )

    def is_all(self, working: NDArray[np.int64], alpha: NDArray[np.float64]) -> bool:
        """Whether all functions are solved together."""
        return alpha.ndim == self.alpha.ndim

    def problem(
        self,
        working: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        first_slots: Callable[[int], int | None],
        room: Room,
        **given: Any,  # noqa: ANN401 (the other arguments of `SubProblem`)
    ) -> SubProblem | ShrinkingProblem | ColumnProblems:
        """Make one sub-problem of all functions, or one of each."""
        if self.is_all(working, alpha):
            # Each function needs rows of its own: all that fit are of use from the first.
            return self.of_rows(working, alpha, gradient, first_slots=lambda _: None, **given)
        make = [
            functools.partial(column.of_rows, first_slots=first_slots) for column in self._columns()
        ]
        sets = self._sets(working)
        return ColumnProblems(
            sets, alpha, gradient, make=make, tiles=self.tiles, room=room, **given
        )

    def absorb(
        self,
        places: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        look: Callable[[], None],
    ) -> bool:
        """Take over what the functions have become, and add up together what has moved in all."""
        if self.is_all(places, alpha):
            return super().absorb(places, alpha, gradient, look=look)
        change = np.zeros_like(self.alpha)
        column, place = np.divmod(places, len(self))
        change[place, column] = alpha - self.alpha[place, column]
        self.outputs += self.product(self.dual.formulation.per_output(change), look)
        sets = self._sets(places)
        edges = itertools.pairwise(np.cumsum([0, *map(len, sets)]))
        for c, (rows, (start, stop)) in enumerate(zip(sets, edges, strict=True)):
            given = gradient[start:stop], alpha[start:stop], self.indices[rows]
            self.outputs[rows, c] = self.dual.columns[c].outputs_from(*given)
        self.alpha[place, column] = alpha
        return bool(change.any())

    def _columns(self) -> list[ActiveRows]:
        """List the active rows of each function alone."""
        return [
            ActiveRows(
                dual, self.tiles, self.rows, self.indices, self.alpha[:, c], self.outputs[:, c]
            )
            for c, dual in enumerate(self.dual.columns)
        ]

    def _sets(self, working: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Places of each function's variables."""
        return sets_of_columns(working, len(self), len(self.dual.columns))
