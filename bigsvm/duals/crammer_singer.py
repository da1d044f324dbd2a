"""Crammer and Singer's multiclass machine (Crammer & Singer 2001): k functions, one dual.

    minimise  ½ Σ_r |M_r|² + Σ_i C_i ξ_i        ξ_i = max_r (M_r·x_i + 1 − δ_{y_i r}) − M_{y_i}·x_i
    maximise  Σ_i α_i,y_i − ½ Σ_ij K_ij α_i·α_j     α_i ≤ C_i e_{y_i},  α_i·1 = 0

with ``M_r = Σ_i α_ir φ(x_i)``. This is the paper's problem (section 3) divided by β = 1 / C: α is
C τ, outputs and violations are divided by β, so that its stopping rule max ψ < ε β is max ψ < ε
here. C_i is C · sample weight: a weight w_i of a row's loss makes Σ_r η_ir = w_i of its constraint,
and w_i the bound of its τ. There is no threshold; a kernel of k + 1 gives each function a bias that
is one of its weights.

With two classes M_1 = −M_2 = w / 2: the classifier without bias whose C is 2 C. (The paper, at the
end of section 2, has C = 1 / β; ½ β (|M_1|² + |M_2|²) is ½ (β / 2) |w|².)

The rows' constraints do not touch one another, so any working set can be solved by itself, and the
duality gap is a sum over rows, none of them negative, of g_i = e_{y_i} − f_i:

    primal − dual  =  Σ_i [C_i ξ_i − α_i·g_i]        ξ_i = g_i,y_i − min_r g_ir
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from bigsvm.duals.dual import Dual
from bigsvm.duals.picking import SCAN_ROWS, Scores
from bigsvm.duals.polish import MOST_ROWS, polish_simplexes
from bigsvm.duals.problem import FingerprintEntry, Problem, recorded_in
from bigsvm.duals.row_steps import RowSteps, is_last
from bigsvm.errors import DataError
from bigsvm.parameters.training import check_parameter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bigsvm.arrays import F8, I4, I8, Mask
    from bigsvm.duals.dual import ExactKernel, Point
    from bigsvm.duals.problem import EarlierModel, Selection


OUTSIDE = 1e-9
"""Largest violation of a bound by rounding, relative to C_i."""
UNBALANCED = 1e-6
"""Largest sum of the variables of a row by rounding, which should be 0, relative to C_i."""


class RowSolver(IntEnum):
    """How the variables of a row are solved for; numbered in `bigsvm.core.crammer_singer`."""

    EXACT = 0
    FIXED_POINT = 1


class Order(IntEnum):
    """Which row is solved for next; the numbers are those of `bigsvm.core.crammer_singer`."""

    AUTO = 0
    WORST = 1
    ACTIVE = 2
    SEQUENTIAL = 3
    RANDOM = 4


class Cooling(IntEnum):
    """How the level of the order ``active`` falls; numbered in `bigsvm.core.crammer_singer`."""

    NONE = 0
    LOG = 1


@dataclass(frozen=True, kw_only=True)
class CrammerSinger(Problem):
    """The problem of the module's docstring.

    `label`, (n,), is the class of each row, in 0 … n_classes − 1. C is 1 / β. If `fit_intercept`, 1
    is added to the kernel.
    """

    name = "crammer-singer"

    label: I4 = field(metadata=recorded_in(FingerprintEntry.LABELS))
    n_classes: int = field(metadata=recorded_in(FingerprintEntry.LABELS))
    C: float
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        check_parameter("C", self.C)
        present = self.label if self.sample_weight is None else self.label[self.sample_weight > 0]
        if self.n_classes < 2 or not (present != present[:1]).any():
            raise DataError(
                "all rows with a positive weight are of one class; two classes or more are needed"
            )

    @property
    def per_row(self) -> I4:
        return self.label

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    @property
    def offset(self) -> float:
        return 1.0 if self.fit_intercept else 0.0

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, label=self.label[rows], sample_weight=self._weights_of(rows))

    def mistakes(self, outputs: F8, rows: Selection, thresholds: tuple[float, ...]) -> Mask:
        wrong: Mask = outputs.argmax(axis=1) != self.label[rows]
        return wrong

    def zeros(self, n_rows: int) -> F8:
        return np.zeros((n_rows, self.n_classes))

    def per_output(self, alpha: F8) -> F8:
        return alpha

    def bounds(self, rows: Selection) -> F8:
        """C_i of `rows`, (m,)."""
        return self.C * self.weights(rows)

    def alpha_from(self, earlier: EarlierModel) -> F8:
        """Return alpha of a model's rows with its τ; 0 where a row has another label now."""
        if earlier.bounds is None:
            raise DataError("the model to start from has no bounds of its coefficients; start anew")
        rows, bounds, label = earlier.rows, self.bounds(earlier.rows), self.label[earlier.rows]
        # The one coefficient above 0 is that of a row's label.
        same = label == earlier.coefficients.argmax(axis=1)
        alpha: F8 = earlier.coefficients * (same * bounds / earlier.bounds)[:, None]
        # Rounding must not carry a coefficient past its bound.
        of_label = np.arange(len(rows)), label
        alpha[of_label] = np.minimum(alpha[of_label], bounds)
        return alpha


class Violations(NamedTuple):
    """Standing of a point.

    Attributes
    ----------
    gap : float
        max ψ, 0 or more.
    n_support, n_bounded, n_free : int
        Rows with a coefficient; those of them that can move one way only, α_y being C_i and one
        other −C_i; and rows that can move either way.
    linear_term, slack : float
        ``Σ α_i,y_i`` and ``Σ C_i ξ_i``.
    outputs_term : float
        ``Σ α_i·f_i``, from outputs f: as exact as these are.
    """

    gap: float
    n_support: int
    n_bounded: int
    n_free: int
    linear_term: float
    outputs_term: float
    slack: float

    @property
    def objective(self) -> float:
        """The dual objective, maximised."""
        return self.linear_term - 0.5 * self.outputs_term

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, 0 or more at exact outputs."""
        return 0.5 * self.outputs_term + self.slack - self.objective

    @property
    def thresholds(self) -> tuple[float, ...]:
        """None: there is no intercept but that of a kernel of k + 1."""
        return ()


class _RowPart(NamedTuple):
    """Some consecutive rows: place, C_i, label, α, gradient, and where α may rise."""

    span: slice
    bound: F8
    label: I4
    alpha: F8
    gradient: F8
    can_rise: Mask

    @property
    def least(self) -> F8:
        least: F8 = self.gradient.min(axis=1)
        return least

    @property
    def most(self) -> F8:
        """Largest gradient of the variables that can rise; −inf for a row without weight."""
        most: F8 = np.where(self.can_rise, self.gradient, -np.inf).max(axis=1)
        return most

    @property
    def is_free(self) -> Mask:
        """Which rows can move either way."""
        free: Mask = self.can_rise.sum(axis=1) > 1
        return free

    @property
    def score(self) -> F8:
        """ψ: largest gradient that can rise less the smallest one; negative if the row is optimal.

        A row all at its bounds may only rise in one class, from which the others are so far.
        """
        others = np.where(self.can_rise, np.inf, self.gradient).min(axis=1)
        score: F8 = self.most - np.where(self.is_free, self.least, others)
        return score


@dataclass(frozen=True)
class CrammerSingerDual(Dual[Violations]):
    """The dual of problems whose rows have their variables on a simplex each.

    `cooling` is that of the order ``active``, `seed` that of the order ``random``.
    """

    formulation: CrammerSinger
    solver: RowSolver = RowSolver.EXACT
    order: Order = Order.AUTO
    cooling: Cooling = Cooling.NONE
    seed: int = 0

    def _parts(self, alpha: F8, outputs: F8, rows: I8 | None) -> Iterator[_RowPart]:
        step = max(1, SCAN_ROWS // self.formulation.n_classes)
        for start in range(0, len(alpha), step):
            span = slice(start, min(start + step, len(alpha)))
            chosen = span if rows is None else rows[span]
            label, bound = self.formulation.label[chosen], self.formulation.bounds(chosen)
            places = np.arange(len(label))
            gradient = -outputs[span]
            gradient[places, label] += 1.0
            can_rise = alpha[span] < 0
            can_rise[places, label] = alpha[span][places, label] < bound
            yield _RowPart(span, bound, label, alpha[span], gradient, can_rise)

    def optimality(self, alpha: F8, outputs: F8, *, rows: I8 | None = None) -> Violations:
        gap = linear_term = outputs_term = slack = 0.0
        n_support = n_bounded = n_free = 0
        for part in self._parts(alpha, outputs, rows):
            if not np.isfinite(part.gradient).all():
                place = int(np.flatnonzero(~np.isfinite(part.gradient).all(axis=1))[0])
                place += part.span.start
                raise DataError(
                    f"the sums of kernel values of row {place if rows is None else rows[place]} "
                    "are too large for float32; scale the features, or lower C"
                )
            places, least = np.arange(len(part.label)), part.least
            gap = max(gap, float((part.most - least).max(initial=0.0)))
            support, free = part.alpha.any(axis=1), part.is_free
            n_support += int(support.sum())
            n_free += int(free.sum())
            n_bounded += int((support & ~free).sum())
            linear_term += float(part.alpha[places, part.label].sum())
            outputs_term += float(np.vdot(part.alpha, outputs[part.span]))
            slack += float(part.bound @ (part.gradient[places, part.label] - least))
        return Violations(gap, n_support, n_bounded, n_free, linear_term, outputs_term, slack)

    def n_violating(self, alpha: F8, outputs: F8, standing: Violations, *, tol: float) -> int:
        parts = self._parts(alpha, outputs, None)
        return sum(int(np.count_nonzero(part.score > tol)) for part in parts)

    def gradient(self, alpha: F8, outputs: F8, rows: I8) -> F8:
        return self._other(outputs, rows)

    def outputs_from(self, gradient: F8, alpha: F8, rows: I8) -> F8:
        return self._other(gradient, rows)

    def _other(self, values: F8, rows: I8) -> F8:
        """``e_y − values``, (m, k): the gradient from outputs, and outputs from the gradient."""
        other = -values
        other[np.arange(len(rows)), self.formulation.label[rows]] += 1.0
        return other

    def n_bounded(self, alpha: F8, rows: I8) -> int:
        return self.optimality(alpha, np.zeros_like(alpha), rows=rows).n_bounded

    def scores(
        self, alpha: F8, outputs: F8, standing: Violations, *, tol: float, rows: I8 | None = None
    ) -> Scores:
        n = len(alpha)
        scores = np.empty(n, np.float32)
        free = np.zeros(n, np.bool_)
        worst, largest = [0], -np.inf
        for part in self._parts(alpha, outputs, rows):
            score = part.score
            scores[part.span], free[part.span] = score, part.is_free
            if score.max() > largest:
                largest, worst = float(score.max()), [part.span.start + int(score.argmax())]
        one_side = np.zeros(n, np.bool_)
        return Scores(scores, free | (scores > tol), free, one_side, [worst], standing.n_free)

    def filled(self, alpha: F8, outputs: F8) -> F8:
        return alpha

    def infeasible(self, alpha: F8, *, rows: I8 | None = None, adds_up: bool = True) -> str:
        # The check needs no outputs.
        outputs = np.broadcast_to(np.float64(0.0), alpha.shape)
        for part in self._parts(alpha, outputs, rows):
            upper = np.zeros_like(part.alpha)
            upper[np.arange(len(part.label)), part.label] = part.bound
            outside = ~(part.alpha <= upper + OUTSIDE * part.bound[:, None])
            unbalanced = ~(np.abs(part.alpha.sum(axis=1)) <= UNBALANCED * part.bound)
            for fault, wrong in (
                ("a variable is above its bound", np.flatnonzero(outside.any(axis=1))),
                ("the variables do not add up to 0", np.flatnonzero(unbalanced)),
            ):
                if len(wrong):
                    place = part.span.start + int(wrong[0])
                    return f"of row {place if rows is None else rows[place]}, {fault}"
        return ""

    def knows_last(self, last: I8, size: int, *, sets: Sequence[int] | None = None) -> bool:
        in_turn = self.order in (Order.SEQUENTIAL, Order.RANDOM)
        return sets is None and is_last(last, in_turn=in_turn)

    def begin(self, start: Point, rows: I8, *, diagonal: F8) -> RowSteps:
        return RowSteps(
            start, self.formulation.bounds(rows), self.formulation.label[rows],
            diagonal=diagonal, solver=int(self.solver), order=int(self.order),
            cooling=int(self.cooling), seed=self.seed,
        )  # fmt: skip

    def doubtful(self, alpha: F8, outputs: F8, *, tol: float, error: float) -> I8:
        limit = min(tol, self.optimality(alpha, outputs).gap) - 2 * error
        chosen = np.zeros(len(alpha), np.bool_)
        for part in self._parts(alpha, outputs, None):
            chosen[part.span] = part.score > limit
        return np.flatnonzero(chosen)

    def newton(
        self, alpha: F8, outputs: F8, standing: Violations, exact: ExactKernel, *, tol: float
    ) -> F8 | None:
        # Rows that are settled, with or without a coefficient, stay so.
        near = np.zeros(len(alpha), np.bool_)
        for part in self._parts(alpha, outputs, None):
            near[part.span] = part.score > -2 * max(tol, standing.gap)
        rows = np.flatnonzero(near)
        if not 0 < alpha[rows].size <= MOST_ROWS:
            return None
        of_label = np.arange(alpha.shape[1]) == self.formulation.label[rows][:, None]
        better = alpha.copy()
        better[rows] = polish_simplexes(
            of_label, self.formulation.bounds(rows), exact.gram(rows), alpha[rows],
            self.gradient(alpha[rows], outputs[rows], rows),
        )  # fmt: skip
        return better
