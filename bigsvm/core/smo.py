"""Pair steps: sequential minimal optimisation of the signed dual on one working set.

    maximise  linearᵀα − ½ αᵀQα     subject to  lower ≤ α ≤ upper,  Σ α constant in each group

Q is K and a ridge on its diagonal. The gradient is ``g = linear − Qα``. A step moves μ from
variable j to variable i of one group, and may only take i from up = {α < upper} and j from low =
{α > lower}; the optimum is where max_up g ≤ min_low g in each group. A pair is looked for in the
group where most is missing.

Variables are laid out in one segment, or in two over the same rows, so that the second one reads
the same columns of a kernel row; with two groups, each has a segment.

A variable may have a kink at 0: the gradient is larger by `jump` where α < 0, and at 0 it is g for
rising and g + jump for falling. A step ends at a kink as at a bound. The two variables of a row of
a regression are one such variable, whose jump is the width of the tube.

Selection (`RULES`):

* 0 ``mvp``: i = argmax_up g, j = argmin_low g.
* 1 ``second_order``: the same i; j maximises (g_i − g_j)² / η_ij over low with g_j < g_i
  (Fan, Chen & Lin 2005; Glasmachers & Igel 2006, section 1.3).
* 2 ``hmg``: hybrid maximum gain (Glasmachers & Igel 2006, sections 2.3 and 2.4): among all pairs
  with one of the last two variables the largest box-clipped gain ½ η μ(2μ* − μ); ``mvp`` where both
  of the last pair are within 1e-8 box widths of a bound. Needs one new kernel row a step at most.
* 3 ``gain``: maximum gain alone. It sticks on Theorem 7 of Glasmachers & Igel 2006, which a test
  shows.

Steps of the second-order rule are conjugate (Torres-Barrán, Alaíz & Dorronsoro 2021, "Faster SVM
training via conjugate SMO"): a step goes along the pair and a multiple of the last direction, so
that it does not undo what the steps before have gained, unless the pair alone gains more. A
direction ends where a variable reaches an end of its box.

Speed comes from search copies of the gradient in float32, ∓huge where a variable may not go up or
down, reduced over their bits as sortable integers: LLVM vectorises an integer maximum, not a
floating-point one. A float32 candidate is only a candidate: a pair on which the float64 gradient
does not agree gives way to ``mvp``'s, and an exact float64 scan declares convergence.

What is left is mostly reading the pair's kernel rows from memory, so they are prefetched. Indices
of the passes are unsigned: one that might count from the end is not vectorised. Where arguments
are last used in a branch, Numba counts references to all of them, 0.2 µs a call: hence one exit
and no early returns in what a step calls. Without fastmath, bits are the same on all processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from bigsvm.compilation import compiled, inlined, inner

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]
    I4: TypeAlias = NDArray[np.int32]
    I8: TypeAlias = NDArray[np.int64]
    F: TypeAlias = np.float32

Untyped: TypeAlias = Any
"""What Numba and LLVM hand to the function that writes their code."""

COMPILED = not config.DISABLE_JIT

BLOCK = 64
"""Variables of one reduction and of one prefetch: four cache lines."""

PADDING = 1024
"""Arrays are padded to a multiple, as the memory plan counts them; a pass ends with the block of
the last variable."""

AHEAD = 1024
"""Kernel rows are prefetched this many variables ahead of a pass."""

REFRESH = 2048
"""Steps between rebuilds of the float32 copies. Results do not change if a run stops and resumes at
multiples of it; a stop elsewhere (max_iter) rebuilds the copies once more."""

MOST_STEPS = 100_000
"""Most steps of `run_each` for one small problem, some tenths of a second."""

HUGE, NOBODY = np.float32(1.5e38), np.float32(1e38)
"""Value that marks a variable that may not move, and the least such value: marks change with
gradients."""
TINY_CURVATURE = 1e-12
"""Least η: duplicates have none, an indefinite kernel may have less."""
BOUND_MARGIN = 1e-8
"""How near to a bound, in widths of the box, sends HMG to ``mvp``: η of Glasmachers & Igel 2006."""

MOST_MOVING = 16
"""Most variables of a direction: with all of them steps are 3 % fewer, and each takes longer."""
LEAST_BEND = 1e-4
"""Least curvature of a direction, relative to that of the pair: a smaller one is mostly rounding of
`along` to float32."""

LARGEST_WEIGHT = 1e8
"""Most that a direction may have of a variable, of which a pair has 1: what float32 can hold of
`along` would not be enough where boxes have no ends."""

LARGEST_ALPHA = 1e30
"""Size of a variable from which on steps have run away, as they may with float32 kernel values and
boxes without ends; sums over such variables are still numbers in float32."""

LOWEST, HIGHEST = np.int32(-(2**31)), np.int32(2**31 - 1)

MVP, SECOND_ORDER, HMG, GAIN = 0, 1, 2, 3
RULES = {"mvp": MVP, "second-order": SECOND_ORDER, "hmg": HMG}
"""Rules of selection that a run may be asked for, by name."""
CONVERGED, STEPS_SPENT, NEED_ROW, STALLED = 0, 1, 2, 3


ALPHA, GRADIENT, LOWER, UPPER, RIDGE, DIAGONAL = range(6)
"""Rows of `double` of a state."""
UP, LOW, CURVATURE, ALONG, ROOM_UP, ROOM_DOWN = range(6)
"""Rows of `single`."""
UP_BEST, LOW_BEST = range(2)
"""Rows of `keys`."""
SEGMENT, GROUPS, LAST_I, LAST_J, STEPS, STAMP, IS_EXACT, MOVING = range(8)
"""Places of `number`."""
LAST_PAIR = slice(LAST_I, LAST_J + 1)
CENTRE, JUMP, WEIGHTS = 0, 2, 3
"""Places of `scalar`."""


class PairState(NamedTuple):
    """The sub-problem in progress; its variables, in one or two segments, are in k blocks.

    Its arrays are few, as each takes long to compile as an argument.

    Attributes
    ----------
    double : (6, m') float64
        The variables `ALPHA`, their `GRADIENT`, bounds `LOWER` and `UPPER`, their `RIDGE`, and
        their `DIAGONAL`, which is K_ii + ridge_i. m' is their number padded, with zeros.
    single : (6, m') float32
        Search copies `UP` and `LOW` of the gradient minus a centre: −huge where not in up, +huge
        where not in low. The diagonal as `CURVATURE`. `ALONG`, Q times the last direction. For
        HMG, `ROOM_UP` and `ROOM_DOWN`, ``upper − alpha`` and ``alpha − lower``.
    keys : (2, k) int32
        `UP_BEST` and `LOW_BEST`, the largest and smallest sortable key of each block.
    number : (MOVING + 3 + MOST_MOVING,) int64
        Number of variables of a `SEGMENT`, padded to whole blocks, and of `GROUPS`. The last pair,
        `LAST_I` and `LAST_J`, −1 before the first. `STEPS` done; `STAMP` of the last use of a row;
        whether the scan that chooses the pair `IS_EXACT`. `MOVING`, the number of variables of the
        last direction, 0 if there is none; after it the variables.
    scalar : (WEIGHTS + 3 + MOST_MOVING,) float64
        `CENTRE`, subtracted in the search copies so that float32 resolves the gradients near the
        threshold, of each of two groups. `JUMP`, how much larger the gradient is where alpha < 0;
        `GRADIENT` does not have it. `WEIGHTS`, the curvature along the last direction; after it
        how much of each variable is in it.
    """

    double: F8
    single: F4
    keys: I4
    number: I8
    scalar: F8

    @property
    def alpha(self) -> F8:
        """The variables, (m',), for Python; compiled code has no properties."""
        alpha: F8 = self.double[ALPHA]
        return alpha

    @property
    def gradient(self) -> F8:
        """The gradient, (m',), for Python."""
        gradient: F8 = self.double[GRADIENT]
        return gradient


def make_state(
    alpha: F8,
    gradient: F8,
    lower: F8,
    upper: F8,
    diagonal: F8,
    *,
    ridge: F8 | float = 0.0,
    n_groups: int = 1,
    jump: float = 0.0,
) -> PairState:
    """Lay a sub-problem out for `run`, refreshed.

    The variables are (m,) or (n_segments, m), and so is the ridge if it is an array. `diagonal`,
    (m,), has K_ii of the rows. Two groups need two segments; each segment is a group then.
    """
    segments, size = np.atleast_2d(alpha).shape
    segment = max(1, -(-size // BLOCK)) * BLOCK
    length = -(-segments * segment // PADDING) * PADDING
    double, single = np.zeros((6, length)), np.zeros((6, length), np.float32)
    parts = (alpha, gradient, lower, upper, ridge, diagonal + np.asarray(ridge))
    for laid_out, part in zip(double, parts, strict=True):
        laid_out[: segments * segment].reshape(segments, segment)[:, :size] = part
    single[UP], single[LOW], single[CURVATURE] = -HUGE, HUGE, double[DIAGONAL]
    state = PairState(
        double, single, np.empty((2, segments * segment // BLOCK), np.int32),
        np.zeros(MOVING + 3 + MOST_MOVING, np.int64), np.zeros(WEIGHTS + 3 + MOST_MOVING),
    )  # fmt: skip
    state.number[: LAST_J + 1] = segment, n_groups, -1, -1
    state.scalar[JUMP] = jump
    refresh(state)
    return state


def row_width(n_rows: int) -> int:
    """Count the values of a kernel row of `n_rows` rows, padding included."""
    return max(1, -(-n_rows // PADDING)) * PADDING


def spread_of(s: PairState, values: F8, size: int) -> F8:
    """View the variables of an array of the state as (n_segments, size)."""
    segment = int(s.number[SEGMENT])
    used = s.keys.shape[1] * BLOCK
    return values[:used].reshape(used // segment, segment)[:, :size]


@intrinsic
def _prefetch(
    typing_context: Untyped, rows: Untyped, k: Untyped
) -> Untyped:  # pragma: no cover (runs in the compiler, whose results have tests)
    """Begin to bring the cache line of the k-th value of contiguous rows."""

    def generate(*given: Untyped) -> Untyped:
        context, builder, signature, (array, index) = given
        data = context.make_array(signature.args[0])(context, builder, array).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], hint)
        address = builder.bitcast(builder.gep(data, [index]), byte)
        to_read, to_first_level, of_data = number(0), number(3), number(1)
        builder.call(prefetch, [address, to_read, to_first_level, of_data])
        return context.get_dummy_value()

    return types.void(rows, k), generate


@inlined
def _fetch_ahead(rows: F4, slot: np.uint64, start: np.uint64) -> None:
    """Prefetch what the block `AHEAD` of the one at `start` reads of a kernel row."""
    width, ahead = np.uint64(rows.shape[1]), start + np.uint64(AHEAD)
    if COMPILED and ahead < width:  # pragma: no cover (as above)
        first = slot * width + ahead
        for k in range(first, first + np.uint64(BLOCK), np.uint64(16)):  # 16 values a line
            _prefetch(rows, k)


@inner
def _bits(value: F) -> np.int32:
    """Read a float32 as an integer, which grows with it from 0 on."""
    return np.float32(value).view(np.int32)


@inner
def _key(value: F) -> np.int32:
    """Order all float32 values by an integer that grows with the value."""
    bits = _bits(value)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@inner
def _column(number: I8, v: int) -> int:
    """Which row of the working set variable v belongs to."""
    return v - number[SEGMENT] if v >= number[SEGMENT] else v


@inner
def _group(number: I8, v: int) -> int:
    return int((v >= number[SEGMENT]) & (number[GROUPS] > 1))


@inner
def _before(number: I8, start: np.uint64) -> np.uint64:
    """How many variables there are before the segment of the one at `start`."""
    segment = np.uint64(number[SEGMENT])
    return segment if start >= segment else np.uint64(0)


@inner
def _blocks_of(number: I8, n_blocks: int, group: int) -> tuple[int, int]:
    """First of the blocks of a group's variables, and the one after its last."""
    blocks = n_blocks >> (number[GROUPS] - 1)  # half of them where there are two groups
    return group * blocks, (group + 1) * blocks


@inner
def _reduce_block(single: F4, keys: I4, b: int) -> None:
    """Recompute the extreme keys of block b."""
    best, least = LOWEST, HIGHEST
    start = np.uint64(b) * np.uint64(BLOCK)
    for t in range(start, start + np.uint64(BLOCK)):
        best, least = max(best, _key(single[UP, t])), min(least, _key(single[LOW, t]))
    keys[UP_BEST, b], keys[LOW_BEST, b] = best, least


@inner
def _slopes(double: F8, jump: float, v: int) -> tuple[float, float]:
    """Gradients with which a variable rises and falls; they differ at a kink only."""
    g, value = double[GRADIENT, v], double[ALPHA, v]
    rise = g + jump if (jump > 0.0) & (value < 0.0) else g
    fall = g + jump if (jump > 0.0) & (value <= 0.0) else g
    return rise, fall


@inner
def _ends(double: F8, jump: float, v: int) -> tuple[float, float]:
    """How far a step may raise and lower a variable: to its bounds, or to its kink before them."""
    value, highest, least = double[ALPHA, v], double[UPPER, v], double[LOWER, v]
    highest = 0.0 if (jump > 0.0) & (value < 0.0) else highest
    least = 0.0 if (jump > 0.0) & (value > 0.0) else least
    return highest, least


@inner
def _is_free(double: F8, jump: float, v: int) -> bool:
    """Whether a variable is strictly between its ends, and at no kink."""
    value = double[ALPHA, v]
    inside = (value > double[LOWER, v]) & (value < double[UPPER, v])
    return bool(inside & ((value != 0.0) | (jump == 0.0)))


@inner
def _place(s: PairState, v: int) -> None:
    """Rewrite the search copies of one variable from its float64 state."""
    single, jump = s.single, s.scalar[JUMP]
    rise, fall = _slopes(s.double, jump, v)
    value, centre = s.double[ALPHA, v], s.scalar[CENTRE + _group(s.number, v)]
    highest, least = _ends(s.double, jump, v)
    single[UP, v] = np.float32(rise - centre) if value < highest else -HUGE
    single[LOW, v] = np.float32(fall - centre) if value > least else HUGE
    single[ROOM_UP, v] = np.float32(highest - value)
    single[ROOM_DOWN, v] = np.float32(value - least)


@inner
def _exact_extremes_of(s: PairState, group: int) -> tuple[int, int]:
    i = j = -1
    most = least = 0.0
    double, jump = s.double, s.scalar[JUMP]
    first, stop = _blocks_of(s.number, s.keys.shape[1], group)
    for t in range(first * BLOCK, stop * BLOCK):
        rise, fall = _slopes(double, jump, t)
        if double[ALPHA, t] < double[UPPER, t] and (i < 0 or rise > most):
            i, most = t, rise
        if double[ALPHA, t] > double[LOWER, t] and (j < 0 or fall < least):
            j, least = t, fall
    return i, j


@inner
def _gap(double: F8, jump: float, i: int, j: int) -> float:
    """By how much the gradient of i, which rises, is larger than that of j, which falls."""
    return float(_slopes(double, jump, i)[0] - _slopes(double, jump, j)[1])


@compiled
def exact_extremes(s: PairState) -> tuple[int, int, float]:
    """Find i = argmax_up g and j = argmin_low g by a float64 scan; −1 where the set is empty.

    With two groups, both are of the group where they are farther apart. The third number is
    g_i − g_j, −∞ where one of them is −1.
    """
    i = j = -1
    gap = -np.inf
    # Not with 0 and 1 themselves: for each of them Numba would compile it again.
    for group in range(s.number[GROUPS]):
        a, b = _exact_extremes_of(s, group)
        other = _gap(s.double, s.scalar[JUMP], a, b) if a >= 0 and b >= 0 else -np.inf
        if i < 0 or j < 0 or other > gap:
            i, j, gap = a, b, other
    return i, j, gap


@compiled
def refresh(s: PairState) -> None:
    """Rebuild all that is derived from alpha, gradient and the bounds; the last direction ends."""
    double, scalar = s.double, s.scalar
    s.number[MOVING] = 0
    for group in range(s.number[GROUPS]):
        i, j = _exact_extremes_of(s, group)
        scalar[CENTRE + group] = 0.0
        if i >= 0 and j >= 0:
            rise, fall = _slopes(double, scalar[JUMP], i)[0], _slopes(double, scalar[JUMP], j)[1]
            scalar[CENTRE + group] = 0.5 * (rise + fall)
    for b in range(s.keys.shape[1]):
        for t in range(b * BLOCK, b * BLOCK + BLOCK):
            _place(s, t)
        _reduce_block(s.single, s.keys, b)


@inner
def _extremes_of(s: PairState, group: int) -> tuple[int, int]:
    single, keys = s.single, s.keys
    best, least = LOWEST, HIGHEST
    first, stop = _blocks_of(s.number, keys.shape[1], group)
    for b in range(first, stop):
        best, least = max(best, keys[UP_BEST, b]), min(least, keys[LOW_BEST, b])
    bi = bj = first
    while keys[UP_BEST, bi] != best:
        bi += 1
    while keys[LOW_BEST, bj] != least:
        bj += 1
    i, j = bi * BLOCK, bj * BLOCK
    while _key(single[UP, i]) != best:
        i += 1
    while _key(single[LOW, j]) != least:
        j += 1
    return i if single[UP, i] > -NOBODY else -1, j if single[LOW, j] < NOBODY else -1


@inner
def _extremes(s: PairState) -> tuple[int, int]:
    """Find (argmax_up g, argmin_low g) by the search copies, the first of equals; −1 if none."""
    i, j, widest = -1, -1, -HUGE
    for group in range(s.number[GROUPS]):
        a, b = _extremes_of(s, group)
        gap = s.single[UP, a] - s.single[LOW, b]
        better = (group == 0) | ((a >= 0) & (b >= 0) & ((gap > widest) | (i < 0) | (j < 0)))
        i, j = (a if better else i), (b if better else j)
        widest = gap if better else widest
    return i, j


@compiled
def violations(s: PairState, score: F4, quiet: NDArray[np.bool_]) -> None:
    """Tell which rows violate, and which are quiet, by the search copies.

    score (m,) becomes how far the gradient of a variable of the row is on the wrong side of the
    middle of the extremes, −huge where none may move; quiet (m,) whether all its variables are
    pushed against a bound.
    """
    for row in range(score.shape[0]):  # compiles faster than slices
        score[row], quiet[row] = -HUGE, True
    single = s.single
    segment, used = s.number[SEGMENT], s.keys.shape[1] * BLOCK
    i = j = -1
    for start in range(0, used, segment):
        if start == 0 or s.number[GROUPS] > 1:
            i, j = _extremes_of(s, start // segment)
        if i < 0 or j < 0:
            continue
        middle = np.float32(0.5) * (single[UP, i] + single[LOW, j])
        first = np.uint64(start)
        for row in range(np.uint64(score.shape[0])):
            worst = max(single[UP, first + row] - middle, middle - single[LOW, first + row])
            quiet[row] &= worst < np.float32(0.0)
            score[row] = max(score[row], worst)


@compiled
def settle(s: PairState, settled: NDArray[np.bool_]) -> None:
    """Tell which rows may be left out, (m,): all their variables are pushed against a bound.

    By the rule of Chang & Lin 2001, section 4, in each group: a variable that may only rise has a
    gradient of at most the least of those that may fall, one that may only fall has at least the
    largest of those that may rise. A variable that cannot move is settled; one at its kink is held
    from both sides.
    """
    for row in range(settled.shape[0]):
        settled[row] = True
    double, jump = s.double, s.scalar[JUMP]
    segment, used = s.number[SEGMENT], s.keys.shape[1] * BLOCK
    least, most = np.inf, -np.inf
    for start in range(0, used, segment):
        if start == 0 or s.number[GROUPS] > 1:
            i, j = _exact_extremes_of(s, start // segment)
            most = _slopes(double, jump, i)[0] if i >= 0 else -np.inf
            least = _slopes(double, jump, j)[1] if j >= 0 else np.inf
        for row in range(settled.shape[0]):
            t = start + row
            value = double[ALPHA, t]
            rises, falls = value < double[UPPER, t], value > double[LOWER, t]
            rise, fall = _slopes(double, jump, t)
            free = rises & falls & (rise == fall)
            settled[row] &= not (free | (rises & (rise > least)) | (falls & (fall < most)))


@inner
def _second_order_partner(s: PairState, rows: F4, slot: int, i: int) -> int:
    """Find j of largest (g_i − g_j)² / η, the first of equals; −1 if there is none."""
    single, row = s.single, np.uint64(slot)
    g_i, k_ii, zero, two = single[UP, i], single[CURVATURE, i], np.float32(0.0), np.float32(2.0)
    most, where = np.int32(0), np.uint64(0)
    first, stop = _blocks_of(s.number, s.keys.shape[1], _group(s.number, i))
    for b in range(np.uint64(first), np.uint64(stop)):
        start, best = b * np.uint64(BLOCK), np.int32(0)
        before = _before(s.number, start)
        _fetch_ahead(rows, row, start - before)
        for t in range(start, start + np.uint64(BLOCK)):
            d = max(g_i - single[LOW, t], zero)
            eta = k_ii + single[CURVATURE, t] - two * rows[row, t - before]
            eta = max(eta, np.float32(TINY_CURVATURE))
            best = max(best, _bits(d * d / eta))
        if best > most:
            most, where = best, start
    before = _before(s.number, where)
    j = last = np.int32(where + np.uint64(BLOCK - 1))  # NaN does not lead out of the arrays
    for t in range(where, where + np.uint64(BLOCK)):
        d = max(g_i - single[LOW, t], zero)
        eta = k_ii + single[CURVATURE, t] - two * rows[row, t - before]
        eta = max(eta, np.float32(TINY_CURVATURE))
        j = min(j, np.int32(t) if _bits(d * d / eta) == most else last)
    return int(j) if most > 0 else -1


@inner
def _gain(end: tuple[F, F, F, F, F], other: tuple[F, F, F, F, F], k_vt: F) -> F:
    """Compute the clipped gain μ(d − ½ημ) of v and t; 0 where neither way gains."""
    g_up, g_low, rise_v, fall_v, k_vv = end
    up, low, rise, fall, k_tt = other
    zero, half, two = np.float32(0.0), np.float32(0.5), np.float32(2.0)
    eta = max(k_vv + k_tt - two * k_vt, np.float32(TINY_CURVATURE))
    # v up and t down, or the other way round: the copies make the impossible one negative.
    d = max(g_up - low, zero) - max(up - g_low, zero)
    mu = min(max(d / eta, -min(fall_v, rise)), min(rise_v, fall))
    return mu * (d - half * eta * mu)


@inner
def _gain_partner(s: PairState, rows: F4, slots: I4) -> tuple[int, int]:
    """Find (v of the last pair, t) of largest gain, the first of equals; t = v where none gains."""
    up, low, curvature = s.single[UP], s.single[LOW], s.single[CURVATURE]
    rise, fall = s.single[ROOM_UP], s.single[ROOM_DOWN]
    v, b, jump = s.number[LAST_I], s.number[LAST_J], s.scalar[JUMP]
    row, row_b = np.uint64(slots[_column(s.number, v)]), np.uint64(slots[_column(s.number, b)])
    centre = s.scalar[CENTRE + _group(s.number, v)]
    (g_up, g_low), (b_up, b_low) = _slopes(s.double, jump, v), _slopes(s.double, jump, b)
    end = np.float32(g_up - centre), np.float32(g_low - centre), rise[v], fall[v], curvature[v]
    end_b = np.float32(b_up - centre), np.float32(b_low - centre), rise[b], fall[b], curvature[b]
    most, most_b, where, where_b = np.int32(0), np.int32(0), np.uint64(0), np.uint64(0)
    first, stop = _blocks_of(s.number, s.keys.shape[1], _group(s.number, v))
    for k in range(np.uint64(first), np.uint64(stop)):
        start, best, best_b = k * np.uint64(BLOCK), np.int32(0), np.int32(0)
        before = _before(s.number, start)
        # Both in one pass: 0.6 ns a variable and step, 0.67 with one after the other.
        for t in range(start, start + np.uint64(BLOCK)):
            other = up[t], low[t], rise[t], fall[t], curvature[t]
            best = max(best, _bits(_gain(end, other, rows[row, t - before])))
            best_b = max(best_b, _bits(_gain(end_b, other, rows[row_b, t - before])))
        if best > most:
            most, where = best, start
        if best_b > most_b:
            most_b, where_b = best_b, start
    if most_b > most:
        v, end, row, most, where = b, end_b, row_b, most_b, where_b
    before = _before(s.number, where)
    j = last = np.int32(where + np.uint64(BLOCK - 1))
    for t in range(where, where + np.uint64(BLOCK)):
        other = up[t], low[t], rise[t], fall[t], curvature[t]
        gain = _gain(end, other, rows[row, t - before])
        j = min(j, np.int32(t) if _bits(gain) == most else last)
    return v, int(j) if most > 0 else v


@inner
def _move_gradient(
    s: PairState, rows: F4, slots: I4, i: int, j: int, step: float, turn: float
) -> None:
    """Do ``g −= μ d`` with ``d = Q_i − Q_j + turn · d``, and place what is at an end of its box."""
    double, single, keys, number, jump = s.double, s.single, s.keys, s.number, s.scalar[JUMP]
    mu, share, is_kept = np.float32(step), np.float32(turn), number[MOVING] > 0
    turns = turn != 0.0
    slot_i, slot_j = np.uint64(slots[_column(number, i)]), np.uint64(slots[_column(number, j)])
    for b in range(np.uint64(keys.shape[1])):
        start = b * np.uint64(BLOCK)
        first = start - _before(number, start)
        _fetch_ahead(rows, slot_i, first)
        _fetch_ahead(rows, slot_j, first)
        best, least = LOWEST, HIGHEST
        if is_kept:
            # Two loops: of one over so many arrays LLVM cannot tell that they are apart.
            for k in range(np.uint64(BLOCK)):
                difference = rows[slot_i, first + k] - rows[slot_j, first + k]
                # What is left of an earlier direction may not be finite.
                before = share * single[ALONG, start + k] if turns else np.float32(0.0)
                single[ALONG, start + k] = before + difference
            for k in range(np.uint64(BLOCK)):
                t = start + k
                change = mu * single[ALONG, t]
                double[GRADIENT, t] -= change
                single[UP, t] -= change
                single[LOW, t] -= change
                best, least = max(best, _key(single[UP, t])), min(least, _key(single[LOW, t]))
        else:
            for k in range(np.uint64(BLOCK)):
                change = mu * (rows[slot_i, first + k] - rows[slot_j, first + k])
                t = start + k
                double[GRADIENT, t] -= change
                single[UP, t] -= change
                single[LOW, t] -= change
                best, least = max(best, _key(single[UP, t])), min(least, _key(single[LOW, t]))
        keys[UP_BEST, b], keys[LOW_BEST, b] = best, least
    double[GRADIENT, i] -= step * double[RIDGE, i]
    double[GRADIENT, j] += step * double[RIDGE, j]
    single[ALONG, i] += np.float32(double[RIDGE, i])
    single[ALONG, j] -= np.float32(double[RIDGE, j])
    n_moving = number[MOVING]
    for k in range(1, 1 + n_moving):
        v = number[MOVING + k]
        if not _is_free(double, jump, v):
            number[MOVING] = 0
            _place(s, v)
            _reduce_block(single, keys, v // BLOCK)
    for v in (i, j):
        _place(s, v)
        _reduce_block(single, keys, v // BLOCK)


@inner
def _move_pair(s: PairState, i: int, j: int, k_ij: F) -> float:
    """Move the optimal μ from j to i within the box; 0 where float64 cannot move any more."""
    double, number, scalar, jump = s.double, s.number, s.scalar, s.scalar[JUMP]
    eta = max(double[DIAGONAL, i] + double[DIAGONAL, j] - 2.0 * k_ij, TINY_CURVATURE)
    mu = _gap(double, jump, i, j) / eta
    before_i, before_j = double[ALPHA, i], double[ALPHA, j]
    end_i, end_j = _ends(double, jump, i)[0], _ends(double, jump, j)[1]
    room_i, room_j = end_i - before_i, before_j - end_j
    if mu >= room_i or mu >= room_j:
        mu = min(room_i, room_j)
        # A variable that reaches its bound is assigned it: "at the bound" is an exact comparison.
        after_i = end_i if room_i <= room_j else before_i + mu
        after_j = end_j if room_j <= room_i else before_j - mu
        number[MOVING] = 0
    else:
        after_i, after_j = before_i + mu, before_j - mu
        number[MOVING], number[MOVING + 1], number[MOVING + 2] = 2, i, j
        scalar[WEIGHTS], scalar[WEIGHTS + 1], scalar[WEIGHTS + 2] = eta, 1.0, -1.0
    double[ALPHA, i], double[ALPHA, j] = after_i, after_j
    return mu if (after_i != before_i) | (after_j != before_j) else 0.0


@inner
def _reach(double: F8, jump: float, v: int, weight: float) -> float:
    """How far a step may go along a direction of which v has this weight."""
    (highest, least), value = _ends(double, jump, v), double[ALPHA, v]
    room = (highest if weight > 0.0 else least) - value
    return float(room / weight if weight != 0.0 else np.inf)


@inner
def _include(number: I8, scalar: F8, n: int, v: int) -> int:
    """Add a variable to the n of the last direction if it is none of them; returns their number."""
    place = n + 1
    for k in range(1, 1 + n):
        place = k if number[MOVING + k] == v else place
    number[MOVING + place] = v
    scalar[WEIGHTS + place] = 0.0 if place > n else scalar[WEIGHTS + place]
    return max(n, place)


@inner
def _move_along(s: PairState, i: int, j: int, k_ij: F) -> tuple[float, float]:
    """Move from j to i and along the last direction, conjugate to it.

    Returns the length and the multiple of the last direction; 0 as the length where nothing was
    moved, as the pair alone gains as much.
    """
    double, number, scalar, jump = s.double, s.number, s.scalar, s.scalar[JUMP]
    n, slope = number[MOVING], _gap(double, jump, i, j)
    eta = double[DIAGONAL, i] + double[DIAGONAL, j] - 2.0 * k_ij
    product = float(s.single[ALONG, i]) - float(s.single[ALONG, j])
    turn = -product / scalar[WEIGHTS] if n > 0 else 0.0
    bend = eta + product * turn
    may = (n > 0) & (n + 2 <= MOST_MOVING) & (eta > TINY_CURVATURE) & (bend > LEAST_BEND * eta)
    alone = min(slope / eta, _reach(double, jump, i, 1.0), _reach(double, jump, j, -1.0))
    n_both = n
    for v in (i, j):
        n_both = _include(number, scalar, n_both, v)
    length = most = slope / bend if may else 0.0
    largest = 0.0
    for k in range(1, 1 + n_both):
        member, weight = number[MOVING + k], turn * scalar[WEIGHTS + k]
        weight = weight + 1.0 if member == i else weight
        weight = weight - 1.0 if member == j else weight
        most = min(most, _reach(double, jump, member, weight))
        largest = max(largest, abs(weight))
    gain = most * (slope - 0.5 * bend * most)
    moves = (most > 0.0) & (largest < LARGEST_WEIGHT)
    moves &= gain > alone * (slope - 0.5 * eta * alone)
    for k in range(1, 1 + (n_both if moves else 0)):
        member, weight = number[MOVING + k], turn * scalar[WEIGHTS + k]
        weight = weight + 1.0 if member == i else weight
        weight = weight - 1.0 if member == j else weight
        (highest, least), value = _ends(double, jump, member), double[ALPHA, member]
        end = highest if weight > 0.0 else least
        met = (most < length) & (_reach(double, jump, member, weight) <= most)
        double[ALPHA, member] = end if met else min(max(value + most * weight, least), highest)
        scalar[WEIGHTS + k] = weight
    number[MOVING] = n_both if moves else n
    scalar[WEIGHTS] = bend if moves else scalar[WEIGHTS]
    return (most if moves else 0.0), turn


@inner
def _off_bounds(double: F8, jump: float, v: int) -> bool:
    value, width = double[ALPHA, v], double[UPPER, v] - double[LOWER, v]
    margin = BOUND_MARGIN * width if width < np.inf else 0.0
    highest, least = _ends(double, jump, v)
    return bool((value > least + margin) & (value < highest - margin))


@inner
def _chooses_by_gain(s: PairState, rule: int, i: int) -> bool:
    """Whether there is a last pair, and for HMG, whether it is out of the corners of the box.

    And in the group of i, where most is missing: HMG would polish the other one for ever.
    """
    a, b, jump = s.number[LAST_I], s.number[LAST_J], s.scalar[JUMP]
    same = _group(s.number, a) == _group(s.number, i)
    is_off = _off_bounds(s.double, jump, a) | _off_bounds(s.double, jump, b)
    return bool((a >= 0) & same & ((rule == GAIN) | is_off))


@inner
def _may_step(double: F8, jump: float, i: int, j: int) -> bool:
    """Whether moving from j to i is possible and gains, by the float64 state."""
    inside = (double[ALPHA, i] < double[UPPER, i]) & (double[ALPHA, j] > double[LOWER, j])
    return bool(inside & (_gap(double, jump, i, j) > 0.0))


@inner
def _keep_rows(number: I8, slots: I4, used: I8, i: int, j: int) -> None:
    """Stamp the rows that this step needs: fetching one must not evict another of them."""
    stamp = number[STAMP] + 1
    number[STAMP] = stamp
    for v in (i, j, number[LAST_I], number[LAST_J]):
        slot = slots[_column(number, v)] if v >= 0 else np.int32(-1)
        if slot >= 0:
            used[slot] = stamp


def _loop_of(rule: int) -> Callable[..., tuple[int, int]]:
    """Make the loop of one rule: a first run compiles 2.1 s instead of 3.8 s for all of them."""
    by_gain, by_curvature = rule in (HMG, GAIN), rule == SECOND_ORDER

    def advance(
        s: PairState, rows: F4, slots: I4, used: I8, tol: float, max_steps: int
    ) -> tuple[int, int]:
        double, number, jump = s.double, s.number, s.scalar[JUMP]
        stop_at = number[STEPS] + max_steps
        while True:
            exact = number[IS_EXACT] == 1
            i, j = exact_extremes(s)[:2] if exact else _extremes(s)
            if i < 0 or j < 0 or _gap(double, jump, i, j) <= tol:
                number[IS_EXACT] = 0 if exact else 1
                if exact:
                    return CONVERGED, -1
                refresh(s)
                continue
            if by_gain and not exact and _chooses_by_gain(s, rule, i):
                a, b = _column(number, number[LAST_I]), _column(number, number[LAST_J])
                if slots[a] < 0 or slots[b] < 0:
                    _keep_rows(number, slots, used, -1, -1)
                    return NEED_ROW, a if slots[a] < 0 else b
                v, t = _gain_partner(s, rows, slots)
                if _may_step(double, jump, v, t):
                    i, j = v, t
                elif _may_step(double, jump, t, v):
                    i, j = t, v
                elif rule == GAIN:
                    return STALLED, -1
            if by_curvature and not exact and slots[_column(number, i)] >= 0:
                partner = _second_order_partner(s, rows, slots[_column(number, i)], i)
                if partner >= 0 and _may_step(double, jump, i, partner):
                    j = partner
            _keep_rows(number, slots, used, i, j)
            a, b = _column(number, i), _column(number, j)
            if slots[a] < 0 or slots[b] < 0:
                return NEED_ROW, a if slots[a] < 0 else b
            if not max(abs(double[ALPHA, i]), abs(double[ALPHA, j])) < LARGEST_ALPHA:
                return STALLED, -1
            mu, turn = 0.0, 0.0
            if by_curvature:
                mu, turn = _move_along(s, i, j, rows[slots[a], b])
            if mu == 0.0:
                mu, turn = _move_pair(s, i, j, rows[slots[a], b]), 0.0
                if not by_curvature:
                    number[MOVING] = 0
            if mu == 0.0:
                number[IS_EXACT] = 0 if exact else 1
                if exact:
                    return STALLED, -1
                refresh(s)
                continue
            _move_gradient(s, rows, slots, i, j, mu, turn)
            number[IS_EXACT] = 0
            number[LAST_I], number[LAST_J] = i, j
            number[STEPS] += 1
            if number[STEPS] % REFRESH == 0 or number[STEPS] >= stop_at:
                refresh(s)
                if number[STEPS] >= stop_at:
                    return STEPS_SPENT, -1

    loop: Callable[..., tuple[int, int]] = compiled(advance)
    return loop


_ADVANCE = tuple(_loop_of(rule) for rule in (MVP, SECOND_ORDER, HMG, GAIN))
_second_order = _ADVANCE[SECOND_ORDER]


def run(
    s: PairState, rows: F4, slots: I4, used: I8, rule: int, tol: float, max_steps: int
) -> tuple[int, int]:
    """Advance until converged, out of steps, in need of a kernel row, or unable to move.

    It has converged when max_up g − min_low g ≤ tol. Returns CONVERGED, STEPS_SPENT, NEED_ROW or
    STALLED, and the row that is missing, or −1. After NEED_ROW, the next call repeats what this one
    did since its last step.

    Parameters
    ----------
    s : PairState
        Refreshed, or as the last call left it.
    rows : (n_slots, m') float32
        Kernel rows among the working set; values of padding are 0.
    slots : (≥ m,) int32
        Slot of each row, or −1.
    used : (n_slots,) int64
        Stamp of the last use of each slot; written here, read by the row cache.
    max_steps : int
        Most steps of this call. Multiples of REFRESH do not change results; after any other number
        of steps the copies are rebuilt once more.
    """
    return _ADVANCE[rule](s, rows, slots, used, tol, max_steps)


# -- many small problems -----------------------------------------------------------------------


@inner
def _kernel_row(grams: tuple[F8, F8, F8], span: tuple[int, int, int, int], t: int, out: F4) -> None:
    """Copy the kernel values of row t of a pair with all of its rows."""
    first, cross, second = grams
    a, b, c, d = span
    m = b - a
    for s in range(m):
        out[s] = first[a + t, a + s] if t < m else cross[a + s, c + t - m]
    for s in range(d - c):
        out[m + s] = cross[a + t, c + s] if t < m else second[c + t - m, c + s]
    for s in range(m + d - c, out.shape[0]):
        out[s] = 0


@inner(allocates=True)
def _laid_out(
    grams: tuple[F8, F8, F8],
    span: tuple[int, int, int, int],
    box: F8,
    n_groups: int,
    alpha: F8,
    row: F4,
) -> PairState:
    """Make the refreshed state of a pair's problem, as `make_state` does; `row` is overwritten."""
    m = span[1] - span[0]
    size = m + span[3] - span[2]
    blocks = -(-size // BLOCK)
    segment = blocks * BLOCK
    length = segment * n_groups
    double, single = np.zeros((6, length)), np.zeros((6, length), np.float32)
    keys = np.zeros((2, blocks * n_groups), np.int32)
    number = np.zeros(MOVING + 3 + MOST_MOVING, np.int64)
    scalar = np.zeros(WEIGHTS + 3 + MOST_MOVING)
    gradient = box[0, :size].copy()
    for s in range(size):
        if alpha[s] != 0.0:
            _kernel_row(grams, span, s, row)
            for t in range(size):
                gradient[t] -= alpha[s] * row[t]
    for t in range(size):
        a, c = span[0] + t, span[2] + t - m
        own = segment if n_groups > 1 and t >= m else 0  # where the variables of its group begin
        double[ALPHA, own + t] = alpha[t]
        double[LOWER, own + t], double[UPPER, own + t] = box[1, t], box[2, t]
        for start in range(0, length, segment):
            double[GRADIENT, start + t] = gradient[t]
            double[DIAGONAL, start + t] = grams[0][a, a] if t < m else grams[2][c, c]
            single[CURVATURE, start + t] = double[DIAGONAL, start + t]
    number[SEGMENT], number[GROUPS] = segment, n_groups
    number[LAST_I] = number[LAST_J] = -1
    state = PairState(double, single, keys, number, scalar)
    refresh(state)
    return state


@compiled(allocates=True)
def run_each(
    grams: tuple[F8, F8, F8],
    spans: I8,
    box: F8,
    n_groups: int,
    tol: float,
    max_steps: int,
    memory: F4,
    alpha: F8,
    steps: I8,
    reached: NDArray[np.bool_],
) -> None:
    """Solve small problems, one after the other, by the second-order rule.

    `n_groups` is 2 if the sum of the variables of each group of rows is constant, else 1. `memory`
    holds kernel rows and has at least values_of(m) values.

    Parameters
    ----------
    grams : (q, q), (q, r) and (r, r) float64
        Kernel values among a first group of rows, between both groups, and among the second group.
    spans : (p, 4) int64
        For each problem, where its rows in the first group begin and end, then the same for the
        second group.
    box : (p, 3, ≥ m) float64
        Linear term, lower and upper bound of the rows of the first group and then of the second.
    max_steps : int
        Most steps of all problems together; a problem that would exceed it is not begun.
    alpha : (p, ≥ m) float64
        Start, replaced by the result.
    steps, reached : (p,) int64, bool
        Steps taken, −1 if not begun; whether the tolerance `tol` of `run` is reached.
    """
    left = max_steps
    for p in range(spans.shape[0]):
        steps[p], reached[p] = -1, False
    for p in range(spans.shape[0]):
        allowed = min(MOST_STEPS, left)
        if allowed <= 0:
            return
        span = (spans[p, 0], spans[p, 1], spans[p, 2], spans[p, 3])
        size = span[1] - span[0] + span[3] - span[2]
        width = -(-size // BLOCK) * BLOCK
        rows = memory[: size * width].reshape(size, width)
        s = _laid_out(grams, span, box[p], n_groups, alpha[p], rows[0])
        slots, used = np.empty(width, np.int32), np.zeros(size, np.int64)
        for t in range(width):
            slots[t] = -1
        filled, status = 0, NEED_ROW
        while status == NEED_ROW:
            status, row = _second_order(s, rows, slots, used, tol, allowed - s.number[STEPS])
            if status == NEED_ROW:
                _kernel_row(grams, span, row, rows[filled])
                slots[row] = filled
                filled += 1
        if status == STEPS_SPENT:
            if exact_extremes(s)[2] <= tol:
                status = CONVERGED
            elif allowed == left:
                return
        second = span[1] - span[0] if n_groups > 1 else size
        for t in range(size):
            alpha[p, t] = s.double[ALPHA, t if t < second else width + t]
        steps[p], reached[p] = s.number[STEPS], status == CONVERGED
        left -= steps[p]


def values_of(n_rows: int) -> int:
    """Count the values of memory that `run_each` needs for a problem of `n_rows` rows."""
    return n_rows * -(-n_rows // BLOCK) * BLOCK
