"""Row steps: Crammer and Singer's multiclass dual, one row of k variables at a time.

    maximise  Σ_i α_i,y_i − ½ Σ_ij K_ij α_i·α_j     subject to  α_i ≤ C_i e_{y_i},  α_i·1 = 0

(Crammer & Singer 2001, section 3, with α = C τ and C = 1 / β.) The gradient is
``g_i = e_{y_i} − f_i`` with ``f = K α``: −F of the paper, divided by β. A row violates by

    ψ_i  =  max_{r: α_ir < C_i δ_{y_i r}} g_ir  −  min_r g_ir

A step solves for all variables of the row of largest ψ, the others staying as they are. With
A = K_pp and ``D_r = C_p δ_{y_p r} − α_pr − g_pr / A`` they become ``C_p δ_{y_p r} + min(θ, D_r) −
D_r``, θ being where ``Σ_r min(θ, D_r) = Σ_r D_r − C_p`` (section 5). θ is found

* 0 ``exact``: from D sorted, in O(k log k);
* 1 ``fixed point``: by the contraction ``θ ← (Σ_r max(θ, D_r) − C_p) / k``. The paper stops it by
  its relative change, which never gets small where θ is near 0, and says nothing of the distance
  left, which is up to k times the change.

The row of a step is chosen in one of these orders:

* 0 ``auto``: rows with a coefficient come first, and another one when none of these violates by
  more than a share of its ψ;
* 1 ``worst``: the row of largest ψ (sections 4 and 5);
* 2 ``active``: rows with a coefficient come first, and the others only when none of these violates
  by more than a level (section 6, active set). The level is the tolerance, or comes down to it with
  the number of steps t: ``0.999 / log10(t + 10)``. That formula reaches no small tolerance in any
  number of steps, so the level is also halved whenever no row violates by more than it;
* 3 ``sequential`` and 4 ``random``: in turn, as `RowProblem.turn` has them (section 4). A pass over
  all rows ends with a look at their ψ.

Variables are laid out by class, so that what a step changes of a class is contiguous: it changes
few of them. The gradient of all rows is kept up to date, but to look at all of them after each step
would cost more than the step. So where they are many and the order is ``auto``, those of largest ψ
are watched, and steps are taken among these until none of them violates by more than a share of the
largest ψ there was; then all are looked at again, and others watched.
"""

from __future__ import annotations

from math import ldexp, log10
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bigsvm.compilation import compiled, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    B: TypeAlias = NDArray[np.bool_]
    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]
    I4: TypeAlias = NDArray[np.int32]
    I8: TypeAlias = NDArray[np.int64]

CONVERGED, STEPS_SPENT, NEED_ROW, STALLED = 0, 1, 2, 3
"""As `bigsvm.core.smo` has them: Numba's cache sees no change of a sibling."""

EXACT, FIXED_POINT = 0, 1
NO_COOLING, LOG = 0, 1
AUTO, WORST, ACTIVE, SEQUENTIAL, RANDOM = 0, 1, 2, 3, 4

BLOCK = 64
"""Rows of one reduction."""
WATCHED = 512
"""Most rows that are watched."""
WATCHED_VALUES = 1 << 14
"""Most gradients of watched rows: 128 kB."""
MANY = 2
"""Rows are watched if there are more than this many times as many."""
SHARE = 0.7
"""Watched rows are solved to this share of the largest ψ. In the order ``auto``, a row without a
coefficient steps only if the ψ of the others are below this share of its own."""
BIN = 19
"""Low bits of a float32 that do not count in ordering ψ: what is left tells 1 from 1.06."""
PADDING = 1024
"""Kernel rows are padded to a multiple; see `bigsvm.core.smo.row_width`."""

FIRST_LEVEL = 0.999
"""First level of violations, which start at 1 (section 6)."""
TINY_CURVATURE = 1e-12
"""Least A: a row may be 0, and an indefinite kernel may have less."""
CLOSE = 1e-13
"""Distance from θ, absolute in units of C_p and relative, at which the contraction ends."""


class Watched(NamedTuple):
    """Rows that are looked at after each step, w of them, a multiple of BLOCK.

    Attributes
    ----------
    places : (w,) int64
        Where they are among all, ascending; (0,) where they are all rows.
    gradient, ceiling : (k, w) float64, float32
        ceiling is 0 where α may rise, being below its bound, and −∞ elsewhere.
    most, least : (w,) float64
        Largest g of those with room, and smallest of all.
    violation : (w,) float32
        ψ, 0 or more: as a float32, whose bits are ordered as it is.
    active : (w,) bool
        Rows with a coefficient.
    best : (2, w / BLOCK) int32
        Bits of the largest ψ of a block among rows without a coefficient, and with one.
    """

    places: I8
    gradient: F8
    ceiling: F4
    most: F8
    least: F8
    violation: F4
    active: B
    best: I4


class RowProblem(NamedTuple):
    """The sub-problem in progress: m rows, padded to m' with rows that never move, and k classes.

    `all` watches all rows, and `some` the rows of largest ψ; none where they are few.

    Attributes
    ----------
    alpha, gradient : (k, m') float64
    bound, label, diagonal : (m',)
        C_i, the class and K_ii.
    violation, active : (m',)
        Those of `all`; of rows that are not watched ψ is that of when all were looked at.
    work : (3, k) float64
        D, what is sorted and what becomes of α, and the change of a row.
    changed : (k,) int64
        Classes that it changes.
    down_to : (1,) float64
        ψ to which steps are taken among the rows that are watched; below 0 where none are.
    counters : (3,) int64
        Steps done; stamp of the last use of a row; how often the level has been halved, or of rows
        in turn, the number of steps after the last one that changed a variable.
    turn : (m,) int64
        Rows in the order of the present pass; (0,) where they are not taken in turn.
    """

    alpha: F8
    gradient: F8
    bound: F8
    label: I8
    diagonal: F8
    violation: F4
    active: B
    all: Watched
    some: Watched
    work: F8
    changed: I8
    down_to: F8
    counters: I8
    turn: I8


def make_state(
    alpha: F8, gradient: F8, bound: F8, label: I8, diagonal: F8, *, order: int = AUTO
) -> RowProblem:
    """Lay a sub-problem out for `run`, which must have the same order.

    alpha and gradient are (m, k). `bound`, (m,), is C_i, 0 or more; a row of 0 stays as it is.
    Labels, (m,), are in 0 … k − 1.
    """
    size, k = alpha.shape
    length = max(1, -(-size // BLOCK)) * BLOCK
    most = watched_rows(k)
    watches = order == AUTO and size > MANY * most
    of_all = _make_watched(k, length)._replace(places=np.empty(0, np.int64))
    state = RowProblem(
        alpha=np.zeros((k, length)),
        gradient=of_all.gradient,
        bound=np.zeros(length),
        label=np.zeros(length, np.int64),
        diagonal=np.zeros(length),
        violation=of_all.violation,
        active=of_all.active,
        all=of_all,
        some=_make_watched(k, most if watches else 0),
        work=np.empty((3, k)),
        changed=np.empty(k, np.int64),
        down_to=np.full(1, -1.0),
        counters=np.zeros(3, np.int64),
        turn=np.arange(size if order in (SEQUENTIAL, RANDOM) else 0),
    )
    state.alpha[:, :size], state.gradient[:, :size] = alpha.T, gradient.T
    state.bound[:size], state.label[:size], state.diagonal[:size] = bound, label, diagonal
    refresh(state)
    return state


def watched_rows(k: int) -> int:
    """Tell how many rows of k classes are watched where they are not all."""
    return max(1, min(WATCHED, WATCHED_VALUES // k) // BLOCK) * BLOCK


def _make_watched(k: int, length: int) -> Watched:
    return Watched(
        places=np.zeros(length, np.int64),
        gradient=np.zeros((k, length)),
        ceiling=np.full((k, length), -np.inf, np.float32),
        most=np.empty(length),
        least=np.empty(length),
        violation=np.zeros(length, np.float32),
        active=np.zeros(length, np.bool_),
        best=np.zeros((2, length // BLOCK), np.int32),
    )


@inner
def _bits(value: np.float32) -> np.int32:
    """Read a float32 as an integer, which grows with it from 0 on."""
    return np.float32(value).view(np.int32)


@compiled
def refresh(s: RowProblem) -> None:
    """Rebuild everything that is derived from alpha, gradient and the bounds."""
    for p in range(s.alpha.shape[1]):
        _place(s, s.all, p, p)
    _look(s.all)


@inner
def _place(s: RowProblem, w: Watched, p: int, t: int) -> None:
    """Say where the variables of row p, the t-th of w, have room; and whether any is not 0."""
    active = False
    for r in range(s.alpha.shape[0]):
        has_room = s.alpha[r, p] < (s.bound[p] if r == s.label[p] else 0.0)
        w.ceiling[r, t] = np.float32(0.0 if has_room else -np.inf)
        active |= s.alpha[r, p] != 0.0
    w.active[t] = active


@inner
def _look(w: Watched) -> None:
    """Compute ψ of the rows, and the largest of each block."""
    most, least, violation, active = w.most, w.least, w.violation, w.active
    most[:], least[:] = -np.inf, np.inf
    for r in range(w.gradient.shape[0]):
        gradient, ceiling = w.gradient[r], w.ceiling[r]
        for t in range(np.uint64(len(most))):
            g = gradient[t]
            limited = g + ceiling[t]
            least[t] = g if g < least[t] else least[t]
            most[t] = limited if limited > most[t] else most[t]
    for b in range(np.uint64(w.best.shape[1])):
        first, of_active, of_rest = b * np.uint64(BLOCK), np.int32(0), np.int32(0)
        for t in range(first, first + np.uint64(BLOCK)):
            psi = most[t] - least[t]
            violation[t] = np.float32(psi if psi > 0.0 else 0.0)
            key = _bits(violation[t])
            of_active = max(of_active, key if active[t] else np.int32(0))
            of_rest = max(of_rest, np.int32(0) if active[t] else key)
        w.best[0, b], w.best[1, b] = of_rest, of_active


@inner(allocates=True)
def _choose(s: RowProblem) -> float:
    """Watch the rows of largest ψ, of about equal ones the first; returns the largest."""
    w, violation = s.some, s.violation
    counts = np.zeros(1 << (31 - BIN), np.int64)
    for p in range(len(violation)):
        counts[_bits(violation[p]) >> BIN] += 1
    last, left = len(counts) - 1, len(w.places)
    while counts[last] <= left:
        left -= counts[last]
        last -= 1
    largest, n = np.float32(0.0), 0
    for p in range(len(violation)):
        largest = max(largest, violation[p])
        key = _bits(violation[p]) >> BIN
        if key > last or (key == last and left > 0):
            left -= 1 if key == last else 0
            w.places[n], w.active[n] = p, s.active[p]
            n += 1
    for r in range(w.gradient.shape[0]):
        for t in range(np.uint64(len(w.places))):
            p = w.places[t]
            w.gradient[r, t], w.ceiling[r, t] = s.gradient[r, p], s.all.ceiling[r, p]
    _look(w)
    return float(largest)


@inner
def _worst(w: Watched, active: int) -> int:
    """Find the first row of largest ψ among those with a coefficient, or without; −1 if none."""
    best, where = np.int32(0), -1
    for b in range(w.best.shape[1]):
        if w.best[active, b] > best:
            best, where = w.best[active, b], b
    if where < 0:
        return -1
    p = where * BLOCK
    while _bits(w.violation[p]) != best or w.active[p] != (active == 1):
        p += 1
    return p


@inner
def _sift(heap: F8, at: int, n: int) -> None:
    """Let the number at `at` sink in a heap of n numbers, whose largest one is the first."""
    number = heap[at]
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and heap[below + 1] > heap[below]:
            below += 1
        if not heap[below] > number:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = number


@compiled
def threshold(d: F8, ordered: F8, bound: float, method: int) -> float:
    """Find θ of D, (k,) float64, by one of the two methods; `ordered` (k,) is room for a heap."""
    k = d.shape[0]
    theta = 0.0
    if method == EXACT:
        for r in range(k):
            ordered[r] = d[r]
        for r in range(k // 2 - 1, -1, -1):
            _sift(ordered, r, k)
        total, theta = -bound, np.inf
        for s in range(1, k + 1):
            largest = ordered[0]
            if largest <= theta and s > 1:
                break
            total += largest
            theta = total / s
            ordered[0] = ordered[k - s]
            _sift(ordered, 0, k - s)
        return float(theta)
    total = 0.0
    for r in range(k):
        total += d[r]
    theta, before = (total - bound) / k, 0.0
    while True:
        total = 0.0
        for r in range(k):
            total += max(theta, d[r])
        step = (total - bound) / k - theta
        theta += step
        # It goes one way all along: a turn is rounding. And what is not a number is near nothing.
        if not k * abs(step) > CLOSE * (bound + abs(theta)) or step * before < 0.0:
            return float(theta)
        before = step


@inner
def _solve_row(s: RowProblem, p: int, method: int) -> int:
    """Move the variables of row p to their optimum; returns how many classes have changed."""
    k, y, bound = s.alpha.shape[0], s.label[p], s.bound[p]
    curvature = max(s.diagonal[p], TINY_CURVATURE)
    d, ordered, change = s.work[0], s.work[1], s.work[2]
    for r in range(k):
        d[r] = (bound if r == y else 0.0) - s.alpha[r, p] - s.gradient[r, p] / curvature
    theta = threshold(d, ordered, bound, method)
    reached, last, others = theta + CLOSE * (bound + abs(theta)), 0, 0.0
    for r in range(k):
        upper = bound if r == y else 0.0
        # At the bound it is assigned the bound, so that "has room" is an exact comparison.
        ordered[r] = upper if d[r] <= reached else upper + (theta - d[r])
        last = r if d[r] > d[last] else last
    for r in range(k):
        others += ordered[r] if r != last else 0.0
    # The one farthest from its bound is what the others leave: 0, where they are.
    ordered[last] = 0.0 - others
    n_changed = 0
    for r in range(k):
        change[r] = ordered[r] - s.alpha[r, p]
        if change[r] != 0.0:
            s.alpha[r, p] = ordered[r]
            s.changed[n_changed] = r
            n_changed += 1
    return n_changed


@inner
def _move(s: RowProblem, w: Watched, row: F4, n_changed: int) -> None:
    """Do ``g −= K_p Δα_p`` in the classes that have changed."""
    for c in range(n_changed):
        r = s.changed[c]
        change, gradient, watched = s.work[2, r], s.gradient[r], w.gradient[r]
        for t in range(np.uint64(len(gradient))):
            gradient[t] -= change * row[t]
        for t in range(np.uint64(len(w.places))):
            watched[t] = gradient[np.uint64(w.places[t])]


@compiled
def level(s: RowProblem, cooling: int, tol: float) -> float:
    """By how much rows have to violate now to be looked at; `tol` in the end."""
    t, height = s.counters[0], ldexp(FIRST_LEVEL, -int(s.counters[2]))
    if cooling == LOG:
        height /= log10(t + 10.0)
    else:
        height = tol
    return float(max(height, tol))


@compiled
def violations(s: RowProblem, cooling: int, score: F4, quiet: B) -> None:
    """Tell by how much rows violate, (m,); quiet are those that do not.

    Rows below the level are not wanted yet, and may never be: −inf.
    """
    height = level(s, cooling, 0.0)
    for row in range(score.shape[0]):
        psi = float(s.violation[row])
        quiet[row] = psi == 0.0
        score[row] = np.float32(psi) if psi > height else np.float32(-np.inf)


@inner
def _step_among(
    s: RowProblem,
    w: Watched,
    rows: F4,
    slots: I4,
    used: I8,
    method: int,
    share: float,
    cooling: int,
    tol: float,
    stop_at: int,
) -> tuple[int, int]:
    """Advance on the rows w alone, until no ψ of theirs is above `tol`.

    A row without a coefficient waits until the others' ψ is below `share` of its own.
    """
    while s.counters[0] < stop_at:
        height = level(s, cooling, tol)
        # Numba would compile `_worst` again for each literal.
        t, other = _worst(w, np.int64(1)), _worst(w, np.int64(0))
        if other >= 0 and w.violation[other] > height:
            enough = max(height, share * w.violation[other])
            t = other if t < 0 or w.violation[t] <= enough else t
        if t < 0 or w.violation[t] <= height:
            if height <= tol:
                return CONVERGED, -1
            s.counters[2] += 1
            continue
        s.counters[1] += 1
        p = w.places[t] if len(w.places) > 0 else t
        if slots[p] < 0:
            return NEED_ROW, p
        used[slots[p]] = s.counters[1]
        n_changed = _solve_row(s, p, method)
        if n_changed == 0:
            return STALLED, -1
        _place(s, s.all, p, p)
        if len(w.places) > 0:
            _place(s, w, p, t)
        _move(s, w, rows[slots[p]], n_changed)
        _look(w)
        s.counters[0] += 1
    return STEPS_SPENT, -1


@compiled
def _take_turns(
    s: RowProblem, rows: F4, slots: I4, used: I8, method: int, tol: float, stop_at: int
) -> tuple[int, int]:
    """Advance on all rows in turn, until at the end of a pass no ψ is above `tol`.

    A row whose ψ is 0 is passed over, which is a step too.
    """
    size = len(s.turn)
    while s.counters[0] < stop_at:
        place = s.counters[0] % size
        if place == 0:
            _look(s.all)
            largest = np.float32(0.0)
            for row in range(len(s.violation)):
                largest = max(largest, s.violation[row])
            if largest <= tol:
                return CONVERGED, -1
            if s.counters[2] <= s.counters[0] - size:  # nothing has changed in a whole pass
                return STALLED, -1
        p, most, least = s.turn[place], -np.inf, np.inf
        for r in range(s.alpha.shape[0]):
            least = min(least, s.gradient[r, p])
            most = max(most, s.gradient[r, p] + s.all.ceiling[r, p])
        n_changed = 0
        if most > least:
            s.counters[1] += 1
            if slots[p] < 0:
                _look(s.all)
                return NEED_ROW, p
            used[slots[p]] = s.counters[1]
            n_changed = _solve_row(s, p, method)
        s.counters[0] += 1
        if n_changed > 0:
            _place(s, s.all, p, p)
            _move(s, s.all, rows[slots[p]], n_changed)
            s.counters[2] = s.counters[0]
    _look(s.all)
    return STEPS_SPENT, -1


@compiled
def _advance(
    s: RowProblem,
    rows: F4,
    slots: I4,
    used: I8,
    method: int,
    order: int,
    cooling: int,
    tol: float,
    max_steps: int,
) -> tuple[int, int]:
    """Advance; where not all rows are watched, by looking at all of them now and then.

    It begins and ends with a look at all, so that what it does follows from alpha and gradient.
    """
    stop_at = s.counters[0] + max_steps
    share = 1.0 if order == WORST else 0.0 if order == ACTIVE else SHARE
    watches = len(s.some.places) > 0
    while True:
        if watches and s.down_to[0] < 0.0:  # or else a kernel row was missing
            gap = _choose(s)
            if gap <= tol:
                return CONVERGED, -1
            if s.counters[0] >= stop_at:
                return STEPS_SPENT, -1
            s.down_to[0] = SHARE * gap
        among, least = (s.some, s.down_to[0]) if watches else (s.all, tol)
        status, p = _step_among(s, among, rows, slots, used, method, share, cooling, least, stop_at)
        if not watches:
            return status, p
        if status == NEED_ROW:
            # Whoever brings it brings others by what is known of them.
            for t in range(len(s.some.places)):
                s.violation[s.some.places[t]] = s.some.violation[t]
            return NEED_ROW, p
        s.down_to[0] = -1.0
        _look(s.all)
        if status == STALLED:
            return STALLED, -1


def run(
    s: RowProblem,
    rows: F4,
    slots: I4,
    used: I8,
    *,
    method: int,
    tol: float,
    max_steps: int,
    order: int = AUTO,
    cooling: int = NO_COOLING,
) -> tuple[int, int]:
    """Advance until converged, out of steps, in need of a kernel row, or unable to move.

    `rows`, `slots`, `used` and the result are as for `bigsvm.core.smo.run`. It has converged when
    max ψ ≤ tol. For rows in turn this is tested at the end of a pass, and all rows of `s.turn` come
    before one comes again. `cooling` is that of the order ``active``.

    If not all rows are watched, all are checked after the last of `max_steps` steps, so calls of
    other lengths give other bits.
    """
    result: tuple[int, int]
    if len(s.turn):
        stop_at = int(s.counters[0]) + max_steps
        result = _take_turns(s, rows, slots, used, method, tol, stop_at)
    else:
        result = _advance(s, rows, slots, used, method, order, cooling, tol, max_steps)
    return result
