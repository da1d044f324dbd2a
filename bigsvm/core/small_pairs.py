"""Many small problems of two classes: what is done before and after their pair steps, compiled.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α = 0

`begin` sets the boxes of C-SVC, and `begin_nu` those of ν-SVC, where α of each class has a sum of
its own: the classes are two groups of variables, each with a threshold. `bigsvm.core.smo.run_each`
takes the steps, on float32 kernel values, and `renew` computes the gradient anew in float64.
`polish` solves for the variables near the thresholds together, round by round, until their
gradients agree to what float64 tells apart, as `bigsvm.duals.polish` does: there a problem costs
milliseconds to set up and microseconds to solve. `certify` computes the gaps. A result depends on
its own problem alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled, inner

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
"""Share of the largest diagonal entry: about the rounding error of solving a system in float64."""
ROUNDS_PER_ROW = 8
MOST_POLISHED = 512
"""Variables near the threshold that are solved for together; more are left at the tolerance."""

LINEAR, LOWER, UPPER = 0, 1, 2

OBJECTIVE, GAP, DUALITY_GAP, THRESHOLD = 0, 1, 2, 3
"""Places in the results of a pair; the threshold of a second group follows."""
FOUND = 5


@compiled
def begin(bounds: tuple[F8, F8], spans: I8, box: F8) -> None:
    """Set the boxes of C-SVC for each pair, −1 for its first class and +1 for the second.

    The bounds (q,) and (r,) are C of each row of the first group and of the second, above 0. The
    spans (p, 4) are where the rows of the first class of each pair begin and end in the first
    group, and those of the second in the second one. The box (p, 3, ≥ m) is 0 as it comes. It
    becomes linear term, lower and upper bound of the rows of the first class and then of the
    second.
    """
    for p in range(spans.shape[0]):
        first = spans[p, 1] - spans[p, 0]
        for t in range(first):
            box[p, LINEAR, t] = -1.0
            box[p, LOWER, t] = -bounds[0][spans[p, 0] + t]
        for t in range(spans[p, 3] - spans[p, 2]):
            box[p, LINEAR, first + t] = 1.0
            box[p, UPPER, first + t] = bounds[1][spans[p, 2] + t]


@inner
def _fill(alpha: F8, end: F8, total: float) -> None:
    """Take the first variables from 0 to their end, until these add up to a total."""
    left = total
    for t in range(alpha.shape[0]):
        room = abs(end[t])
        if room >= left:
            alpha[t] = left if end[t] > 0 else -left
            return
        alpha[t] = end[t]
        left -= room


@compiled
def begin_nu(bounds: tuple[F8, F8], spans: I8, nu: float, box: F8, alpha: F8) -> None:
    """Set the boxes of ν-SVC for each pair, and a point that adds up to what it must.

    Bounds, spans and box are as for `begin`, but bounds are the weights of the rows. ν is in (0,
    1]. alpha, (p, ≥ m), is 0 as it comes. Afterwards it adds up to ∓½ ν Σ bounds in the rows of the
    first and second class; a class that has less has all that it has.
    """
    for p in range(spans.shape[0]):
        first = spans[p, 1] - spans[p, 0]
        m = first + spans[p, 3] - spans[p, 2]
        negative = positive = 0.0
        for t in range(first):
            box[p, LOWER, t] = -bounds[0][spans[p, 0] + t]
            negative -= box[p, LOWER, t]
        for t in range(first, m):
            box[p, UPPER, t] = bounds[1][spans[p, 2] + t - first]
            positive += box[p, UPPER, t]
        each = min(0.5 * nu * (negative + positive), negative, positive)
        _fill(alpha[p, :first], box[p, LOWER, :first], each)
        _fill(alpha[p, first:m], box[p, UPPER, first:m], each)


@inner
def _kernel_values(grams: Grams, span: Span, rows: I8) -> F8:
    """Copy the kernel values among some rows of a pair, in ascending order."""
    first, cross, second = grams
    a, b, c, _ = span
    n, m = rows.shape[0], b - a
    values = np.empty((n, n))
    for i in range(n):
        s = rows[i]
        for j in range(i + 1):
            t = rows[j]
            if s < m:
                value = first[a + s, a + t]
            elif t < m:
                value = cross[a + t, c + s - m]
            else:
                value = second[c + s - m, c + t - m]
            values[i, j] = values[j, i] = value
    return values


@inner
def _extremes(alpha: F8, gradient: F8, lower: F8, upper: F8) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g), the first of equals; −1 where the set is empty."""
    i = j = -1
    for t in range(alpha.shape[0]):
        if alpha[t] < upper[t] and (i < 0 or gradient[t] > gradient[i]):
            i = t
        if alpha[t] > lower[t] and (j < 0 or gradient[t] < gradient[j]):
            j = t
    return i, j


@inner
def _stands_in(alpha: F8, gradient: F8, lower: F8, upper: F8) -> tuple[float, float]:
    """Compute the gap and the threshold of a group."""
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


@inner
def _stands(
    alpha: F8, gradient: F8, lower: F8, upper: F8, split: int
) -> tuple[float, float, float]:
    """Compute the gap of a point and the thresholds of both groups; the second begins at `split`.

    If there is one group, which ends at `split`, both thresholds are the same.
    """
    gap, threshold = _stands_in(alpha[:split], gradient[:split], lower[:split], upper[:split])
    if split == alpha.shape[0]:
        return gap, threshold, threshold
    other, second = _stands_in(alpha[split:], gradient[split:], lower[split:], upper[split:])
    return max(gap, other), threshold, second


@inner
def _worst(alpha: F8, gradient: F8, lower: F8, upper: F8, split: int) -> tuple[int, int]:
    """Find the extremes of the group where they are farther apart."""
    i, j = _extremes(alpha[:split], gradient[:split], lower[:split], upper[:split])
    if split < alpha.shape[0]:
        a, b = _extremes(alpha[split:], gradient[split:], lower[split:], upper[split:])
        if a >= 0 and b >= 0:
            gap = gradient[split + a] - gradient[split + b]
            if i < 0 or j < 0 or gap > gradient[i] - gradient[j]:
                return split + a, split + b
    return i, j


@inner
def _renew(grams: Grams, span: Span, linear: F8, alpha: F8, gradient: F8) -> None:
    """Compute the gradient from alpha."""
    first, cross, second = grams
    a, b, c, d = span
    m = b - a
    for t in range(alpha.shape[0]):
        gradient[t] = linear[t]
    _subtract_rows(first[a:b, a:b], alpha[:m], gradient[:m])
    _subtract_columns(cross[a:b, c:d], alpha[m:], gradient[:m])
    _subtract_rows(cross[a:b, c:d], alpha[:m], gradient[m:])
    _subtract_rows(second[c:d, c:d], alpha[m:], gradient[m:])


@inner
def _subtract_rows(gram: F8, alpha: F8, gradient: F8) -> None:
    """Subtract ``gramᵀ alpha``: four rows at once, so that the gradient is read once for them."""
    rows = np.flatnonzero(alpha)
    n = rows.shape[0] - rows.shape[0] % 4
    for k in range(0, n, 4):
        r0, r1, r2, r3 = gram[rows[k]], gram[rows[k + 1]], gram[rows[k + 2]], gram[rows[k + 3]]
        a0, a1, a2, a3 = alpha[rows[k]], alpha[rows[k + 1]], alpha[rows[k + 2]], alpha[rows[k + 3]]
        for t in range(gradient.shape[0]):
            gradient[t] -= (a0 * r0[t] + a1 * r1[t]) + (a2 * r2[t] + a3 * r3[t])
    for k in range(n, rows.shape[0]):
        row, factor = gram[rows[k]], alpha[rows[k]]
        for t in range(gradient.shape[0]):
            gradient[t] -= factor * row[t]


@inner
def _subtract_columns(gram: F8, alpha: F8, gradient: F8) -> None:
    """Subtract ``gram alpha`` row by row, as columns are far apart in memory."""
    columns = np.flatnonzero(alpha)
    n = columns.shape[0] - columns.shape[0] % 4
    for t in range(gradient.shape[0]):
        row, s0, s1, s2, s3 = gram[t], 0.0, 0.0, 0.0, 0.0
        for k in range(0, n, 4):
            s0 += alpha[columns[k]] * row[columns[k]]
            s1 += alpha[columns[k + 1]] * row[columns[k + 1]]
            s2 += alpha[columns[k + 2]] * row[columns[k + 2]]
            s3 += alpha[columns[k + 3]] * row[columns[k + 3]]
        for k in range(n, columns.shape[0]):
            s0 += alpha[columns[k]] * row[columns[k]]
        gradient[t] -= (s0 + s1) + (s2 + s3)


@inner
def _renew_among(gram: F8, linear: F8, alpha: F8, gradient: F8) -> None:
    """Compute the gradient from alpha, with all kernel values at hand."""
    for t in range(alpha.shape[0]):
        gradient[t] = linear[t]
    for s in range(alpha.shape[0]):
        if alpha[s] != 0.0:
            for t in range(alpha.shape[0]):
                gradient[t] -= alpha[s] * gram[s, t]


@inner
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


@inner
def _newton(gram: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, free: I8, split: int) -> bool:
    """Go to where the gradients of a group's free variables agree, or to where the box ends.

    False where neither moves anything.
    """
    n, scale, n_first = free.shape[0], 0.0, 0
    for a in range(n):
        scale = max(scale, gram[free[a], free[a]])
        n_first += free[a] < split
    n_sums = 2 if 0 < n_first < n else 1
    system, d = np.zeros((n + n_sums, n + n_sums)), np.zeros(n + n_sums)
    for a in range(n):
        for b in range(n):
            system[a, b] = gram[free[a], free[b]]
        system[a, a] += DAMPING * scale
        total = n if a < n_first else n + n_sums - 1
        system[a, total] = system[total, a] = scale
        d[a] = gradient[free[a]]
    if not _solve(system, d):
        return False
    means = np.zeros(2)
    for a in range(n):
        means[int(a >= n_first)] += d[a] / (n_first if a < n_first else n - n_first)
    end, hit = 1.0, -1
    for a in range(n):
        d[a] -= means[int(a >= n_first)]
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


@inner
def _polish(
    gram: F8, linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, split: int
) -> None:
    """Solve for the free variables; free those that violate then, as long as that gains."""
    m = alpha.shape[0]
    best, kept, free = np.inf, alpha.copy(), np.empty(m, np.int64)
    for _ in range(ROUNDS_PER_ROW * m):
        i, j = _worst(alpha, gradient, lower, upper, split)
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
        stepped = not (lower[i] < alpha[i] < upper[i] and lower[j] < alpha[j] < upper[j])
        if stepped:
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
        if n > 1 and _newton(gram, alpha, gradient, lower, upper, free[:n], split):
            _renew_among(gram, linear, alpha, gradient)
        elif not stepped:
            break
    for t in range(m):
        alpha[t] = kept[t]


@inner
def _tell(linear: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, split: int, found: F8) -> None:
    """Set what `certify` tells of a point."""
    found[GAP], first, second = _stands(alpha, gradient, lower, upper, split)
    linear_term = quadratic = slack = fixed = 0.0
    for t in range(alpha.shape[0]):
        threshold = first if t < split else second
        linear_term += linear[t] * alpha[t]
        quadratic += alpha[t] * (linear[t] - gradient[t])
        excess = gradient[t] - threshold
        slack += max(excess, 0.0) * upper[t] + min(excess, 0.0) * lower[t]
        fixed += threshold * alpha[t]
    if split < alpha.shape[0]:  # of one group it is 0
        slack += fixed
    found[OBJECTIVE] = linear_term - 0.5 * quadratic
    found[DUALITY_GAP] = 0.5 * quadratic + slack - found[OBJECTIVE]
    found[THRESHOLD], found[THRESHOLD + 1] = first, second


@compiled
def renew(
    grams: Grams, spans: I8, box: F8, alpha: F8, gradient: F8, reached: NDArray[np.bool_]
) -> None:
    """Compute the gradients of the pairs that have been solved (`reached`), in float64.

    `gradient`, (p, ≥ m), is overwritten. The other arguments are as `bigsvm.core.smo.run_each` has
    them.
    """
    for p in range(spans.shape[0]):
        if reached[p]:
            span, m, _ = _parts_of(spans, p, 1)
            _renew(grams, span, box[p, LINEAR, :m], alpha[p, :m], gradient[p, :m])


@compiled
def polish(
    grams: Grams,
    spans: I8,
    box: F8,
    n_groups: int,
    tol: float,
    alpha: F8,
    gradient: F8,
    reached: NDArray[np.bool_],
) -> None:
    """Solve for the free variables and those near the thresholds, where that closes the gap.

    The arguments are as `bigsvm.core.smo.run_each` has them. alpha and gradient, (p, ≥ m), are
    changed in place. Pairs that have not been solved (`reached`) are left as they are.
    """
    for p in range(spans.shape[0]):
        if not reached[p]:
            continue
        span, m, split = _parts_of(spans, p, n_groups)
        linear, lower, upper = box[p, LINEAR, :m], box[p, LOWER, :m], box[p, UPPER, :m]
        of_pair, gradient_of_pair = alpha[p, :m], gradient[p, :m]
        gap, first, second = _stands(of_pair, gradient_of_pair, lower, upper, split)
        margin = 2.0 * max(tol, gap)
        # No literal 0, for which Numba would compile again what it is given to.
        near, n, n_first = np.empty(m, np.int64), 0, np.int64(0)
        for t in range(m):
            threshold = first if t < split else second
            if lower[t] < of_pair[t] < upper[t] or abs(gradient_of_pair[t] - threshold) <= margin:
                near[n] = t
                n += 1
                n_first += t < split
        if not 2 <= n <= MOST_POLISHED:
            continue
        gram, own = _kernel_values(grams, span, near[:n]), np.empty((5, n))
        for a in range(n):
            t = near[a]
            own[0, a], own[1, a], own[2, a] = of_pair[t], lower[t], upper[t]
            own[3, a] = own[4, a] = gradient_of_pair[t]
        for a in range(n):
            for b in range(n):
                own[4, b] += own[0, a] * gram[a, b]
        _polish(gram, own[4], own[0], own[3], own[1], own[2], n_first)
        better, renewed = of_pair.copy(), np.empty(m)
        for a in range(n):
            better[near[a]] = own[0, a]
        _renew(grams, span, linear, better, renewed)
        if _stands(better, renewed, lower, upper, split)[0] <= gap:
            for t in range(m):
                of_pair[t], gradient_of_pair[t] = better[t], renewed[t]


@compiled
def certify(
    spans: I8,
    box: F8,
    n_groups: int,
    tol: float,
    alpha: F8,
    gradient: F8,
    found: F8,
    reached: NDArray[np.bool_],
) -> None:
    """Compute the gaps of the pairs that have been solved (`reached`).

    `reached` becomes false where the gap in float64 is more than `tol`. `found`, (p, 5), becomes
    objective, gap, duality gap and the two thresholds, which are the same with one group. The other
    arguments are those of `polish`.
    """
    for p in range(spans.shape[0]):
        if reached[p]:
            _, m, split = _parts_of(spans, p, n_groups)
            linear, lower, upper = box[p, LINEAR, :m], box[p, LOWER, :m], box[p, UPPER, :m]
            _tell(linear, alpha[p, :m], gradient[p, :m], lower, upper, split, found[p])
            reached[p] = np.isfinite(found[p, OBJECTIVE]) and found[p, GAP] <= tol


@inner
def _parts_of(spans: I8, p: int, n_groups: int) -> tuple[Span, int, int]:
    """Return the span of a pair, its number of rows, and where its second group begins."""
    span = (spans[p, 0], spans[p, 1], spans[p, 2], spans[p, 3])
    m = span[1] - span[0] + span[3] - span[2]
    return span, m, span[1] - span[0] if n_groups > 1 else m
