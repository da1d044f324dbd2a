"""The memory tier: against a dict and a clock, whatever is asked for in whatever order."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.row_cache import (
    FEWEST_SLOTS,
    ComputedRows,
    KernelRowCache,
    RowBuffer,
    RowTier,
    WithSlack,
)
from bigsvm.kernels import RBF
from gram.contracts import RowTierContract


class TestComputedRows(RowTierContract):
    @pytest.fixture
    def make(self):
        with KernelTiles(RBF(gamma=self.gamma)) as tiles:
            yield lambda data: ComputedRows(
                tiles, data, Partners(tiles.values, data, for_sparse_rows=False)
            )


class NumberedRows(RowTier):
    """Row v is v everywhere; notes what is fetched and checks what is offered."""

    def __init__(self, n_variables):
        self.n_variables = n_variables
        self.fetched, self.offered, self.n_hits = [], [], 0

    def fetch(self, variables, rows, slots):
        assert len(variables) == len(slots)
        rows[slots, : self.n_variables] = variables[:, None]
        self.fetched += variables.tolist()

    def offer(self, variables, rows, slots):
        offered = rows[slots, : self.n_variables]
        np.testing.assert_array_equal(offered, np.repeat(variables[:, None], self.n_variables, 1))
        self.offered += variables.tolist()


@pytest.mark.parametrize(
    "variables", [[0], [20], [3, 20], [20, 3], [4, 5, 20, 7, 6], [1, 2], [20, 20], []]
)
def test_the_slack_variable_has_no_kernel_values(variables):
    below = NumberedRows(20)
    tier = WithSlack(below, 20)
    out = np.full((len(variables), 32), np.nan, np.float32)
    slots = np.arange(len(variables))[::-1]
    tier.fetch(np.array(variables, np.int64), out[::-1], slots)
    for row, v in zip(out, variables, strict=True):
        np.testing.assert_array_equal(row[:20], 0 if v == 20 else v)
        assert row[20] == 0
    real = [v for v in variables if v < 20]
    assert below.fetched == real
    tier.offer(np.array(variables, np.int64), out[::-1], slots)
    assert below.offered == real


def test_hits_of_the_tier_below_the_slack_variable_are_its_own():
    below = NumberedRows(20)
    below.n_hits = 7
    tier = WithSlack(below, 20)
    tier.fetch(np.array([3]), np.empty((1, 32), np.float32), np.array([0]))
    assert tier.n_hits == 7


def make_cache(n_variables=20, n_slots=5, width=32, **options):
    below = NumberedRows(n_variables)
    buffer = RowBuffer(4 * (n_slots * width + width // 2))
    buffer.values[:] = np.nan
    return below, KernelRowCache(
        below, n_variables=n_variables, width=width, buffer=buffer, **options
    )


def ensure(cache, *variables, stamp):
    cache.ensure(np.array(variables, np.int64), stamp=stamp)


def test_the_first_rows_fill_the_slots_and_padding_is_zero():
    below, cache = make_cache()
    assert (cache.n_slots, cache.rows.shape, cache.largest_batch()) == (5, (5, 32), 5)
    ensure(cache, 7, 3, stamp=1)
    assert cache.slots[[7, 3]].tolist() == [0, 1]
    np.testing.assert_array_equal(cache.rows[:2, :20], [[7] * 20, [3] * 20])
    assert not cache.rows[:2, 20:].any()
    assert (cache.n_misses, cache.largest_batch()) == (2, 3)
    assert below.offered == []


def test_the_least_recently_used_goes_and_is_offered():
    below, cache = make_cache()
    for stamp, v in enumerate([10, 11, 12, 13, 14], start=1):
        ensure(cache, v, stamp=stamp)
    cache.used[cache.slots[10]] = 6  # the solver used it
    ensure(cache, 15, stamp=7)
    assert below.offered == [11]
    assert cache.slots[11] == -1
    assert cache.slots[15] == 1
    ensure(cache, 12, 16, stamp=8)  # 12 is there: it stays, and is used now
    assert below.offered == [11, 13]
    ensure(cache, 17, stamp=9)
    assert below.offered == [11, 13, 14]
    assert cache.slots[[10, 12, 15, 16, 17]].min() >= 0
    assert cache.n_misses == 8


def test_rows_asked_for_are_not_given_up_for_others_with_the_same_stamp():
    """No step is taken between two batches, so that all stamps are one."""
    _, cache = make_cache()
    ensure(cache, 0, 1, 2, 3, 4, stamp=0)
    ensure(cache, 0, 5, stamp=0)
    assert cache.slots[[0, 5]].min() >= 0


def test_a_batch_is_fetched_at_once_straight_into_its_slots():
    below, cache = make_cache(n_slots=7)
    fetch, batches = below.fetch, []

    def noted(variables, rows, slots):
        assert rows is cache.rows
        batches.append(slots.tolist())
        fetch(variables, rows, slots)

    below.fetch = noted
    ensure(cache, 0, 1, 2, 3, 4, 5, 6, stamp=1)
    cache.used[:] = [9, 1, 9, 2, 9, 9, 9]
    ensure(cache, 8, 9, stamp=10)
    assert batches == [[0, 1, 2, 3, 4, 5, 6], [1, 3]]
    assert cache.slots[[8, 9]].tolist() == [1, 3]


def test_rows_whose_fetch_was_interrupted_are_not_offered():
    """Their slots hold parts of other rows."""
    below, cache = make_cache()
    ensure(cache, 0, 1, 2, 3, 4, stamp=1)

    def interrupted(variables, rows, slots):
        rows[slots] = np.nan
        raise KeyboardInterrupt

    below.fetch, below.drain, below.close = interrupted, lambda: None, lambda: None
    with pytest.raises(KeyboardInterrupt):
        ensure(cache, 5, 6, stamp=2)
    gone = below.offered.copy()
    cache.close()
    assert len(gone) == 2
    assert sorted(below.offered) == [0, 1, 2, 3, 4]


def test_a_full_cache_takes_small_batches():
    _, cache = make_cache(n_variables=300, n_slots=100, width=300, evicting_batch=9)
    ensure(cache, *range(100), stamp=1)
    assert cache.largest_batch() == 9
    _, small = make_cache(n_slots=FEWEST_SLOTS)
    ensure(small, 0, 1, 2, 3, stamp=1)
    assert small.largest_batch() == 1


def test_quiet_rows_are_given_up_first_the_last_used_excepted():
    below, cache = make_cache(n_variables=300, n_slots=140, width=300)
    for v in range(140):
        ensure(cache, v, stamp=v + 1)
    quiet = np.zeros(300, bool)
    quiet[50:138] = True
    quiet[138:140] = True  # of the last pair: HMG looks at them next
    assert cache.largest_batch() == 1
    cache.ensure(np.arange(200, 220), stamp=141, quiet=quiet)
    assert below.offered == list(range(50, 70))
    cache.used[cache.slots[71]] = 142
    cache.ensure(np.arange(220, 240), stamp=143, quiet=quiet)
    assert below.offered[20:] == [70, *range(72, 91)]
    for v in range(300):
        if cache.slots[v] >= 0:
            assert (cache.rows[cache.slots[v], :300] == v).all()


def test_no_more_slots_than_variables():
    _, cache = make_cache(n_variables=3, n_slots=100)
    assert cache.n_slots == 3
    ensure(cache, 2, 0, 1, stamp=1)
    assert cache.slots[:3].tolist() == [1, 2, 0]


def test_too_small_a_buffer_is_refused():
    with pytest.raises(ValueError, match="bytes hold 3 rows of 32 float32; 4 are needed"):
        make_cache(n_slots=3)
    with pytest.raises(ValueError, match="hold 1 rows of 32 float32; 2 are needed"):
        make_cache(n_variables=2, n_slots=1)


def test_memory_of_the_last_working_set_is_used_again():
    buffer = RowBuffer(4 * 32 * 4)
    buffer.values[:] = 77
    cache = KernelRowCache(NumberedRows(20), n_variables=20, width=32, buffer=buffer)
    assert np.shares_memory(cache.rows, buffer.values)
    ensure(cache, 4, stamp=1)
    assert not buffer.values[20:32].any()
    np.testing.assert_array_equal(buffer.values[:20], 4)
    assert buffer.n_touched == 32
    ensure(cache, 5, 6, stamp=2)
    assert buffer.n_touched == 96
    KernelRowCache(NumberedRows(20), n_variables=20, width=32, buffer=buffer)
    assert buffer.n_touched == 96


def make_frugal(first_slots, n_slots=100, n_variables=300):
    """A cache that opens few of its slots at first."""
    return make_cache(n_variables, n_slots, width=n_variables, first_slots=first_slots)


def test_few_slots_are_open_at_first_and_quiet_rows_go_before_others_are():
    below, cache = make_frugal(10)
    for v in range(10):
        ensure(cache, v, stamp=v + 1)
    quiet = np.arange(300) < 4
    assert cache.largest_batch() == 1
    assert cache.largest_batch(quiet) == 4
    cache.ensure(np.arange(20, 24), stamp=11, quiet=quiet)
    assert below.offered == [0, 1, 2, 3]
    assert cache._buffer.n_touched == 10 * 300


def test_slots_are_opened_when_rows_are_fetched_again():
    _, cache = make_frugal(12)
    for stamp, v in enumerate(range(24), 1):
        ensure(cache, v, stamp=stamp)
    assert np.count_nonzero(cache.slots >= 0) == 12
    for stamp, v in enumerate([0, 1, 2], 25):
        ensure(cache, v, stamp=stamp)
    assert np.count_nonzero(cache.slots >= 0) == 12  # three rows again are a quarter of the slots
    for stamp, v in enumerate(range(50, 90), 40):
        ensure(cache, v, stamp=stamp)
    assert np.count_nonzero(cache.slots >= 0) == 12  # rows asked for the first time change nothing
    ensure(cache, 5, stamp=100)
    assert np.count_nonzero(cache.slots >= 0) == 13
    ensure(cache, 6, stamp=101)
    assert np.count_nonzero(cache.slots >= 0) == 14  # of 12 · 1.1 + 1 slots
    ensure(cache, 100, stamp=102)
    assert np.count_nonzero(cache.slots >= 0) == 14
    for stamp in range(103, 900):
        ensure(cache, (7 * stamp) % 300, stamp=stamp)
    assert np.count_nonzero(cache.slots >= 0) == cache.n_slots == 100


def test_slots_are_opened_where_rows_in_use_would_have_to_go():
    below, cache = make_frugal(12)
    ensure(cache, *range(12), stamp=1)
    ensure(cache, 0, 1, 2, 3, stamp=2)
    quiet = np.arange(300) >= 10
    cache.ensure(np.array([20, 21]), stamp=3, quiet=quiet)
    assert below.offered == [10, 11]  # two are not in use
    cache.ensure(np.array([30, 31, 32]), stamp=4, quiet=quiet)
    assert below.offered == [10, 11]
    assert np.count_nonzero(cache.slots >= 0) == 15
    cache.ensure(np.array([33]), stamp=5, quiet=quiet)
    assert below.offered == [10, 11]  # of 12 · 1.1 + 3 slots


def test_memory_that_was_touched_is_open_at_once():
    below, cache = make_frugal(12)
    ensure(cache, *range(12), stamp=1)
    cache._buffer.n_touched = 300 * 60
    again = KernelRowCache(below, n_variables=300, width=300, buffer=cache._buffer, first_slots=12)
    assert again.largest_batch() == 60


class CacheMachine(RuleBasedStateMachine):
    """Rows asked for and used at random, beside a dict from variable to last use."""

    @initialize(n=st.integers(1, 25), slots=st.integers(4, 30))
    def begin(self, n, slots):
        self.n = n
        self.width = 32
        self.buffer = RowBuffer(4 * (slots * self.width + 7))
        self.buffer.values[:] = np.nan
        self.below = NumberedRows(n)
        self.cache = KernelRowCache(self.below, n_variables=n, width=self.width, buffer=self.buffer)
        self.limit = min(n, slots)
        self.uses = {}
        self.stamp = 0

    @rule(data=st.data())
    def ask(self, data):
        cache, n = self.cache, self.n
        self.stamp += 1
        wanted = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=self.limit))
        missing = [v for v in wanted if v not in self.uses]
        for v in missing[cache.largest_batch() :]:
            wanted.remove(v)
        missing = missing[: cache.largest_batch()]
        offered, fetched = len(self.below.offered), len(self.below.fetched)
        ensure(cache, *wanted, stamp=self.stamp)
        for v in wanted:
            self.uses[v] = self.stamp
        # The model gives up the oldest; among equals the cache may choose.
        gone = self.below.offered[offered:]
        assert len(gone) == max(len(self.uses) - self.limit, 0)
        ages = sorted(self.uses[v] for v in self.uses)
        assert sorted(self.uses[v] for v in gone) == ages[: len(gone)]
        assert not set(gone) & set(wanted)
        for v in gone:
            del self.uses[v]
        assert self.below.fetched[fetched:] == missing

    @rule(data=st.data())
    def use(self, data):
        if self.uses:
            self.stamp += 1
            v = data.draw(st.sampled_from(sorted(self.uses)))
            self.cache.used[self.cache.slots[v]] = self.stamp
            self.uses[v] = self.stamp

    @invariant()
    def holds_what_the_model_holds(self):
        if not hasattr(self, "cache"):
            return
        cache = self.cache
        held = np.flatnonzero(cache.slots >= 0)
        assert held.tolist() == sorted(self.uses)
        places = cache.slots[held]
        assert len(set(places.tolist())) == len(held) <= self.limit
        for v in held:
            np.testing.assert_array_equal(cache.rows[cache.slots[v], : self.n], v)
            assert not cache.rows[cache.slots[v], self.n :].any()
            assert cache.used[cache.slots[v]] == self.uses[v]
        assert cache.n_misses == len(self.below.fetched)
        assert np.isnan(self.buffer.values[-7:]).all()
        assert np.shares_memory(cache.rows, self.buffer.values)
        assert cache.rows.nbytes <= self.buffer.values.nbytes


TestCacheAgainstADict = CacheMachine.TestCase
TestCacheAgainstADict.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("n_kept", [1, 700, 1500])
def test_rows_carried_over_lose_the_columns_that_are_left_out(n_kept):
    """In the same memory, in slots that are shorter; the least recently used still goes first."""
    n, rng = 2000, np.random.default_rng(0)
    buffer = RowBuffer(4 * 2048 * 12)
    K = rng.random((n, n), np.float32)

    class Rows(NumberedRows):
        def fetch(self, variables, rows, slots):
            rows[slots, : self.n_variables] = K[variables]
            self.fetched += variables.tolist()

    wide = KernelRowCache(Rows(n), n_variables=n, width=2048, buffer=buffer)
    wide.ensure(np.arange(0, 20, 2), stamp=3)
    kept = np.zeros(n, np.bool_)
    kept[rng.permutation(np.delete(np.arange(n), [2, 4]))[: n_kept - 1]] = True
    kept[4] = True
    width = -(-n_kept // 1024) * 1024
    below = NumberedRows(n_kept)
    narrow = KernelRowCache(below, n_variables=n_kept, width=width, buffer=buffer)
    wide.carry_over(narrow, kept, stamp=3)
    places = np.cumsum(kept) - 1
    for variable in range(0, 20, 2):
        if not kept[variable]:
            continue
        slot = narrow.slots[places[variable]]
        np.testing.assert_array_equal(narrow.rows[slot, :n_kept], K[variable, kept])
        assert not narrow.rows[slot, n_kept:].any()
        assert narrow.used[slot] == 0
    held = int(np.count_nonzero(narrow.slots >= 0))
    assert held == np.count_nonzero(kept[0:20:2])
    missing = np.flatnonzero(narrow.slots[:n_kept] < 0)[: narrow.largest_batch()]
    narrow.ensure(missing, stamp=1)
    assert below.fetched == missing.tolist()
