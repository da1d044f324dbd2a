"""Many small problems of two classes: what is done before and after their pair steps, compiled.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α = 0

`begin` sets the boxes of C-SVC, `bigsvm.core.smo.run_each` takes the steps, on float32 kernel
values, and `finish` computes the gradient anew in float64 and solves for the variables near the
threshold together, round by round, until their gradients agree to what float64 tells apart, as
`bigsvm.duals.polish` does: there a problem costs milliseconds to set up and microseconds to solve.
A result depends on its own problem alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F8: TypeAlias = NDArray[np.float64]
    I8: TypeAlias = NDArray[np.int64]
    Grams: TypeAlias = tuple[F8, F8, F8]
    Span: TypeAlias = tuple[int, int, int, int]

TINY_CURVATURE = 1e-12
RESOLUTION = 1e-11
"""Gap, relative to the largest gradient, at which a problem is solved."""
DAMPING = 1e-13
"""As a share of the largest diagonal entry: about what float64 loses in solving a system."""
ROUNDS_PER_ROW = 8
MOST_POLISHED = 512
"""Variables near the threshold that are solved for together; more are left at the tolerance."""

LINEAR, LOWER, UPPER = 0, 1, 2

OBJECTIVE, GAP, DUALITY_GAP, THRESHOLD = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def begin(bounds: tuple[F8, F8], spans: I8, box: F8) -> None:
    """Set the boxes of C-SVC for each pair, −1 for its first class and +1 for the second.

    Parameters
    ----------
    bounds : (q,) and (r,) float64
        C of each row of the first group and of the second, above 0.
    spans : (p, 4) int64
        Where the rows of the first class of each pair begin and end in the first group, and those
        of the second in the second one.
    box : (p, 3, ≥ m) float64
        Linear term, lower and upper bound of the rows of the first class and then of the second;
        0 as it comes.
    """
    for p in range(spans.shape[0]):
        first = spans[p, 1] - spans[p, 0]
        for t in range(first):
            box[p, LINEAR, t] = -1.0
            box[p, LOWER, t] = -bounds[0][spans[p, 0] + t]
        for t in range(spans[p, 3] - spans[p, 2]):
            box[p, LINEAR, first + t] = 1.0
            box[p, UPPER, first + t] = bounds[1][spans[p, 2] + t]


@njit(cache=True, nogil=True)
def _kernel_row(grams: Grams, span: Span, t: int, out: F8) -> None:
    """Copy the kernel values of row t of a pair with all of its rows, as `smo` does in float32.

    Numba's cache on disk does not notice that another file has changed: each has its own.
    """
    first, cross, second = grams
    a, b, c, d = span
    m = b - a
    for s in range(m):
        out[s] = first[a + t, a + s] if t < m else cross[a + s, c + t - m]
    for s in range(d - c):
        out[m + s] = cross[a + t, c + s] if t < m else second[c + t - m, c + s]


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
def _stands(alpha: F8, gradient: F8, lower: F8, upper: F8) -> tuple[float, float]:
    """Compute the gap and the threshold of a point."""
    i, j = _extremes(alpha, gradient, lower, upper)
    total, count = 0.0, 0
    for t in range(alpha.shape[0]):
        if lower[t] < alpha[t] < upper[t]:
            total += gradient[t]
            count += 1
    if count:
        threshold = total / count
    elif i >= 0 and j >= 0:
        threshold = 0.5 * (gradient[i] + gradient[j])
    else:
        threshold = gradient[i] if i >= 0 else gradient[j]
    return max(gradient[i] - gradient[j], 0.0) if i >= 0 and j >= 0 else 0.0, threshold


@njit(cache=True, nogil=True)
def _renew(grams: Grams, span: Span, linear: F8, alpha: F8, gradient: F8) -> None:
    """Compute the gradient from alpha."""
    row = np.empty(alpha.shape[0])
    for t in range(alpha.shape[0]):
        gradient[t] = linear[t]
    for s in range(alpha.shape[0]):
        if alpha[s] != 0.0:
            _kernel_row(grams, span, s, row)
            for t in range(alpha.shape[0]):
                gradient[t] -= alpha[s] * row[t]


@njit(cache=True, nogil=True)
def _renew_among(gram: F8, linear: F8, alpha: F8, gradient: F8) -> None:
    """Compute the gradient from alpha, with all kernel values at hand."""
    for t in range(alpha.shape[0]):
        gradient[t] = linear[t]
    for s in range(alpha.shape[0]):
        if alpha[s] != 0.0:
            for t in range(alpha.shape[0]):
                gradient[t] -= alpha[s] * gram[s, t]


@njit(cache=True, nogil=True)
def _solve(system: F8, right: F8) -> bool:
    """Solve a system (n, n) in place by elimination with pivots; False where it is singular."""
    n, one = np.uint64(right.shape[0]), np.uint64(1)
    for c in range(n):
        pivot = c
        for r in range(c + one, n):
            if abs(system[r, c]) > abs(system[pivot, c]):
                pivot = r
        if system[pivot, c] == 0.0:
            return False
        if pivot != c:
            for k in range(c, n):
                system[c, k], system[pivot, k] = system[pivot, k], system[c, k]
            right[c], right[pivot] = right[pivot], right[c]
        for r in range(c + one, n):
            factor = system[r, c] / system[c, c]
            if factor != 0.0:
                for k in range(c + one, n):
                    system[r, k] -= factor * system[c, k]
                right[r] -= factor * right[c]
    for solved in range(n):
        row = n - one - solved
        total = right[row]
        for k in range(row + one, n):
            total -= system[row, k] * right[k]
        right[row] = total / system[row, row]
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
    best, kept, free = np.inf, alpha.copy(), np.empty(m, np.int64)
    for _ in range(ROUNDS_PER_ROW * m):
        i, j = _extremes(alpha, gradient, lower, upper)
        gap, largest = gradient[i] - gradient[j] if i >= 0 and j >= 0 else 0.0, 1.0
        for t in range(m):
            largest = max(largest, abs(gradient[t]))
        if gap < best:
            best = gap
            for t in range(m):
                kept[t] = alpha[t]
        if gap <= RESOLUTION * largest:
            break
        # The worst pair takes part: free already, or freed by a step from its bound.
        if not (lower[i] < alpha[i] < upper[i] and lower[j] < alpha[j] < upper[j]):
            eta = max(gram[i, i] + gram[j, j] - 2.0 * gram[i, j], TINY_CURVATURE)
            mu = min(gap / eta, upper[i] - alpha[i], alpha[j] - lower[j])
            at_i, at_j = mu == upper[i] - alpha[i], mu == alpha[j] - lower[j]
            alpha[i] = upper[i] if at_i else alpha[i] + mu
            alpha[j] = lower[j] if at_j else alpha[j] - mu
            _renew_among(gram, linear, alpha, gradient)
        n = 0
        for t in range(m):
            if lower[t] < alpha[t] < upper[t]:
                free[n] = t
                n += 1
        if n > 1:
            if not _newton(gram, alpha, gradient, lower, upper, free[:n]):
                break
            _renew_among(gram, linear, alpha, gradient)
    for t in range(m):
        alpha[t] = kept[t]


@njit(cache=True, nogil=True)
def _polish_near(
    grams: Grams, span: Span, linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, tol: float
) -> None:
    """Polish the variables that are free or near the threshold, where that closes the gap."""
    m = alpha.shape[0]
    gap, threshold = _stands(alpha, gradient, lower, upper)
    margin = 2.0 * max(tol, gap)
    near, n = np.empty(m, np.int64), 0
    for t in range(m):
        if lower[t] < alpha[t] < upper[t] or abs(gradient[t] - threshold) <= margin:
            near[n] = t
            n += 1
    if not 2 <= n <= MOST_POLISHED:
        return
    gram, row, own = np.empty((n, n)), np.empty(m), np.empty((5, n))
    for a in range(n):
        t = near[a]
        _kernel_row(grams, span, t, row)
        for b in range(n):
            gram[a, b] = row[near[b]]
        own[0, a], own[1, a], own[2, a] = alpha[t], lower[t], upper[t]
        own[3, a] = own[4, a] = gradient[t]
    for a in range(n):
        for b in range(n):
            own[4, b] += own[0, a] * gram[a, b]
    _polish(gram, own[4], own[0], own[3], own[1], own[2])
    better, renewed = alpha.copy(), np.empty(m)
    for a in range(n):
        better[near[a]] = own[0, a]
    _renew(grams, span, linear, better, renewed)
    if _stands(better, renewed, lower, upper)[0] <= gap:
        for t in range(m):
            alpha[t], gradient[t] = better[t], renewed[t]


@njit(cache=True, nogil=True)
def _tell(linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, found: F8) -> None:
    """Set what `finish` tells of a point."""
    found[GAP], threshold = _stands(alpha, gradient, lower, upper)
    linear_term = quadratic = slack = 0.0
    for t in range(alpha.shape[0]):
        linear_term += linear[t] * alpha[t]
        quadratic += alpha[t] * (linear[t] - gradient[t])
        excess = gradient[t] - threshold
        slack += max(excess, 0.0) * upper[t] + min(excess, 0.0) * lower[t]
    found[OBJECTIVE] = linear_term - 0.5 * quadratic
    found[DUALITY_GAP] = 0.5 * quadratic + slack - found[OBJECTIVE]
    found[THRESHOLD] = threshold


@njit(cache=True, nogil=True)
def finish(
    grams: Grams, spans: I8, box: F8, tol: float, alpha: F8, found: F8, reached: NDArray[np.bool_]
) -> None:
    """Polish the points of the pairs that have been solved, and tell of them.

    Parameters
    ----------
    grams, spans, box
        As `bigsvm.core.smo.run_each` has them.
    tol : float
        Largest gap of a solved problem.
    alpha : (p, ≥ m) float64
        Changed in place.
    found : (p, 4) float64
        Becomes objective, gap, duality gap and threshold.
    reached : (p,) bool
        Whether a pair has been solved; false afterwards where float64 does not agree.
    """
    for p in range(spans.shape[0]):
        if not reached[p]:
            continue
        span = (spans[p, 0], spans[p, 1], spans[p, 2], spans[p, 3])
        m = span[1] - span[0] + span[3] - span[2]
        linear, lower, upper = box[p, LINEAR, :m], box[p, LOWER, :m], box[p, UPPER, :m]
        own, gradient = alpha[p, :m], np.empty(m)
        _renew(grams, span, linear, own, gradient)
        _polish_near(grams, span, linear, own, gradient, lower, upper, tol)
        _tell(linear, own, gradient, lower, upper, found[p])
        reached[p] = np.isfinite(found[p, OBJECTIVE]) and found[p, GAP] <= tol
