"""Formulations as data: what a training problem is, in the notation of one signed dual.

    maximise  linearᵀα − ½ αᵀQα     subject to  lower ≤ α ≤ upper,  Σ α = constant in each group

with ``α_i = y_i a_i`` for LIBSVM's unsigned a, so that a kernel row carries no labels. Q is K and a
ridge on its diagonal. A row has one variable, or two for regression: what pulls its output up and
what pulls it down.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from bigsvm.duals.problem import Problem

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.duals.problem import EarlierModel, Selection


class Box(NamedTuple):
    """Linear term and bounds of some variables, each (m,) float64."""

    linear: F8
    lower: F8
    upper: F8


class Segment(NamedTuple):
    """One variable of each of some rows: its box, its ridge, and the group it belongs to."""

    box: Box
    ridge: F8 | float = 0.0
    group: int = 0


class Finished(NamedTuple):
    """A decision function ``scale · Σ β_t k(x, x_t) + intercept``, and what was found beside it.

    That is ``rho`` or ``epsilon``, where the formulation chooses it.
    """

    scale: float
    intercept: float
    found: dict[str, float]


BOX_PROBLEMS: dict[str, type[Formulation]] = {}
"""Formulations by name: all subclasses that have one."""


@dataclass(frozen=True, kw_only=True)
class Formulation(Problem):
    """A problem whose variables live in boxes; see the module's docstring."""

    n_groups: ClassVar[int] = 1
    n_faces: ClassVar[int] = 1
    """Variables of a row: 1, or 2 in regression. Alpha is (n,), or (n, 2)."""
    sums_are_bound: ClassVar[bool] = True
    """Whether variables of a group add up to a constant. If not, thresholds are 0."""
    squares_losses: ClassVar[bool] = False
    """Whether each row has one variable with a ridge, and no bound on the side of its label."""
    tube: ClassVar[float | None] = None
    """Width of the tube where pair steps take the two variables of a row for one; else None."""
    is_ball: ClassVar[bool] = False
    """Whether it is a `bigsvm.duals.ball.BallFormulation`."""

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            BOX_PROBLEMS[cls.name] = cls

    @abstractmethod
    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        """Return the variables of `rows` as `n_segments` segments with one variable of each row."""

    @property
    def n_segments(self) -> int:
        """Segments there are."""
        return max(self.n_groups, self.n_faces)

    def zeros(self, n_rows: int) -> F8:
        return np.zeros(n_rows if self.n_faces == 1 else (n_rows, self.n_faces))

    def split(self, alpha: F8, rows: Selection) -> list[F8]:
        """Alpha of each segment, from that of `rows`; a view where it can be."""
        if self.n_faces > 1:
            return [alpha[:, face] for face in range(self.n_faces)]
        return [alpha]

    def join(self, by_segment: list[F8]) -> F8:
        """Put the alphas of segments together again."""
        return np.stack(by_segment, axis=1) if self.n_faces > 1 else by_segment[0]

    def with_alpha(self, alpha: F8, rows: Selection) -> list[tuple[Segment, F8]]:
        """Return each segment of `rows` and its part of their alpha."""
        return list(zip(self.segments(rows), self.split(alpha, rows), strict=True))

    def per_output(self, alpha: F8) -> F8:
        return alpha.sum(axis=1) if self.n_faces > 1 else alpha

    def alpha_from(self, earlier: EarlierModel) -> F8:
        """Return alpha of a model's rows, with C scaled to this problem's; it may be infeasible."""
        beta, C = earlier.coefficients, self.chosen().get("C")
        if earlier.C is not None and C is not None and max(earlier.C, C) < np.inf:
            beta = beta * (C / earlier.C)
        if self.n_faces == 1:
            return beta
        return np.stack([np.maximum(beta, 0), np.minimum(beta, 0)], axis=1)

    def sums(self, rows: Selection) -> tuple[float, ...] | None:
        """Return what the variables of each group add up to if these rows are all; None for 0."""
        return None

    def check(self) -> None:
        """Refuse a problem without a feasible point."""

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        """Read the decision function off the thresholds of the groups."""
        return Finished(1.0, sum(thresholds) / len(thresholds), {})


class Extremes(NamedTuple):
    """Extremes of the gradient in a group, over the variables that may rise and that may fall.

    The threshold is the mean gradient of the free variables, or the middle of the two extremes, or
    the one there is.
    """

    max_up: float
    min_low: float
    threshold: float

    @property
    def gap(self) -> float:
        """By how much the extremes overlap, 0 or more."""
        return max(self.max_up - self.min_low, 0.0)


class Optimality(NamedTuple):
    """Standing of a point, from the gradients of all rows.

    Attributes
    ----------
    n_support, n_bounded : int
        Rows with a coefficient; variables at a bound other than 0.
    n_free : int
        Variables strictly within their box.
    linear_term : float
        ``linearᵀα``.
    outputs_term, ridge_term : float
        ``αᵀKα``, from outputs f: as exact as these are; and the rest of ``αᵀQα``.
    slack : float
        ``Σ max over the box of (gradient of α, threshold) · α``, the losses at the thresholds.
    sums_term : float
        ``Σ thresholds · sums`` over the groups.
    """

    groups: tuple[Extremes, ...]
    n_support: int
    n_bounded: int
    n_free: int
    linear_term: float
    outputs_term: float
    ridge_term: float
    slack: float
    sums_term: float

    @property
    def worst(self) -> Extremes:
        """The group with the largest gap."""
        return max(self.groups, key=lambda group: group.max_up - group.min_low)

    @property
    def gap(self) -> float:
        """The KKT gap, 0 or more: what `tol` bounds, in every group."""
        return max(0.0, *(group.max_up - group.min_low for group in self.groups))

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The threshold of each group."""
        return tuple(group.threshold for group in self.groups)

    @property
    def objective(self) -> float:
        """The dual objective, maximised."""
        return self.linear_term - 0.5 * (self.outputs_term + self.ridge_term)

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, 0 or more at exact outputs."""
        primal = 0.5 * self.outputs_term + self.slack + self.sums_term
        return primal - self.objective
