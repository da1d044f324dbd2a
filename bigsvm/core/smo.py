"""Pair steps: sequential minimal optimisation of the signed dual on one working set.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α constant

The gradient is ``g = linear − Kα``. A step moves μ from variable j to variable i, and may only take
i from up = {α < upper} and j from low = {α > lower}; the optimum is where max_up g ≤ min_low g.

Selection (`Rule`):

* 0 ``mvp``: i = argmax_up g, j = argmin_low g.
* 1 ``second_order``: the same i; j maximises (g_i − g_j)² / η_ij over low with g_j < g_i
  (Fan, Chen & Lin 2005; hmg.txt section 1.3).
* 2 ``hmg``: hybrid maximum gain (hmg.txt sections 2.3 and 2.4): among all pairs with one of the last
  two variables the largest box-clipped gain ½ η μ(2μ* − μ); ``mvp`` where both of the last pair are
  within 1e-8 of the box from a bound. Needs one new kernel row a step at most.
* 3 ``gain``: maximum gain without the hybrid's way out. It sticks on hmg.txt's Theorem 7 and is here
  so that a test can show it.

Speed comes from search copies of the gradient in float32, set to ∓huge where a variable may not go
up or down, reduced over their bits as sortable integers: LLVM vectorises an integer maximum, and
not a floating-point one. A float32 candidate is only a candidate: steps use the float64 gradient,
and convergence is declared by an exact float64 scan.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

BLOCK = 1024
"""Variables of one reduction; arrays are padded to a multiple. 0.35 ns a variable, measured."""

REFRESH = 2048
"""Steps between rebuilds of the float32 copies; a run may stop and resume only at these."""

HUGE = np.float32(3e38)
TINY_CURVATURE = 1e-12
BOUND_MARGIN = 1e-8
"""hmg.txt section 2.4, η: how near to a bound, in widths of the box, sends HMG to ``mvp``."""

MVP, SECOND_ORDER, HMG, GAIN = 0, 1, 2, 3
CONVERGED, STEPS_SPENT, NEED_ROW, STALLED = 0, 1, 2, 3


class PairState(NamedTuple):
    """The sub-problem in progress; every array has the padded length m' = k · BLOCK.

    Attributes
    ----------
    alpha, gradient, lower, upper : (m',) float64
        Padding has alpha = lower = upper = 0.
    diagonal : (m',) float64
        K_ii.
    up, low : (m',) float32
        Search copies of the gradient minus `centre`: −huge where not in up, +huge where not in low.
    up_bits, low_bits : (m',) int32
        The same memory as integers.
    room_up, room_down : (m',) float32
        ``upper − alpha`` and ``alpha − lower``, read by HMG.
    up_best, low_best : (k,) int32
        Largest and smallest sortable key of each block.
    score : (BLOCK,) float32, score_bits : (BLOCK,) int32
        Scratch, one memory.
    pair : (2,) int64
        The last pair, −1 before the first.
    counters : (2,) int64
        Steps done; stamp of the last use of a row.
    centre : (1,) float64
        Subtracted in the search copies, so that float32 resolves the gradients near the threshold.
    """

    alpha: np.ndarray
    gradient: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    diagonal: np.ndarray
    up: np.ndarray
    low: np.ndarray
    up_bits: np.ndarray
    low_bits: np.ndarray
    room_up: np.ndarray
    room_down: np.ndarray
    up_best: np.ndarray
    low_best: np.ndarray
    score: np.ndarray
    score_bits: np.ndarray
    pair: np.ndarray
    counters: np.ndarray
    centre: np.ndarray


def make_state(alpha, gradient, lower, upper, diagonal):
    """Lay a sub-problem of m variables out for `run`; inputs are (m,) float64."""
    m = len(alpha)
    blocks = max(1, -(-m // BLOCK))

    def padded(values):
        out = np.zeros(blocks * BLOCK)
        out[:m] = values
        return out

    up, low = np.empty(blocks * BLOCK, np.float32), np.empty(blocks * BLOCK, np.float32)
    score = np.empty(BLOCK, np.float32)
    return PairState(
        alpha=padded(alpha),
        gradient=padded(gradient),
        lower=padded(lower),
        upper=padded(upper),
        diagonal=padded(diagonal),
        up=up,
        low=low,
        up_bits=up.view(np.int32),
        low_bits=low.view(np.int32),
        room_up=np.empty(blocks * BLOCK, np.float32),
        room_down=np.empty(blocks * BLOCK, np.float32),
        up_best=np.empty(blocks, np.int32),
        low_best=np.empty(blocks, np.int32),
        score=score,
        score_bits=score.view(np.int32),
        pair=np.full(2, -1, np.int64),
        counters=np.zeros(2, np.int64),
        centre=np.zeros(1),
    )


@njit(cache=True, inline="always")
def _key(bits):
    """Order float32 values by their bits: an integer that grows with the value."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(cache=True, nogil=True)
def _reduce_block(s, b):
    """Recompute the extreme keys of block b."""
    start = b * BLOCK
    best = np.int32(-2147483648)
    least = np.int32(2147483647)
    up_bits = s.up_bits[start : start + BLOCK]
    low_bits = s.low_bits[start : start + BLOCK]
    for t in range(BLOCK):
        best = max(best, _key(up_bits[t]))
        least = min(least, _key(low_bits[t]))
    s.up_best[b] = best
    s.low_best[b] = least


@njit(cache=True, nogil=True)
def _place(s, v):
    """Rewrite the search copies of one variable from its float64 state."""
    g = np.float32(s.gradient[v] - s.centre[0])
    s.up[v] = g if s.alpha[v] < s.upper[v] else -HUGE
    s.low[v] = g if s.alpha[v] > s.lower[v] else HUGE
    s.room_up[v] = np.float32(s.upper[v] - s.alpha[v])
    s.room_down[v] = np.float32(s.alpha[v] - s.lower[v])


@njit(cache=True, nogil=True)
def exact_extremes(s):
    """(argmax_up g, argmin_low g) by a float64 scan; −1 where the set is empty."""
    i = j = -1
    for t in range(s.alpha.shape[0]):
        if s.alpha[t] < s.upper[t] and (i < 0 or s.gradient[t] > s.gradient[i]):
            i = t
        if s.alpha[t] > s.lower[t] and (j < 0 or s.gradient[t] < s.gradient[j]):
            j = t
    return i, j


@njit(cache=True, nogil=True)
def refresh(s):
    """Rebuild everything that is derived from alpha, gradient and the bounds."""
    i, j = exact_extremes(s)
    s.centre[0] = 0.0
    if i >= 0 and j >= 0:
        s.centre[0] = 0.5 * (s.gradient[i] + s.gradient[j])
    for t in range(s.alpha.shape[0]):
        _place(s, t)
    for b in range(s.up_best.shape[0]):
        _reduce_block(s, b)


@njit(cache=True, nogil=True)
def _extremes(s):
    """(argmax_up g, argmin_low g) by the search copies; first index wins a tie."""
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
    return i, j


@njit(cache=True, nogil=True, fastmath={"contract", "arcp", "nsz"}, error_model="numpy")
def _second_order_scores(s, start, row, g_i, curvature):
    """Unconstrained gains (g_i − g_t)² / η of the block at `start`; 0 where t cannot come down."""
    low = s.low[start : start + BLOCK]
    kernel = row[start : start + BLOCK]
    diagonal = s.diagonal[start : start + BLOCK]
    score = s.score
    for t in range(BLOCK):
        d = max(g_i - low[t], np.float32(0.0))
        eta = curvature + np.float32(diagonal[t]) - np.float32(2.0) * kernel[t]
        score[t] = d * d / max(eta, np.float32(TINY_CURVATURE))


@njit(cache=True, nogil=True, fastmath={"contract", "arcp", "nsz"}, error_model="numpy")
def _clipped_gain_scores(s, start, row, b, curvature):
    """Box-clipped gains of the pairs {b, t} of the block at `start`, in either direction."""
    room_up_b, room_down_b = s.room_up[b], s.room_down[b]
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
        rise = max(g_b - low[t], zero) / eta
        fall = max(up[t] - g_b, zero) / eta
        step_up = min(rise, min(room_up_b, room_down[t]))
        step_down = min(fall, min(room_down_b, room_up[t]))
        gain_up = step_up * (two * rise - step_up)
        gain_down = step_down * (two * fall - step_down)
        score[t] = half * eta * max(gain_up, gain_down)


@njit(cache=True, nogil=True)
def _best_score(s):
    """Largest sortable key of the scratch scores; they are not negative, so bits are the key."""
    best = np.int32(0)
    bits = s.score_bits
    for t in range(BLOCK):
        best = max(best, bits[t])
    return best


@njit(cache=True, nogil=True)
def _best_partner(s, row, b, rule):
    """(partner of b, key of its score) by second-order or clipped gain; (−1, 0) if none gains."""
    curvature = np.float32(s.diagonal[b])
    g_b = s.up[b]
    best = np.int32(0)
    block = -1
    for k in range(s.up_best.shape[0]):
        if rule == SECOND_ORDER:
            _second_order_scores(s, k * BLOCK, row, g_b, curvature)
        else:
            _clipped_gain_scores(s, k * BLOCK, row, b, curvature)
        found = _best_score(s)
        if found > best:
            best = found
            block = k
    if block < 0:
        return -1, best
    if rule == SECOND_ORDER:
        _second_order_scores(s, block * BLOCK, row, g_b, curvature)
    else:
        _clipped_gain_scores(s, block * BLOCK, row, b, curvature)
    t = 0
    while s.score_bits[t] != best:
        t += 1
    return block * BLOCK + t, best


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _move_gradient(s, start, row_i, row_j, mu):
    """``g −= μ (K_i − K_j)`` on the block at `start`, in the state and in both copies."""
    gradient = s.gradient[start : start + BLOCK]
    up, low = s.up[start : start + BLOCK], s.low[start : start + BLOCK]
    k_i, k_j = row_i[start : start + BLOCK], row_j[start : start + BLOCK]
    for t in range(BLOCK):
        change = mu * (k_i[t] - k_j[t])
        gradient[t] -= change
        up[t] -= change
        low[t] -= change


@njit(cache=True, nogil=True)
def _step(s, i, j, row_i, row_j):
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
    mu32 = np.float32(mu)
    for b in range(s.up_best.shape[0]):
        _move_gradient(s, b * BLOCK, row_i, row_j, mu32)
    _place(s, i)
    _place(s, j)
    for b in range(s.up_best.shape[0]):
        _reduce_block(s, b)
    return True


@njit(cache=True, nogil=True)
def _near_bound(s, v):
    margin = BOUND_MARGIN * (s.upper[v] - s.lower[v])
    return s.alpha[v] <= s.lower[v] + margin or s.alpha[v] >= s.upper[v] - margin


@njit(cache=True, nogil=True)
def _select_by_gain(s, rows, slots, rule):
    """HMG's pair as (i, j, missing row or −1); i = −1 where ``mvp`` has to choose."""
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
    if t < 0 or s.gradient[a] == s.gradient[t]:
        return -1, -1, -1
    if s.gradient[a] > s.gradient[t]:
        return a, t, -1
    return t, a, -1


@njit(cache=True, nogil=True)
def run(s, rows, slots, used, rule, tol, max_steps):
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
    rule : int
    tol : float
        Stop when max_up g − min_low g ≤ tol.
    max_steps : int
        Steps this call may take, a multiple of REFRESH (a run stops at whole multiples only).

    Returns
    -------
    status : int
        CONVERGED, STEPS_SPENT, NEED_ROW or STALLED.
    row : int
        The variable whose row is missing (NEED_ROW; nothing has changed since the last step), or −1.
    """
    stop_at = s.counters[0] + max_steps
    exact = False
    while True:
        i, j = exact_extremes(s) if exact else _extremes(s)
        if i < 0 or j < 0 or s.gradient[i] - s.gradient[j] <= tol:
            if exact:
                return CONVERGED, -1
            refresh(s)
            exact = True
            continue
        if rule >= HMG and not exact:
            a, b, missing = _select_by_gain(s, rows, slots, rule)
            if missing >= 0:
                return NEED_ROW, missing
            if a >= 0:
                i, j = a, b
            elif rule == GAIN and s.pair[0] >= 0:
                return STALLED, -1
        if slots[i] < 0:
            return NEED_ROW, i
        if rule == SECOND_ORDER and not exact:
            partner, _ = _best_partner(s, rows[slots[i]], i, SECOND_ORDER)
            if partner >= 0:
                j = partner
        if slots[j] < 0:
            return NEED_ROW, j
        s.counters[1] += 1
        used[slots[i]] = s.counters[1]
        used[slots[j]] = s.counters[1]
        if not _step(s, i, j, rows[slots[i]], rows[slots[j]]):
            return STALLED, -1
        exact = False
        s.pair[0] = i
        s.pair[1] = j
        s.counters[0] += 1
        if s.counters[0] % REFRESH == 0:
            refresh(s)
            if s.counters[0] >= stop_at:
                return STEPS_SPENT, -1
