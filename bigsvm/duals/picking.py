"""Choice of rows by how much they violate, up to the number that a working set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F4, F8, I8, Mask

SCAN_ROWS = 1 << 15
"""Rows that are scored together, so that temporaries take 3 MB at most."""


class Crowd(NamedTuple):
    """What is chosen where more rows are free or violate than one working set holds.

    At most `capacity` rows are chosen then, in place of those of a working set. `near` gives kernel
    values, (n,), of all rows with the one at a place. With it those of a crowd that are nearest to
    one of them are chosen.
    """

    capacity: int
    near: Callable[[int], F8] | None = None


class Wanted(NamedTuple):
    """How many rows are chosen, and which.

    Attributes
    ----------
    capacity, smallest : int
        Most rows, 2 or more; fewest rows, if the problem has that many.
    fill : float
        Number of chosen rows as a multiple of the free and violating rows.
    tol : float
        A row violates if its gradient is on the wrong side by more than this.
    band, margin : tuple, float
        Fewest and most rows that are made up by those close to violating; how close, in the
        gradient.
    crowd : Crowd, optional
        What is chosen where free and violating rows are more than `capacity`.
    """

    capacity: int
    smallest: int
    fill: float
    rng: np.random.Generator
    tol: float = 0.0
    band: tuple[int, int] = (0, 0)
    margin: float = 0.0
    crowd: Crowd | None = None


class Scores(NamedTuple):
    """What rows are chosen by.

    `score`, (m,), is by how much each row violates; it is negative if the row does not. `asked` are
    rows that are free or violate, `free` those that are free. `above` tells on which side of the
    threshold each row violates. `worst` has the places of the worst rows of each function, the
    worst function first. `n_free` counts free variables.
    """

    score: F4
    asked: Mask
    free: Mask
    above: Mask
    worst: list[list[int]]
    n_free: int


def pick(scores: Scores, wanted: Wanted) -> I8:
    """Pick rows by their scores; returns their places, (s,) ascending.

    Rows that nearly violate are chosen too: they save half of the sweeps. If more rows violate than
    fit, each is scored by a random part of its violation, because the worst are often near copies
    of one another. Half of the rows come from either side of the threshold, because variables of
    one side alone can hardly move. The worst rows of all are always chosen: without them there
    might be no step.

    The rows of a crowd are the neighbours, by kernel value, of one violator that is drawn at
    random, half from either side again. Such a set hardly moves other rows, so it need not be
    solved again. The draw does not depend on violations; otherwise all sets would be near the worst
    violators.

    The scores are changed.
    """
    score, capacity = scores.score, wanted.capacity
    n, n_asked = len(score), int(scores.asked.sum())
    near = None
    if wanted.crowd is not None and n_asked > capacity:
        capacity, near = wanted.crowd.capacity, wanted.crowd.near
    if near is None and 2 * scores.n_free <= capacity:
        score[scores.free] = np.inf
    size = int(min(n, capacity, max(wanted.smallest, wanted.fill * n_asked)))
    close = max(wanted.band[0], int(np.count_nonzero(score > -wanted.margin)))
    size = max(size, min(close, wanted.band[1]))
    if size == n:
        return np.arange(n)
    if size < n_asked:
        _thin_out(scores, size, wanted, near)
    last = np.partition(score, n - size)[n - size]
    chosen = np.flatnonzero(score > last)
    ties = np.flatnonzero(score == last)[: size - len(chosen)]
    return np.sort(np.concatenate([chosen, ties]))


def neighbourhoods(
    n_sets: int, size: int, *, n: int, near: Callable[[int], F8], rng: np.random.Generator
) -> list[I8]:
    """Divide n rows into disjoint sets of neighbours; returns the places of each, ascending.

    Each set has the rows with the largest kernel values, of those left, with one of them that is
    drawn at random: `size` of them, or fewer if there are not as many for every set. `near` is that
    of `Crowd`. Rows of a set that do not violate yet come to violate while it is solved.
    """
    left = np.arange(n)
    sets: list[I8] = []
    for n_left in range(n_sets, 0, -1):
        count = min(size, len(left) // n_left)
        values = np.abs(near(int(rng.choice(left))))[left]
        order = np.argsort(-values, kind="stable")
        sets.append(np.sort(left[order[:count]]))
        left = np.sort(left[order[count:]])
    return sets


def _thin_out(scored: Scores, size: int, wanted: Wanted, near: Callable[[int], F8] | None) -> None:
    """Make the scores of too many violators random, and no more than half of `size` of a side.

    With `near`, a violator's score is its kernel value with a random one of them.
    """
    scores, rng = scored.score, wanted.rng
    worst: list[int] = []
    for places in scored.worst:
        # Functions after the worst one join only while there is room.
        if not worst or len(worst) + 2 <= wanted.capacity // 2:
            worst += places
    if near is not None:
        violators = np.flatnonzero((scores > 0) & np.isfinite(scores))
        values = near(int(rng.choice(violators)))
        np.copyto(scores, np.abs(values), where=scores > 0, casting="same_kind")
    else:
        for start in range(0, len(scores), SCAN_ROWS):
            score = scores[start : start + SCAN_ROWS]
            violates = (score > 0) & np.isfinite(score)
            score[violates] *= rng.random(np.count_nonzero(violates), np.float32)
    scores[worst] = np.inf
    open_places = size - int(np.count_nonzero(np.isposinf(scores)))
    violates = (scores > 0) & np.isfinite(scores)
    sides = [np.flatnonzero(violates & (scored.above == s)) for s in (0, 1)]
    fewer = min(len(side) for side in sides)
    quota = max(-(-open_places // 2), open_places - fewer)
    for side in sides:
        if len(side) > quota:
            dropped = len(side) - quota  # all, where the worst and the free rows fill the set
            order = np.argpartition(scores[side], min(dropped, len(side) - 1))
            scores[side[order[:dropped]]] = 0
