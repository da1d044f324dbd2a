"""Many small problems of two classes, each solved whole, in float64, in one compiled call.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α = 0

as in `bigsvm.core.smo`, of tens of variables: there a problem costs milliseconds to set up and
microseconds to solve. Second-order pair steps take it to the tolerance; then the free variables
are solved for together, round by round, until the gradients agree to what float64 tells apart, as
`bigsvm.duals.polish` does. A result depends on its own problem alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F8: TypeAlias = NDArray[np.float64]
    I8: TypeAlias = NDArray[np.int64]

TINY_CURVATURE = 1e-12
RESOLUTION = 1e-11
"""Gap, relative to the largest gradient, at which a problem is solved."""
DAMPING = 1e-13
"""As a share of the largest diagonal entry: about what float64 loses in solving a system."""
STEPS_PER_ROW = 1000
"""Pair steps for each variable after which a problem is left to others."""
ROUNDS_PER_ROW = 8

SOLVED, UNSOLVED, NOT_BEGUN = 0, 1, 2

OBJECTIVE, GAP, DUALITY_GAP, THRESHOLD = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def _extremes(alpha: F8, gradient: F8, lower: F8, upper: F8) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g), the first of equals; −1 where the set is empty."""
    i = j = -1
    for t in range(alpha.shape[0]):
        if alpha[t] < upper[t] and (i < 0 or gradient[t] > gradient[i]):
            i = t
        if alpha[t] > lower[t] and (j < 0 or gradient[t] < gradient[j]):
            j = t
    return i, j


@njit(cache=True, nogil=True)
def _pair_steps(
    gram: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, tol: float, max_steps: int
) -> tuple[int, bool]:
    """Take pair steps until the gap is at most `tol`; how many, and whether it is."""
    m, steps = alpha.shape[0], 0
    while True:
        i, j = _extremes(alpha, gradient, lower, upper)
        if i < 0 or j < 0 or gradient[i] - gradient[j] <= tol:
            return steps, True
        if steps >= max_steps:
            return steps, False
        most = 0.0
        for t in range(m):
            d = gradient[i] - gradient[t]
            if alpha[t] > lower[t] and d > 0:
                eta = max(gram[i, i] + gram[t, t] - 2.0 * gram[i, t], TINY_CURVATURE)
                if d * d / eta > most:
                    most, j = d * d / eta, t
        eta = max(gram[i, i] + gram[j, j] - 2.0 * gram[i, j], TINY_CURVATURE)
        room_i, room_j = upper[i] - alpha[i], alpha[j] - lower[j]
        mu = min((gradient[i] - gradient[j]) / eta, room_i, room_j)
        # A variable that reaches its bound is assigned it: "at the bound" is an exact comparison.
        alpha[i] = upper[i] if mu == room_i else alpha[i] + mu
        alpha[j] = lower[j] if mu == room_j else alpha[j] - mu
        for t in range(m):
            gradient[t] -= mu * (gram[i, t] - gram[j, t])
        steps += 1


@njit(cache=True, nogil=True)
def _renew(gram: F8, linear: F8, alpha: F8, gradient: F8) -> None:
    """Compute the gradient from alpha."""
    for t in range(alpha.shape[0]):
        f = 0.0
        for s in range(alpha.shape[0]):
            f += gram[t, s] * alpha[s]
        gradient[t] = linear[t] - f


@njit(cache=True, nogil=True)
def _solve(system: F8, right: F8) -> bool:
    """Solve a system (n, n) in place by elimination with pivots; False where it is singular."""
    n = right.shape[0]
    for c in range(n):
        pivot = c
        for r in range(c + 1, n):
            if abs(system[r, c]) > abs(system[pivot, c]):
                pivot = r
        if system[pivot, c] == 0.0:
            return False
        if pivot != c:
            for k in range(c, n):
                system[c, k], system[pivot, k] = system[pivot, k], system[c, k]
            right[c], right[pivot] = right[pivot], right[c]
        for r in range(c + 1, n):
            factor = system[r, c] / system[c, c]
            if factor != 0.0:
                for k in range(c + 1, n):
                    system[r, k] -= factor * system[c, k]
                right[r] -= factor * right[c]
    for c in range(n - 1, -1, -1):
        total = right[c]
        for k in range(c + 1, n):
            total -= system[c, k] * right[k]
        right[c] = total / system[c, c]
    return True


@njit(cache=True, nogil=True)
def _newton(gram: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, free: I8) -> bool:
    """Go to where the gradients of the free variables agree, or to where the box ends.

    False where neither moves anything.
    """
    n, scale = free.shape[0], 0.0
    for a in range(n):
        scale = max(scale, gram[free[a], free[a]])
    system, d = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
    for a in range(n):
        for b in range(n):
            system[a, b] = gram[free[a], free[b]]
        system[a, a] += DAMPING * scale
        system[a, n] = system[n, a] = scale
        d[a] = gradient[free[a]]
    if not _solve(system, d):
        return False
    mean = 0.0
    for a in range(n):
        mean += d[a] / n
    end, hit = 1.0, -1
    for a in range(n):
        d[a] -= mean
        t = free[a]
        room = upper[t] - alpha[t] if d[a] > 0 else alpha[t] - lower[t]
        if abs(d[a]) * end > room:
            end, hit = room / abs(d[a]), a
    moved = False
    for a in range(n):
        t = free[a]
        before = alpha[t]
        alpha[t] = min(max(before + end * d[a], lower[t]), upper[t])
        if a == hit:
            alpha[t] = upper[t] if d[a] > 0 else lower[t]
        moved |= alpha[t] != before
    return moved


@njit(cache=True, nogil=True)
def _polish(gram: F8, linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8) -> None:
    """Solve for the free variables; free those that violate then, as long as that gains."""
    m = alpha.shape[0]
    best, kept = np.inf, alpha.copy()
    for _ in range(ROUNDS_PER_ROW * m):
        i, j = _extremes(alpha, gradient, lower, upper)
        gap = gradient[i] - gradient[j] if i >= 0 and j >= 0 else 0.0
        largest = 1.0
        for t in range(m):
            largest = max(largest, abs(gradient[t]))
        if gap < best:
            best, kept[:] = gap, alpha
        if gap <= RESOLUTION * largest:
            break
        # The worst pair takes part: free already, or freed by a step from its bound.
        within = np.zeros(m, np.bool_)
        for t in range(m):
            within[t] = lower[t] < alpha[t] < upper[t]
        if not (within[i] and within[j]):
            eta = max(gram[i, i] + gram[j, j] - 2.0 * gram[i, j], TINY_CURVATURE)
            mu = min(gap / eta, upper[i] - alpha[i], alpha[j] - lower[j])
            at_i, at_j = mu == upper[i] - alpha[i], mu == alpha[j] - lower[j]
            alpha[i] = upper[i] if at_i else alpha[i] + mu
            alpha[j] = lower[j] if at_j else alpha[j] - mu
            _renew(gram, linear, alpha, gradient)
            for t in (i, j):
                within[t] = lower[t] < alpha[t] < upper[t]
        free = np.flatnonzero(within)
        if free.shape[0] > 1:
            if not _newton(gram, alpha, gradient, lower, upper, free):
                break
            _renew(gram, linear, alpha, gradient)
    alpha[:] = kept
    _renew(gram, linear, alpha, gradient)


@njit(cache=True, nogil=True)
def _stands(linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, found: F8) -> None:
    """Set what `solve` tells of a point."""
    i, j = _extremes(alpha, gradient, lower, upper)
    up = gradient[i] if i >= 0 else -np.inf
    low = gradient[j] if j >= 0 else np.inf
    total, count = 0.0, 0
    for t in range(alpha.shape[0]):
        if lower[t] < alpha[t] < upper[t]:
            total += gradient[t]
            count += 1
    threshold = total / count if count else 0.0
    if not count and i >= 0 and j >= 0:
        threshold = 0.5 * (up + low)
    elif not count:
        threshold = up if i >= 0 else low
    linear_term = quadratic = slack = 0.0
    for t in range(alpha.shape[0]):
        linear_term += linear[t] * alpha[t]
        quadratic += alpha[t] * (linear[t] - gradient[t])
        excess = gradient[t] - threshold
        slack += max(excess, 0.0) * upper[t] + min(excess, 0.0) * lower[t]
    found[OBJECTIVE] = linear_term - 0.5 * quadratic
    found[GAP] = max(up - low, 0.0)
    found[DUALITY_GAP] = 0.5 * quadratic + slack - found[OBJECTIVE]
    found[THRESHOLD] = threshold


@njit(cache=True, nogil=True)
def solve(
    gram: F8,
    bound: F8,
    spans: I8,
    tol: float,
    max_steps: int,
    alpha: F8,
    found: F8,
    steps: I8,
    status: I8,
) -> None:
    """Solve the C-SVC of each pair, −1 for its first class and +1 for the second.

    Parameters
    ----------
    gram : (q, q) float64
        Kernel values among the rows of all classes.
    bound : (q,) float64
        C of each row, above 0.
    spans : (p, 4) int64
        Where the rows of the first class of each pair begin and end, and those of the second.
    tol : float
        Largest gap of a solved problem.
    max_steps : int
        Pair steps of all problems; the one that would take more, and those after it, are not begun.
    alpha : (p, m) float64
        Of the rows of the first class and then of the second; m is as many as the largest have.
    found : (p, 4) float64
        Objective, gap, duality gap, threshold.
    steps, status : (p,) int64
        Pair steps taken; SOLVED, UNSOLVED or NOT_BEGUN.
    """
    left = max_steps
    status[:] = NOT_BEGUN
    for p in range(spans.shape[0]):
        a, b = spans[p, 1] - spans[p, 0], spans[p, 3] - spans[p, 2]
        m = a + b
        rows = np.empty(m, np.int64)
        linear, lower, upper = np.empty(m), np.zeros(m), np.zeros(m)
        for t in range(m):
            first = t < a
            rows[t] = spans[p, 0] + t if first else spans[p, 2] + t - a
            linear[t] = -1.0 if first else 1.0
            lower[t] = -bound[rows[t]] if first else 0.0
            upper[t] = 0.0 if first else bound[rows[t]]
        own = np.empty((m, m))
        for t in range(m):
            for s in range(m):
                own[t, s] = gram[rows[t], rows[s]]
        one, gradient = np.zeros(m), linear.copy()
        allowed = min(STEPS_PER_ROW * m, left)
        taken, reached = _pair_steps(own, one, gradient, lower, upper, 0.5 * tol, allowed)
        if not reached and allowed == left:
            return
        _renew(own, linear, one, gradient)
        if reached:
            _polish(own, linear, one, gradient, lower, upper)
        _stands(linear, one, gradient, lower, upper, found[p])
        alpha[p, :m] = one
        steps[p] = taken
        left -= taken
        status[p] = SOLVED if found[p, GAP] <= tol else UNSOLVED
