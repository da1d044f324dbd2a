"""Pair steps: sequential minimal optimisation of the signed dual on one working set.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α constant

The gradient is ``g = linear − Kα``. A step moves μ from variable j to variable i, and may only take
i from up = {α < upper} and j from low = {α > lower}; the optimum is where max_up g ≤ min_low g.

Selection (`Rule`):

* 0 ``mvp``: i = argmax_up g, j = argmin_low g.
* 1 ``second_order``: the same i; j maximises (g_i − g_j)² / η_ij over low with g_j < g_i
  (Fan, Chen & Lin 2005; hmg.txt section 1.3).
* 2 ``hmg``: hybrid maximum gain (hmg.txt sections 2.3 and 2.4): among all pairs with one of the
  last two variables the largest box-clipped gain ½ η μ(2μ* − μ); ``mvp`` where both of the last
  pair are within 1e-8 of the box from a bound. Needs one new kernel row a step at most.
* 3 ``gain``: maximum gain alone. It sticks on hmg.txt's Theorem 7; here for a test to show it.

Speed comes from search copies of the gradient in float32, ∓huge where a variable may not go up or
down, reduced over their bits as sortable integers: LLVM vectorises an integer maximum, not a
floating-point one. A float32 candidate is only a candidate: a pair on which the float64 gradient
does not agree gives way to ``mvp``'s, and an exact float64 scan declares convergence.
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

BLOCK = 1024
"""Variables of one reduction; arrays are padded to a multiple. 0.35 ns a variable, measured."""

REFRESH = 2048
"""Steps between rebuilds of the float32 copies; a run may stop and resume only at these."""

HUGE, NOBODY = np.float32(3e38), np.float32(1e38)
"""What marks a variable that may not move, and where marks begin: they drift as gradients do."""
TINY_CURVATURE = 1e-12
"""Least η: duplicates have none, an indefinite kernel may have less."""
BOUND_MARGIN = 1e-8
"""hmg.txt section 2.4, η: how near to a bound, in widths of the box, sends HMG to ``mvp``."""

MVP, SECOND_ORDER, HMG, GAIN = 0, 1, 2, 3
CONVERGED, STEPS_SPENT, NEED_ROW, STALLED = 0, 1, 2, 3


class PairState(NamedTuple):
    """The sub-problem in progress; every array has the padded length m' = k · BLOCK.

    Attributes
    ----------
    alpha, gradient, lower, upper, diagonal : (m',) float64
        All 0 in the padding; diagonal is K_ii.
    up, low : (m',) float32
        Search copies of the gradient minus `centre`: −huge where not in up, +huge where not in low.
    up_bits, low_bits : (m',) int32, the same memory as integers
    room_up, room_down : (m',) float32
        ``upper − alpha`` and ``alpha − lower``, read by HMG.
    up_best, low_best : (k,) int32
        Largest and smallest sortable key of each block.
    score : (BLOCK,) float32, score_bits : (BLOCK,) int32, one memory, scratch
    pair : (2,) int64, the last pair, −1 before the first
    counters : (3,) int64
        Steps done; stamp of the last use of a row; 1 while the exact scan chooses the pair.
    centre : (1,) float64
        Subtracted in the search copies, so that float32 resolves the gradients near the threshold.
    """

    alpha: F8
    gradient: F8
    lower: F8
    upper: F8
    diagonal: F8
    up: F4
    low: F4
    up_bits: I4
    low_bits: I4
    room_up: F4
    room_down: F4
    up_best: I4
    low_best: I4
    score: F4
    score_bits: I4
    pair: I8
    counters: I8
    centre: F8


def make_state(alpha: F8, gradient: F8, lower: F8, upper: F8, diagonal: F8) -> PairState:
    """Lay a sub-problem of m variables out for `run`, refreshed; inputs are (m,) float64."""
    blocks = max(1, -(-len(alpha) // BLOCK))
    length = blocks * BLOCK
    given = np.zeros((5, length))
    given[:, : len(alpha)] = alpha, gradient, lower, upper, diagonal
    up, low, room_up, room_down = np.empty((4, length), np.float32)
    score = np.empty(BLOCK, np.float32)
    up_best, low_best = np.empty((2, blocks), np.int32)
    state = PairState(
        alpha=given[0], gradient=given[1], lower=given[2], upper=given[3], diagonal=given[4],
        up=up, low=low, up_bits=up.view(np.int32), low_bits=low.view(np.int32),
        room_up=room_up, room_down=room_down, up_best=up_best, low_best=low_best,
        score=score, score_bits=score.view(np.int32),
        pair=np.full(2, -1, np.int64), counters=np.zeros(3, np.int64), centre=np.zeros(1),
    )  # fmt: skip
    refresh(state)
    return state


@njit(cache=True, inline="always")
def _key(bits: np.int32) -> np.int32:
    """Order float32 values by their bits: an integer that grows with the value."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def _reduce_block(s: PairState, b: int) -> None:
    """Recompute the extreme keys of block b."""
    start = b * BLOCK
    best, least = np.int32(-2147483648), np.int32(2147483647)
    up_bits = s.up_bits[start : start + BLOCK]
    low_bits = s.low_bits[start : start + BLOCK]
    for t in range(BLOCK):
        best = max(best, _key(up_bits[t]))
        least = min(least, _key(low_bits[t]))
    s.up_best[b] = best
    s.low_best[b] = least


@njit(cache=True, nogil=True)
def _place(s: PairState, v: int) -> None:
    """Rewrite the search copies of one variable from its float64 state."""
    g = np.float32(s.gradient[v] - s.centre[0])
    s.up[v] = g if s.alpha[v] < s.upper[v] else -HUGE
    s.low[v] = g if s.alpha[v] > s.lower[v] else HUGE
    s.room_up[v] = np.float32(s.upper[v] - s.alpha[v])
    s.room_down[v] = np.float32(s.alpha[v] - s.lower[v])


@njit(cache=True, nogil=True)
def exact_extremes(s: PairState) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g) by a float64 scan; −1 where the set is empty."""
    i = j = -1
    for t in range(s.alpha.shape[0]):
        if s.alpha[t] < s.upper[t] and (i < 0 or s.gradient[t] > s.gradient[i]):
            i = t
        if s.alpha[t] > s.lower[t] and (j < 0 or s.gradient[t] < s.gradient[j]):
            j = t
    return i, j


@njit(cache=True, nogil=True)
def refresh(s: PairState) -> None:
    """Rebuild everything that is derived from alpha, gradient and the bounds."""
    i, j = exact_extremes(s)
    s.centre[0] = 0.5 * (s.gradient[i] + s.gradient[j]) if i >= 0 and j >= 0 else 0.0
    for t in range(s.alpha.shape[0]):
        _place(s, t)
    for b in range(s.up_best.shape[0]):
        _reduce_block(s, b)


@njit(cache=True, nogil=True)
def _extremes(s: PairState) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g) by the search copies, the first of equals; −1 for nobody."""
    bi = bj = 0
    for b in range(1, s.up_best.shape[0]):
        if s.up_best[b] > s.up_best[bi]:
            bi = b
        if s.low_best[b] < s.low_best[bj]:
            bj = b
    i, j = bi * BLOCK, bj * BLOCK
    while _key(s.up_bits[i]) != s.up_best[bi]:
        i += 1
    while _key(s.low_bits[j]) != s.low_best[bj]:
        j += 1
    return i if s.up[i] > -NOBODY else -1, j if s.low[j] < NOBODY else -1


@njit(cache=True, nogil=True, fastmath={"contract", "arcp", "nsz"}, error_model="numpy")
def _second_order_scores(s: PairState, start: int, row: F4, i: int) -> None:
    """Score the block at `start` by unconstrained gain (g_i − g_t)² / η; 0 for t not in low."""
    g_i, curvature = s.up[i], np.float32(s.diagonal[i])
    low = s.low[start : start + BLOCK]
    kernel = row[start : start + BLOCK]
    diagonal = s.diagonal[start : start + BLOCK]
    score = s.score
    for t in range(BLOCK):
        d = max(g_i - low[t], np.float32(0.0))
        eta = curvature + np.float32(diagonal[t]) - np.float32(2.0) * kernel[t]
        score[t] = d * d / max(eta, np.float32(TINY_CURVATURE))


@njit(cache=True, nogil=True, fastmath={"contract", "arcp", "nsz"}, error_model="numpy")
def _clipped_gain_scores(s: PairState, start: int, row: F4, b: int) -> None:
    """Score the block at `start` by the clipped gain μ(g_b − g_t − ½ημ), in either direction."""
    curvature, room_up_b, room_down_b = np.float32(s.diagonal[b]), s.room_up[b], s.room_down[b]
    g_b = np.float32(s.gradient[b] - s.centre[0])
    kernel = row[start : start + BLOCK]
    diagonal = s.diagonal[start : start + BLOCK]
    up, low = s.up[start : start + BLOCK], s.low[start : start + BLOCK]
    room_up = s.room_up[start : start + BLOCK]
    room_down = s.room_down[start : start + BLOCK]
    score = s.score
    half, two, zero = np.float32(0.5), np.float32(2.0), np.float32(0.0)
    for t in range(BLOCK):
        eta = max(curvature + np.float32(diagonal[t]) - two * kernel[t], np.float32(TINY_CURVATURE))
        # b up and t down, or the other way round: the copies make the impossible one negative.
        rise, fall = max(g_b - low[t], zero), max(up[t] - g_b, zero)
        step_up = min(rise / eta, min(room_up_b, room_down[t]))
        step_down = min(fall / eta, min(room_down_b, room_up[t]))
        gain_up = step_up * (rise - half * eta * step_up)
        gain_down = step_down * (fall - half * eta * step_down)
        score[t] = max(gain_up, gain_down)


@njit(cache=True, nogil=True)
def _best_score(s: PairState) -> np.int32:
    """Reduce the scratch scores to the largest; none is negative, so that bits sort as values."""
    best = np.int32(0)
    bits = s.score_bits
    for t in range(BLOCK):
        best = max(best, bits[t])
    return best


@njit(cache=True, nogil=True)
def _best_partner(s: PairState, row: F4, b: int, rule: int) -> tuple[int, np.int32]:
    """Find (partner of b, bits of its score) by either gain; (−1, 0) where nobody gains."""
    partner, best = -1, np.int32(0)
    for k in range(s.up_best.shape[0]):
        if rule == SECOND_ORDER:
            _second_order_scores(s, k * BLOCK, row, b)
        else:
            _clipped_gain_scores(s, k * BLOCK, row, b)
        found = _best_score(s)
        if found > best:
            best = found
            partner = k * BLOCK
            while s.score_bits[partner - k * BLOCK] != best:
                partner += 1
    return partner, best


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _move_gradient(s: PairState, start: int, row_i: F4, row_j: F4, mu: np.float32) -> None:
    """Do ``g −= μ (K_i − K_j)`` on the block at `start`, in the state and in both copies."""
    gradient = s.gradient[start : start + BLOCK]
    up, low = s.up[start : start + BLOCK], s.low[start : start + BLOCK]
    k_i, k_j = row_i[start : start + BLOCK], row_j[start : start + BLOCK]
    for t in range(BLOCK):
        change = mu * (k_i[t] - k_j[t])
        gradient[t] -= change
        up[t] -= change
        low[t] -= change


@njit(cache=True, nogil=True)
def _step(s: PairState, i: int, j: int, row_i: F4, row_j: F4) -> bool:
    """Move the optimal μ from j to i within the box; False where float64 cannot move any more."""
    eta = max(s.diagonal[i] + s.diagonal[j] - 2.0 * row_i[j], TINY_CURVATURE)
    mu = (s.gradient[i] - s.gradient[j]) / eta
    room_i, room_j = s.upper[i] - s.alpha[i], s.alpha[j] - s.lower[j]
    before_i, before_j = s.alpha[i], s.alpha[j]
    if mu >= room_i or mu >= room_j:
        mu = min(room_i, room_j)
        # A variable that reaches its bound is assigned it: "at the bound" is an exact comparison.
        s.alpha[i] = s.upper[i] if room_i <= room_j else before_i + mu
        s.alpha[j] = s.lower[j] if room_j <= room_i else before_j - mu
    else:
        s.alpha[i] = before_i + mu
        s.alpha[j] = before_j - mu
    if s.alpha[i] == before_i and s.alpha[j] == before_j:
        return False
    for b in range(s.up_best.shape[0]):
        _move_gradient(s, b * BLOCK, row_i, row_j, np.float32(mu))
    _place(s, i)
    _place(s, j)
    for b in range(s.up_best.shape[0]):
        _reduce_block(s, b)
    return True


@njit(cache=True, nogil=True)
def _near_bound(s: PairState, v: int) -> bool:
    margin = BOUND_MARGIN * (s.upper[v] - s.lower[v])
    return bool(s.alpha[v] <= s.lower[v] + margin or s.alpha[v] >= s.upper[v] - margin)


@njit(cache=True, nogil=True)
def _may_step(s: PairState, i: int, j: int) -> bool:
    """Whether moving from j to i is possible and gains, by the float64 state."""
    inside = s.alpha[i] < s.upper[i] and s.alpha[j] > s.lower[j]
    return bool(inside and s.gradient[i] > s.gradient[j])


@njit(cache=True, nogil=True)
def _select_by_gain(s: PairState, rows: F4, slots: I4, rule: int) -> tuple[int, int, int]:
    """Find HMG's pair as (i, j, missing row or −1); i = −1 where ``mvp`` has to choose."""
    a, b = s.pair[0], s.pair[1]
    if a < 0 or (rule == HMG and _near_bound(s, a) and _near_bound(s, b)):
        return -1, -1, -1
    if slots[a] < 0:
        return -1, -1, a
    if slots[b] < 0:
        return -1, -1, b
    t, gain = _best_partner(s, rows[slots[a]], a, HMG)
    t_b, gain_b = _best_partner(s, rows[slots[b]], b, HMG)
    if gain_b > gain:
        a, t = b, t_b
    if t >= 0 and _may_step(s, a, t):
        return a, t, -1
    if t >= 0 and _may_step(s, t, a):
        return t, a, -1
    return -1, -1, -1


@njit(cache=True, nogil=True)
def _keep_rows(s: PairState, slots: I4, used: I8, i: int, j: int) -> None:
    """Stamp the rows that this step needs: fetching one must not evict another of them."""
    s.counters[1] += 1
    for v in (i, j, s.pair[0], s.pair[1]):
        if v >= 0 and slots[v] >= 0:
            used[slots[v]] = s.counters[1]


@njit(cache=True, nogil=True)
def run(
    s: PairState, rows: F4, slots: I4, used: I8, rule: int, tol: float, max_steps: int
) -> tuple[int, int]:
    """Advance until converged, out of steps, in need of a kernel row, or unable to move.

    Parameters
    ----------
    s : PairState
        Refreshed, or as the last call left it.
    rows : (n_slots, m') float32
        Kernel rows among the working set; columns of padding are 0.
    slots : (m',) int32
        Slot of each variable's row, or −1.
    used : (n_slots,) int64
        Stamp of the last use of each slot; written here, read by whoever evicts.
    rule, tol : int, float
        Stop when max_up g − min_low g ≤ tol.
    max_steps : int
        Steps this call may take. Calls of multiples of REFRESH change nothing: any other number
        refreshes once more, at its end.

    Returns
    -------
    status, row : int
        CONVERGED, STEPS_SPENT, NEED_ROW or STALLED; the variable whose row is missing, or −1.
        NEED_ROW has changed nothing since the last step that calling again would not repeat.
    """
    stop_at = s.counters[0] + max_steps
    while True:
        exact = s.counters[2] == 1
        i, j = exact_extremes(s) if exact else _extremes(s)
        if i < 0 or j < 0 or s.gradient[i] - s.gradient[j] <= tol:
            s.counters[2] = 0 if exact else 1
            if exact:
                return CONVERGED, -1
            refresh(s)
            continue
        if rule >= HMG and not exact:
            a, b, missing = _select_by_gain(s, rows, slots, rule)
            if missing >= 0:
                _keep_rows(s, slots, used, -1, -1)
                return NEED_ROW, missing
            if a >= 0:
                i, j = a, b
            elif rule == GAIN and s.pair[0] >= 0:
                return STALLED, -1
        if rule == SECOND_ORDER and not exact and slots[i] >= 0:
            partner, _ = _best_partner(s, rows[slots[i]], i, SECOND_ORDER)
            if partner >= 0 and _may_step(s, i, partner):
                j = partner
        _keep_rows(s, slots, used, i, j)
        if slots[i] < 0 or slots[j] < 0:
            return NEED_ROW, i if slots[i] < 0 else j
        if not _step(s, i, j, rows[slots[i]], rows[slots[j]]):
            s.counters[2] = 0 if exact else 1
            if exact:
                return STALLED, -1
            refresh(s)
            continue
        s.counters[2] = 0
        s.pair[0], s.pair[1] = i, j
        s.counters[0] += 1
        if s.counters[0] % REFRESH == 0 or s.counters[0] >= stop_at:
            refresh(s)
            if s.counters[0] >= stop_at:
                return STEPS_SPENT, -1
