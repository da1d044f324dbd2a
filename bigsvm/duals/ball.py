"""The L2-SVM as a minimal enclosing ball (frank-wolfe.txt; Tsang, Kwok & Cheung 2005).

    minimise R(a) = aᵀK̃a    Σ a = 1, a ≥ 0     K̃_ij = y_i y_j (K_ij + 1) + δ_ij / C_i

The centre of the ball around the points of K̃ is the weight vector, and its squared radius is
``D − R`` where the diagonal of K̃ is D everywhere. Of other diagonals D is the largest, and steps
and stopping rule are still those of the dual itself (frank-wolfe.txt, section 4.4).

With ``α = t y a`` and the best t, 1 / R, the a of least R maximises ``Σ|α| − ½ αᵀ(K + 1 + 1/C)α``:
the dual of the classifier with squared hinge loss, penalty C / 2, and a bias that is one of the
weights. Both have the same decision function, and in the second no sum is bound, so that any
working set can be solved by itself. Sampled searches take the first form, certified training the
second. A gap of the first is R times that in units of the margin:

    R − min_i (K̃a)_i  =  R · (max_i y_i g_i + αᵀ(K + 1 + 1/C)α / Σ|α| − 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bigsvm.core import ball, smo
from bigsvm.duals.box import BoxDual, Optimality
from bigsvm.duals.formulations import Box, Classification, Finished, Segment, check_positive
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.duals.problem import Selection

LOOK = 256
"""Pair steps between two looks at the Frank-Wolfe gap, each of which costs as much as two steps."""
PAIRS_TOL = 0.1
"""Share of the goal at which pairs that differ by so little are not moved any more."""


class Solver(StrEnum):
    """How the ball is found among the points of a core set."""

    CVM = "cvm"
    FRANK_WOLFE = "fw"
    MODIFIED_FRANK_WOLFE = "mfw"
    PAIRWISE = "pairwise"

    @classmethod
    def from_name(cls, name: str) -> Solver:
        """Read a solver's name.

        Raises
        ------
        ParameterError
        """
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(cls)
            raise ParameterError(f"solver is {name!r}; it must be one of {known}") from None


@dataclass(frozen=True, kw_only=True)
class L2SVC(Classification):
    """The classifier of squared hinge loss with a penalised bias: ridge 1 / C_i, no upper bound.

    `C` is that of the ball, ``C/2 Σ ξ²``: twice that of LIBLINEAR's squared hinge.
    """

    name = "l2-svc"
    C: float

    def __post_init__(self) -> None:
        check_positive("C", self.C)
        super().__post_init__()

    @property
    def offset(self) -> float:
        return 1.0

    def has_variable(self, rows: Selection) -> NDArray[np.bool_]:
        """Which of `rows` have a weight whose ridge float64 holds, (m,)."""
        return self.bounds(rows, self.C) > 1.0 / np.finfo(np.float64).max

    def movable_by_class(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        movable = self.has_variable(slice(None))
        sign = self.per_row
        return (sign < 0) & movable, (sign > 0) & movable

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        bound = np.where(self.has_variable(rows), self.bounds(rows, self.C), 0.0)
        sign = self.sign[rows].astype(np.float64)
        far = np.where(bound > 0, np.inf, 0.0)
        box = Box(sign, np.where(sign > 0, 0.0, -far), np.where(sign > 0, far, 0.0))
        ridge = np.divide(1.0, bound, out=np.zeros_like(bound), where=bound > 0)
        return (Segment(box, ridge),)

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        return Finished(1.0, 0.0, {})


@dataclass(frozen=True)
class BallDual(BoxDual):
    """`BoxDual` of a ball, whose gap is Frank and Wolfe's: how far the farthest point is outside.

    Parameters
    ----------
    formulation, rule
        As `BoxDual` has them.
    solver : Solver
        Of sampled searches.
    largest : float
        D, the largest K̃_ii.
    """

    inner_tol: ClassVar[float] = 0.85
    """The gap is one of all rows together, to which those left out add little. Seconds with 0.5 and
    0.85: mnist 14.1 and 13.2 (C 8), 9.2 and 8.5 (C 64), a9a 5.3 and 5.0, w8a 0.53 and 0.49."""

    solver: Solver = Solver.PAIRWISE
    largest: float = 2.0

    @property
    def classes(self) -> Classification:
        """The formulation, of which it is known that it has classes."""
        if not isinstance(self.formulation, Classification):
            raise TypeError(f"{self.formulation.name} has no classes")
        return self.formulation

    def optimality(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        *,
        rows: NDArray[np.int64] | None = None,
    ) -> Optimality:
        at = super().optimality(alpha, outputs, rows=rows)
        farthest = 0.0
        for part in self._parts(alpha, outputs, rows):
            margins = (part.linear * part.gradient)[part.lower < part.upper]
            farthest = max(farthest, float(margins.max(initial=0.0)))
        return at._replace(gap_elsewhere=max(farthest + _excess(at), 0.0))

    def doubtful(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        *,
        tol: float,
        error: float,
    ) -> NDArray[np.int64]:
        limit = tol - 2 * error - _excess(self.optimality(alpha, outputs))
        chosen = np.zeros(len(alpha), np.bool_)
        for part in self._parts(alpha, outputs, None):
            outside = part.linear * part.gradient > limit
            chosen[part.start : part.stop] = outside & (part.lower < part.upper) & (part.alpha == 0)
        return np.flatnonzero(chosen)

    def goal(self, tol: float, at: Optimality) -> float:
        """Gap, in units of the margin, at which (1 + tol) times the radius encloses all points."""
        mass = at.linear_term
        if not mass > 0:
            return 0.0
        return self.goal_on_simplex(tol, (at.outputs_term + at.ridge_term) / mass**2) * mass

    def goal_on_simplex(self, tol: float, energy: float) -> float:
        """Give that of a on the simplex, where ``R = energy``: ``(ε + ε²/2)(D − R)``."""
        return (tol + 0.5 * tol * tol) * self.squared_radius(energy)

    def squared_radius(self, energy: float) -> float:
        """``D − R``, of which rounding leaves no less than nothing."""
        return max(self.largest - energy, 0.0)

    def advance(
        self,
        state: smo.PairState,
        rows: NDArray[np.float32],
        slots: NDArray[np.int32],
        used: NDArray[np.int64],
        tol: float,
        max_steps: int,
    ) -> tuple[int, int]:
        """Take pair steps on a working set until its points are outside by `tol` at most."""
        stop_at = int(state.counters[0]) + max_steps
        while (done := int(state.counters[0])) < stop_at:
            # At the same steps wherever a row was missing: that must not change the bits.
            if done % LOOK == 0 and ball.gap_of_signed(_points(state)) <= tol:
                return smo.CONVERGED, -1
            status, row = super().advance(
                state, rows, slots, used, PAIRS_TOL * tol,
                min(LOOK - done % LOOK, stop_at - done),
            )  # fmt: skip
            if status != smo.STEPS_SPENT:
                return status, row
        return smo.STEPS_SPENT, -1

    def advance_on_simplex(
        self,
        state: smo.PairState,
        rows: NDArray[np.float32],
        slots: NDArray[np.int32],
        used: NDArray[np.int64],
        tol: float,
        max_steps: int,
    ) -> int:
        """Take the solver's steps on a core set, from rows of K̃; returns why they ended."""
        if self.solver in (Solver.FRANK_WOLFE, Solver.MODIFIED_FRANK_WOLFE):
            away = self.solver is Solver.MODIFIED_FRANK_WOLFE
            return ball.run(_points(state), rows, slots, used, away, tol, max_steps)[0]
        return smo.run(state, rows, slots, used, smo.SECOND_ORDER, tol, max_steps)[0]


def _points(state: smo.PairState) -> ball.Points:
    """View the variables of a working set or core set as such."""
    return ball.Points(*(getattr(state, name) for name in ball.Points._fields))


def _excess(at: Optimality) -> float:
    """By how much α is longer on its ray than is best, as a share; less than 0 if it is shorter."""
    mass = at.linear_term
    return (at.outputs_term + at.ridge_term) / mass - 1.0 if mass > 0 else 0.0
