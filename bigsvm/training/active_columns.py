"""The active rows of several functions, each of which has working sets of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.duals.column_problems import ColumnProblems
from bigsvm.duals.subproblem import SubProblem
from bigsvm.training.active import ActiveRows, WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.duals.dual import Dual, Standing
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
        everything = np.arange(len(self))
        if choice.takes_all(len(self)):
            return self._start(everything, tol)
        loosely = choice.loosely(at, tol)
        if choice.solves_together(len(self)):
            return self._start(everything, loosely)
        found = []
        for c, column in enumerate(self._columns()):
            of_column = column.optimality()
            if of_column.gap > tol:
                part = column.choose(choice, of_column, tol=tol, once=once)
                found.append(part._replace(places=part.places + c * len(self)))
        places, alpha, gradient = (np.concatenate(arrays) for arrays in list(zip(*found))[:3])
        # Another round costs a pass over the active rows: more than what is saved by solving
        # loosely where the gap is still large.
        return WorkingSet(places, alpha, gradient, loosely if once else tol)

    def is_all(self, working: NDArray[np.int64], alpha: NDArray[np.float64]) -> bool:
        return alpha.ndim == self.alpha.ndim

    def problem(
        self,
        working: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        first_slots: Callable[[int], int | None],
        **given: Any,  # noqa: ANN401
    ) -> SubProblem | ColumnProblems:
        if self.is_all(working, alpha):
            return super().problem(working, alpha, gradient, first_slots=lambda size: None, **given)
        columns = self._columns()

        def make(column: int, places: NDArray[np.int64], *start: Any, **state: Any) -> SubProblem:
            return columns[column].problem(places, *start, first_slots=first_slots, **state)

        return ColumnProblems(self._sets(working), alpha, gradient, make=make, **given)

    def absorb(
        self,
        places: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        look: Callable[[], None],
    ) -> bool:
        if self.is_all(places, alpha):
            return super().absorb(places, alpha, gradient, look=look)
        everything, sets = np.arange(len(self)), self._sets(places)
        change = np.zeros_like(self.alpha)
        edges = np.cumsum([0, *map(len, sets)])
        parts = [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
        for c, (rows, part) in enumerate(zip(sets, parts, strict=True)):
            change[rows, c] = alpha[part] - self.alpha[rows, c]
        self.outputs += self._added(everything, everything, change, look)
        for c, (rows, part) in enumerate(zip(sets, parts, strict=True)):
            dual, indices = self.dual.columns[c], self.indices[rows]
            self.outputs[rows, c] = dual.outputs_from(gradient[part], alpha[part], indices)
            self.alpha[rows, c] = alpha[part]
        return bool(change.any())

    def _columns(self) -> list[ActiveRows]:
        """The active rows of each function alone."""
        return [
            ActiveRows(
                dual, self.tiles, self.rows, self.indices, self.alpha[:, c], self.outputs[:, c]
            )
            for c, dual in enumerate(self.dual.columns)
        ]

    def _sets(self, working: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Places of each function's variables."""
        column, place = np.divmod(working, len(self))
        return np.split(place, np.searchsorted(column, np.arange(1, len(self.dual.columns))))
