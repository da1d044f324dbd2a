"""BoxDual: problems whose variables live in boxes, solved by pair steps.

A row violates the optimality conditions if one of its gradients ``g = linear − f − ridge α`` is on
the wrong side of its group's threshold b, and by that distance: above b where α may still rise,
below b where α may still fall.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.box_problem import Extremes, Optimality
from bigsvm.duals.dual import Dual
from bigsvm.duals.feasible import fill
from bigsvm.duals.kept_rows import is_last_of_kept
from bigsvm.duals.newton import Gram, newton
from bigsvm.duals.pair_steps import PairSteps, is_last_of_sets, is_last_pair
from bigsvm.duals.picking import SCAN_ROWS, Scores, pick_by_parts, spans
from bigsvm.duals.polish import MOST_ROWS, polish_rows
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.dual import ExactKernel, Point
    from bigsvm.duals.picking import Wanted
    from bigsvm.parameters.names import SelectionName

OUTSIDE = 1e-9
"""Largest violation of a bound by rounding, relative to the bound."""
UNBALANCED = 1e-6
"""Largest error of the sum of variables, relative to the sum of their sizes: each pair step adds a
rounding error."""


def rule_of(name: SelectionName, *, rows_are_scarce: bool = False) -> int:
    """Return how pairs are chosen, as `bigsvm.core.smo` numbers it.

    ``"auto"`` is second-order where most rows asked for are in memory, as it takes the fewest
    steps, and HMG where rows are scarce and each has to be computed for one step.
    """
    if name == "auto":
        return smo.HMG if rows_are_scarce else smo.SECOND_ORDER
    return smo.RULES[name]


class _Part(NamedTuple):
    """Some consecutive variables of a segment: place, box, where they stand."""

    start: int
    stop: int
    group: int
    linear: F8
    lower: F8
    upper: F8
    ridge: F8 | float
    alpha: F8
    outputs: F8

    @property
    def gradient(self) -> F8:
        return self.linear - self.outputs - self.ridge * self.alpha

    @property
    def rises(self) -> Mask:
        return self.alpha < self.upper

    @property
    def falls(self) -> Mask:
        return self.alpha > self.lower

    def slope(self, threshold: float) -> F8:
        """Return the derivative of the duality gap by outputs, (m,): α − its best value.

        It is 0 at a bound, on the right side of the threshold; there losses and quadratic term
        cancel.
        """
        excess = self.linear - self.outputs - threshold
        ridge = np.broadcast_to(self.ridge, len(self.alpha))
        best = np.where(excess > 0, self.upper, self.lower)
        if ridge.any():
            inside = np.clip(excess / np.where(ridge > 0, ridge, 1.0), self.lower, self.upper)
            best = np.where(ridge > 0, inside, best)
        slope: F8 = self.alpha - best
        return slope

    def slack(self, threshold: float) -> float:
        """Sum of the losses at a threshold."""
        with_ridge = np.broadcast_to(self.ridge, len(self.alpha)) > 0
        excess = self.linear - self.outputs - threshold
        if with_ridge.any():
            ridge = np.where(with_ridge, self.ridge, 1.0)
            best = np.where(with_ridge, np.clip(excess / ridge, self.lower, self.upper), 0.0)
            return float(best @ (excess - 0.5 * ridge * best))
        rise, fall = np.maximum(excess, 0), np.minimum(excess, 0)
        if np.isfinite(self.upper).all() and np.isfinite(self.lower).all():
            return float(rise @ self.upper + fall @ self.lower)
        is_lost = ((rise > 0) & np.isposinf(self.upper)) | ((fall < 0) & np.isneginf(self.lower))
        return np.inf if is_lost.any() else 0.0


@dataclass(frozen=True)
class BoxDual(Dual[Optimality]):
    """The dual of problems whose variables live in boxes."""

    formulation: Formulation
    rule: int | None = None
    shrinking: bool = field(default=False, kw_only=True)
    rows_at_once: int | None = field(default=None, kw_only=True)
    in_float64: bool = field(default=False, kw_only=True)

    @property
    def shrinks(self) -> bool:
        return self.shrinking

    @property
    def solves_apart(self) -> bool:
        # Sums that are given, as of ν, bind sets so that they undo what the others do.
        has_sums = self.formulation.sums(slice(0, 0)) is not None
        return not (self.shrinking or self.in_float64 or has_sums)

    def _parts(
        self, alpha: F8, outputs: F8, rows: I8 | None, within: slice | None = None
    ) -> Iterator[_Part]:
        """Yield parts of the segments; all of some rows before any of the next.

        The parts are those of the rows `within`, whose first one has the place 0.
        """
        first, end = (0, len(alpha)) if within is None else (within.start, within.stop)
        for start in range(first, end, SCAN_ROWS):
            stop = min(start + SCAN_ROWS, end)
            span = slice(start, stop)
            chosen = span if rows is None else rows[span]
            for (box, ridge, group), part in self.formulation.with_alpha(alpha[span], chosen):
                yield _Part(start - first, stop - first, group, *box, ridge, part, outputs[span])

    def optimality(self, alpha: F8, outputs: F8, *, rows: I8 | None = None) -> Optimality:
        for span in spans(len(alpha)):
            wrong = span.start + np.flatnonzero(~np.isfinite(outputs[span]))[:1]
            if len(wrong):
                row = wrong[0] if rows is None else rows[wrong[0]]
                raise DataError(
                    f"the sum of kernel values of row {row} is {outputs[wrong[0]]}: too large for "
                    "float32; scale the features, or lower C"
                )
        groups = range(self.formulation.n_groups)
        max_up, min_low = [-np.inf for _ in groups], [np.inf for _ in groups]
        free_sum, sums, n_free = [0.0 for _ in groups], [0.0 for _ in groups], [0 for _ in groups]
        linear_term = outputs_term = ridge_term = 0.0
        n_bounded = 0
        for part in self._parts(alpha, outputs, rows):
            a, g, gradient = part.alpha, part.group, part.gradient
            rises, falls = part.rises, part.falls
            max_up[g] = max(max_up[g], float(gradient[rises].max(initial=-np.inf)))
            min_low[g] = min(min_low[g], float(gradient[falls].min(initial=np.inf)))
            free = rises & falls
            n_free[g] += int(free.sum())
            free_sum[g] += float(gradient[free].sum())
            n_bounded += int(np.count_nonzero((a != 0) & ~free))
            linear_term += float(part.linear @ a)
            outputs_term += float(a @ part.outputs)
            ridge_term += float(a @ (part.ridge * a))
            sums[g] += float(a.sum())
        by_group = []
        for g in groups:
            extremes = [x for x in (max_up[g], min_low[g]) if np.isfinite(x)]
            threshold = sum(extremes) / max(len(extremes), 1)
            if n_free[g]:
                threshold = free_sum[g] / n_free[g]
            if not self.formulation.sums_are_bound:
                # The threshold is 0, as if a free variable without a row had the gradient 0.
                threshold, max_up[g], min_low[g] = 0.0, max(max_up[g], 0.0), min(min_low[g], 0.0)
            by_group.append(Extremes(max_up[g], min_low[g], threshold))
        slack = sum(
            part.slack(by_group[part.group].threshold) for part in self._parts(alpha, outputs, rows)
        )
        # The sum over groups. It is left out where all sums are 0, so that results keep their bits.
        sums_term = 0.0
        if self.formulation.sums(slice(0, 0)) is not None:
            sums_term = sum(e.threshold * total for e, total in zip(by_group, sums, strict=True))
        n_support = sum(
            int(np.count_nonzero(self.formulation.per_output(alpha[span])))
            for span in spans(len(alpha))
        )
        return Optimality(
            tuple(by_group), n_support, n_bounded, sum(n_free),
            linear_term, outputs_term, ridge_term, slack, sums_term,
        )  # fmt: skip

    def gradient(self, alpha: F8, outputs: F8, rows: I8) -> F8:
        gradients = [
            box.linear - outputs - ridge * a
            for (box, ridge, _), a in self.formulation.with_alpha(alpha, rows)
        ]
        return np.stack(gradients, axis=1) if self.formulation.n_faces > 1 else gradients[0]

    def outputs_from(self, gradient: F8, alpha: F8, rows: I8) -> F8:
        (box, ridge, _), a = self.formulation.with_alpha(alpha, rows)[0]
        first = gradient[:, 0] if self.formulation.n_faces > 1 else gradient
        f: F8 = box.linear - first
        return f - ridge * a if np.any(ridge) else f

    def n_bounded(self, alpha: F8, rows: I8) -> int:
        return sum(
            int(((a != 0) & ((a == box.lower) | (a == box.upper))).sum())
            for (box, _, _), a in self.formulation.with_alpha(alpha, rows)
        )

    def scores(
        self, alpha: F8, outputs: F8, standing: Optimality, *, tol: float, rows: I8 | None = None
    ) -> Scores:
        return self._scores(alpha, outputs, standing, slice(0, len(alpha)), tol=tol, rows=rows)

    def _scores(
        self, alpha: F8, outputs: F8, standing: Optimality, within: slice, *,
        tol: float, rows: I8 | None = None,
    ) -> Scores:  # fmt: skip
        """Score the rows `within`."""
        n = within.stop - within.start
        scores, above = np.full(n, -np.inf, np.float32), np.zeros(n, np.bool_)
        asked, is_free = np.zeros((2, n), np.bool_)
        worst = [-1, -1]
        for part in self._parts(alpha, outputs, rows, within):
            span = slice(part.start, part.stop)
            gradient, rises, falls = part.gradient, part.rises, part.falls
            extremes = standing.groups[part.group]
            distance = gradient - extremes.threshold
            score = np.maximum(
                np.where(rises, distance, -np.inf), np.where(falls, -distance, -np.inf)
            )
            free = rises & falls
            asked[span] |= free | (score > tol)
            is_free[span] |= free
            above[span] = np.where(score > scores[span], distance > 0, above[span])
            scores[span] = np.maximum(score, scores[span])
            if extremes is not standing.worst:
                continue
            ends = (rises & (gradient == extremes.max_up), falls & (gradient == extremes.min_low))
            for side, end in enumerate(ends):
                if worst[side] < 0 and end.any():
                    worst[side] = within.start + part.start + int(end.argmax())
        return Scores(scores, asked, is_free, above, [worst], standing.n_free)

    def select(self, alpha: F8, outputs: F8, standing: Optimality, wanted: Wanted) -> I8:
        if len(alpha) <= SCAN_ROWS:
            return super().select(alpha, outputs, standing, wanted)

        def scored(within: slice) -> Scores:
            return self._scores(alpha, outputs, standing, within, tol=wanted.tol)

        return pick_by_parts(len(alpha), scored, wanted)

    def n_violating(self, alpha: F8, outputs: F8, standing: Optimality, *, tol: float) -> int:
        count = 0
        for span in spans(len(alpha)):
            scores = self._scores(alpha, outputs, standing, span, tol=tol)
            count += int(np.count_nonzero(scores.score > tol))
        return count

    def mark_free(self, alpha: F8, free: Mask, *, rows: I8 | None) -> None:
        """Set `free`, (m,), where a variable of a row can move either way."""
        for part in self._parts(alpha, alpha, rows):
            free[part.start : part.stop] |= part.rises & part.falls

    def near_threshold(self, alpha: F8, outputs: F8, standing: Optimality, *, margin: float) -> I8:
        """Rows that are free, or whose gradient is within `margin` of the threshold; ascending."""
        chosen = np.zeros(len(alpha), np.bool_)
        for part in self._parts(alpha, outputs, None):
            near = np.abs(part.gradient - standing.thresholds[part.group]) <= margin
            near |= part.rises & part.falls
            chosen[part.start : part.stop] |= near & (part.lower < part.upper)
        return np.flatnonzero(chosen)

    def filled(self, alpha: F8, outputs: F8) -> F8:
        sums = self.formulation.sums(slice(0, len(alpha)))
        return alpha if sums is None else fill(self.formulation, alpha, outputs, sums)

    def infeasible(self, alpha: F8, *, rows: I8 | None = None, adds_up: bool = True) -> str:
        n_groups = self.formulation.n_groups
        totals, amounts = [0.0] * n_groups, [0.0] * n_groups
        # The check needs no outputs.
        outputs = np.broadcast_to(np.float64(0.0), len(alpha))
        for part in self._parts(alpha, outputs, rows):
            a, lower, upper = part.alpha, part.lower, part.upper
            inside = (a >= lower - OUTSIDE * np.abs(lower)) & (a <= upper + OUTSIDE * np.abs(upper))
            if not inside.all():
                i = int(np.flatnonzero(~inside)[0])
                row = part.start + i if rows is None else rows[part.start + i]
                return (
                    f"alpha of row {row} is {a[i]:.6g}, outside of its bounds {lower[i]:.6g} and "
                    f"{upper[i]:.6g}"
                )
            totals[part.group] += float(a.sum())
            amounts[part.group] += float(np.abs(a).sum())
        if not (adds_up and rows is None and self.formulation.sums_are_bound):
            return ""
        wanted = self.formulation.sums(slice(0, len(alpha))) or (0.0,) * n_groups
        for total, amount, goal in zip(totals, amounts, wanted, strict=True):
            if not abs(total - goal) <= UNBALANCED * max(amount, abs(goal)):
                return f"the variables add up to {total:.6g}, and must add up to {goal:.6g}"
        return ""

    def knows_last(self, last: I8, size: int, *, sets: Sequence[int] | None = None) -> bool:
        if sets is not None:
            return self.solves_apart and is_last_of_sets([self.formulation] * len(sets), last, sets)
        if len(last) > 2:  # a run that shrank may continue in memory where it would not shrink
            return is_last_of_kept(self.formulation, last, size)
        return is_last_pair(self.formulation, last, size)

    def begin(self, start: Point, rows: I8, *, diagonal: F8) -> PairSteps:
        rule = smo.SECOND_ORDER if self.rule is None else self.rule
        return PairSteps(self.formulation, rule, start, rows, diagonal=diagonal)

    def newton(
        self, alpha: F8, outputs: F8, standing: Optimality, exact: ExactKernel, *, tol: float
    ) -> F8 | None:
        solved = standing.gap <= tol
        rows = np.arange(len(alpha))
        if solved or len(rows) > MOST_ROWS:
            rows = self.near_threshold(alpha, outputs, standing, margin=2 * max(tol, standing.gap))
        if not 2 <= len(rows) <= MOST_ROWS:
            return None
        better = alpha.copy()
        if self.in_float64:
            # Polishing frees one row at a time: hundreds, where no losing row has a bound.
            better[rows] = self._solved(rows, exact, alpha[rows], outputs[rows])
            return better
        better[rows] = polish_rows(
            self.formulation, rows, exact.gram(rows), alpha[rows], outputs[rows]
        )
        return better

    def _solved(self, rows: I8, exact: ExactKernel, alpha: F8, outputs: F8) -> F8:
        """Solve for rows, (m,), with squared losses; alpha and outputs are theirs."""
        (segment,) = self.formulation.segments(rows)
        gradient = segment.box.linear - outputs - segment.ridge * alpha
        solved, _, _ = newton(
            Gram(exact.gram(rows)), segment, alpha, gradient,
            keeps_sum=self.formulation.sums_are_bound, tol=0.0,
        )  # fmt: skip
        return solved

    def doubtful(self, alpha: F8, outputs: F8, *, tol: float, error: float) -> I8:
        standing = self.optimality(alpha, outputs)
        chosen = np.zeros(len(alpha), np.bool_)
        for part in self._parts(alpha, outputs, None):
            gradient, extremes = part.gradient, standing.groups[part.group]
            limit = min(tol, extremes.gap) - 2 * error
            rises, falls = part.rises, part.falls
            near = rises & (gradient > extremes.min_low + limit)
            near |= falls & (gradient < extremes.max_up - limit)
            # A loss begins at the threshold, so rows at a bound on its wrong side decide the
            # duality gap. What free rows change in it has a limit if C has, and is the next to
            # nothing of which a sample tells the size, unless losses are squared.
            near |= rises & ~falls & (gradient > extremes.threshold - 2 * error)
            near |= falls & ~rises & (gradient < extremes.threshold + 2 * error)
            has_limit = np.isfinite(part.upper - part.lower) & (np.asarray(part.ridge) == 0)
            near |= rises & falls & ~has_limit
            chosen[part.start : part.stop] |= near
        return np.flatnonzero(chosen)

    def slopes(self, alpha: F8, outputs: F8, rows: I8, standing: Optimality) -> F8:
        slopes = np.zeros(len(rows))
        for part in self._parts(alpha, outputs, rows):
            slopes[part.start : part.stop] += part.slope(standing.thresholds[part.group])
        return slopes
