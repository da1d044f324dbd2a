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
def _fill(alpha: F8, end: F8, start: int, stop: int, total: float) -> None:
    """Take variables from `start` on from 0 to their end, until these add up to a total."""
    left = total
    for t in range(start, stop):
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
        _fill(alpha[p], box[p, LOWER], first - first, first, each)  # no literal 0
        _fill(alpha[p], box[p, UPPER], first, m, each)


@inner
def _kernel_values(grams: Grams, span: Span, rows: I8, values: F8) -> None:
    """Copy the kernel values among some rows of a pair, in ascending order, to values (n, n)."""
    first, cross, second = grams
    a, b, c, _ = span
    m = b - a
    for i in range(values.shape[0]):
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


# A view of a part of an array takes longer to compile than two numbers that say which part it is.


@inner
def _extremes(
    alpha: F8, gradient: F8, lower: F8, upper: F8, start: int, stop: int
) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g) of some variables, the first of equals; −1 if none."""
    i = j = -1
    for t in range(start, stop):
        if alpha[t] < upper[t] and (i < 0 or gradient[t] > gradient[i]):
            i = t
        if alpha[t] > lower[t] and (j < 0 or gradient[t] < gradient[j]):
            j = t
    return i, j


@inner
def _stands_in(
    alpha: F8, gradient: F8, lower: F8, upper: F8, start: int, stop: int
) -> tuple[float, float]:
    """Compute the gap and the threshold of a group."""
    i, j = _extremes(alpha, gradient, lower, upper, start, stop)
    total, count = 0.0, 0
    for t in range(start, stop):
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
    alpha: F8, gradient: F8, lower: F8, upper: F8, split: int, m: int
) -> tuple[float, float, float]:
    """Compute the gap of a point and the thresholds of both groups; the second begins at `split`.

    If there is one group, which ends at `split`, both thresholds are the same.
    """
    start = split - split  # a literal 0 would have another type
    gap, threshold = _stands_in(alpha, gradient, lower, upper, start, split)
    if split == m:
        return gap, threshold, threshold
    other, second = _stands_in(alpha, gradient, lower, upper, split, m)
    return max(gap, other), threshold, second


@inner
def _worst(alpha: F8, gradient: F8, lower: F8, upper: F8, split: int, m: int) -> tuple[int, int]:
    """Find the extremes of the group where they are farther apart."""
    start = split - split
    i, j = _extremes(alpha, gradient, lower, upper, start, split)
    if split < m:
        a, b = _extremes(alpha, gradient, lower, upper, split, m)
        if a >= 0 and b >= 0:
            gap = gradient[a] - gradient[b]
            if i < 0 or j < 0 or gap > gradient[i] - gradient[j]:
                return a, b
    return i, j


@inner
def _renew(grams: Grams, span: Span, linear: F8, alpha: F8, gradient: F8, nonzero: I8) -> None:
    """Compute the gradient from alpha; `nonzero` (m,) is scratch."""
    first, cross, second = grams
    a, b, c, d = span
    n, p = b - a, d - c
    for t in range(n + p):
        gradient[t] = linear[t]
    start = n - n
    q = _list_nonzero(alpha, start, n, nonzero)
    _subtract_rows(first, a, a, alpha, start, nonzero, q, gradient, start, n)
    _subtract_rows(cross, a, c, alpha, start, nonzero, q, gradient, n, p)
    q = _list_nonzero(alpha, n, p, nonzero)
    _subtract_columns(cross, a, c, alpha, n, nonzero, q, gradient, start, n)
    _subtract_rows(second, c, c, alpha, n, nonzero, q, gradient, n, p)


@inner
def _list_nonzero(alpha: F8, first: int, n: int, places: I8) -> int:
    """List the variables of a class that are not 0, beginning with 0; returns how many."""
    count = 0
    for t in range(n):
        if alpha[first + t] != 0.0:
            places[count] = t
            count += 1
    return count


@inner
def _subtract_rows(
    gram: F8,
    top: int,
    left: int,
    alpha: F8,
    first: int,
    places: I8,
    count: int,
    gradient: F8,
    at: int,
    size: int,
) -> None:
    """Subtract ``gramᵀ alpha`` from `size` gradients: four rows at once, which are read once then.

    Rows and columns of a class begin at `top` and `left`, its variables at `first`; `count` of its
    variables, at `places`, are not 0. The gradients begin at `at`.
    """
    # Unsigned indices: a pass over those that might count from the end is not vectorised.
    to, of, n = np.uint64(at), np.uint64(left), count - count % 4
    for k in range(0, n, 4):
        p0, p1, p2, p3 = places[k], places[k + 1], places[k + 2], places[k + 3]
        r0, r1, r2, r3 = gram[top + p0], gram[top + p1], gram[top + p2], gram[top + p3]
        a0, a1, a2, a3 = alpha[first + p0], alpha[first + p1], alpha[first + p2], alpha[first + p3]
        for t in range(np.uint64(size)):
            s = of + t
            gradient[to + t] -= (a0 * r0[s] + a1 * r1[s]) + (a2 * r2[s] + a3 * r3[s])
    for k in range(n, count):
        row, factor = gram[top + places[k]], alpha[first + places[k]]
        for t in range(np.uint64(size)):
            gradient[to + t] -= factor * row[of + t]


@inner
def _subtract_columns(
    gram: F8,
    top: int,
    left: int,
    alpha: F8,
    first: int,
    places: I8,
    count: int,
    gradient: F8,
    at: int,
    size: int,
) -> None:
    """Subtract ``gram alpha`` row by row, as columns are far apart in memory; see above."""
    n = count - count % 4
    for t in range(size):
        row, s0, s1, s2, s3 = gram[top + t], 0.0, 0.0, 0.0, 0.0
        for k in range(0, n, 4):
            p0, p1, p2, p3 = places[k], places[k + 1], places[k + 2], places[k + 3]
            s0 += alpha[first + p0] * row[left + p0]
            s1 += alpha[first + p1] * row[left + p1]
            s2 += alpha[first + p2] * row[left + p2]
            s3 += alpha[first + p3] * row[left + p3]
        for k in range(n, count):
            s0 += alpha[first + places[k]] * row[left + places[k]]
        gradient[at + t] -= (s0 + s1) + (s2 + s3)


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


@inner(allocates=True)
def _newton(
    gram: F8, alpha: F8, gradient: F8, lower: F8, upper: F8, free: I8, n: int, split: int
) -> bool:
    """Go to where the gradients of a group's free variables agree, or to where the box ends.

    The first n of `free` are these. False where neither moves anything.
    """
    scale, n_first = 0.0, 0
    for a in range(n):
        scale = max(scale, gram[free[a], free[a]])
        n_first += free[a] < split
    size = n + 2 if 0 < n_first < n else n + 1
    system = np.empty((size + 1, size))
    d = system[size]
    for a in range(size + 1):
        for b in range(size):
            system[a, b] = 0.0
    for a in range(n):
        for b in range(n):
            system[a, b] = gram[free[a], free[b]]
        system[a, a] += DAMPING * scale
        total = n if a < n_first else size - 1
        system[a, total] = system[total, a] = scale
        d[a] = gradient[free[a]]
    if not _solve(system, d):
        return False
    mean, other = 0.0, 0.0
    for a in range(n):
        if a < n_first:
            mean += d[a] / n_first
        else:
            other += d[a] / (n - n_first)
    end, hit = 1.0, -1
    for a in range(n):
        d[a] -= mean if a < n_first else other
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
    gram: F8,
    linear: F8,
    alpha: F8,
    gradient: F8,
    lower: F8,
    upper: F8,
    split: int,
    kept: F8,
    free: I8,
) -> None:
    """Solve for the free variables; free those that violate then, as long as that gains.

    `kept` and `free`, (m,), are scratch.
    """
    m = alpha.shape[0]
    best = np.inf
    for t in range(m):
        kept[t] = alpha[t]
    for _ in range(ROUNDS_PER_ROW * m):
        i, j = _worst(alpha, gradient, lower, upper, split, m)
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
        n = np.int64(0)  # no literal, as in `polish`
        for t in range(m):
            if lower[t] < alpha[t] < upper[t]:
                free[n] = t
                n += 1
        if n > 1 and _newton(gram, alpha, gradient, lower, upper, free, n, split):
            _renew_among(gram, linear, alpha, gradient)
        elif not stepped:
            break
    for t in range(m):
        alpha[t] = kept[t]


@inner
def _tell(
    linear: F8,
    alpha: F8,
    gradient: F8,
    lower: F8,
    upper: F8,
    split: int,
    m: int,
    found: F8,
) -> None:
    """Set what `certify` tells of a point."""
    found[GAP], first, second = _stands(alpha, gradient, lower, upper, split, m)
    linear_term = quadratic = slack = fixed = 0.0
    for t in range(m):
        threshold = first if t < split else second
        linear_term += linear[t] * alpha[t]
        quadratic += alpha[t] * (linear[t] - gradient[t])
        excess = gradient[t] - threshold
        slack += max(excess, 0.0) * upper[t] + min(excess, 0.0) * lower[t]
        fixed += threshold * alpha[t]
    if split < m:  # of one group it is 0
        slack += fixed
    found[OBJECTIVE] = linear_term - 0.5 * quadratic
    found[DUALITY_GAP] = 0.5 * quadratic + slack - found[OBJECTIVE]
    found[THRESHOLD], found[THRESHOLD + 1] = first, second


@compiled(allocates=True)
def renew(
    grams: Grams, spans: I8, box: F8, alpha: F8, gradient: F8, reached: NDArray[np.bool_]
) -> None:
    """Compute the gradients of the pairs that have been solved (`reached`), in float64.

    `gradient`, (p, ≥ m), is overwritten. The other arguments are as `bigsvm.core.smo.run_each` has
    them.
    """
    nonzero = np.empty(alpha.shape[1], np.int64)
    for p in range(spans.shape[0]):
        if reached[p]:
            _renew(grams, _span_of(spans, p), box[p, LINEAR], alpha[p], gradient[p], nonzero)


@compiled(allocates=True)
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
    near, free = np.empty(alpha.shape[1], np.int64), np.empty(alpha.shape[1], np.int64)
    for p in range(spans.shape[0]):
        if not reached[p]:
            continue
        span = _span_of(spans, p)
        m, split = _parts_of(span, n_groups)
        linear, lower, upper = box[p, LINEAR], box[p, LOWER], box[p, UPPER]
        of_pair, gradient_of_pair = alpha[p], gradient[p]
        gap, first, second = _stands(of_pair, gradient_of_pair, lower, upper, split, m)
        margin = 2.0 * max(tol, gap)
        # No literal 0, for which Numba would compile again what it is given to.
        n, n_first = 0, np.int64(0)
        for t in range(m):
            threshold = first if t < split else second
            if lower[t] < of_pair[t] < upper[t] or abs(gradient_of_pair[t] - threshold) <= margin:
                near[n] = t
                n += 1
                n_first += t < split
        if not 2 <= n <= MOST_POLISHED:
            continue
        gram, own, whole = np.empty((n, n)), np.empty((6, n)), np.empty((2, m))
        _kernel_values(grams, span, near, gram)
        for a in range(n):
            t = near[a]
            own[0, a], own[1, a], own[2, a] = of_pair[t], lower[t], upper[t]
            own[3, a] = own[4, a] = gradient_of_pair[t]
        for a in range(n):
            for b in range(n):
                own[4, b] += own[0, a] * gram[a, b]
        _polish(gram, own[4], own[0], own[3], own[1], own[2], n_first, own[5], free)
        better, renewed = whole[0], whole[1]
        for t in range(m):
            better[t] = of_pair[t]
        for a in range(n):
            better[near[a]] = own[0, a]
        _renew(grams, span, linear, better, renewed, free)
        if _stands(better, renewed, lower, upper, split, m)[0] <= gap:
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
            m, split = _parts_of(_span_of(spans, p), n_groups)
            linear, lower, upper = box[p, LINEAR], box[p, LOWER], box[p, UPPER]
            _tell(linear, alpha[p], gradient[p], lower, upper, split, m, found[p])
            reached[p] = np.isfinite(found[p, OBJECTIVE]) and found[p, GAP] <= tol


@inner
def _span_of(spans: I8, p: int) -> Span:
    """Where the rows of both classes of a pair begin and end."""
    return spans[p, 0], spans[p, 1], spans[p, 2], spans[p, 3]


@inner
def _parts_of(span: Span, n_groups: int) -> tuple[int, int]:
    """Return the number of rows of a pair, and where its second group begins."""
    m = span[1] - span[0] + span[3] - span[2]
    return m, span[1] - span[0] if n_groups > 1 else m
