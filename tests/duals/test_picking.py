"""Rows that are picked by parts are those that are picked from the scores of all rows."""

import tracemalloc

import numpy as np
import pytest

from bigsvm.duals import picking
from bigsvm.duals.picking import Crowd, Scores, Wanted, pick, pick_by_parts

TOL = 0.125


def make_scores(n, rng):
    """Make scores with ties, zeros of both signs, and rows without variables."""
    values = np.concatenate([np.linspace(-2, 2, 33), [-0.0, -np.inf, TOL, 1e-30]])
    score = rng.choice(values, n).astype(np.float32)
    score -= np.float32(rng.choice([0.0, 1.0, 3.0]))  # many violate, or few
    score[rng.integers(n)] = 1.0
    free = rng.random(n) < rng.choice([0.0, 0.1, 0.5])
    above = rng.random(n) < 0.5
    worst = tuple(
        int(np.flatnonzero(side)[score[side].argmax()]) if side.any() else -1
        for side in (above, ~above)
    )
    return Scores(score, free | (score > TOL), free, above, [worst], int(free.sum()))


def part_of(scores, span):
    """Scores of some of the rows, as a dual makes them."""
    worst = tuple(place if span.start <= place < span.stop else -1 for place in scores.worst[0])
    return Scores(*(each[span].copy() for each in scores[:4]), [worst], scores.n_free)


def largest(score, count, among):
    """Places of the largest scores among some; of equal ones the first."""
    places = np.flatnonzero(among)
    order = np.argsort(-score[places], kind="stable")
    return np.sort(places[order[: max(count, 0)]])


def picked(scores, wanted):
    """What `pick` says, from the scores of all rows."""
    score, asked, free, above, worst, n_free = scores
    score, n, n_asked, near = score.copy(), len(score), asked.sum(), None
    capacity = wanted.capacity
    if wanted.crowd is not None and n_asked > capacity:
        capacity, near = wanted.crowd
    if near is None and 2 * n_free <= capacity:
        score[free] = np.inf
    size = int(min(n, capacity, max(wanted.smallest, wanted.fill * n_asked)))
    fewest, most = wanted.band
    size = max(size, min(max(fewest, (score > -wanted.margin).sum()), most))
    violates = (score > 0) & np.isfinite(score)
    if size < n_asked and size < n:
        if near is None:
            score[violates] *= wanted.rng.random(violates.sum(), np.float32)
        else:
            values = near(wanted.rng.choice(np.flatnonzero(violates)))
            score[score > 0] = np.abs(values)[score > 0]
        score[[place for place in worst[0] if place >= 0]] = np.inf
        violates = (score > 0) & np.isfinite(score)
        n_open = size - np.isposinf(score).sum()
        sides = [violates & ~above, violates & above]
        quota = max(-(-n_open // 2), n_open - min(side.sum() for side in sides))
        for side in sides:
            dropped = side.copy()
            dropped[largest(score, quota, side)] = False
            score[dropped] = 0
    return largest(score, size, np.ones(n, np.bool_))


@pytest.mark.parametrize("scan", [16, 1 << 15])
@pytest.mark.parametrize("seed", range(300))
def test_rows_picked_by_parts_are_those_picked_from_all(seed, scan, monkeypatch):
    monkeypatch.setattr(picking, "SCAN_ROWS", scan)
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 200))
    scores = make_scores(n, rng)
    kernel_values = rng.normal(size=(n, n))
    crowd = [None, Crowd(int(rng.integers(2, n + 2))), Crowd(n // 2 + 2, kernel_values.__getitem__)]
    wanted = Wanted(
        capacity=int(rng.integers(2, n + 2)), smallest=int(rng.integers(1, n + 1)),
        fill=rng.choice([1.0, 1.5]), rng=np.random.default_rng(seed), tol=TOL,
        band=[(0, 0), (n // 5, n // 2)][rng.integers(2)], margin=rng.choice([0.0, 0.5]),
        crowd=crowd[rng.integers(3)],
    )  # fmt: skip
    expected, spans = picked(scores, wanted), []

    def scored(span):
        spans.append(span)
        return part_of(scores, span)

    again = wanted._replace(rng=np.random.default_rng(seed))
    np.testing.assert_array_equal(pick_by_parts(n, scored, again), expected)
    assert again.rng.bit_generator.state == wanted.rng.bit_generator.state
    assert max(span.stop - span.start for span in spans) <= scan
    again = wanted._replace(rng=np.random.default_rng(seed))
    np.testing.assert_array_equal(pick(scores, again), expected)


def test_only_rows_that_may_be_picked_are_in_memory():
    n = 1 << 20
    score = np.random.default_rng(0).normal(-4.0, 1.0, n).astype(np.float32)
    none = np.zeros(n, np.bool_)
    scores = Scores(score, score > 0, none, none, [(int(score.argmax()), -1)], 0)
    wanted = Wanted(1000, 1000, 1.0, np.random.default_rng(0))
    tracemalloc.start()
    chosen = pick_by_parts(n, scores.part, wanted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * n
    np.testing.assert_array_equal(chosen, np.sort(np.argsort(-score, kind="stable")[:1000]))
