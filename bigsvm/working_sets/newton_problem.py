"""Working sets in float64, solved by Newton's method, where float32 kernel values are too coarse.

Rounding makes a kernel matrix indefinite where it exceeds the ridge of squared losses. Pair steps
then go uphill for ever, as no bound ends them. Such a run has all of its kernel values in float64,
and working sets whose matrix, or a narrow factor of it, fits in memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core import smo
from bigsvm.data.rows import RowsAt
from bigsvm.duals.dual import Point
from bigsvm.duals.newton import Factored, Gram, newton
from bigsvm.gram import Partners
from bigsvm.gram.low_rank import factor
from bigsvm.gram.partners import rows_at
from bigsvm.interruption import check_interrupt
from bigsvm.working_sets.choice import LARGEST_SET
from bigsvm.working_sets.subproblem import REFRESH, Costs, Progress, WorkingProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import Rows
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.dual import Dual
    from bigsvm.duals.newton import Matrix
    from bigsvm.gram import KernelTiles

BYTES = 16
"""Bytes of a kernel value: of the matrix, and of a system of some of its rows."""
BYTES_OF_FACTOR = 24
"""The same for a value of a factor, of which a system has two more."""


def planned_in_float64(plan: TrainingPlan, width: float, *, n_outputs: int) -> TrainingPlan:
    """Return a plan whose working sets can be solved in float64.

    `width` is the columns of a factor of the kernel matrix, infinite if there is none. Several
    functions have one working set, of all active rows.
    """
    most = max(
        math.isqrt(plan.gram_bytes // BYTES), int(plan.gram_bytes / (BYTES_OF_FACTOR * width)), 2
    )
    active = min(plan.active_rows, plan.exact_rows)
    size = min(active, most)
    if n_outputs > 1:
        active = size = min(size, LARGEST_SET)
    return replace(plan, working_set=size, widest_set=size, active_rows=active)


class NewtonProblem(WorkingProblem):
    """The dual restricted to a working set, or that of each of several functions.

    The tiles are float64, the rows (m, d) those of the working set. `most_bytes` are for kernel
    values.
    """

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        rows: Rows | RowsAt,
        working_set: I8,
        start: Point,
        *,
        most_bytes: int,
    ) -> None:
        self._duals: tuple[Any, ...] = tuple(dual.functions) or (dual,)
        self._tiles, self._rows, self._working_set = tiles, rows_at(rows), working_set
        self._alpha, self._gradient = start.alpha.copy(), start.gradient.copy()
        self._steps, self._last, self._most_bytes = start.n_done, start.last, most_bytes

    @property
    def size(self) -> int:
        return len(self._working_set)

    @property
    def point(self) -> Point:
        return Point(self._alpha, self._gradient, self._last, self._steps)

    @property
    def gap(self) -> float:
        rows = self._working_set
        return max(
            dual.optimality(a, dual.outputs_from(g, a, rows), rows=rows).gap
            for dual, a, g in self._each()
        )

    @property
    def costs(self) -> Costs:
        return Costs()

    def _each(self) -> list[tuple[BoxDual, F8, F8]]:
        """Return the dual of each function, with views of its alpha and gradient."""
        m = self.size
        columns = (self._alpha.reshape(m, -1).T, self._gradient.reshape(m, -1).T)
        return list(zip(self._duals, *columns, strict=True))

    def _matrices(self) -> Iterator[Matrix]:
        """Yield the kernel matrix by a narrow factor, and as it is, which rounding harms less."""
        m, width = self.size, self._tiles.values.factor_width(self._rows)
        if BYTES_OF_FACTOR * width < BYTES * m:
            yield Factored(factor(self._tiles, self._rows))
        if BYTES * m**2 > self._most_bytes:
            return
        gram, (base, places) = np.empty((m, m)), self._rows
        partners = Partners.of_rows_like(self._tiles.values, self._rows)
        for first in range(0, m, smo.PADDING):
            check_interrupt()
            part = slice(first, first + smo.PADDING)
            self._tiles.evaluate(RowsAt(base, places[part]), partners, gram[part])
        yield Gram(gram)

    def advance(self, *, tol: float, max_steps: int = REFRESH) -> Progress:
        """Solve for all rows; a round of Newton's method counts as a step."""
        if self._steps:
            # It was solved before the run was interrupted: again, it might gain a little more.
            return Progress.CONVERGED if self.gap <= tol else Progress.STALLED
        for matrix in self._matrices():
            solved = []
            for dual, alpha, gradient in self._each():
                (segment,) = dual.formulation.segments(self._working_set)
                *point, rounds = newton(
                    matrix, segment, alpha, gradient,
                    keeps_sum=dual.formulation.sums_are_bound, tol=tol,
                    max_rounds=max_steps - self._steps,
                )  # fmt: skip
                solved.append(point)
                self._steps += rounds
            for (_, alpha, gradient), point in zip(self._each(), solved, strict=True):
                alpha[:], gradient[:] = point
            if self.gap <= tol:
                return Progress.CONVERGED
        return Progress.STALLED

    def close(self) -> None:
        return
