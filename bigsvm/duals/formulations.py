"""The formulations of classes, of one class and of targets: a few lines each, that fill boxes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from bigsvm.duals.box_problem import Box, Finished, Formulation, Segment
from bigsvm.duals.problem import FingerprintEntry, recorded_in
from bigsvm.errors import DataError, ParameterError
from bigsvm.parameters.training import check_parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8, Mask
    from bigsvm.duals.problem import EarlierModel, Selection


MARGIN = 1e-9
"""Share of the threshold of one class by which it is lowered."""


NO_MARGIN = 1e-12
"""Share of the sum of the variables of a class: a smaller rho is only rounding."""


SMALLEST_PENALTY = 8.0 / float(np.finfo(np.float32).max)
"""Least penalty of a row with squared losses: SMO keeps its ridge, 1 / penalty, in float32, where
it must not overflow, nor its sum with kernel values."""


class Signs(Protocol):
    """Labels ±1: an array, or an object that computes them when they are read."""

    def __getitem__(self, rows: Selection | I4, /) -> NDArray[np.int8]:
        """Return those of `rows`, (m,)."""


@dataclass(frozen=True, kw_only=True)
class Classification(Formulation):
    """Two classes; `class_weight` has the weights of the negative and the positive one.

    `sign`, (n,), is y, +1 or −1; it is looked at by ``sign[rows]`` only.
    """

    sign: Signs = field(metadata=recorded_in(FingerprintEntry.LABELS))
    class_weight: tuple[float, float] = field(
        default=(1.0, 1.0), metadata=recorded_in(FingerprintEntry.CLASS_WEIGHTS)
    )

    def __post_init__(self) -> None:
        for label, weight in zip(("negative", "positive"), self.class_weight, strict=True):
            if not (math.isfinite(weight) and weight >= 0):
                raise ParameterError(f"the {label} class has weight {weight!r}; it must be >= 0")
        for label, weight, rows in zip(
            ("negative", "positive"), self.class_weight, self.movable_by_class(), strict=True
        ):
            if weight == 0 or not rows.any():
                raise DataError(
                    f"no row of the {label} class has a positive weight; two classes are needed"
                )

    @property
    def per_row(self) -> NDArray[np.int8]:
        return self.sign[:]

    def movable_by_class(self) -> tuple[Mask, Mask]:
        """Which rows of the negative and of the positive class have a variable, (n,) each."""
        weighted = np.True_ if self.sample_weight is None else self.sample_weight > 0
        sign = self.per_row
        return (sign < 0) & weighted, (sign > 0) & weighted

    def has_variable(self, rows: Selection) -> Mask:
        """Which of `rows` have a weight, (m,)."""
        return self.bounds(rows) > 0

    def mistakes(self, outputs: F8, rows: Selection, thresholds: tuple[float, ...]) -> Mask:
        finished = self.finish(thresholds)
        values = finished.scale * outputs + finished.intercept
        wrong: Mask = (values > 0) != (self.sign[rows] > 0)
        return wrong

    def importance(self, rows: Selection) -> F8:
        return self.bounds(rows)

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, sign=self.sign[rows], sample_weight=self._weights_of(rows))

    def bounds(self, rows: Selection, C: float = 1.0) -> F8:
        """C_i of `rows`: C · class weight · sample weight."""
        negative, positive = self.class_weight
        bound = np.where(self.sign[rows] > 0, C * positive, C * negative)
        return bound if self.sample_weight is None else times(bound, self.sample_weight[rows])


def times(C: float | F8, weights: F8) -> F8:
    """Bounds C · weight, (m,): where a weight is 0 the bound is 0, also of an infinite C."""
    if np.isfinite(C).all():
        return C * weights
    return np.where(weights > 0, C, 0.0)


def check_penalty(C: float) -> None:
    """Refuse a C of squared losses that is no finite number above 0, or has no ridge in float32."""
    check_parameter("C", C)
    if not SMALLEST_PENALTY <= C < np.inf:
        raise ParameterError(
            f"C is {C!r}; with squared losses it must be finite and at least "
            f"{SMALLEST_PENALTY:.2g}, as 1 / C is a number of float32 above 0"
        )


@dataclass(frozen=True, kw_only=True)
class CSVC(Classification):
    """The soft-margin classifier (Chang & Lin 2001, section 2.1), two classes.

    linear = y; α in [0, C_i] where y = +1 and [−C_i, 0] where y = −1.
    """

    name = "c-svc"

    C: float

    def __post_init__(self) -> None:
        check_parameter("C", self.C)
        super().__post_init__()

    def box(self, rows: Selection) -> Box:
        """Linear term and bounds of the variables of `rows`."""
        sign, bound = self.sign[rows], self.bounds(rows, self.C)
        return Box(
            linear=sign.astype(np.float64),
            lower=np.where(sign > 0, 0.0, -bound),
            upper=np.where(sign > 0, bound, 0.0),
        )

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        return (Segment(self.box(rows)),)


@dataclass(frozen=True, kw_only=True)
class SquaredHingeSVC(Classification):
    """The classifier with the loss ``Σ C_i ξ_i²``: no upper bound, ridge 1 / (2 C_i)."""

    name = "c-svc squared hinge"
    squares_losses = True

    C: float

    def __post_init__(self) -> None:
        check_penalty(self.C)
        super().__post_init__()

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        sign, bound = self.sign[rows], self.bounds(rows, self.C)
        # A weight whose ridge float32 does not hold is none.
        bound = np.where(bound >= SMALLEST_PENALTY, bound, 0.0)
        far = np.where(bound > 0, np.inf, 0.0)
        box = Box(
            linear=sign.astype(np.float64),
            lower=np.where(sign > 0, 0.0, -far),
            upper=np.where(sign > 0, far, 0.0),
        )
        ridge = np.divide(0.5, bound, out=np.zeros_like(bound), where=bound > 0)
        return (Segment(box, ridge),)


@dataclass(frozen=True, kw_only=True)
class NuClassification(Classification):
    """The classifier that is told the share of its support vectors (Chang & Lin 2001, section 2.2).

    linear = 0; boxes as C-SVC's with C = 1; a group for each class, of sum ±ν Σ weights / 2. The
    decision function is divided by ρ, half the difference of the thresholds. Where ν is less than
    the share of errors that cannot be avoided, ρ is 0, and the decision function as well.
    """

    name = "nu-svc"
    n_groups = 2

    nu: float

    def __post_init__(self) -> None:
        check_parameter("nu", self.nu)
        super().__post_init__()

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        sign, bound = self.sign[rows], self.bounds(rows)
        zeros = np.zeros(len(sign))
        return (
            Segment(Box(zeros, np.where(sign < 0, -bound, 0.0), zeros), group=0),
            Segment(Box(zeros, zeros, np.where(sign > 0, bound, 0.0)), group=1),
        )

    def split(self, alpha: F8, rows: Selection) -> list[F8]:
        sign = self.sign[rows]
        return [np.where(sign < 0, alpha, 0.0), np.where(sign > 0, alpha, 0.0)]

    def join(self, by_segment: list[F8]) -> F8:
        return by_segment[0] + by_segment[1]

    def sums(self, rows: Selection) -> tuple[float, ...]:
        sign, bound = self.sign[rows], self.bounds(rows)
        totals = [float(bound[side].sum()) for side in (sign < 0, sign > 0)]
        each = min(0.5 * self.nu * sum(totals), *totals)
        return -each, each

    def check(self) -> None:
        # By rows' own weights: a class of little weight carries what it can.
        sign, bound = self.per_row, self.weights(slice(None))
        totals = [float(bound[side].sum()) for side in (sign < 0, sign > 0)]
        most = 2 * min(totals) / sum(totals)
        if self.nu > most * (1 + 1e-12):
            raise ParameterError(
                f"nu is {self.nu:g}, which is infeasible: with these classes and weights it can be "
                f"at most {most:.6g}, twice the share of the smaller class"
            )

    def scale(self, thresholds: tuple[float, ...]) -> float:
        return 0.5 * abs(thresholds[0] - thresholds[1])

    def alpha_from(self, earlier: EarlierModel) -> F8:
        # The decision function was divided by rho, where there was one.
        beta = earlier.coefficients * (earlier.rho or 1.0)
        return super().alpha_from(earlier._replace(coefficients=beta))

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        return finish_nu_svc(thresholds, self.sums(slice(None))[1])


def finish_nu_svc(thresholds: tuple[float, ...], each: float) -> Finished:
    """Read the decision function of ν-SVC off both thresholds, of classes that add up to ∓each."""
    negative, positive = thresholds
    rho = 0.5 * (negative - positive)
    if not rho > NO_MARGIN * each:
        return Finished(1.0, 0.5 * (negative + positive), {"rho": 0.0})
    return Finished(1.0 / rho, 0.5 * (negative + positive) / rho, {"rho": rho})


@dataclass(frozen=True, kw_only=True)
class OneClass(Formulation):
    """Most rows (Chang & Lin 2001, section 2.3): α in [0, weight], sum ν Σ weights."""

    name = "one-class"

    nu: float
    n_rows: int = field(metadata=recorded_in(FingerprintEntry.DATA))

    def __post_init__(self) -> None:
        check_parameter("nu", self.nu)

    @property
    def per_row(self) -> NDArray[np.int8]:
        return np.broadcast_to(np.int8(1), self.n_rows)

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, n_rows=len(rows), sample_weight=self._weights_of(rows))

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        weights = self.weights(rows)
        zeros = np.zeros(len(weights))
        return (Segment(Box(zeros, zeros, weights)),)

    def sums(self, rows: Selection) -> tuple[float, ...]:
        return (self.nu * float(self.weights(rows).sum()),)

    def scale(self, thresholds: tuple[float, ...]) -> float:
        return abs(thresholds[0])

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        # Rows on the margin are inside, whatever the rounding of their values: at most ν are not.
        inside = thresholds[0] + MARGIN * abs(thresholds[0])
        return Finished(1.0, inside, {"rho": -inside})


@dataclass(frozen=True, kw_only=True)
class Regression(Formulation):
    """Two variables a row, in [0, C_i] and [−C_i, 0]; ``C_i = C · sample weight``.

    z is `target`, (n,).
    """

    n_faces = 2
    compares_rows = False

    target: F8 = field(metadata=recorded_in(FingerprintEntry.LABELS))
    C: float

    def __post_init__(self) -> None:
        check_parameter("C", self.C)

    @property
    def per_row(self) -> F8:
        return self.target

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self.target.nbytes

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, target=self.target[rows], sample_weight=self._weights_of(rows))

    def scale(self, thresholds: tuple[float, ...]) -> float:
        return self._spread

    @functools.cached_property
    def _spread(self) -> float:
        return float(self.target.std())

    def _two(self, rows: Selection, epsilon: float) -> tuple[Segment, ...]:
        target, bound = self.target[rows], times(self.C, self.weights(rows))
        zeros = np.zeros(len(target))
        return (
            Segment(Box(target - epsilon, zeros, bound), group=0),
            Segment(Box(target + epsilon, -bound, zeros), group=self.n_groups - 1),
        )


@dataclass(frozen=True, kw_only=True)
class EpsilonSVR(Regression):
    """Regression with a tube of half-width ε (Chang & Lin 2001, section 2.4).

    linear = (z − ε, z + ε), one group of sum 0.
    """

    name = "eps-svr"

    epsilon: float

    def __post_init__(self) -> None:
        check_parameter("epsilon", self.epsilon)
        super().__post_init__()

    @property
    def tube(self) -> float:  # type: ignore[override]  # no other has a width of its own
        return 2 * self.epsilon

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        return self._two(rows, self.epsilon)

    def netted(self, alpha: F8) -> F8:
        # The tube costs less with one variable of a row, as the model has it.
        if not alpha.all(axis=1).any():
            return alpha
        beta = self.per_output(alpha)
        return np.stack([np.maximum(beta, 0), np.minimum(beta, 0)], axis=1)


@dataclass(frozen=True, kw_only=True)
class NuRegression(Regression):
    """Regression that is told the share of its support vectors (Chang & Lin 2001, section 2.5).

    linear = (z, z); a group for each half, of sum ±ν Σ C_i / 2. ε is half the difference of the
    thresholds.
    """

    name = "nu-svr"
    n_groups = 2

    nu: float

    def __post_init__(self) -> None:
        check_parameter("nu", self.nu)
        super().__post_init__()

    def segments(self, rows: Selection) -> tuple[Segment, ...]:
        return self._two(rows, 0.0)

    def sums(self, rows: Selection) -> tuple[float, ...]:
        each = 0.5 * self.nu * self.C * float(self.weights(rows).sum())
        return each, -each

    def finish(self, thresholds: tuple[float, ...]) -> Finished:
        above, below = thresholds
        return Finished(1.0, 0.5 * (above + below), {"epsilon": max(0.5 * (above - below), 0.0)})
