"""Frank-Wolfe as it is written: each iteration draws a sample, and takes one step for it.

    minimise R(a) = aᵀK̃a    Σ a = 1, a ≥ 0

Each iteration looks at the next sample of rows and finds the farthest of them from the centre,
i* = argmin (K̃a)_i. If it is outside the ball, one step with exact line search follows: towards i*,
or for modified Frank-Wolfe away from the nearest point with weight, j* = argmax (K̃a)_j, if that
promises more (Frandi et al. 2013, algorithms 2 and 3). No part of an iteration depends on the
number of rows of the training set: it costs sample × points for the farthest row, and points for
the step.

Samples come in blocks with the kernel values of all points with their rows. If the farthest row is
no point yet, it becomes one; its kernel values with the rest of the block are needed then. Kernel
rows among the points are in slots; the row that was used least recently makes room for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bigsvm.compilation import compiled, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]
    F8: TypeAlias = NDArray[np.float64]
    I4: TypeAlias = NDArray[np.int32]
    I8: TypeAlias = NDArray[np.int64]

SPENT, STEPS_SPENT, EMPTY, FULL, NEED_VALUES, NEED_ROW, JOINED = 0, 1, 2, 3, 4, 5, 6
"""Why `run` returns: no sample is left; no step is left; enough samples in a row had no point
outside; there is no room for another point; kernel values of a row with the block are needed; the
kernel row of a point is needed; a point has joined (without steps: the caller solves the core
set exactly)."""
POINTS, STEPS, SAMPLE, EMPTY_SAMPLES, FARTHEST, CLOCK, FILLED, N_COUNTERS = range(8)
"""Places in the counters: points; steps so far; the sample of the block that is next; samples
without a point outside since the last step; the row of the block that was found farthest, before
its kernel values were there, or -1; the last stamp of a kernel row; slots that have been filled."""


class Points(NamedTuple):
    """The points, in the first places of arrays of `width`; changed in place.

    `row` is a row of the training set, `weights` are a, and the gradient is ``g = −K̃a``. `signs`
    are y; `diagonal` is K̃_ii with its ridge. `slots` are those of the points' kernel rows, or −1.
    """

    row: I8
    weights: F8
    gradient: F8
    signs: F8
    ridge: F8
    diagonal: F8
    slots: I4


class KernelRows(NamedTuple):
    """Kernel rows of K̃ among the points, without its ridge: values (n_slots, width).

    `owner` is the point that the row in each slot is of, or −1. `used` is the stamp of its last
    use, 0 if there is none. `length` is how many values of the row are there; those with points
    that have joined since are taken from these points' rows when the row is used.
    """

    values: Floats
    owner: I4
    used: I8
    length: I8


class Samples(NamedTuple):
    """A block of samples, one after the other, of `size` rows each; m rows in all.

    Attributes
    ----------
    movable : (m,) bool
        Whether a row may be a point.
    point : (m,) int32
        The point that the row is, or −1.
    values : (≥ points, m) float
        Kernel values, without signs, of each point with the rows of the block.
    fresh : (k, m) float
        Kernel values of some rows of the block, no points yet, with all rows of it.
    fresh_of : (m,) int32
        Where in `fresh` those of a row of the block are, or −1.
    """

    row: I8
    signs: F8
    ridge: F8
    movable: Bools
    point: I4
    values: Floats
    fresh: Floats
    fresh_of: I4


# A tuple of many arrays takes long to compile as an argument: what needs some of them takes those.
NOT_OWN = np.bool_(False)
"""No literal, for which Numba would compile again what it is given to."""


@inner
def _energy(weights: F8, gradient: F8, n_points: int) -> float:
    total = 0.0
    for t in range(n_points):
        total -= weights[t] * gradient[t]
    return total


@inner
def _add_up(weights: F8, signs: F8, values: Floats, n_points: int, first: int, out: F8) -> None:
    """Set ``out_k = Σ_t weights_t signs_t values_tr`` with r = first + k."""
    # Unsigned indices: a pass over those that might count from the end is not vectorised.
    start, size = np.uint64(first), np.uint64(out.shape[0])
    for k in range(size):
        out[k] = 0.0
    # Four rows a pass: otherwise most of the time goes into reading and writing the sums.
    fours = n_points // 4 * 4
    for t in range(0, fours, 4):
        w0, w1 = weights[t] * signs[t], weights[t + 1] * signs[t + 1]
        w2, w3 = weights[t + 2] * signs[t + 2], weights[t + 3] * signs[t + 3]
        r0, r1, r2, r3 = values[t], values[t + 1], values[t + 2], values[t + 3]
        for k in range(size):
            r = start + k
            out[k] = (((out[k] + w0 * r0[r]) + w1 * r1[r]) + w2 * r2[r]) + w3 * r3[r]
    for t in range(fours, n_points):
        w0, r0 = weights[t] * signs[t], values[t]
        for k in range(size):
            out[k] += w0 * r0[start + k]


@inner
def _products_of(
    points: Points, samples: Samples, n_points: int, first: int, own: bool, out: F8
) -> None:
    """Compute ``(K̃a)_i`` of rows of the block from `first` on; infinity where it may be no point.

    Rows that are points have a value if `own`, and infinity otherwise.
    """
    _add_up(points.weights, points.signs, samples.values, n_points, first, out)
    for k in range(out.shape[0]):
        r = first + k
        if not samples.movable[r]:
            out[k] = np.inf
        elif samples.point[r] >= 0:
            out[k] = -points.gradient[samples.point[r]] if own else np.inf
        else:
            out[k] *= samples.signs[r]


@compiled
def give_slot(slots: I4, owner: I4, used: I8, counters: I8, t: int) -> int:
    """Give point t a slot: a free one, or that used least recently; the caller fills it.

    `slots` are those of the points; `owner` and `used` are those of the kernel rows.
    """
    slot = int(slots[t])
    if slot < 0 and counters[FILLED] < owner.shape[0]:
        slot = int(counters[FILLED])
        counters[FILLED] += 1
    elif slot < 0:
        slot += 1  # 0; a literal would have another type
        for s in range(used.shape[0]):
            slot = s if used[s] < used[slot] else slot
        if owner[slot] >= 0:
            slots[owner[slot]] = -1
    counters[CLOCK] += 1
    used[slot] = counters[CLOCK]
    owner[slot], slots[t] = t, slot
    return slot


@compiled
def complete(slots: I4, values: Floats, length: I8, n_points: int, v: int) -> bool:
    """Complete the kernel row of point v; False if it has to be computed."""
    slot = slots[v]
    if slot < 0:
        return False
    for t in range(length[slot], n_points):
        other = slots[t]
        if other < 0 or length[other] <= v:
            return False
        values[slot, t] = values[other, v]
    length[slot] = n_points
    return True


@compiled
def complete_all(slots: I4, values: Floats, length: I8, n_points: int, out: I4) -> None:
    """Complete all kernel rows, and list their slots; -1 of those that have to be computed."""
    for v in range(n_points):
        out[v] = slots[v] if complete(slots, values, length, n_points, v) else -1


@compiled
def next_farthest(points: Points, samples: Samples, counters: I8, products: F8, out: I8) -> int:
    """List rows whose kernel values with the block are likely to be needed next; returns how many.

    They are the row that is needed now and the farthest rows of the samples after it, as the centre
    is now, without those that are points or have their values already. `out`, (k,), is filled with
    one row of each of k samples at most; the other arguments are as for `run`.
    """
    found, size = 0, products.shape[0]
    first = counters[SAMPLE]
    if counters[FARTHEST] >= 0:
        out[0], found, first = counters[FARTHEST], 1, first + 1
    for sample in range(first, samples.row.shape[0] // size):
        if found == out.shape[0]:
            break
        begin = sample * size
        _products_of(points, samples, counters[POINTS], begin, NOT_OWN, products)
        r = begin
        for k in range(size):
            r = begin + k if products[k] < products[r - begin] else r
        if products[r - begin] == np.inf or samples.fresh_of[r] >= 0:
            continue
        again = False
        for k in range(found):
            again = again or samples.row[out[k]] == samples.row[r]
        if not again:
            out[found] = r
            found += 1
    return found


@inner
def _join(
    points: Points, kept: KernelRows, samples: Samples, counters: I8, r: int, product: float
) -> int:
    """Make row r of the block a point; returns its number."""
    p = int(counters[POINTS])
    c = samples.fresh_of[r]
    for q in range(samples.row.shape[0]):
        samples.values[p, q] = samples.fresh[c, q]
    sign = samples.signs[r]
    points.row[p], points.weights[p], points.gradient[p] = samples.row[r], 0.0, -product
    points.signs[p], points.ridge[p] = sign, samples.ridge[r]
    own = samples.fresh[c, r]
    points.diagonal[p] = own + samples.ridge[r]
    slot = give_slot(points.slots, kept.owner, kept.used, counters, p)
    for t in range(p):
        kept.values[slot, t] = samples.values[t, r]
        if sign * points.signs[t] < 0.0:
            kept.values[slot, t] = -kept.values[slot, t]
    kept.values[slot, p] = own
    kept.length[slot] = p + 1
    for q in range(samples.row.shape[0]):
        if samples.row[q] == samples.row[r]:
            samples.point[q] = p
    counters[POINTS] = p + 1
    return p


@inner(error_model="python")
def _step(
    points: Points, kept: KernelRows, n_points: int, v: int, energy: float, leaves: bool
) -> None:
    """Take one step towards point v, or away from it, with exact line search."""
    a, g = points.weights, points.gradient
    at = -g[v]
    curvature = energy - 2.0 * at + points.diagonal[v]
    dropped = False
    if leaves:
        room = a[v] / (1.0 - a[v])
        step = min((at - energy) / curvature, room) if curvature > 0.0 else room
        dropped = step == room
        grown, moved = 1.0 + step, -step
    else:
        step = min((energy - at) / curvature, 1.0) if curvature > 0.0 else 1.0
        grown, moved = 1.0 - step, step
    slot = points.slots[v]
    for t in range(n_points):
        g[t] = grown * g[t] - moved * kept.values[slot, t]
        a[t] *= grown
    g[v] -= moved * points.ridge[v]
    a[v] = 0.0 if dropped else a[v] + moved


@compiled
def run(
    points: Points,
    kept: KernelRows,
    samples: Samples,
    counters: I8,
    products: F8,
    scale: tuple[float, float],
    solver: tuple[bool, bool],
    enough: int,
    most_steps: int,
) -> tuple[int, int, float]:
    """Iterate until something is missing; see the codes above.

    Points, kernel rows, samples and counters, (N_COUNTERS,), are changed in place.
    If several rows are equally far, the one with the lowest number in the training set is taken.

    Returns a code; the row of the block or the point that something is needed of, or −1; and ``R −
    (K̃a)_i`` of the farthest row of the last sample.

    Parameters
    ----------
    products : (size,) float64
        Scratch, as long as a sample.
    scale : tuple of float
        ε + ε²/2, and D: a row is outside if ``R − (K̃a)_i`` is more than the product of the first
        with D − R.
    solver : tuple of bool
        Whether steps may lead away from points, and whether there are steps at all.
    enough : int
        Samples without a point outside, one after the other, that end the search.
    most_steps : int
        Return when counters[STEPS] is so large.
    """
    share, largest = scale
    away, steps_follow = solver
    size = products.shape[0]
    n_samples = samples.row.shape[0] // size
    gap = 0.0
    while counters[SAMPLE] < n_samples:
        if counters[STEPS] >= most_steps:
            return STEPS_SPENT, -1, gap
        p = counters[POINTS]
        energy = _energy(points.weights, points.gradient, p)
        first = counters[SAMPLE] * size
        r = counters[FARTHEST]
        if r >= 0:
            _products_of(points, samples, p, r, steps_follow, products[:1])
            product = products[0]
        else:
            _products_of(points, samples, p, first, steps_follow, products)
            r, product = first, products[0]
            for k in range(1, size):
                nearer_number = samples.row[first + k] < samples.row[r]
                if products[k] < product or (products[k] == product and nearer_number):
                    r, product = first + k, products[k]
        gap = energy - product
        if not gap > share * max(largest - energy, 0.0):
            counters[SAMPLE] += 1
            counters[EMPTY_SAMPLES] += 1
            if counters[EMPTY_SAMPLES] >= enough:
                return EMPTY, -1, gap
            continue
        leaves, v = False, samples.point[r]
        if away:
            j = -1
            for t in range(p):
                if points.weights[t] > 0.0:
                    nearer = j < 0 or points.gradient[t] < points.gradient[j]
                    equal = j >= 0 and points.gradient[t] == points.gradient[j]
                    if nearer or (equal and points.row[t] < points.row[j]):
                        j = t
            if -points.gradient[j] - energy > gap and points.weights[j] < 1.0:
                leaves, v = True, j
        if v < 0:
            if p == points.row.shape[0]:
                counters[FARTHEST] = r
                return FULL, -1, gap
            if samples.fresh_of[r] < 0:
                counters[FARTHEST] = r
                return NEED_VALUES, r, gap
            v = _join(points, kept, samples, counters, r, product)
            p = counters[POINTS]
        if steps_follow:
            if not complete(points.slots, kept.values, kept.length, p, v):
                counters[FARTHEST] = r
                return NEED_ROW, v, gap
            counters[CLOCK] += 1
            kept.used[points.slots[v]] = counters[CLOCK]
            _step(points, kept, p, v, energy, leaves)
            counters[STEPS] += 1
        counters[FARTHEST] = -1
        counters[SAMPLE] += 1
        counters[EMPTY_SAMPLES] = 0
        if not steps_follow:
            return JOINED, v, gap
    return SPENT, -1, gap
