"""ColumnProblems: working sets of several functions, one after the other, each of its own rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.subproblem import Progress, SubProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bigsvm.duals.problem import Values

NO_PAIR = np.full(2, -1, np.int64)


def sets_of_columns(
    working: NDArray[np.int64], n_rows: int, n_columns: int
) -> list[NDArray[np.int64]]:
    """Rows of each column's variables in a working set of such, numbered ``column · n + row``."""
    column, row = np.divmod(working, n_rows)
    return np.split(row, np.searchsorted(column, np.arange(1, n_columns)))


class ColumnProblems:
    """The sub-problems of columns that nothing but the kernel ties together, in turn.

    Parameters
    ----------
    sets : sequence of (m_c,) int64
        Places of each column's working set; empty where it has none.
    alpha, gradient : (Σ m_c,) float64
        Where to start, column by column.
    make : sequence of callable
        For each column: makes the `SubProblem` of places, alpha and gradient; `last`, `steps` and
        `given` are named.
    last : (5,) int64, optional
        Of an interrupted run; anything shorter is of none.
    steps : int
        Steps already done.
    """

    def __init__(
        self,
        sets: Sequence[NDArray[np.int64]],
        alpha: Values,
        gradient: Values,
        *,
        make: Sequence[Callable[..., SubProblem]],
        last: NDArray[np.int64] | None = None,
        steps: int = 0,
        **given: Any,  # noqa: ANN401 (of `make`)
    ) -> None:
        self._sets, self._make, self._given = sets, make, given
        self._edges = np.cumsum([0, *(len(places) for places in sets)])
        self.alpha, self.gradient = alpha.copy(), gradient.copy()
        self.size = int(self._edges[-1])
        self.steps = steps
        self.gap = 0.0
        self.n_misses = self.n_reads = 0
        self._turn = self._stalled = self._own_steps = 0
        self._pair = NO_PAIR
        if last is not None and len(last) == 5:
            self._turn, self._stalled, self._own_steps = last[:3].tolist()
            self._pair = last[3:]
        self._problem: SubProblem | None = None

    @property
    def last(self) -> NDArray[np.int64]:
        """Whose turn it is, whether one stalled, its steps and its last pair."""
        return np.array([self._turn, self._stalled, self._own_steps, *self._pair.tolist()])

    def close(self) -> None:
        """Hand the kernel rows to whatever keeps them."""
        if self._problem is not None:
            self._problem.close()
            self._problem = None

    def advance(
        self,
        *,
        tol: float,
        max_steps: int = smo.REFRESH,
        look: Callable[[], None] = lambda: None,
    ) -> Progress:
        """Take up to `max_steps` steps of the column whose turn it is, and of those that follow.

        A column that cannot move is left where it is; once the others are done, all have stalled.
        """
        goal = self.steps + max_steps
        while self._turn < len(self._sets):
            if not len(self._sets[self._turn]):
                self._turn += 1
                continue
            problem = self._open()
            before = problem.steps, problem.n_misses, problem.n_reads
            progress = problem.advance(tol=tol, max_steps=goal - self.steps, look=look)
            self.steps += problem.steps - before[0]
            self.n_misses += problem.n_misses - before[1]
            self.n_reads += problem.n_reads - before[2]
            part = slice(self._edges[self._turn], self._edges[self._turn + 1])
            self.alpha[part], self.gradient[part] = problem.alpha, problem.gradient
            self.gap, self._own_steps, self._pair = problem.gap, problem.steps, problem.last
            if progress is Progress.STEPS_SPENT:
                return progress
            self._stalled |= int(progress is Progress.STALLED)
            self.close()
            self._turn, self._own_steps, self._pair = self._turn + 1, 0, NO_PAIR
        return Progress.STALLED if self._stalled else Progress.CONVERGED

    def _open(self) -> SubProblem:
        if self._problem is None:
            part = slice(self._edges[self._turn], self._edges[self._turn + 1])
            self._problem = self._make[self._turn](
                self._sets[self._turn], self.alpha[part], self.gradient[part],
                last=self._pair, steps=self._own_steps, **self._given,
            )  # fmt: skip
        return self._problem
