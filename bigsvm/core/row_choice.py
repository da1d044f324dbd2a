"""Slots of kernel rows: which rows are fetched next, and which rows give theirs up.

Both are chosen without ties left open, so that machines agree on the rows that are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    B: TypeAlias = NDArray[np.bool_]
    F4: TypeAlias = NDArray[np.float32]
    I4: TypeAlias = NDArray[np.int32]
    I8: TypeAlias = NDArray[np.int64]

BLOCK = 64
"""Rows of one reduction: with 6000 rows as many blocks as rows of a block, about."""

NEVER = np.float32(-1e38)
"""Rows with no larger score are never wanted."""
NOT_WANTED = np.float32(-np.inf)


@inner
def _key(value: np.float32) -> np.int32:
    """Order all float32 values by an integer that grows with the value, as LLVM vectorises it."""
    bits = np.float32(value).view(np.int32)
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@inner
def _best_of_block(score: F4, b: int) -> np.int32:
    best = np.int32(-(2**31))
    for t in range(b * BLOCK, min((b + 1) * BLOCK, score.shape[0])):
        best = max(best, _key(score[t]))
    return best


@compiled(allocates=True)
def most_wanted(score: F4, slots: I4, row: int, least: float, at_least: int, wanted: I8) -> int:
    """List the rows without a slot that are wanted most, `row` before all others.

    `score`, (m,), is by how much each row is wanted; it is changed. Of equals the first is listed
    first. `slots`, (≥ m,), has the slot of each row, or −1; `row` has none.

    Rows with scores larger than `least` are listed as far as there is room in `wanted`, (q,). So
    many as `at_least` are listed whatever their scores, where there are as many above NEVER.
    Returns the number of rows listed.
    """
    m = score.shape[0]
    for t in range(m):
        score[t] = score[t] if (slots[t] < 0) & (score[t] > NEVER) else NOT_WANTED
    wanted[0], score[row] = row, NOT_WANTED
    best = np.empty(-(-m // BLOCK), np.int32)
    for b in range(best.shape[0]):
        best[b] = _best_of_block(score, b)
    enough, nobody = _key(np.float32(least)), _key(NOT_WANTED)
    count = 1
    while count < wanted.shape[0]:
        top = int(np.int64(0))  # Numba would compile `_best_of_block` again for a literal
        for b in range(best.shape[0]):
            top = b if best[b] > best[top] else top
        if best[top] <= (nobody if count < at_least else enough):
            break
        t = top * BLOCK
        while _key(score[t]) != best[top]:
            t += 1
        wanted[count] = t
        count += 1
        score[t] = NOT_WANTED
        best[top] = _best_of_block(score, top)
    return count


@inner(allocates=True)
def _recent(used: I8, n_recent: int) -> int:
    """Find the stamp of the last `n_recent` uses; 0 where there are no more slots."""
    if used.shape[0] <= n_recent:
        return 0
    last = np.zeros(n_recent, np.int64)  # ascending
    for s in range(used.shape[0]):
        if used[s] > last[0]:
            k = 0
            while k + 1 < n_recent and last[k + 1] < used[s]:
                last[k] = last[k + 1]
                k += 1
            last[k] = used[s]
    return int(last[0])


@compiled
def count_quiet(used: I8, owner: I8, quiet: B, n_recent: int) -> int:
    """Count the slots that `give_up` takes for quiet."""
    recent, count = _recent(used, n_recent), 0
    for s in range(used.shape[0]):
        count += int((used[s] < recent) & quiet[owner[s]])
    return count


@compiled(allocates=True)
def give_up(used: I8, owner: I8, quiet: B, n_recent: int, slots: I8) -> None:
    """Choose slots whose rows give way: quiet ones, then the least recently used.

    Among equal slots the first ones are chosen. `used` and `owner`, (n,), are the stamp of the last
    use, and the row, of each slot that is filled. `quiet`, (m,), tells which rows are not expected
    to be used soon; those in the last `n_recent` slots used are not quiet. `slots`, (q,) with 1 ≤ q
    ≤ n, becomes the slots chosen, ascending.
    """
    recent, q, n = _recent(used, n_recent), slots.shape[0], 0
    age = np.empty(q, np.int64)
    for s in range(used.shape[0]):
        still = (used[s] < recent) & quiet[owner[s]]
        own = used[s] - (np.int64(1) << 62 if still else 0)
        if n == q and own >= age[q - 1]:
            continue
        n = min(n + 1, q)
        k = n - 1
        while k > 0 and age[k - 1] > own:
            age[k], slots[k] = age[k - 1], slots[k - 1]
            k -= 1
        age[k], slots[k] = own, s
    slots.sort()
