"""Newton's method for squared losses: all rows of a working set at once, in float64.

    maximise  pᵀα − ½ αᵀ(K + S)α     subject to  α on the side of each row,  Σ α = T where given

S is a diagonal above 0. At the optimum the rows that lose, on whose side ``p − Kα − b`` is, fulfil
``(K + S) α + b = p``, and the others have no α. A round solves this system for the rows that lose
now, and goes towards its solution until the primal objective is least (Chapelle 2007, "Training a
support vector machine in the primal"). A few rounds are enough, whatever the condition of K + S,
where pair steps would take as many as that.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bigsvm.duals.interior_point import System
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.box_problem import Segment

ROUNDS = 100
"""Rounds at most; 5 to 15 are usual."""
PATIENCE = 2
"""Rounds in which the primal objective does not fall by more than rounding, until it ends."""
NO_FALL = 1e-13
"""Share of the primal objective that is rounding."""
NEAR = (0.0, 0.0, 1e-14, 1e-12, 1e-10)
"""Shares of the largest K_ii that are added to S, in turn, until the gap is small enough. With one
above 0 the solution stays nearer to the start, and the next working sets go on from there. With the
first one, systems are solved from 0 on, with the others from where the last round ended."""
CORRECTIONS = 2
"""Times that a system is solved for what is missing."""
HALVINGS = 40
"""Halvings of a step that is too long."""
LEAST_LENGTH = 1e-3
"""A shorter step may be one of rounding: it is taken as a whole unless that is much worse."""
MUCH_WORSE = 2.0
"""Factor of the primal objective. Where few rows lose, others may come to lose on the way: a whole
step would lead back to where the search was many rounds before."""
SAME_GAIN = 1e-9
"""Share by which gains differ at least; of equal ones, that of the smaller gap is the better."""
FINE = 1e-2
"""The method ends at this share of the tolerance."""
SAME_SUM = 1e-10
"""Largest error of the sum of variables, as a share of the sum of their sizes."""


class Matrix(Protocol):
    """A kernel matrix K among m rows, in float64."""

    def times(self, vectors: F8) -> F8:
        """``K @ vectors``, (m,) or (m, q)."""

    def largest(self) -> float:
        """Largest K_ii."""

    def solver(self, rows: I8, ridge: F8) -> Callable[[F8], F8]:
        """Return what solves ``(K + diag(ridge)) v = w`` among r rows, about; w and v are (r, q).

        Raises numpy.linalg.LinAlgError where it cannot.
        """


class Gram:
    """A kernel matrix as it is, (m, m)."""

    def __init__(self, gram: F8) -> None:
        self._gram = gram

    def times(self, vectors: F8) -> F8:
        product: F8 = self._gram @ vectors
        return product

    def largest(self) -> float:
        return float(self._gram.diagonal().max())

    def solver(self, rows: I8, ridge: F8) -> Callable[[F8], F8]:
        scale = 1.0 / np.sqrt(self._gram[rows, rows] + ridge)[:, None]
        system = self._gram[np.ix_(rows, rows)]
        system[np.diag_indices(len(rows))] += ridge
        system *= scale
        system *= scale.T
        cholesky = cho_factor(system.T, overwrite_a=True, check_finite=False)
        return lambda w: scale * cho_solve(cholesky, scale * w, check_finite=False)


class Factored:
    """A kernel matrix by a narrow factor L (m, r), ``K = L Lᵀ``."""

    def __init__(self, factor: F8) -> None:
        self._factor = factor

    def times(self, vectors: F8) -> F8:
        product: F8 = self._factor @ (self._factor.T @ vectors)
        return product

    def largest(self) -> float:
        return float((self._factor**2).sum(axis=1).max())

    def solver(self, rows: I8, ridge: F8) -> Callable[[F8], F8]:
        system = System(self._factor[rows], ridge[None])
        return lambda w: np.stack([system.solve(column[None])[0] for column in w.T], axis=1)


def newton(
    matrix: Matrix,
    segment: Segment,
    alpha: F8,
    gradient: F8,
    *,
    keeps_sum: bool,
    tol: float,
    max_rounds: int = sys.maxsize,
) -> tuple[F8, F8, int]:
    """Find the optimum from a feasible point of m variables, to the KKT gap `tol`.

    If it `keeps_sum`, Σ α stays as it is. Returns alpha and gradient, (m,), of the best point that
    was met, with an objective larger than at the start, or of the start where there is none; and
    the number of rounds.
    """
    best, done = _Best(alpha, gradient, 0.0, np.inf), 0
    largest = matrix.largest()
    for stage, near in enumerate(NEAR):
        search = _Search(
            matrix, segment, alpha, gradient, near * largest,
            keeps_sum=keeps_sum, goes_on=stage > 0,
        )  # fmt: skip
        fruitless, last = 0, min(done + ROUNDS, max_rounds)
        # Where rounding has lost a system, the next one is tried.
        with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
            while done < last and fruitless < PATIENCE and best.gap > FINE * tol:
                check_interrupt()
                before, done = search.primal(), done + 1
                best = _better(best, search.step())
                fell = before - search.primal() > NO_FALL * abs(before)
                fruitless = 0 if fell else fruitless + 1
        if best.gap <= tol:
            break
    return best.alpha, best.gradient, done


class _Best(NamedTuple):
    """A point, twice by how much its objective is larger than at the start, and its gap."""

    alpha: F8
    gradient: F8
    gain: float
    gap: float


def _better(one: _Best, other: _Best | None) -> _Best:
    if other is None or not other.gain > 0:
        return one
    more = other.gain - one.gain
    is_better = other.gap < one.gap if abs(more) <= SAME_GAIN * one.gain else more > 0
    return other if is_better else one


class _Search:
    """Where the method stands: any coefficients, not bound to sides, and their outputs."""

    def __init__(
        self,
        matrix: Matrix,
        segment: Segment,
        alpha: F8,
        gradient: F8,
        near: float,
        *,
        keeps_sum: bool,
        goes_on: bool,
    ) -> None:
        (_, lower, upper), ridge, _ = segment
        self._matrix, self._start = matrix, (alpha, gradient)
        self._keeps_sum, self._goes_on = keeps_sum, goes_on
        self._side = np.where(upper > 0, 1.0, np.where(lower < 0, -1.0, 0.0))
        self._near, self._ridge = near, np.where(self._side != 0, ridge, 1.0) + near
        self._at, self._total = alpha, float(alpha.sum())
        self._outputs = matrix.times(alpha)
        self._wanted = gradient + self._outputs + self._ridge * alpha
        self._threshold = 0.0
        if keeps_sum:
            free = gradient[alpha != 0]
            self._threshold = float(np.median(free if len(free) else gradient[self._side != 0]))

    def _losses(self, outputs: F8, threshold: float) -> F8:
        losses: F8 = np.maximum(self._side * (self._wanted - outputs - threshold), 0.0)
        return losses

    def primal(self) -> float:
        """Primal objective."""
        return self._primal(self._at, self._outputs, self._threshold)

    def _primal(self, at: F8, outputs: F8, threshold: float) -> float:
        losses = self._losses(outputs, threshold)
        squares = float(losses @ (losses / self._ridge))
        return 0.5 * (float(at @ outputs) + squares) + threshold * self._total

    def step(self) -> _Best | None:
        """Solve for the rows that lose, and go there; returns that point if it is feasible."""
        rows = np.flatnonzero(self._losses(self._outputs, self._threshold))
        ridge = self._ridge[rows, None]
        solve, threshold = self._matrix.solver(rows, ridge[:, 0]), 0.0
        right = np.stack([self._wanted[rows], np.ones(len(rows))], axis=1)
        spread = np.zeros((len(self._at), 2))
        if self._goes_on:
            spread[rows, 0] = self._at[rows]
        if not self._keeps_sum:
            right, spread = right[:, :1], spread[:, :1]
        for _ in range(1 + CORRECTIONS):
            missing = right - self._matrix.times(spread)[rows] - ridge * spread[rows]
            spread[rows] += solve(missing)
        target = spread[:, 0]
        if self._keeps_sum:
            threshold = float((target.sum() - self._total) / spread[:, 1].sum())
            target = target - threshold * spread[:, 1]
        outputs = self._matrix.times(target)
        change, added = target - self._at, outputs - self._outputs
        more = threshold - self._threshold
        length = self._length(change, added, more)
        if length <= LEAST_LENGTH:
            whole = self._primal(target, outputs, threshold)
            length = 1.0 if whole <= MUCH_WORSE * self.primal() else length
        self._at = self._at + length * change
        self._outputs = self._outputs + length * added
        self._threshold += length * more
        return self._point(target)

    def _length(self, change: F8, added: F8, more: float) -> float:
        """Share of the way at which the primal objective is least, by its slope."""

        def falls(length: float) -> bool:
            losses = self._losses(self._outputs + length * added, self._threshold + length * more)
            slope = float(change @ (self._outputs + length * added)) + more * self._total
            slope -= float((self._side * losses / self._ridge) @ (added + more))
            return slope <= 0

        low, high = 0.0, 1.0
        if falls(high):
            return high
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if falls(middle) else (low, middle)
        return low

    def _point(self, target: F8) -> _Best | None:
        """Set what is on the wrong side to 0, and look at the point; None if its sum is lost."""
        alpha = np.where(self._side * target > 0, target, 0.0)
        start, first = self._start
        if self._keeps_sum:
            lost = self._total - float(alpha.sum())
            if not abs(lost) <= SAME_SUM * float(np.abs(alpha).sum()):
                return None
            alpha[np.abs(alpha).argmax()] += lost
        gradient = self._wanted - self._matrix.times(alpha) - self._ridge * alpha
        gradient += self._near * (alpha - start)
        rises, falls = (self._side > 0) | (alpha < 0), (self._side < 0) | (alpha > 0)
        # Without a sum, the threshold is 0.
        end = -np.inf if self._keeps_sum else 0.0
        gap = float(gradient[rises].max(initial=end) - gradient[falls].min(initial=-end))
        gain = float((alpha - start) @ (first + gradient))  # twice that, of a quadratic function
        return _Best(alpha, gradient, gain, max(gap, 0.0))
