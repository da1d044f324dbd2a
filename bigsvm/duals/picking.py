"""Which rows are worked on: as many as there is room for, by how much each of them violates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SCAN_ROWS = 1 << 15
"""Rows looked at together when scoring: temporaries of 3 MB at most, whatever n is."""


class Crowd(NamedTuple):
    """What is chosen where more rows are free or violate than one working set holds.

    Attributes
    ----------
    capacity : int
        Most rows that are chosen then, in place of those of a working set.
    near : callable, optional
        Kernel values, (n,) float64, of all rows with the one at a place. With it those of a crowd
        that are nearest to one of them are chosen.
    """

    capacity: int
    near: Callable[[int], NDArray[np.float64]] | None = None


def pick(
    scores: NDArray[np.float32],
    asked: NDArray[np.bool_],
    free: NDArray[np.bool_],
    *,
    above: NDArray[np.bool_],
    worst: list[int],
    n_free: int,
    capacity: int,
    crowd: Crowd | None,
    smallest: int,
    fill: float,
    band: tuple[int, int],
    margin: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Pick rows by their scores: see `Dual.select`, whose arguments these are.

    With violators alone the gap merely halves per sweep; some more that nearly violate save half of
    the sweeps (w8a: 6 instead of 14). Where the violators are more than there is room for, each
    counts by a random part of its violation, as the worst are often near copies of one another (8
    sweeps instead of 10 on digits made many), and half of them come from either side of the
    threshold: of one side alone hardly any could move (a9a: 12 working sets instead of 55). The
    worst of all are always chosen, without which there might be no step.

    Rows of a crowd are chosen as neighbours, with the kernel as the measure: of one of them, and
    half from either side again. Such a set leaves little of its own to do, and moves the others
    little, so that it need not be solved again. Which one is drawn does not depend on its
    violation, or the sets would stay where the worst violators are.

    Parameters
    ----------
    scores : (n,) float32
        By how much rows violate, less than 0 where they do not; changed.
    asked, free : (n,) bool
        Rows that are free or violate, and those that are free.
    above : (n,) bool
        Which side of the threshold a row violates on.
    worst : list of int
        Rows that are picked in any case.
    n_free : int
        Free variables.

    Returns
    -------
    (m,) int64
        Ascending.
    """
    n, wanted = len(scores), int(asked.sum())
    near = None
    if crowd is not None and wanted > capacity:
        capacity, near = crowd.capacity, crowd.near
    if near is None and 2 * n_free <= capacity:
        scores[free] = np.inf
    size = int(min(n, capacity, max(smallest, fill * wanted)))
    close = max(band[0], int(np.count_nonzero(scores > -margin)))
    size = max(size, min(close, band[1]))
    if size == n:
        return np.arange(n)
    if size < wanted:
        _thin_out(scores, above, worst, size, rng, near=near)
    last = np.partition(scores, n - size)[n - size]
    chosen = np.flatnonzero(scores > last)
    ties = np.flatnonzero(scores == last)[: size - len(chosen)]
    return np.sort(np.concatenate([chosen, ties]))


def _thin_out(
    scores: NDArray[np.float32],
    above: NDArray[np.bool_],
    worst: list[int],
    size: int,
    rng: np.random.Generator,
    *,
    near: Callable[[int], NDArray[np.float64]] | None,
) -> None:
    """Make the scores of too many violators random, and no more than half of `size` of a side.

    With `near` they are the nearer to a random one of them, the higher.
    """
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
    sides = [np.flatnonzero((scores > 0) & np.isfinite(scores) & (above == s)) for s in (0, 1)]
    fewer = min(len(side) for side in sides)
    quota = max(-(-open_places // 2), open_places - fewer)
    for side in sides:
        if len(side) > quota:
            dropped = len(side) - quota  # all, where the worst and the free rows fill the set
            order = np.argpartition(scores[side], min(dropped, len(side) - 1))
            scores[side[order[:dropped]]] = 0
