"""Row steps on a working set of Crammer and Singer's problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.core import simplex
from bigsvm.duals.dual import Steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.duals.problem import Values

SLICE_WORK = 1 << 28
"""Values that the steps of one slice look at, whatever the number of classes: a tenth of a second
or two."""


def watched_bytes(n_classes: int) -> int:
    """Bytes of the rows that are looked at after each step, beside the states of all."""
    return simplex.watched_rows(n_classes) * (12 * n_classes + 32)


class RowSteps(Steps):
    """The state of row steps, laid out for `bigsvm.core.simplex`.

    Parameters
    ----------
    alpha, gradient : (m, k) float64
    bounds : (m,) float64
    label : (m,) int32
    solver, cooling : int
        As `bigsvm.core.simplex` numbers them.
    diagonal : (m,) float64
    last : (2,) int64, optional
    n_done : int
    """

    def __init__(
        self,
        alpha: Values,
        gradient: Values,
        bounds: Values,
        label: NDArray[np.int32],
        *,
        solver: int,
        cooling: int,
        diagonal: Values,
        last: NDArray[np.int64] | None,
        n_done: int,
    ) -> None:
        self._solver, self._cooling, self._size = solver, cooling, len(label)
        self.state = simplex.make_state(alpha, gradient, bounds, label.astype(np.int64), diagonal)
        self.state.counters[0] = n_done
        if last is not None:
            self.state.counters[2] = max(last[0], 0)

    @property
    def alpha(self) -> Values:
        """(m, k) float64."""
        return self.state.alpha[:, : self._size].T

    @property
    def gradient(self) -> Values:
        """(m, k) float64."""
        return self.state.gradient[:, : self._size].T

    @property
    def gap(self) -> float:
        """Largest ψ."""
        return float(self.state.violation.max())

    @property
    def n_done(self) -> int:
        """Rows solved for."""
        return int(self.state.counters[0])

    @property
    def stamp(self) -> int:
        """Of the last use of a kernel row."""
        return int(self.state.counters[1])

    @property
    def last(self) -> NDArray[np.int64]:
        """How often the level has been halved, and −1."""
        return np.array([self.state.counters[2], -1], np.int64)

    def advance(
        self,
        rows: NDArray[np.float32],
        slots: NDArray[np.int32],
        used: NDArray[np.int64],
        *,
        tol: float,
        max_steps: int,
    ) -> tuple[int, int]:
        """Solve for one row after the other; see `bigsvm.core.simplex.run`."""
        if len(self.state.some.places) == 0:
            max_steps = min(max_steps, max(1, SLICE_WORK // self.state.alpha.size))
        # Else steps look at few values; where a slice ends must not depend on the rows in memory.
        return simplex.run(
            self.state, rows, slots, used,
            method=self._solver, cooling=self._cooling, tol=tol, max_steps=max_steps,
        )  # fmt: skip

    def violations(self, slots: NDArray[np.int32], score: Values, quiet: NDArray[np.bool_]) -> None:
        """By ψ, where it is above the level; quiet are rows that do not violate."""
        simplex.violations(self.state, slots, self._cooling, score, quiet)
