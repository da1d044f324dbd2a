"""Frank-Wolfe steps on the unit simplex: the minimal enclosing ball of one working set.

    minimise R(a) = aᵀK̃a    Σ a = 1, a ≥ 0

The gradient is ``g = −K̃a`` as in `bigsvm.core.smo`, whose arrays these are; R is ``−aᵀg``. A step
goes towards the point of largest g, the farthest from the centre, or away from the point with a > 0
of smallest g, the nearest (frank-wolfe.txt, algorithms 2 and 3, with exact line searches for any
diagonal). All weights change with each step, so a and g are kept up to one factor, and a step
touches one kernel row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]
    I4: TypeAlias = NDArray[np.int32]
    I8: TypeAlias = NDArray[np.int64]

CONVERGED, STEPS_SPENT, NEED_ROW, STALLED = 0, 1, 2, 3
"""As `bigsvm.core.smo` has them: Numba's cache sees no change of a sibling."""


class Points(NamedTuple):
    """What `bigsvm.core.smo.PairState` knows of the variables; see there. Changed in place.

    Attributes
    ----------
    alpha, gradient, lower, upper, ridge, diagonal : (m',) float64
        The last ones, padding, have neither room nor kernel values.
    counters : (3,) int64
    """

    alpha: F8
    gradient: F8
    lower: F8
    upper: F8
    ridge: F8
    diagonal: F8
    counters: I8


SMALLEST_FACTOR, LARGEST_FACTOR = 1e-6, 1e6
"""Beyond them the common factor is multiplied in, long before a number leaves float64."""


@njit(cache=True, nogil=True)
def _extremes(a: F8, g: F8, upper: F8) -> tuple[int, int, float]:
    """Find (argmax g, argmin_{a > 0} g) among variables with room, and aᵀg."""
    i = j = -1
    product = 0.0
    for t in range(a.shape[0]):
        if upper[t] > 0.0:
            if i < 0 or g[t] > g[i]:
                i = t
            if a[t] > 0.0:
                product += a[t] * g[t]
                if j < 0 or g[t] < g[j]:
                    j = t
    return i, j, product


@njit(cache=True, nogil=True)
def _advance(
    s: Points, rows: F4, slots: I4, used: I8, away: bool, tol: float, max_steps: int
) -> tuple[int, int]:
    """Do what `run` says."""
    a, g, upper = s.alpha, s.gradient, s.upper
    size = a.shape[0]
    stop_at = s.counters[0] + max_steps
    factor = 1.0
    status, row = STEPS_SPENT, -1
    while s.counters[0] < stop_at:
        i, j, product = _extremes(a, g, upper)
        energy = -factor * factor * product
        if i < 0 or factor * g[i] + energy <= tol:
            status = CONVERGED
            break
        towards, back = factor * g[i] + energy, -energy - factor * g[j]
        # A single point cannot be gone away from.
        leaves = away and back > towards and a[j] * factor < 1.0
        v = j if leaves else i
        slot = slots[v]
        if slot < 0:
            status, row = NEED_ROW, v
            break
        s.counters[1] += 1
        used[slot] = s.counters[1]
        at = -factor * g[v]
        curvature = energy - 2.0 * at + s.diagonal[v]
        if leaves:
            room = a[v] * factor / (1.0 - a[v] * factor)
            step = min(back / curvature, room) if curvature > 0.0 else room
            grown, moved, dropped = 1.0 + step, -step, step == room
        else:
            step = min(towards / curvature, 1.0) if curvature > 0.0 else 1.0
            grown, moved, dropped = 1.0 - step, step, False
        if step <= 0.0:
            status = STALLED
            break
        if grown <= 0.0:
            # All weight goes to one point.
            a[:] = 0.0
            g[:] = 0.0
            factor, moved = 1.0, 1.0
        else:
            factor *= grown
        share = moved / factor
        signed = np.float32(share)
        for t in range(size):
            g[t] -= signed * rows[slot, t]
        g[v] -= share * s.ridge[v]
        a[v] = 0.0 if dropped else a[v] + share
        s.counters[0] += 1
        if not SMALLEST_FACTOR < factor < LARGEST_FACTOR:
            a *= factor
            g *= factor
            factor = 1.0
    a *= factor
    g *= factor
    return status, row


@njit(cache=True, nogil=True)
def gap_of_signed(s: Points) -> float:
    """Compute ``max y g − Σ α g / Σ |α|`` of signed variables with one bound: the gap of these.

    y is the side that a variable lies on; one without bounds is left out.
    """
    best, product, mass = 0.0, 0.0, 0.0
    for t in range(s.alpha.shape[0]):
        rises, falls = s.upper[t] == np.inf, s.lower[t] == -np.inf
        if rises == falls:
            continue
        best = max(best, s.gradient[t] if rises else -s.gradient[t])
        product += s.alpha[t] * s.gradient[t]
        mass += abs(s.alpha[t])
    return best - product / mass if mass > 0.0 else np.inf


def run(
    s: Points, rows: F4, slots: I4, used: I8, away: bool, tol: float, max_steps: int
) -> tuple[int, int]:
    """Advance until converged, out of steps, in need of a kernel row, or unable to move.

    Parameters
    ----------
    s : Points
        In [0, ∞) or without room, adding up to 1; no linear term.
    rows : (n_slots, m') float32
        Rows of K̃ without its ridge; columns of padding are 0.
    slots : (≥ m,) int32
        Slot of each row, or −1.
    used : (n_slots,) int64
        Stamp of the last use of each slot; written here, read by whoever evicts.
    away : bool
        Whether steps may lead away from a point: modified Frank-Wolfe.
    tol : float
        Stop when max g + R ≤ tol.
    max_steps : int

    Returns
    -------
    status, row : int
        As `bigsvm.core.smo.run` returns them.
    """
    result: tuple[int, int] = _advance(s, rows, slots, used, away, tol, max_steps)
    return result
