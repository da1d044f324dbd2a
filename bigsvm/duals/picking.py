"""Choice of rows by how much they violate, up to the number that a working set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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

    Scores may be those of a part of the rows. `worst` then has places among all rows; −1 stands for
    a row that this part does not have.
    """

    score: F4
    asked: Mask
    free: Mask
    above: Mask
    worst: Sequence[Sequence[int]]
    n_free: int

    def part(self, span: slice) -> Scores:
        """Return the scores of some of the rows; views."""
        return self._replace(
            score=self.score[span], asked=self.asked[span], free=self.free[span],
            above=self.above[span],
        )  # fmt: skip

    def violates(self) -> Mask:
        """Which rows violate, and are not chosen already."""
        violates: Mask = (self.score > 0) & np.isfinite(self.score)
        return violates


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
    return pick_by_parts(len(scores.score), scores.part, wanted)


def pick_by_parts(n: int, scored: Callable[[slice], Scores], wanted: Wanted) -> I8:
    """Pick among n rows as `pick`, without the scores of all of them in memory together.

    `scored` returns the scores of the rows of a span, and is called twice for each: once to count
    how many rows are to be picked, and once to pick them.
    """
    counts = _Counts.of(n, scored, wanted)
    capacity, near = wanted.capacity, None
    if wanted.crowd is not None and counts.asked > capacity:
        capacity, near = wanted.crowd.capacity, wanted.crowd.near
    takes_free = near is None and 2 * counts.n_free <= capacity
    size = int(min(n, capacity, max(wanted.smallest, wanted.fill * counts.asked)))
    close = max(wanted.band[0], counts.close_or_free if takes_free else counts.close)
    size = max(size, min(close, wanted.band[1]))
    if size == n:
        return np.arange(n)

    def parts() -> Iterator[tuple[slice, Scores]]:
        for span in spans(n):
            part = scored(span)
            if takes_free:
                part.score[part.free] = np.inf
            yield span, part

    if size < counts.asked:
        return _thinned_out(parts, size, counts, wanted, near)
    largest = _Largest(size)
    for span, part in parts():
        largest.add(np.arange(span.start, span.stop), part.score)
    return largest.kept(size)[0]


class _Counts(NamedTuple):
    """What the number of picked rows depends on.

    That is the rows that are asked, those that are close to violating, and those that are close or
    free. `n_free` and `worst` are those of `Scores`.
    """

    asked: int
    close: int
    close_or_free: int
    n_free: int
    worst: Sequence[Sequence[int]]

    @classmethod
    def of(cls, n: int, scored: Callable[[slice], Scores], wanted: Wanted) -> _Counts:
        asked = close = others = n_free = 0
        worst: Sequence[Sequence[int]] = ()
        for span in spans(n):
            part = scored(span)
            is_close = part.score > -wanted.margin
            asked += int(np.count_nonzero(part.asked))
            close += int(np.count_nonzero(is_close))
            others += int(np.count_nonzero(part.free & ~is_close))
            n_free = part.n_free
            worst = [
                [one if one >= 0 else other for one, other in zip(*both, strict=True)]
                for both in zip(worst or part.worst, part.worst, strict=True)
            ]
        return cls(asked, close, close + others, n_free, worst)


def _thinned_out(
    parts: Callable[[], Iterator[tuple[slice, Scores]]],
    size: int,
    counts: _Counts,
    wanted: Wanted,
    near: Callable[[int], F8] | None,
) -> I8:
    """Pick among too many violators at random, and no more than half of `size` from a side.

    With `near`, a violator's score is its kernel value with a random one of them.
    """
    worst: list[int] = []
    for places in counts.worst:
        # Functions after the worst one join only while there is room.
        if not worst or len(worst) + 2 <= wanted.capacity // 2:
            worst += [place for place in places if place >= 0]
    values = None
    if near is not None:
        violators = [span.start + np.flatnonzero(part.violates()) for span, part in parts()]
        values = near(int(wanted.rng.choice(np.concatenate(violators))))
    first: list[I8] = []
    below, above, others = _Largest(size), _Largest(size), _Largest(size)
    for span, part in parts():
        score = part.score
        if values is None:
            violates = part.violates()
            score[violates] *= wanted.rng.random(np.count_nonzero(violates), np.float32)
        else:
            np.copyto(score, np.abs(values[span]), where=score > 0, casting="same_kind")
        score[[row - span.start for row in worst if span.start <= row < span.stop]] = np.inf
        violates, is_first = part.violates(), np.isposinf(score)
        first.append(span.start + np.flatnonzero(is_first))
        for largest, chosen in (
            (below, violates & ~part.above),
            (above, violates & part.above),
            (others, ~(violates | is_first)),
        ):
            largest.add(span.start + np.flatnonzero(chosen), score[chosen])
    n_open = size - sum(map(len, first))
    quota = max(-(-n_open // 2), n_open - min(below.n_added, above.n_added))
    kept = [(rows, np.full(len(rows), np.inf, np.float32)) for rows in first]
    kept += [below.kept(quota), above.kept(quota), others.kept(size)]
    rows, scores = map(np.concatenate, zip(*kept, strict=True))
    order = np.argsort(rows)
    return _largest(rows[order], scores[order], size)[0]


class _Largest:
    """The `count` largest scores of those that are added in the order of their rows.

    Few others are in memory. `n_added` counts all that have been added.
    """

    def __init__(self, count: int) -> None:
        self._count, self.n_added = count, 0
        self._parts: list[tuple[I8, F4]] = [(np.empty(0, np.int64), np.empty(0, np.float32))]
        self._n_held = 0
        self._least: float | None = None

    def add(self, rows: I8, scores: F4) -> None:
        """Add rows and their scores, (m,)."""
        self.n_added += len(rows)
        if self._least is not None:
            larger = scores > self._least  # of equal scores the first ones are kept
            rows, scores = rows[larger], scores[larger]
        self._parts.append((rows, scores))
        self._n_held += len(rows)
        if self._n_held > self._count + max(SCAN_ROWS, self._count // 4):
            rows, scores = self.kept(self._count)
            self._parts, self._n_held = [(rows, scores)], len(rows)
            self._least = float(scores.min(initial=np.inf))

    def kept(self, count: int) -> tuple[I8, F4]:
        """Return the rows of the `count` largest scores, ascending, and their scores."""
        rows, scores = map(np.concatenate, zip(*self._parts, strict=True))
        return _largest(rows, scores, count)


def _largest(rows: I8, scores: F4, count: int) -> tuple[I8, F4]:
    """Return the rows of the `count` largest scores, and these; of equal ones the first rows."""
    if len(rows) <= count:
        return rows, scores
    if count <= 0:
        return rows[:0], scores[:0]
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    kept = scores > least
    kept[np.flatnonzero(scores == least)[: count - np.count_nonzero(kept)]] = True
    return rows[kept], scores[kept]


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


def spans(n: int) -> Iterator[slice]:
    """Yield the parts of n rows that are looked at together."""
    return (slice(start, min(start + SCAN_ROWS, n)) for start in range(0, n, SCAN_ROWS))
