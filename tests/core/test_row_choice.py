"""Which rows are fetched and which give way, against sorting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigsvm.core import row_choice


def wanted(score, slots, row, *, least, at_least=0, room=24):
    found = np.full(room, -7, np.int64)
    padded = np.concatenate([slots, np.full(10, -1)]).astype(np.int32)
    n = row_choice.most_wanted(score.copy(), padded, row, least, at_least, found)
    assert (found[n:] == -7).all()
    return found[:n].tolist()


def naive_wanted(score, slots, row, *, least, at_least=0, room=24):
    order = sorted(range(len(score)), key=lambda v: -score[v])
    others = [v for v in order if v != row and slots[v] < 0 and score[v] > row_choice.NEVER]
    enough = sum(score[v] > least for v in others)
    return [row, *others[: max(enough, at_least - 1)]][:room]


SCORES = st.sampled_from([-np.inf, -3e38, -2.0, -1e-30, 0.0, 1e-30, 0.5, 0.5001, 3.0, np.inf])


@given(
    score=hnp.arrays(np.float32, st.integers(1, 200), elements=SCORES),
    data=st.data(),
    least=st.sampled_from([0.0, 0.5, 1e6]),
    at_least=st.integers(0, 8),
    room=st.integers(1, 30),
)
@settings(max_examples=200, deadline=None)
def test_the_most_wanted_are_listed_in_order(score, data, least, at_least, room):
    slots = data.draw(hnp.arrays(np.int32, len(score), elements=st.integers(-1, 0)))
    row = data.draw(st.integers(0, len(score) - 1))
    slots[row] = -1
    options = {"least": least, "at_least": at_least, "room": room}
    assert wanted(score, slots, row, **options) == naive_wanted(score, slots, row, **options)


@pytest.mark.parametrize("row", [0, 69])
def test_scores_that_are_not_numbers_are_not_wanted(row):
    """The row asked for is listed all the same: without it there would be no end."""
    score = np.full(70, np.nan, np.float32)
    score[5] = 1.0
    assert wanted(score, np.full(70, -1), row, least=0.5, at_least=6) == [row, 5]


def naive_given_up(used, owner, quiet, n_recent, count):
    recent = sorted(used)[-n_recent] if len(used) > n_recent else 0
    pairs = zip(used, owner, strict=True)
    age = [(not (quiet[v] and u < recent), u, s) for s, (u, v) in enumerate(pairs)]
    return sorted(s for _, _, s in sorted(age)[:count]), sum(not a for a, _, _ in age)


@given(
    used=hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 12)),
    quiet=hnp.arrays(np.bool_, 40),
    n_recent=st.integers(1, 5),
    seed=st.integers(0, 9),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_quiet_rows_give_way_and_then_the_least_recently_used(used, quiet, n_recent, seed, data):
    owner = np.random.default_rng(seed).permutation(40)[: len(used)]
    slots = np.full(data.draw(st.integers(1, len(used))), -1, np.int64)
    expected, n_quiet = naive_given_up(used, owner, quiet, n_recent, len(slots))
    assert row_choice.count_quiet(used, owner, quiet, n_recent) == n_quiet
    row_choice.give_up(used, owner, quiet, n_recent, slots)
    assert slots.tolist() == expected
