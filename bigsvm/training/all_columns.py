"""Very many functions: each has a working set of its own among all rows, and no row is active.

What is kept of an active row is kept for every function, so of a thousand there is room for few
rows, and each sweep brings few of them further. What is kept of a working set's variable is of one
function: in the same memory each of them has as many variables as there were rows. They are solved
one after the other, and what has moved in all of them is swept together, as a sparse matrix.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.duals.column_problems import ColumnProblems, sets_of_columns
from bigsvm.duals.columns_in_turn import columns_in_turn
from bigsvm.duals.subproblem import SubProblem
from bigsvm.training.active import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.duals.dual import Dual
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.choice import Choice


class AllColumns:
    """Functions that nothing but the kernel ties together, where they stand on all rows.

    A working set is of variables, numbered ``column · n + row``.

    Parameters
    ----------
    dual : Dual
    tiles : KernelTiles
    source : RowSource
        In memory: working sets are taken from it one after the other.
    alpha, outputs : (n, k) float64
    """

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        source: RowSource,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
    ) -> None:
        self._dual, self._tiles, self._source = dual, tiles, source
        self._alpha, self._outputs = alpha, outputs

    def choose(self, choice: Choice, *, tol: float, look: Callable[[], None]) -> WorkingSet:
        """Choose variables of each function that is further than `tol` from optimal; maybe none."""
        n, nothing = len(self._alpha), np.empty(0)
        found = [(np.empty(0, np.int64), nothing, nothing)]
        for c, (alpha, outputs) in columns_in_turn(self._alpha, self._outputs):
            look()
            dual = self._dual.columns[c]
            at = dual.optimality(alpha, outputs)
            if at.gap > tol:
                rows = choice.column_rows(dual, alpha, outputs, at, tol=tol)
                gradient = dual.gradient(alpha[rows], outputs[rows], rows)
                found.append((c * n + rows, alpha[rows], gradient))
        places, alphas, gradients = zip(*found, strict=True)
        return WorkingSet(
            np.concatenate(places), np.concatenate(alphas), np.concatenate(gradients), tol
        )

    def problem(
        self,
        working: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        first_slots: Callable[[int], int | None],
        **given: Any,  # noqa: ANN401 (the other arguments of `SubProblem`)
    ) -> ColumnProblems:
        """Make the sub-problems, one of each function."""

        def of_rows(
            c: int,
            rows: NDArray[np.int64],
            *start: Any,  # noqa: ANN401 (of `SubProblem`)
            tiles: KernelTiles,
            **more: Any,  # noqa: ANN401 (of `SubProblem`)
        ) -> SubProblem:
            return SubProblem(
                self._dual.columns[c], tiles, self._source.lend(rows), rows, *start,
                first_slots=first_slots(len(rows)), **more,
            )  # fmt: skip

        k = len(self._dual.columns)
        sets = sets_of_columns(working, len(self._alpha), k)
        make = [functools.partial(of_rows, c) for c in range(k)]
        return ColumnProblems(sets, alpha, gradient, make=make, tiles=self._tiles, **given)

    def change(self, working: NDArray[np.int64], alpha: NDArray[np.float64]) -> sp.csr_array:
        """By how much alpha of a working set has moved, (n, k)."""
        column, row = np.divmod(working, len(self._alpha))
        moved = alpha - self._alpha[row, column]
        some = np.flatnonzero(moved)
        return sp.csr_array((moved[some], (row[some], column[some])), shape=self._alpha.shape)

    def take_over(self, working: NDArray[np.int64], alpha: NDArray[np.float64]) -> None:
        """Set alpha of a working set, whose change the outputs have."""
        column, row = np.divmod(working, len(self._alpha))
        self._alpha[row, column] = alpha
