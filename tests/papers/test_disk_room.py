"""The disk tier where there is not room for all rows: which stay, and all of it against sets."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from papers.disk_rows import (
    Computing,
    N,
    capacity_for,
    fetched,
    fill,
    flip,
    offer,
    open_tier,
    the_file,
)


def hit_rate(tier, variables):
    """Ask for rows one after the other, and offer those that had to be computed."""
    before = tier.n_hits
    for v in variables:
        misses = tier.n_misses
        fetched(tier, v, n=300)
        if tier.n_misses > misses:
            fill(tier, v, n=300)
    return (tier.n_hits - before) / len(variables)


@pytest.mark.parametrize(
    ("n_asked", "at_least"), [(100, 1.0), (101, 0.97), (110, 0.88), (150, 0.62), (200, 0.45)]
)
def test_a_budget_a_little_too_small_costs_a_little(tmp_path, n_asked, at_least):
    """Rows in turn, where the least recently used is always the one asked for next."""
    turn = list(range(n_asked))
    with open_tier(tmp_path, n=300, rows=100) as tier:
        hit_rate(tier, turn * 2)
        written = tier.bytes_written
        assert hit_rate(tier, turn * 4) >= at_least
        assert tier.bytes_written - written <= 0.05 * len(turn * 4) * 1200


def test_rows_no_longer_asked_for_make_room(tmp_path):
    with open_tier(tmp_path, n=300, rows=50) as tier:
        assert hit_rate(tier, list(range(50)) * 3) == pytest.approx(2 / 3)
        hit_rate(tier, list(range(100, 150)) * 15)
        assert hit_rate(tier, list(range(100, 150))) > 0.5


def test_rows_that_are_read_stay_before_rows_that_are_not(tmp_path):
    with open_tier(tmp_path, n=300, rows=100) as tier:
        fill(tier, *range(50), n=300)
        fill(tier, *range(50, 100), n=300)
        for v in range(100, 300):
            fetched(tier, *range(50), n=300)
            fill(tier, v, n=300)
        kept = tier._slots >= 0
        assert kept[:50].sum() > 1.2 * kept[50:100].sum()


def test_the_choice_is_that_of_the_seed(tmp_path):
    def held(folder, seed):
        with open_tier(tmp_path / folder, n=300, rows=40, seed=seed) as tier:
            for start in range(0, 300, 50):
                fill(tier, *range(start, start + 50), n=300)
            return np.flatnonzero(tier._slots >= 0).tolist()

    assert held("a", 1) == held("b", 1) != held("c", 2)


# -- against sets ----------------------------------------------------------------------------------


class DiskMachine(RuleBasedStateMachine):
    """Rows asked for and offered at random, a file reopened and damaged; beside it, sets.

    `there` are variables whose rows must come from the disk: those offered, where there is room for
    all. `doubtful` are those that the tier may take for intact when they are not.
    """

    @initialize(rows=st.integers(1, 40))
    def begin(self, rows):
        self.folder = tempfile.TemporaryDirectory()
        self.below = Computing()
        self.offered, self.there, self.doubtful = set(), set(), set()
        self.damaged = False
        self.open(rows)

    def open(self, rows):
        self.rows = min(rows, N)
        self.tier = open_tier(self.folder.name, self.below, rows=rows)
        self.n_asked = 0

    @rule(variables=st.lists(st.integers(0, N - 1), unique=True))
    def ask(self, variables):
        before = len(self.below.computed)
        fetched(self.tier, *variables)
        computed = self.below.computed[before:]
        assert len(computed) == len(set(computed))
        assert not self.there & set(computed)
        assert set(variables) - set(computed) <= self.offered
        self.n_asked += len(variables)
        self.doubtful -= set(variables)

    @rule(variables=st.lists(st.integers(0, N - 1), unique=True), drained=st.booleans())
    def offer(self, variables, drained):
        n_dropped = self.tier.n_dropped
        offer(self.tier, *variables)
        if drained:
            self.tier.drain()
        self.offered |= set(variables)
        if self.rows == N and self.tier.n_dropped == n_dropped:
            self.there |= set(variables) - self.doubtful

    @rule(rows=st.integers(1, 40))
    def reopen(self, rows):
        self.tier.close()
        if min(rows, N) < self.rows or self.damaged:
            self.there.clear()
        if self.damaged:
            self.doubtful = set(range(N))
        self.open(rows)
        assert (self.tier.n_damaged == 0) or self.damaged

    @rule(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def flip_a_bit(self, place, bit):
        path = self.file_to_damage()
        if path.stat().st_size > 0:
            flip(path, int(place * path.stat().st_size), bit)

    @rule(place=st.floats(0, 1))
    def truncate(self, place):
        path = self.file_to_damage()
        os.truncate(path, int(place * path.stat().st_size))

    def file_to_damage(self):
        self.tier.drain()
        self.there.clear()
        self.doubtful = set(range(N))
        self.damaged = True
        return the_file(Path(self.folder.name))

    @invariant()
    def counts_what_it_does(self):
        if not hasattr(self, "tier"):
            return
        tier = self.tier
        assert tier.n_hits + tier.n_misses == self.n_asked
        assert len(self.there) <= tier.n_held <= self.rows
        assert tier.n_damaged == 0 or self.damaged
        assert the_file(Path(self.folder.name)).stat().st_size <= capacity_for(self.rows)

    def teardown(self):
        if hasattr(self, "tier"):
            self.tier.close()
            self.folder.cleanup()


TestDiskRowsAgainstSets = DiskMachine.TestCase
TestDiskRowsAgainstSets.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
