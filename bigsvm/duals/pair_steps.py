"""Pair steps on a working set of variables in boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.abilities import Leap
from bigsvm.duals.dual import NO_PAIR, EndlessError, Point, Steps
from bigsvm.duals.interior_point import BoxVariables, interior_point, needed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F4, F8, I4, I8, Mask
    from bigsvm.duals.box_problem import Formulation


def is_last_pair(formulation: Formulation, pair: I8, size: int) -> bool:
    """Whether a pair, (2,), is none or two variables of one group of a working set of `size` rows.

    Variables are numbered as `bigsvm.core.smo.make_state` lays them out.
    """
    if len(pair) != 2:
        return False
    if (pair == -1).all():
        return True
    length = size + int(not formulation.sums_are_bound)
    segment, place = np.divmod(pair, max(1, -(-length // smo.BLOCK)) * smo.BLOCK)
    n_segments = formulation.n_segments if formulation.tube is None else 1
    known = (segment >= 0) & (segment < n_segments) & (place < length)
    return bool(known.all() and (formulation.n_groups == 1 or segment[0] == segment[1]))


ENDED, STEPS, PAIR = 0, 1, slice(2, 4)
"""What is known of a set of several: whether and how it ended, its steps, and its last pair."""
DONE, STALLED = 1, 2


def is_last_of_sets(functions: Sequence[Formulation], last: I8, sizes: Sequence[int]) -> bool:
    """Whether `last` is a valid `last` of `FunctionProblems` for these set sizes, or none, (2,)."""
    k = len(functions)
    if len(last) != 4 * k:
        return len(last) == 2 and bool((last == -1).all())
    each = last.reshape(k, 4)
    return bool(
        np.isin(each[:, ENDED], (0, DONE, STALLED)).all() and (each[:, STEPS] >= 0).all()
    ) and all(
        is_last_pair(formulation, each[c, PAIR], size)
        for c, (formulation, size) in enumerate(zip(functions, sizes, strict=True))
    )


MOST_GROWTH = 1e10
"""Most of twice the objective without bounds, in units of the inverse of the largest kernel value
and of the square of the linear term. The distance of two classes is then at most 2e-5 of that of
the rows from the origin of the kernel's space, which float32 kernel values do not tell from 0."""


class PairSteps(Steps):
    """The state of pair steps, laid out for `bigsvm.core.smo`, which numbers the rules.

    Where a formulation has a `tube`, both variables of a row are laid out as one: at least one of
    them is 0. Its gradient is that of the first.

    `last` of the start is the last pair, (2,), from which HMG goes on.
    """

    def __init__(
        self,
        formulation: Formulation,
        rule: int,
        start: Point,
        rows: I8,
        *,
        diagonal: F8,
    ) -> None:
        self._formulation, self._rule = formulation, rule
        self._rows, self._size = rows, len(rows)
        # Without a constraint on the sum, one more variable without a row absorbs the rest.
        self.n_slack = int(not formulation.sums_are_bound)
        segments = self._segments = formulation.segments(rows)
        self._tube = formulation.tube
        self._ridge = np.stack([np.broadcast_to(s.ridge, self._size) for s in segments])
        gradient = np.atleast_2d(start.gradient.T)
        self.state = smo.make_state(
            self._laid_out(np.stack(formulation.split(start.alpha, rows)), 0.0),
            self._laid_out(gradient if self._tube is None else gradient[:1], 0.0),
            self._laid_out(np.stack([s.box.lower for s in segments]), -np.inf),
            self._laid_out(np.stack([s.box.upper for s in segments]), np.inf),
            self._laid_out(diagonal[None, :], 0.0)[0],
            ridge=self._laid_out(self._ridge, 0.0),
            n_groups=formulation.n_groups,
            jump=self._tube or 0.0,
        )
        double, number = self.state.double, self.state.number
        number[smo.LAST_PAIR], number[smo.STEPS] = start.last, start.n_done
        # Views of the state: all segments, without padding and slack.
        self._alpha = self._spread(double[smo.ALPHA])
        self._gradient = self._spread(double[smo.GRADIENT])
        upper, ridge = self._spread(double[smo.UPPER]), self._spread(double[smo.RIDGE])
        self._linear: F8 | None = None
        # Only C = inf has neither bounds nor ridges.
        if np.isposinf(upper).any() and not ridge.any():
            self._linear = np.stack([segment.box.linear for segment in segments])
            # Whether these are all rows with a coefficient.
            self._is_alone = not double[smo.ALPHA].any() and np.array_equal(
                self._gradient, self._linear[: len(self._gradient)]
            )
            self._scale = diagonal.max() / (MOST_GROWTH * np.square(self._linear).max())

    def _laid_out(self, values: F8, end: float) -> F8:
        """Add the values of a row's two variables, (n_segments, m), where these are as one.

        The slack variable's value is appended, where there is one.
        """
        if self._tube is not None:
            values = values.sum(axis=0, keepdims=True)
        if not self.n_slack:
            return values
        return np.pad(values, ((0, 0), (0, 1)), constant_values=end)

    def _by_segment(self, alpha: F8, gradient: F8) -> tuple[F8, F8]:
        """Alpha and gradient as they are laid out, by segments, (n_segments, m)."""
        if self._tube is None:
            return alpha, gradient
        signed = np.concatenate([np.maximum(alpha, 0.0), np.minimum(alpha, 0.0)])
        return signed, np.concatenate([gradient, gradient + self._tube])

    @property
    def point(self) -> Point:
        """Alpha and gradient are (m,) or (m, faces) float64; `last` is the last pair, (2,)."""
        alpha, gradient = self._alpha, self._gradient
        if self._tube is not None:
            alpha, gradient = self._by_segment(alpha, gradient)
        return Point(
            self._formulation.join(list(alpha)),
            gradient.T if self._formulation.n_faces > 1 else gradient[0],
            self.state.number[smo.LAST_PAIR].copy(), self.n_done,
        )  # fmt: skip

    @property
    def gap(self) -> float:
        """KKT gap; 0 where nothing may rise, or nothing fall."""
        return float(max(smo.exact_extremes(self.state)[2], 0.0))

    @property
    def n_done(self) -> int:
        """Pair steps taken."""
        return int(self.state.number[smo.STEPS])

    @property
    def stamp(self) -> int:
        """Counter of the last use of a kernel row."""
        return int(self.state.number[smo.STAMP])

    @property
    def settles(self) -> Self:
        """Itself."""
        return self

    def settled(self) -> Mask:
        """As `bigsvm.core.smo.settle`."""
        settled = np.empty(self._size, np.bool_)
        smo.settle(self.state, settled)
        return settled

    def last_among(self, kept: Mask) -> I8:
        """Return the last pair, (2,), by numbers among the rows kept; −1 if one is not kept."""
        pair = self.state.number[smo.LAST_PAIR]
        segment, place = np.divmod(pair, int(self.state.number[smo.SEGMENT]))
        all_kept = np.pad(kept, (0, self.n_slack), constant_values=True)
        if (pair < 0).any() or not all_kept[place].all():
            return NO_PAIR
        length = -(-int(all_kept.sum()) // smo.BLOCK) * smo.BLOCK
        return segment * length + np.cumsum(all_kept)[place] - 1

    def advance(
        self, rows: F4, slots: I4, used: I8, *, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Take pair steps; see `bigsvm.core.smo.run`. Raises `EndlessError` if they have no end."""
        progress = smo.run(self.state, rows, slots, used, self._rule, tol, max_steps)
        if self._linear is not None and self._is_endless(self._linear):
            raise EndlessError
        return progress

    def _is_endless(self, linear: F8) -> bool:
        """Whether the optimum, if there is one, is beyond what float32 can tell from none.

        On the line through 0 and alpha the objective reaches ``(linearᵀα)² / 2 αᵀKα``, so that the
        optimum is at least this. Of two classes it is 2 over the square of their distance. Where
        other rows have a part in the gradient, ``αᵀKα`` is taken to be what a maximum makes it.
        """
        alpha, gradient = self._by_segment(self._alpha, self._gradient)
        gain = float((linear * alpha).sum())
        square = float((alpha * (linear - gradient)).sum()) if self._is_alone else 2 * gain
        return bool(gain**2 * self._scale > max(square, 0.0))

    @property
    def leaps(self) -> Self:
        """Itself."""
        return self

    def leap_bytes(self, width: float) -> float:
        """Bytes that the interior-point method needs."""
        return needed_bytes(self._size, self._size * len(self._segments), width)

    def leap(self, origin: tuple[F8, F8], factor: F8, *, tol: float) -> Leap | None:
        """Find the optimum by an interior-point method."""
        alpha, gradient = self._segments_of(origin)
        ridge, groups = self._ridge, None
        if not self.n_slack:
            groups = np.array([s.group for s in self._segments], np.int64)
            factor -= factor.mean(axis=0)  # where sums are given, gradients may shift together
        target = interior_point(
            factor,
            BoxVariables(
                gradient + factor @ (factor.T @ alpha.sum(axis=0)) + ridge * alpha,
                np.stack([s.box.lower for s in self._segments]),
                np.stack([s.box.upper for s in self._segments]), ridge, alpha, groups,
            ),
            tol=tol,
        )  # fmt: skip
        return None if target is None else Leap(target, (target - alpha).sum(axis=0))

    def stay(self, origin_alpha: F8) -> Leap:
        """Return the leap that leads to where this is."""
        alpha = self.point.alpha
        target = np.stack(self._formulation.split(alpha, self._rows))
        return Leap(target, self._formulation.per_output(alpha - origin_alpha))

    def land(self, origin: tuple[F8, F8], target: F8, outputs: F8, outputs_here: F8) -> None:
        """Go to the target, unless rounding has made its objective smaller."""
        state, (origin_alpha, origin_gradient) = self.state, self._segments_of(origin)
        ridge = self._ridge
        alpha, _ = self._by_segment(self._alpha, self._gradient)
        here = origin_gradient - outputs_here - ridge * (alpha - origin_alpha)
        there = origin_gradient - outputs - ridge * (target - origin_alpha)
        change = target - alpha
        # Twice the rise of the objective, which is quadratic along the way.
        if float((change * (here + there)).sum()) > 0.0:
            one = target if self._tube is None else target.sum(axis=0, keepdims=True)
            self._alpha[:], here = one, there
            if self.n_slack:
                slack = smo.spread_of(state, state.double[smo.ALPHA], self._size + 1)[0, -1:]
                slack -= change.sum()
        self._gradient[:] = here[: len(self._gradient)]
        state.number[smo.LAST_PAIR] = -1
        smo.refresh(state)

    def _segments_of(self, point: tuple[F8, F8]) -> tuple[F8, F8]:
        """Alpha and gradient of a point by segments, (n_segments, m)."""
        return np.stack(self._formulation.split(point[0], self._rows)), np.atleast_2d(point[1].T)

    def _spread(self, values: F8) -> F8:
        return smo.spread_of(self.state, values, self._size)

    def violations(self, score: F4, quiet: Mask) -> None:
        """As `bigsvm.core.smo.violations`: quiet are those pushed against a bound."""
        smo.violations(self.state, score, quiet)
