"""An interior-point method for boxes, where the kernel matrix has a narrow factor.

    maximise  linearᵀα − ½ αᵀQα     subject to  lower ≤ α ≤ upper,  Σ α given in each group

With ``K = L Lᵀ``, L being (m, r), a system ``(Θ + K) v = w`` with Θ diagonal is one of r unknowns:
a problem of m variables takes some tens of products ``Lᵀ D L``, however its kernel values are
scaled. Pair steps take millions where features are of very different sizes, or far larger than 1.

Mehrotra's predictor and corrector (Nocedal & Wright, Numerical Optimization, algorithm 16.4) from
a point that need not add up; the systems by the Sherman-Morrison-Woodbury formula (Fine &
Scheinberg 2001, "Efficient SVM training using low-rank kernel representations"; Ferris & Munson
2002, "Interior-point methods for massive support vector machines"), which loses digits where Θ is
tiny: a little is added to Θ, and each solution is corrected twice. What comes near a bound is put
there, and the others are solved for exactly.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bigsvm.duals.box_problem import Box
from bigsvm.duals.polish import RESOLUTION, polish
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask

    Cholesky = tuple[F8, bool]

ROUNDS = 80
"""Rounds at most; 15 to 50 are usual."""
PATIENCE = 6
"""Rounds without a better point that end it."""
ADDED = 1e-14
"""Share of the largest K_ii that is added to Θ: without it, rows next to the optimum lose all their
digits; with more, rounds are more and the point is worse."""
SHORTER = 0.995
"""Share of the way to the nearest bound that a round goes."""
CLOSEST = 1e-30
"""A variable is taken to be at least so far from a bound, as a share of its box: rounding puts some
there."""
SAME_GRADIENT = 0.01
"""Gradients are equal if they differ by this share of the tolerance."""
AT_BOUND = 1e-6
"""A variable is at its bound if its distance from it, as a share of its box, times its multiplier
is at most this share of the tolerance."""
SAME_SUM = 1e-10
"""Largest error of the sum of a group's variables, as a share of the sum of their sizes."""
PUSHED = 0.1
"""A variable whose multiplier is more than this share of the tolerance belongs at its bound."""
TOUCHING = 1e-9
"""A variable nearer to its bound than this share of its box is put there."""
NEAR = 2.0
"""Variables whose gradient is within this many gaps of the threshold are solved for exactly."""
LEAST_NEAR = 128
"""Most variables, next to the threshold, that are solved for exactly."""
NEAR_PER_COLUMN = 1.25
"""Further ones for each column of the factor. With more free variables none is solved exactly."""
ARRAYS = 40
"""Arrays in memory of the size of the variables."""
SQUARES = 4
"""Arrays in memory of the square of the variables near a threshold."""


class BoxVariables(NamedTuple):
    """Some variables of each of m rows, one in each of S segments: arrays are (S, m).

    Bounds may be infinite, and equal: a variable without room stays where it is. alpha is a
    feasible point. Segments of the same number in `groups`, (S,), keep their sum together; None
    where no sum is kept.
    """

    linear: F8
    lower: F8
    upper: F8
    ridge: F8
    alpha: F8
    groups: I8 | None

    def members(self) -> F8:
        """Segments of each group: (G, S) of 0 and 1."""
        if self.groups is None:
            return np.empty((0, len(self.linear)))
        members: F8 = (np.unique(self.groups)[:, None] == self.groups).astype(np.float64)
        return members


def _most_near(n_variables: int, width: float) -> float:
    return min(n_variables, LEAST_NEAR + NEAR_PER_COLUMN * width)


def needed_bytes(n_rows: int, n_variables: int, width: float) -> float:
    """Bytes that `interior_point` takes at most, its factor included."""
    near = _most_near(n_variables, width)
    return 8.0 * (2 * width * n_rows + ARRAYS * n_variables + SQUARES * near**2)


class _Point(NamedTuple):
    """A point inside the box, its multipliers: of the sums, of lower and of upper bounds."""

    alpha: F8
    sums: F8
    below: F8
    above: F8


class System:
    """``(Θ + K) v = w``; see the module's docstring.

    The factor is (m, r). theta, (S, m), is infinite for variables that stay.
    """

    def __init__(self, factor: F8, theta: F8) -> None:
        self._factor, self._theta = factor, theta
        with np.errstate(divide="ignore"):
            self._inverse = 1.0 / theta
        weighted = factor * np.sqrt(self._inverse.sum(axis=0))[:, None]
        inner = weighted.T @ weighted
        inner[np.diag_indices(len(inner))] += 1.0
        self._scale = 1.0 / np.sqrt(np.diag(inner))
        inner *= self._scale
        inner *= self._scale[:, None]
        self._cholesky: Cholesky = cho_factor(inner, overwrite_a=True, check_finite=False)

    def _by_formula(self, w: F8) -> F8:
        v = self._inverse * w
        right = self._scale * (self._factor.T @ v.sum(axis=0))
        solved = self._scale * cho_solve(self._cholesky, right, check_finite=False)
        v -= self._inverse * (self._factor @ solved)
        return v

    def solve(self, w: F8) -> F8:
        """Find v, (S, m); 0 for variables that cannot move."""
        moves = self._inverse > 0
        finite = np.where(moves, self._theta, 0.0)
        v = self._by_formula(w)
        for _ in range(2):
            missing = w - finite * v - self._factor @ (self._factor.T @ v.sum(axis=0))
            v += self._by_formula(np.where(moves, missing, 0.0))
        return v


def interior_point(factor: F8, variables: BoxVariables, *, tol: float) -> F8 | None:
    """Find the optimum, (S, m); None if no variable can move, or the method fails.

    The factor, (m, r), is L; its rows may be shifted where all sums are given. `tol` is the KKT gap
    that is wanted.
    """
    movable = variables.upper > variables.lower
    if not movable.any():
        return None
    tol = max(tol, RESOLUTION * float(np.abs(variables.linear).max()))
    best, least, since = None, np.inf, 0
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):  # the best point stays
        search = _Search(factor, variables, movable, tol)
        for _ in range(ROUNDS):
            check_interrupt()
            missing = search.missing()
            if missing < least:
                best, least, since = search.point, missing, 0
            else:
                since += 1
            if least <= 1.0 or since > PATIENCE or not np.isfinite(missing):
                break
            search.step()
    if best is None:
        return None
    alpha = _at_bounds(variables, best, movable, tol)
    solved = _solved_near(factor, variables, alpha, tol)
    return next(
        (candidate for candidate in (solved, alpha) if _keeps_sums(variables, candidate)), None
    )


def _keeps_sums(variables: BoxVariables, alpha: F8) -> bool:
    """Whether rounding has kept the sums that variables are bound to."""
    members = variables.members()
    lost = np.abs(members @ (alpha - variables.alpha).sum(axis=1))
    return bool((lost <= SAME_SUM * (members @ np.abs(alpha).sum(axis=1))).all())


class _Search:
    """The point of a round, and the step to the next one."""

    def __init__(self, factor: F8, variables: BoxVariables, movable: Mask, tol: float) -> None:
        self._factor, self._variables, self._movable, self._tol = factor, variables, movable, tol
        lower, upper, alpha = variables.lower, variables.upper, variables.alpha
        self._has_lower = movable & np.isfinite(lower)
        self._has_upper = movable & np.isfinite(upper)
        both = self._has_lower & self._has_upper
        self._width = float((upper - lower)[both].mean()) if both.any() else 0.0
        self._width = self._width or float(np.abs(alpha).max()) or 1.0
        start = np.where(both, 0.5 * (np.where(both, lower, 0) + np.where(both, upper, 0)), alpha)
        start = np.where(self._has_lower & ~both, lower + self._width, start)
        start = np.where(self._has_upper & ~both, upper - self._width, start)
        linear = variables.linear[movable]
        push = float(np.abs(linear).max() if variables.groups is None else np.ptp(linear)) or 1.0
        self._members = variables.members()
        self._totals = self._members @ alpha.sum(axis=1)
        self._added = ADDED * float((factor**2).sum(axis=1).max(initial=0.0))
        below, above = (np.where(has, push, 0.0) for has in (self._has_lower, self._has_upper))
        self.point = _Point(start, np.zeros(len(self._members)), below, above)

    def _distances(self) -> tuple[F8, F8]:
        """How far the point is from its lower and its upper bounds; 1 where there is none."""
        alpha, variables, least = self.point.alpha, self._variables, CLOSEST * self._width
        return (
            np.where(self._has_lower, np.maximum(alpha - variables.lower, least), 1.0),
            np.where(self._has_upper, np.maximum(variables.upper - alpha, least), 1.0),
        )

    def _residual(self) -> F8:
        """Gradient of the Lagrangian, (S, m)."""
        variables, (alpha, sums, below, above) = self._variables, self.point
        outputs = self._factor @ (self._factor.T @ alpha.sum(axis=0))
        gradient = variables.linear - outputs - variables.ridge * alpha
        wrong = gradient + (sums @ self._members)[:, None] + below - above
        return np.where(self._movable, wrong, 0.0)

    def _mean_product(self, point: _Point) -> float:
        variables = self._variables
        low = np.where(self._has_lower, point.alpha - variables.lower, 0.0)
        high = np.where(self._has_upper, variables.upper - point.alpha, 0.0)
        n = int(self._has_lower.sum() + self._has_upper.sum())
        return float((low * point.below).sum() + (high * point.above).sum()) / max(n, 1)

    def missing(self) -> float:
        """Largest residual in units of what is wanted; the point is good enough at 1 or less."""
        wrong = float(np.abs(self._residual()).max()) / (SAME_GRADIENT * self._tol)
        product = self._mean_product(self.point) / (AT_BOUND * self._tol * self._width)
        return max(wrong, product)

    def step(self) -> None:
        """Take a step: a predictor and a corrector."""
        point = self.point
        low, high = self._distances()
        theta = point.below / low + point.above / high + self._variables.ridge + self._added
        system = System(self._factor, np.where(self._movable, theta, np.inf))
        residual = self._residual()
        lacking = self._totals - self._members @ point.alpha.sum(axis=1)
        movable = self._movable.astype(np.float64)
        ways = [system.solve(movable * part[:, None]) for part in self._members]
        shares = np.array([self._members @ way.sum(axis=1) for way in ways])

        def direction(low_goal: F8, high_goal: F8) -> _Point:
            way = system.solve(residual + low_goal / low - high_goal / high)
            sums = np.zeros(len(ways))
            if len(ways):
                sums = np.linalg.solve(shares.T, lacking - self._members @ way.sum(axis=1))
            for share, other in zip(sums, ways, strict=True):
                way += share * other
            below = np.where(self._has_lower, (low_goal - point.below * way) / low, 0.0)
            above = np.where(self._has_upper, (high_goal + point.above * way) / high, 0.0)
            return _Point(way, sums, below, above)

        centre = self._mean_product(point)
        first = direction(-low * point.below, -high * point.above)
        reached = self._mean_product(self._moved(first, self._length(first, low, high)))
        goal = (reached / centre) ** 3 * centre if centre > 0 else 0.0
        way = direction(
            self._has_lower * (goal - low * point.below - first.alpha * first.below),
            self._has_upper * (goal - high * point.above + first.alpha * first.above),
        )
        length = self._length(way, low, high)
        self.point = self._moved(way, length if length == 1.0 else SHORTER * length)

    def _moved(self, way: _Point, length: float) -> _Point:
        return _Point(*(a + length * b for a, b in zip(self.point, way, strict=True)))

    def _length(self, way: _Point, low: F8, high: F8) -> float:
        """Length of a step until the point meets a bound, at most 1."""
        point = self.point
        pairs = (
            (low, np.where(self._has_lower, way.alpha, 0.0)),
            (high, np.where(self._has_upper, -way.alpha, 0.0)),
            (point.below, way.below),
            (point.above, way.above),
        )
        return min(
            float((value[falls] / -change[falls]).min(initial=1.0))
            for value, change in pairs
            for falls in [change < 0]
        )


def _at_bounds(variables: BoxVariables, point: _Point, movable: Mask, tol: float) -> F8:
    """Put variables that are near a bound at it; sums do not change."""
    lower, upper, members = variables.lower, variables.upper, variables.members()
    with np.errstate(invalid="ignore"):
        touching = TOUCHING * np.where(np.isfinite(upper - lower), upper - lower, 0.0)
    inside = np.clip(point.alpha, lower, upper)
    low = (point.below > PUSHED * tol) | (inside - lower <= touching)
    high = (point.above > PUSHED * tol) | (upper - inside <= touching)
    low, high = low & (point.below >= point.above), high & (point.above > point.below)
    alpha = np.where(movable, np.where(low, lower, np.where(high, upper, inside)), variables.alpha)
    for members_of, total in zip(members, members @ variables.alpha.sum(axis=1), strict=True):
        of_group = movable & (members_of > 0)[:, None]
        left = total - float(alpha[members_of > 0].sum())
        # First those that are free, then others, from the one that is pushed least.
        order = np.argsort(
            np.where(of_group, np.maximum(point.below, point.above), np.inf), axis=None
        )
        free = of_group & ~low & ~high
        if free.any():
            moved = np.clip(alpha[free] + left / free.sum(), lower[free], upper[free])
            left -= float((moved - alpha[free]).sum())
            alpha[free] = moved
        for t in order[: int(of_group.sum())]:
            if left == 0.0:
                break
            before = alpha.flat[t]
            alpha.flat[t] = min(max(before + left, lower.flat[t]), upper.flat[t])
            left -= alpha.flat[t] - before
    return alpha


def _solved_near(factor: F8, variables: BoxVariables, alpha: F8, tol: float) -> F8:
    """Solve exactly for variables that are free or nearly free, unless they are too many."""
    lower, upper, members = variables.lower, variables.upper, variables.members()
    outputs = factor @ (factor.T @ alpha.sum(axis=0))
    gradient = variables.linear - outputs - variables.ridge * alpha
    free = (alpha > lower) & (alpha < upper)
    distance = np.where(free, 0.0, np.inf)
    for part in members if len(members) else np.ones((1, len(alpha))):
        own = (part > 0)[:, None] & (upper > lower)
        rises, falls = gradient[own & (alpha < upper)], gradient[own & (alpha > lower)]
        gap = float(rises.max(initial=-np.inf) - falls.min(initial=np.inf))
        inside = gradient[own & free]
        threshold = float(np.median(inside)) if len(inside) else 0.0
        if not len(members):
            gap, threshold = float(np.abs(inside).max(initial=0.0)), 0.0
        far = np.abs(gradient - threshold)
        near = own & ~free & (far <= NEAR * max(tol, gap))
        distance[near] = far[near]
    most = int(_most_near(alpha.size, factor.shape[1]))
    last = np.partition(distance, most - 1, axis=None)[most - 1]
    chosen = (distance <= last) & np.isfinite(distance)
    segments, rows = np.nonzero(chosen)
    if not 2 <= len(rows) <= most:
        return alpha
    own = factor[rows]
    gram = own @ own.T
    gram[np.diag_indices(len(rows))] += variables.ridge[chosen]
    box = Box(gradient[chosen] + gram @ alpha[chosen], lower[chosen], upper[chosen])
    begin = alpha[chosen]
    groups = np.zeros(len(rows), np.int64)
    if variables.groups is None:  # a variable without a row takes up the rest
        gram, begin = np.pad(gram, (0, 1)), np.append(begin, 0.0)
        box = Box(np.append(box.linear, 0), np.append(box.lower, -np.inf),
                  np.append(box.upper, np.inf))  # fmt: skip
        groups = np.append(groups, 0)
    else:
        groups = np.searchsorted(np.unique(variables.groups), variables.groups[segments])
    better = alpha.copy()
    better[chosen] = polish(gram, box, begin, groups=groups)[: len(rows)]
    return better
