"""Choice of rows by how much they violate, up to the number that a working set holds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    n_close = sum(np.count_nonzero(score[span] > -wanted.margin) for span in _spans(n))
    close = max(wanted.band[0], int(n_close))
    size = max(size, min(close, wanted.band[1]))
    if size == n:
        return np.arange(n)
    if size < n_asked:
        _thin_out(scores, size, wanted, near)
    return _largest(score, size)


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
    n = len(scores)
    if near is not None:
        values = near(int(rng.choice(_places(n, partial(_violates, scored)))))
        np.copyto(scores, np.abs(values), where=scores > 0, casting="same_kind")
    else:
        for span in _spans(n):
            chosen = _violates(scored, span)
            scores[span][chosen] *= rng.random(np.count_nonzero(chosen), np.float32)
    scores[worst] = np.inf
    open_places = size - len(_places(n, lambda span: np.isposinf(scores[span])))
    sides = [partial(_violates_above, scored, above) for above in (False, True)]
    sizes = [sum(int(np.count_nonzero(side(span))) for span in _spans(n)) for side in sides]
    quota = max(-(-open_places // 2), open_places - min(sizes))
    for side, n_side in zip(sides, sizes, strict=True):
        if n_side > quota:
            kept = _largest(scores, quota, side)  # none where the worst and the free rows fill it
            kept_scores = scores[kept]
            for span in _spans(n):
                scores[span][side(span)] = 0
            scores[kept] = kept_scores


def _violates(scored: Scores, span: slice) -> Mask:
    """Which rows of a span violate, and are not chosen already."""
    score = scored.score[span]
    violates: Mask = (score > 0) & np.isfinite(score)
    return violates


def _violates_above(scored: Scores, above: bool, span: slice) -> Mask:
    """Which of them violate on this side of the threshold."""
    violates: Mask = _violates(scored, span) & (scored.above[span] == above)
    return violates


def _all(span: slice) -> Mask:
    return np.ones(span.stop - span.start, np.bool_)


def _largest(scores: F4, count: int, among: Callable[[slice], Mask] = _all) -> I8:
    """Return the places of the `count` largest scores among some rows, ascending.

    Of equal scores the first ones are taken. No array is as long as the scores.
    """
    kept, spans = np.empty(0, np.float32), list(_spans(len(scores)))
    if count <= 0:
        return np.empty(0, np.int64)
    for span in spans:
        kept = np.concatenate([kept, scores[span][among(span)]])
        if len(kept) >= 2 * count + SCAN_ROWS:
            kept = np.partition(kept, len(kept) - count)[-count:]
    last = np.partition(kept, len(kept) - count)[len(kept) - count]
    chosen = _places(len(scores), lambda span: among(span) & (scores[span] > last))
    parts, n_left = [chosen], count - len(chosen)
    for span in spans:
        if n_left <= 0:
            break
        ties = span.start + np.flatnonzero(among(span) & (scores[span] == last))[:n_left]
        parts.append(ties)
        n_left -= len(ties)
    return np.sort(np.concatenate(parts))


def _places(n: int, chosen: Callable[[slice], Mask]) -> I8:
    """Return which of n rows are chosen; ascending."""
    return np.concatenate([span.start + np.flatnonzero(chosen(span)) for span in _spans(n)])


def _spans(n: int) -> Iterator[slice]:
    """Yield the parts of n rows that are looked at together."""
    return (slice(start, min(start + SCAN_ROWS, n)) for start in range(0, n, SCAN_ROWS))
