"""Row steps: Crammer and Singer's multiclass dual, one row of k variables at a time.

    maximise  Σ_i α_i,y_i − ½ Σ_ij K_ij α_i·α_j     subject to  α_i ≤ C_i e_{y_i},  α_i·1 = 0

(crammer-singer.txt, section 3, with α = C τ and C = 1 / β.) The gradient is ``g_i = e_{y_i} − f_i``
with ``f = K α``: −F of the paper, divided by β. By how much a row violates is

    ψ_i  =  max_{r: α_ir < C_i δ_{y_i r}} g_ir  −  min_r g_ir

A step solves for all variables of the row of largest ψ, the others staying as they are. With
A = K_pp and ``D_r = C_p δ_{y_p r} − α_pr − g_pr / A`` they become ``C_p δ_{y_p r} + min(θ, D_r) −
D_r``, θ being where ``Σ_r min(θ, D_r) = Σ_r D_r − C_p`` (section 5). θ is found

* 0 ``exact``: from D sorted, in O(k log k);
* 1 ``fixed point``: by the contraction ``θ ← (Σ_r max(θ, D_r) − C_p) / k``. The paper stops it by
  its relative change, which never gets small where θ is near 0, and says nothing of the distance
  left, which is up to k times the change.

Rows with a coefficient come first, and the others when none of these violates by more than a level
(section 6, active set). The level starts at 0.999 and is cooled with the number of steps t: by
``1 / log10(t + 10)``, ``exp(-t)`` or ``1 / (t + 1)``; and as the first of them would take for ever,
it is halved whenever no row at all violates by as much. It ends at the tolerance that is asked for.

Variables are laid out by class, so that what a step changes of a class is contiguous: it changes
few of them. Passes go over blocks of rows and vectorise over these. A row's extremes are known from
before, and are looked for among all classes only where the class of one has changed for the worse.
"""

from __future__ import annotations

from math import exp, log10
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numba import njit

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
NO_COOLING, LOG, EXP, LINEAR = 0, 1, 2, 3

BLOCK = 64
"""Rows of one reduction."""
PADDING = 1024
"""Kernel rows are padded to a multiple; see `bigsvm.core.smo.row_width`."""

FIRST_LEVEL = 0.999
"""Of violations, which start at 1 (section 6)."""
TINY_CURVATURE = 1e-12
"""Least A: a row may be 0, and an indefinite kernel may have less."""
CLOSE = 1e-13
"""Distance from θ, absolute in units of C_p and relative, at which the contraction ends."""


class RowState(NamedTuple):
    """The sub-problem in progress: m rows, padded to m' with rows that never move, and k classes.

    Attributes
    ----------
    alpha, gradient : (k, m') float64
    room : (k, m') bool
        Where α may rise: below its bound.
    bound : (m',) float64
        C_i.
    label : (m',) int64
    diagonal : (m',) float64
        K_ii.
    most, least : (m',) float64
        Largest g of those with room, and smallest of all.
    stale : (m',) bool
        Rows of which these have to be looked for again.
    violation : (m',) float32
        ψ, 0 or more: as a float32, whose bits are ordered as it is.
    active : (m',) bool
        Rows with a coefficient.
    best : (2, m' / BLOCK) int32
        Bits of the largest ψ of a block among rows without a coefficient, and with one.
    work : (3, k) float64
        D, what is sorted and what becomes of α, and the change of a row.
    changed : (k,) int64
        Classes that it changes.
    counters : (3,) int64
        Steps done; stamp of the last use of a row; how often the level has been halved.
    """

    alpha: F8
    gradient: F8
    room: B
    bound: F8
    label: I8
    diagonal: F8
    most: F8
    least: F8
    stale: B
    violation: F4
    active: B
    best: I4
    work: F8
    changed: I8
    counters: I8


def make_state(alpha: F8, gradient: F8, bound: F8, label: I8, diagonal: F8) -> RowState:
    """Lay a sub-problem out for `run`.

    Parameters
    ----------
    alpha, gradient : (m, k) float64
    bound : (m,) float64
        C_i, 0 or more; a row of 0 stays as it is.
    label : (m,) int64
        In 0 … k − 1.
    diagonal : (m,) float64
    """
    size, k = alpha.shape
    length = max(1, -(-size // BLOCK)) * BLOCK
    state = RowState(
        alpha=np.zeros((k, length)),
        gradient=np.zeros((k, length)),
        room=np.zeros((k, length), np.bool_),
        bound=np.zeros(length),
        label=np.zeros(length, np.int64),
        diagonal=np.zeros(length),
        most=np.empty(length),
        least=np.empty(length),
        stale=np.zeros(length, np.bool_),
        violation=np.zeros(length, np.float32),
        active=np.zeros(length, np.bool_),
        best=np.zeros((2, length // BLOCK), np.int32),
        work=np.empty((3, k)),
        changed=np.empty(k, np.int64),
        counters=np.zeros(3, np.int64),
    )
    state.alpha[:, :size], state.gradient[:, :size] = alpha.T, gradient.T
    state.bound[:size], state.label[:size], state.diagonal[:size] = bound, label, diagonal
    refresh(state)
    return state


@njit(cache=True, inline="always")
def _bits(value: np.float32) -> np.int32:
    """Read a float32 as an integer, which grows with it from 0 on."""
    return np.float32(value).view(np.int32)


@njit(cache=True, nogil=True)
def refresh(s: RowState) -> None:
    """Rebuild everything that is derived from alpha, gradient and the bounds."""
    for p in range(s.alpha.shape[1]):
        _place(s, p)
        _look_at(s, p)
    for b in range(s.best.shape[1]):
        _score_block(s, b)


@njit(cache=True, nogil=True)
def _place(s: RowState, p: int) -> None:
    """Say where the variables of a row have room, and whether it has a coefficient."""
    active = False
    for r in range(s.alpha.shape[0]):
        s.room[r, p] = s.alpha[r, p] < (s.bound[p] if r == s.label[p] else 0.0)
        active |= s.alpha[r, p] != 0.0
    s.active[p] = active


@njit(cache=True, inline="always")
def _look_at(s: RowState, t: int) -> None:
    """Find the extremes of a row's gradient among all classes."""
    most, least = -np.inf, np.inf
    for r in range(s.gradient.shape[0]):
        g = s.gradient[r, t]
        most = max(most, g) if s.room[r, t] else most
        least = min(least, g)
    s.most[t], s.least[t] = most, least


@njit(cache=True, inline="always")
def _score_block(s: RowState, b: int) -> None:
    """Compute ψ of the rows of block b from their extremes."""
    most, least, violation, active = s.most, s.least, s.violation, s.active
    first = np.uint64(b) * np.uint64(BLOCK)
    stop = first + np.uint64(BLOCK)
    of_active = of_rest = np.int32(0)
    for t in range(first, stop):
        psi = most[t] - least[t]
        violation[t] = np.float32(psi if psi > 0.0 else 0.0)
        key = _bits(violation[t])
        of_active = max(of_active, key if active[t] else np.int32(0))
        of_rest = max(of_rest, np.int32(0) if active[t] else key)
    s.best[0, b], s.best[1, b] = of_rest, of_active


@njit(cache=True, nogil=True)
def _worst(s: RowState, active: int) -> int:
    """Find the first row of largest ψ among those with a coefficient, or without; −1 for nobody."""
    best, where = np.int32(0), -1
    for b in range(s.best.shape[1]):
        if s.best[active, b] > best:
            best, where = s.best[active, b], b
    if where < 0:
        return -1
    p = where * BLOCK
    while _bits(s.violation[p]) != best or s.active[p] != (active == 1):
        p += 1
    return p


@njit(cache=True, nogil=True, error_model="numpy")
def threshold(d: F8, ordered: F8, bound: float, method: int) -> float:
    """Find θ of D, (k,) float64, by one of the two methods; `ordered` (k,) is room to sort in."""
    k = d.shape[0]
    theta = 0.0
    if method == EXACT:
        ordered[:] = d
        ordered.sort()
        total, theta = -bound, np.inf
        for s in range(1, k + 1):
            largest = ordered[k - s]
            if largest <= theta and s > 1:
                break
            total += largest
            theta = total / s
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


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_row(s: RowState, p: int, method: int) -> int:
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
    _place(s, p)
    return n_changed


@njit(cache=True, inline="always")
def _move_class(s: RowState, rows: F4, slot: np.uint64, r: np.uint64, b: np.uint64) -> None:
    """Do ``g −= K_p Δα_p`` in one class, for the rows of one block, and bring extremes up to date.

    Where the class was the extreme one and is less so now, they are stale.
    """
    gradient, room, most, least, stale = s.gradient, s.room, s.most, s.least, s.stale
    first, change = b * np.uint64(BLOCK), s.work[2, r]
    for t in range(first, first + np.uint64(BLOCK)):
        before = gradient[r, t]
        after = before - change * rows[slot, t]
        gradient[r, t] = after
        rises, falls = after > before, after < before
        stale[t] |= ((before == least[t]) & rises) | (room[r, t] & (before == most[t]) & falls)
        least[t] = after if after < least[t] else least[t]
        most[t] = after if room[r, t] & (after > most[t]) else most[t]


@njit(cache=True, nogil=True)
def _move_gradient(s: RowState, rows: F4, slot: int, n_changed: int, p: int) -> None:
    """Do ``g −= K_p Δα_p`` in the classes that have changed, and score all rows again."""
    stale = s.stale
    stale[p] = True  # it has room elsewhere
    for b in range(np.uint64(s.best.shape[1])):
        for c in range(n_changed):
            _move_class(s, rows, np.uint64(slot), np.uint64(s.changed[c]), b)
        first = b * np.uint64(BLOCK)
        for t in range(first, first + np.uint64(BLOCK)):
            if stale[t]:
                _look_at(s, t)
                stale[t] = False
        _score_block(s, b)


@njit(cache=True, nogil=True)
def level(s: RowState, cooling: int, tol: float) -> float:
    """By how much rows have to violate now to be looked at; `tol` in the end."""
    t, height = s.counters[0], FIRST_LEVEL * 0.5 ** s.counters[2]
    if cooling == LOG:
        height /= log10(t + 10.0)
    elif cooling == EXP:
        height *= exp(-float(t))
    elif cooling == LINEAR:
        height /= t + 1.0
    else:
        height = tol
    return float(max(height, tol))


@njit(cache=True, nogil=True)
def violations(s: RowState, slots: I4, cooling: int, score: F8, quiet: B) -> None:
    """Tell by how much rows violate, (m,), −inf where in memory; quiet are those that do not.

    Rows below the level are not wanted yet, and may never be: −inf as well.
    """
    height = level(s, cooling, 0.0)
    for row in range(score.shape[0]):
        psi = float(s.violation[row])
        quiet[row] = psi == 0.0
        score[row] = psi if slots[row] < 0 and psi > height else -np.inf


@njit(cache=True, nogil=True)
def _advance(
    s: RowState,
    rows: F4,
    slots: I4,
    used: I8,
    method: int,
    cooling: int,
    tol: float,
    max_steps: int,
) -> tuple[int, int]:
    stop_at = s.counters[0] + max_steps
    while s.counters[0] < stop_at:
        height = level(s, cooling, tol)
        p = _worst(s, 1)
        if p < 0 or s.violation[p] <= height:
            other = _worst(s, 0)
            if other >= 0 and (s.violation[other] > height or p < 0):
                p = other
        if p < 0 or s.violation[p] <= height:
            if height <= tol:
                return CONVERGED, -1
            s.counters[2] += 1
            continue
        s.counters[1] += 1
        if slots[p] < 0:
            return NEED_ROW, p
        used[slots[p]] = s.counters[1]
        n_changed = _solve_row(s, p, method)
        if n_changed == 0:
            return STALLED, -1
        _move_gradient(s, rows, slots[p], n_changed, p)
        s.counters[0] += 1
    return STEPS_SPENT, -1


def run(
    s: RowState,
    rows: F4,
    slots: I4,
    used: I8,
    *,
    method: int,
    cooling: int,
    tol: float,
    max_steps: int,
) -> tuple[int, int]:
    """Advance until converged, out of steps, in need of a kernel row, or unable to move.

    Parameters
    ----------
    s : RowState
    rows : (n_slots, ≥ m') float32
        Kernel rows among the working set; columns of padding are 0.
    slots : (≥ m,) int32
        Slot of each row, or −1.
    used : (n_slots,) int64
        Stamp of the last use of each slot; written here, read by whoever evicts.
    method, cooling : int
    tol : float
        Stop when max ψ ≤ tol.
    max_steps : int

    Returns
    -------
    status, row : int
        As `bigsvm.core.smo.run` returns them.
    """
    result: tuple[int, int] = _advance(s, rows, slots, used, method, cooling, tol, max_steps)
    return result
