"""Minimal enclosing balls: the L2-SVM, and its one-class form.

    minimise R(a) = aᵀK̃a    Σ a = 1, a ≥ 0

of points with ``K̃_ij = ⟨p_i, p_j⟩`` (Frandi et al. 2013; Tsang, Kwok & Cheung 2005). The centre of
their ball is ``w = Σ a_i p_i``, and its squared radius is ``D − R`` where the diagonal of K̃ is D
everywhere. For other diagonals D is their largest value; steps and stopping rule are still those of
the dual itself (Frandi et al. 2013, section 4.4). Any positive C_i will do. There are two kinds of
points:

    classes      K̃_ij = y_i y_j (K_ij + 1) + δ_ij / C_i
    one class    K̃_ij = K_ij + δ_ij / C_i, as if all y_i were 1, and no bias

**One class.** ``min ½|w|² − ρ + Σ C_i/2 ξ_i²`` subject to ``w·φ_i ≥ ρ − ξ_i`` has, a being the
multipliers of these constraints, ``w = Σ a_i φ_i``, ``ξ_i = a_i / C_i`` and, of ρ, ``Σ a = 1``;
what is left is ``max −½ aᵀK̃a``. Rows with weight have ``(K̃a)_i = ρ``, so that ρ = R: a row x is
inside where ``Σ a_i k(x_i, x) ≥ R``, and those with weight are outside, by ξ_i. Where k(x, x) is
the same κ for all x (rbf, laplacian), this is SVDD, ``min r² + Σ C_i/4 ξ_i²`` subject to
``|φ_i − c|² ≤ r² + ξ_i``: its dual is ``max Σ a_i K_ii − aᵀK̃a`` on the same simplex, with ``c = w``
and ``r² = κ − 2R + aᵀKa``, and ``|φ(x) − c| ≤ r`` is the same ``Σ a_i k(x_i, x) ≥ R``.

**Without a sum.** The simplex is cut out of a cone, on which R is quadratic. With ``α = t y a`` and
the best t, 1 / R, the a of least R maximises ``Σ|α| − ½ αᵀ(K + offset + 1/C)α``, α having the sign
of y. Of two classes that is the dual of the classifier with squared hinge loss, penalty C / 2, and
a bias that is one of the weights; of one class that of ``min ½|w|² + Σ C_i/2 max(0, 1 − w·φ_i)²``,
in which ρ has become 1: the decision value is ``Σ α_i k(x_i, x) − 1``, in units of ρ. Either form
has the same decision function, and in the second no sum is bound, so that any working set can be
solved by itself. Sampled searches take the first form, certified training the second. A gap of the
first is R times that in units of the margin, or of ρ:

    R − min_i (K̃a)_i  =  R · (max_i y_i g_i + αᵀ(K + offset + 1/C)α / Σ|α| − 1)

**Another centre.** This gap depends on the farthest point alone. But the ξ of a centre need not be
α/C: with ``ξ_i = max(0, 1 − y_i f_i)`` all points have ``⟨(w, ξ), p_i⟩ ≥ 1``, and the
ball round ``(w, ξ) / 2P`` of squared radius ``D − 1/(2P)`` encloses them, P being the primal
objective, ``½|w|² + Σ C_i/2 ξ_i²``. So R is at least ``1/(2P)``, w is part of a centre as good as
that, and the gap of the first form is

    R − 1/(2P)  =  R · (P − F) / P,    F = 1/(2R): the dual objective with the best t

which is quadratic in the distance from the optimum, where the gap above is linear.

**Regression** (CVR; Tsang, Kwok & Zurada 2006) has a linear term, ``aᵀK̃a − pᵀa`` with p = 2/C
(z, −z), which on the simplex is a change of the kernel by rank two, ``K̃_ij − (p_i + p_j) / 2``,
that sampled steps could take. It has no such cone: R may be 0 or less, what must be added to each
entry to make it positive (``¼ pᵀK̃⁻¹p``) is not known in advance, and targets would be in kernel
rows, which are plain K here. Certified training would keep the sum, as for ν-SVR; that is another
dual, which is not implemented.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.box import BoxDual
from bigsvm.duals.box_problem import Box, Finished, Formulation, Segment
from bigsvm.duals.formulations import SMALLEST_PENALTY, Classification, check_penalty
from bigsvm.duals.low_rank_model import box_optimum
from bigsvm.duals.problem import FingerprintEntry, recorded_in
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I4, I8, Mask
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.duals.problem import Selection
    from bigsvm.gram.low_rank import LowRank

ROUNDING = 1e-4
"""Share of D by which float32 may make R too small: sums of 1000 products lose 6e-5 at worst."""
LARGEST_SHARE = 5e-3
"""A duality gap certifies a ball only if it is at most this share of the objective: with many rows,
ε of the radius may be much of the objective."""
TIMES = 10.0
"""A duality gap that certifies a ball must be this many times smaller than (1 + ε) asks for."""
LARGEST_LACK = 0.25
"""Rows step together if a model of low rank lacks less of K_ii, in units of 1 / mean C_i."""
ENOUGH = 0.004
"""A model has the least rank that lacks less than this of K_ii."""
RANKS = 64
"""The rank of a model is a multiple of this."""
LEAST_RANK = 128
"""Least rank of a model."""


class Solver(StrEnum):
    """The algorithm of a sampled search; see `bigsvm.papers.stepwise.search_of`."""

    CVM = "cvm"
    FRANK_WOLFE = "fw"
    MODIFIED_FRANK_WOLFE = "mfw"
    PAIRWISE = "pairwise"


@dataclass(frozen=True, kw_only=True)
class BallFormulation(Formulation):
    """The points of a ball: a row has one variable, on the side of its y, with ridge 1 / C_i.

    `C` is C_i of a row of weight 1.
    """

    sums_are_bound = False
    squares_losses = is_ball = True

    C: float

    @property
    @abstractmethod
    def largest_penalty(self) -> float:
        """Largest C_i of rows of weight 1."""

    @abstractmethod
    def signs(self, rows: Selection) -> F8:
        """Return y of `rows`, (m,) float64."""

    @abstractmethod
    def penalties(self, rows: Selection) -> F8:
        """C_i of `rows`, (m,)."""

    @abstractmethod
    def movable_by_class(self) -> tuple[Mask, ...]:
        """Which rows of each class have a variable, (n,) each."""

    def has_variable(self, rows: Selection) -> Mask:
        """Which of `rows` have a weight whose ridge float32 holds, (m,)."""
        return self.penalties(rows) >= SMALLEST_PENALTY

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        bound = np.where(self.has_variable(rows), self.penalties(rows), 0.0)
        sign = self.signs(rows)
        far = np.where(bound > 0, np.inf, 0.0)
        box = Box(sign, np.where(sign > 0, 0.0, -far), np.where(sign > 0, far, 0.0))
        ridge = np.divide(1.0, bound, out=np.zeros_like(bound), where=bound > 0)
        return (Segment(box, ridge),)


@dataclass(frozen=True, kw_only=True)
class L2Classification(BallFormulation, Classification):
    """The classifier of squared hinge loss with a penalised bias: ridge 1 / C_i, no upper bound.

    `C` is that of the ball, ``C/2 Σ ξ²``: twice that of LIBLINEAR's squared hinge.
    """

    name = "l2-svc"

    def __post_init__(self) -> None:
        check_penalty(self.C)
        super().__post_init__()

    @property
    def offset(self) -> float:
        return 1.0

    @property
    def largest_penalty(self) -> float:
        return self.C * max(self.class_weight)

    def signs(self, rows: Selection) -> F8:
        return self.sign[rows].astype(np.float64)

    def penalties(self, rows: Selection) -> F8:
        return self.bounds(rows, self.C)

    def movable_by_class(self) -> tuple[Mask, Mask]:
        movable = self.has_variable(slice(None))
        sign = self.per_row
        return (sign < 0) & movable, (sign > 0) & movable

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        return Finished(1.0, 0.0, {})


@dataclass(frozen=True, kw_only=True)
class L2OneClass(BallFormulation):
    """The region of most rows, by squared losses: C_i = C · weight, values in units of ρ."""

    name = "l2-one-class"

    n_rows: int = field(metadata=recorded_in(FingerprintEntry.DATA))

    def __post_init__(self) -> None:
        check_penalty(self.C)
        if not self.has_variable(slice(None)).any():
            raise DataError("no row has a positive weight; one at least is needed")

    @property
    def per_row(self) -> NDArray[np.int8]:
        return np.broadcast_to(np.int8(1), self.n_rows)

    @property
    def largest_penalty(self) -> float:
        return self.C

    def signs(self, rows: Selection) -> F8:
        return self.per_row[rows].astype(np.float64)

    def penalties(self, rows: Selection) -> F8:
        return self.C * self.weights(rows)

    def movable_by_class(self) -> tuple[Mask, ...]:
        return (self.has_variable(slice(None)),)

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, n_rows=len(rows), sample_weight=self._weights_of(rows))

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        return Finished(1.0, -1.0, {})


@dataclass(frozen=True)
class BallDual(BoxDual):
    """`BoxDual` of a ball: its search, and what a certificate says of it besides the KKT gap.

    `solver` is that of sampled searches, `largest` is D, the largest K̃_ii, and `tol` is ε,
    `ball_tol`. `lack` gives what models of rank 1, 2, … lack of K_ii, on average
    (`gram.low_rank.lack`); without it rows never step together.
    """

    formulation: BallFormulation
    solver: Solver = Solver.PAIRWISE
    largest: float = 2.0
    lack: Callable[[], F8] | None = field(default=None, compare=False)
    tol: float = 1e-6

    @property
    def searched(self) -> Self:
        """Itself."""
        return self

    @property
    def together(self) -> Self | None:
        """Towards the optimum of a box dual of low rank."""
        return None if self.in_float64 else self

    def doubtful(self, alpha: F8, outputs: F8, *, tol: float, error: float) -> I8:
        # All support rows are free. The threshold is 0, so that no other output moves it.
        if self.optimality(alpha, outputs).gap + 2 * error <= tol:
            return np.empty(0, np.int64)
        return super().doubtful(alpha, outputs, tol=tol, error=error)

    def proof(
        self, alpha: F8, outputs: F8, standing: Optimality
    ) -> dict[str, float | str | None] | None:
        """Name the test of (1 + ball_tol) that this point passes, and what its own centre fulfils.

        Gaps are in units of the margin.
        """
        mass, quadratic = standing.linear_term, standing.outputs_term + standing.ridge_term
        if not mass > 0:
            return None
        farthest, by_losses = quadratic / mass - 1.0, _gap_by_losses(standing)
        shortfalls = (
            float((part.linear * part.gradient)[part.lower < part.upper].max(initial=0.0))
            for part in self._parts(alpha, outputs, None)
        )
        farthest = max(farthest + max(shortfalls, default=0.0), 0.0)
        energy = quadratic / mass**2
        goal, squared = mass * self.goal_on_simplex(self.tol, energy), self.squared_radius(energy)
        eps = None
        if squared > 0:
            # The root of goal_on_simplex(eps) = gap, in a form that keeps its digits.
            excess = 2.0 * farthest / (mass * squared)
            eps = excess / (math.sqrt(1.0 + excess) + 1.0)
        test = "radius" if farthest <= goal else "duality gap" if by_losses <= goal else None
        return {
            "test": test,
            "eps": eps,
            "farthest_gap": farthest,
            "losses_gap": by_losses if math.isfinite(by_losses) else None,
        }

    def goal_on_simplex(self, tol: float, energy: float) -> float:
        """Return the goal for a on the simplex, where ``R = energy``: ``(ε + ε²/2)(D − R)``."""
        return (tol + 0.5 * tol * tol) * self.squared_radius(energy)

    def model_optimum(self, model: LowRank, alpha: F8, gradient: F8, rows: I8) -> F8:
        (segment,) = self.formulation.segments(rows)
        return box_optimum(
            model, alpha=alpha, gradient=gradient, lower=segment.box.lower,
            upper=segment.box.upper, ridge=segment.ridge,
        )  # fmt: skip

    @functools.cached_property
    def model_rank(self) -> int:
        if self.lack is None:
            return 0
        lacking = self.lack() * float(self.formulation.penalties(slice(None)).mean())
        if not lacking[-1] < LARGEST_LACK:
            return 0
        enough = int(np.searchsorted(-lacking, -ENOUGH))
        return min(max(RANKS * math.ceil((enough + 1) / RANKS), LEAST_RANK), len(lacking))

    @functools.cached_property
    def _least(self) -> float:
        """``1 / Σ C_i``: what the ridge alone makes of R at least."""
        return 1.0 / float(self.formulation.penalties(slice(None)).sum())

    def energy(self, value: float, *, is_exact: bool = False) -> float:
        """Return R from its computed value, but not less than the ridge makes it.

        A value that is less than that by more than rounding is refused.
        """
        if not value >= 0.5 * self._least - (0.0 if is_exact else ROUNDING * self.largest):
            raise ParameterError(
                "the kernel is not positive semidefinite on these rows, and the ball of "
                f"{self.formulation.name} has no centre; take another kernel, other parameters of "
                "it, or a smaller C"
            )
        return max(value, self._least)

    def squared_radius(self, energy: float) -> float:
        """``D − R``, but not less than 0, which rounding may make it."""
        return max(self.largest - energy, 0.0)

    def advance_on_simplex(
        self, state: smo.PairState, rows: F4, slots: I4, used: I8, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Take pair steps on a core set, from rows of K̃; returns what `smo.run` does."""
        return smo.run(state, rows, slots, used, smo.SECOND_ORDER, tol, max_steps)


def _gap_by_losses(standing: Optimality) -> float:
    """Gap, in units of the margin, of the centre that has the losses at α; infinite if large."""
    quadratic = standing.outputs_term + standing.ridge_term
    primal = 0.5 * standing.outputs_term + standing.slack
    if not (quadratic > 0 and primal > 0):
        return math.inf
    return _counted(1.0 - 0.5 * standing.linear_term**2 / (quadratic * primal))


def _counted(share: float) -> float:
    """Return the gap that a duality gap of this share of the objective counts as."""
    return TIMES * max(share, 0.0) if share <= LARGEST_SHARE else math.inf
