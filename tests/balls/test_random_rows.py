"""Random rows: a random sample of any source, which depends on the seed and the position alone."""

import itertools
import threading

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.stats import chi2
from support.stores import dense, make_chunks_small, make_matrix

from bigsvm.balls.random_rows import ROWS_AT_ONCE, most_rows_in, random_rows
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.scaler import Scaler
from bigsvm.data.sources import as_row_source
from bigsvm.data.wrappers import HeldRows, ScaledRows
from bigsvm.interruption import checked_by

N_ROWS = 1000
BLOCK_BYTES = 1 << 14
SAMPLE, ROOM = 60, 200

IN_MEMORY = ("array", "csr")
BY_BLOCKS = ("store", "sparse store")
BY_PASSES = ("unshuffled store", "unshuffled sparse store", "dask", "zarr", "scaled array")
STREAMED = (*BY_BLOCKS, *BY_PASSES)
KINDS = (*IN_MEMORY, *STREAMED)
RARE = 1e-6
"""Significance level of the tests: the probability of a larger statistic by chance."""


@pytest.fixture(scope="module")
def matrix():
    return make_matrix(N_ROWS)


@pytest.fixture(scope="module")
def sources(matrix, tmp_path_factory):
    """Sources of the same rows; a shuffled store has its own order of them."""
    folder = tmp_path_factory.mktemp("stores")

    def stored(name, **options):
        return write_store(folder / name, matrix, np.zeros(N_ROWS), **options).rows

    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        stores = {
            "store": stored("a", layout="dense"),
            "sparse store": stored("b", layout="sparse"),
            "unshuffled store": stored("c", layout="dense", shuffle=False),
            "unshuffled sparse store": stored("d", layout="sparse", shuffle=False),
        }
        patch.setattr("bigsvm.data.containers.LARGEST_SLICE", 90 * 23 * 4)
        foreign = zarr.create_array(folder / "foreign", data=matrix, chunks=(90, 23))
        foreign_rows = as_row_source(foreign)
    unscaled = Scaler("standard", np.zeros(23), np.ones(23))
    return stores | {
        "array": as_row_source(matrix),
        "csr": as_row_source(sp.csr_array(matrix)),
        "dask": as_row_source(da.from_array(matrix, chunks=(130, -1))),
        "zarr": foreign_rows,
        "scaled array": ScaledRows(as_row_source(matrix), unscaled),
    }


@pytest.fixture
def make(sources):
    """Make random rows; all of them are closed at the end."""
    made = []

    def make(kind, position=0, *, seed=0, block_bytes=BLOCK_BYTES, **options):
        given = {"sample": SAMPLE, "most_held": ROOM} | options
        made.append(random_rows(sources[kind], block_bytes, seed, position, **given))
        return made[-1]

    yield make
    for rows in made:
        rows.close()


def drawn(rows, *counts):
    """All indices and rows of some draws, joined."""
    indices, values = [], []
    for count in counts:
        parts = list(rows.draw(count))
        assert sum(len(part) for part, _ in parts) == count
        for part, lent in parts:
            assert 0 < len(part) <= ROWS_AT_ONCE
            assert len(part) == len(lent.places)
            indices.append(part)
            values.append(dense(lent.rows[lent.places]))
    return np.concatenate(indices), np.concatenate(values)


def assert_shares(counts, shares):
    """Hold counts to the shares that are expected, by a chi-square test."""
    expected = np.sum(counts) * np.asarray(shares) / np.sum(shares)
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    assert statistic < chi2.isf(RARE, len(counts) - 1)


# -- that they are random -------------------------------------------------------------------------


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_as_likely_in_a_sample_as_any_other(kind, make):
    """Counts over the first samples of many seeds."""
    seeds = 120
    first = [drawn(make(kind, seed=seed), SAMPLE)[0] for seed in range(seeds)]
    counts = np.bincount(np.concatenate(first), minlength=N_ROWS)
    groups = counts.reshape(20, -1).sum(axis=1)
    if kind in BY_BLOCKS:
        # Rows of a block come together: how many of them vary more than by single draws.
        groups = groups / (SAMPLE / 2)
    assert_shares(groups, np.ones(20))


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", [*IN_MEMORY, *BY_PASSES])
@pytest.mark.parametrize(("sample", "room"), [(SAMPLE, ROOM), (SAMPLE, 0), (SAMPLE, 10**6)])
def test_a_sample_of_rows_in_any_order_is_from_everywhere(kind, sample, room, make):
    """Within one sample the parts of the source have their shares, at any place in the sequence."""
    indices, _ = drawn(make(kind, sample=sample, most_held=room), *[sample] * 100)
    for part in indices.reshape(-1, 10 * sample):
        assert_shares(np.bincount(part * 20 // N_ROWS, minlength=20), np.ones(20))
    parts = indices.reshape(-1, sample) * 20 // N_ROWS
    # Of 20 parts, 60 rows miss one with a probability of 0.95 ** 60.
    n_parts = np.mean([len(set(part)) for part in parts.tolist()])
    assert n_parts == pytest.approx(20 * (1 - 0.95**sample), abs=0.5)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_a_sample_of_a_shuffled_store_is_from_everywhere_in_the_input(kind, make, sources):
    original = sources[kind].original_rows()
    indices, _ = drawn(make(kind), *[SAMPLE] * 10)
    assert_shares(np.bincount(original[indices] * 20 // N_ROWS, minlength=20), np.ones(20))


@pytest.mark.fault("samples")
@pytest.mark.parametrize("block_bytes", [1, BLOCK_BYTES, 1 << 22])
@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_draws_other_rows(kind, block_bytes, make):
    one, _ = drawn(make(kind, block_bytes=block_bytes), SAMPLE)
    other, _ = drawn(make(kind, seed=1, block_bytes=block_bytes), SAMPLE)
    assert not np.array_equal(one, other)
    assert set(one) != set(other)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_drawn_as_often_as_its_weight_says(kind, make):
    weights = np.zeros(N_ROWS)
    weights[[0, 3, 500, N_ROWS - 1]] = 1.0, 2.0, 2.5, 4.5
    indices, _ = drawn(make(kind, weights=weights), *[SAMPLE] * 30)
    counts = np.bincount(indices, minlength=N_ROWS)
    assert counts[weights == 0].sum() == 0
    assert_shares(counts[weights > 0], weights[weights > 0])


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_blocks_without_weight_are_passed_over(kind, make, sources):
    """A calibration holds out such rows: a sample of them would find nothing outside."""
    weights = np.ones(N_ROWS)
    size = sources[kind].rows_per_block(BLOCK_BYTES)
    weights[: 2 * size] = 0
    rows = make(kind, weights=weights)
    indices, _ = drawn(rows, *[60] * 20, 5 * N_ROWS)
    assert indices.min() >= 2 * size
    for start in range(0, 5 * N_ROWS, N_ROWS - 2 * size):
        part = indices[start : start + N_ROWS - 2 * size]
        np.testing.assert_array_equal(np.sort(part), np.arange(2 * size, N_ROWS))


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", ["dask", "store", "array"])
def test_all_of_few_rows_are_drawn(kind, tmp_path):
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    source = {
        "array": lambda: as_row_source(X),
        "dask": lambda: as_row_source(da.from_array(X, chunks=(2, -1))),
        "store": lambda: write_store(tmp_path / "s", X, np.ones(3)).rows,
    }[kind]()
    rows = random_rows(source, 1, 0, 0, sample=2, most_held=1)
    indices, values = drawn(rows, *[2] * 300)
    rows.close()
    assert_shares(np.bincount(indices, minlength=3), np.ones(3))
    np.testing.assert_array_equal(values, dense(source.read(0, 3))[indices])


# -- what comes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [0, ROOM, 10**6])
def test_rows_are_those_of_their_indices(kind, room, make, sources):
    indices, values = drawn(make(kind, most_held=room), 60, 60, 720, 60, 900)
    np.testing.assert_array_equal(values, dense(sources[kind].read(0, N_ROWS))[indices])


@pytest.mark.parametrize("room", [0, ROOM, 10**6])
@pytest.mark.parametrize("kind", KINDS)
def test_position_decides_what_is_drawn(kind, room, make):
    """One that has got there agrees with one that begins there; in memory, draw by draw."""
    draws = (60, 60, 120, 480, 60, 480, 480)
    whole, _ = drawn(make(kind, most_held=room), *draws)
    for k in (1, 5):
        position = sum(draws[:k])
        rest, _ = drawn(make(kind, position, most_held=room), *draws[k:])
        np.testing.assert_array_equal(rest, whole[position:])


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_position_decides_weighted_draws(kind, make):
    weights = np.random.default_rng(0).choice([0, 1, 1.5, 7], N_ROWS)
    whole, _ = drawn(make(kind, weights=weights), 60, 700, 1900)
    for position in (60, 760):
        rest, _ = drawn(make(kind, position, weights=weights), 60, 700)
        np.testing.assert_array_equal(rest, whole[position : position + 760])


@pytest.mark.parametrize("kind", STREAMED)
def test_streamed_draws_do_not_depend_on_their_size(kind, make):
    one, _ = drawn(make(kind), 2300)
    many, _ = drawn(make(kind), *[1, 7, 61] * 33, 23)
    np.testing.assert_array_equal(one[: len(many)], many)


@pytest.mark.parametrize("kind", BY_BLOCKS)
@pytest.mark.parametrize("block_bytes", [1, 1 << 14, 1 << 22])
def test_block_draws_bring_each_row_once_a_pass(kind, block_bytes, make):
    indices, _ = drawn(make(kind, block_bytes=block_bytes), *[60] * 50)
    for start in range(0, 3000, N_ROWS):
        np.testing.assert_array_equal(np.sort(indices[start : start + N_ROWS]), np.arange(N_ROWS))


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_block_draws_shuffle_blocks_and_their_rows(kind, make, sources):
    indices, _ = drawn(make(kind), 2 * N_ROWS)
    assert not np.array_equal(indices[:N_ROWS], indices[N_ROWS:])
    assert np.abs(np.diff(indices)).mean() > 20
    blocks = indices[:N_ROWS] // sources[kind].rows_per_block(BLOCK_BYTES)
    assert (np.diff([key for key, _ in itertools.groupby(blocks)]) != 1).any()


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_in_memory_rows_are_drawn_with_replacement(kind, make):
    indices, _ = drawn(make(kind), 600, 600)
    assert 600 < len(set(indices)) < 900
    assert indices.min() < 10
    assert indices.max() > N_ROWS - 10


def test_more_than_all_of_them_at_once_is_random_too(make):
    indices, _ = drawn(make("array"), 3 * N_ROWS)
    assert np.abs(np.diff(indices)).mean() > 200
    assert abs(indices[:N_ROWS].mean() - N_ROWS / 2) < 60


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_all_rows_are_in_order(kind, make):
    weights = np.ones(N_ROWS)
    weights[::3] = 0
    rows = make(kind, 300, sample=N_ROWS, weights=weights)
    indices, _ = drawn(rows, N_ROWS, N_ROWS)
    np.testing.assert_array_equal(indices, (300 + np.arange(2 * N_ROWS)) % N_ROWS)


def test_large_draws_come_in_parts(make, monkeypatch):
    monkeypatch.setattr("bigsvm.balls.random_rows.ROWS_AT_ONCE", 100)
    for kind in KINDS:
        parts = [len(indices) for indices, _ in make(kind).draw(950)]
        assert sum(parts) == 950
        assert max(parts) <= 100


# -- what is read and held ------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch, sources):
    """All that is read of a source from now on: first row, one past the last, thread."""
    spans = []

    def watch(kind):
        original = type(sources[kind]).read

        def counted(self, start, stop):
            if self is sources[kind]:
                spans.append((start, stop, threading.current_thread().name))
            return original(self, start, stop)

        monkeypatch.setattr(type(sources[kind]), "read", counted)
        return spans

    return watch


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_a_block_is_read_once_by_a_thread_of_its_own(kind, make, sources, read):
    spans = read(kind)
    rows = make(kind)
    n_blocks = -(-N_ROWS // sources[kind].rows_per_block(BLOCK_BYTES))
    assert n_blocks > 3
    drawn(rows, *[10] * (N_ROWS // 10))
    rows.close()
    of_this_pass = spans[:n_blocks]
    assert len({start for start, _, _ in of_this_pass}) == n_blocks
    # One of the next pass may have been read ahead.
    assert len(spans) <= n_blocks + 1
    assert all(name.startswith("bigsvm-read") for _, _, name in spans)


@pytest.mark.parametrize("kind", BY_PASSES)
def test_a_pass_brings_as_many_rows_as_there_is_most_rows_in(kind, make, read):
    spans = read(kind)
    rows = make(kind, block_bytes=1)
    drawn(rows, *[20] * (ROOM // 20))
    firsts = [start for start, _, _ in spans]
    assert firsts == sorted(set(firsts))
    drawn(rows, 20)
    again = [start for start, _, _ in spans[len(firsts) :]]
    assert again == sorted(set(again))
    assert len(again) > 0


@pytest.mark.parametrize("kind", BY_PASSES)
def test_all_rows_are_read_once_where_they_fit(kind, make, read):
    spans = read(kind)
    drawn(make(kind, most_held=N_ROWS), *[60] * 100)
    assert sum(stop - start for start, stop, _ in spans) == N_ROWS


@pytest.mark.parametrize("kind", BY_PASSES)
def test_no_more_rows_are_held_than_there_is_most_rows_in(kind, make):
    """A sample for which there is no room comes as it is read."""
    rows = make(kind, sample=500, most_held=ROOM, block_bytes=1)
    for _, lent in rows.draw(1500):
        assert lent.rows.shape[0] < ROOM
    rows = make(kind, sample=SAMPLE, most_held=ROOM, block_bytes=1)
    for _, lent in rows.draw(1500):
        assert lent.rows.shape[0] == ROOM


@pytest.mark.parametrize("kind", ["unshuffled store", "unshuffled sparse store"])
def test_only_blocks_with_rows_that_were_drawn_are_read(kind, make, sources, read):
    spans = read(kind)
    weights = np.zeros(N_ROWS)
    weights[[5, 990]] = 1
    drawn(make(kind, weights=weights, block_bytes=1), SAMPLE)
    n_blocks = -(-N_ROWS // sources[kind].rows_per_block(1))
    assert n_blocks > 3
    assert len(spans) == 2


def test_room_is_computed_from_bytes(sources):
    for kind in ("unshuffled store", "unshuffled sparse store"):
        source = sources[kind]
        room = most_rows_in(source, 10**6)
        copies = 2 if source.is_sparse else 1
        assert 0.9e6 < room * (copies * source.bytes_per_row + 40) <= 1e6


@pytest.mark.parametrize("kind", STREAMED)
def test_close_ends_the_thread(kind, make):
    rows = make(kind)
    list(rows.draw(10))
    rows.close()
    rows.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bigsvm-read")]


def test_close_does_nothing_for_rows_in_memory(make):
    rows = make("array")
    list(rows.draw(10))
    rows.close()
    assert sum(len(indices) for indices, _ in rows.draw(10)) == 10


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_an_error_of_reading_ahead_is_raised_where_its_block_comes(
    kind, make, sources, monkeypatch
):
    source, read = sources[kind], []
    original, size = type(source).read, source.rows_per_block(BLOCK_BYTES)

    def failing(self, start, stop):
        read.append(start)
        if len(read) > 1:
            raise OSError("the disk is gone")
        return original(self, start, stop)

    monkeypatch.setattr(type(source), "read", failing)
    rows = make(kind)
    first, _ = drawn(rows, 5)
    assert len(first) == 5
    with pytest.raises(OSError, match="the disk is gone"):
        list(rows.draw(size))


@pytest.mark.parametrize("kind", BY_PASSES)
def test_a_pass_can_be_given_up(kind, make):
    class Stop(Exception):
        pass

    checks = []

    def check():
        checks.append(1)
        if len(checks) == 2:
            raise Stop

    rows = make(kind, block_bytes=1)
    with checked_by(check), pytest.raises(Stop):
        list(rows.draw(10))


# -- a sample of rows that is chosen at once ------------------------------------------------------


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_sample_indices_are_uniform(kind, sources):
    chosen = [sources[kind].sample_indices(50, seed=seed) for seed in range(200)]
    assert all((np.diff(rows) > 0).all() and len(rows) == 50 for rows in chosen)
    counts = np.bincount(np.concatenate(chosen), minlength=N_ROWS).reshape(20, -1).sum(axis=1)
    # A run of 50 rows counts as one draw.
    assert_shares(counts / 50 if kind in BY_BLOCKS else counts, np.ones(20))
    assert not np.array_equal(chosen[0], chosen[1])


@pytest.mark.fault("samples")
@pytest.mark.parametrize("kind", KINDS)
def test_sample_indices_are_among_the_candidates(kind, sources):
    candidates = np.arange(100, 900, 7)
    for seed in range(50):
        chosen = sources[kind].sample_indices(30, seed=seed, candidates=candidates)
        assert len(chosen) == 30
        assert np.isin(chosen, candidates).all()
    every = sources[kind].sample_indices(500, seed=0, candidates=candidates)
    np.testing.assert_array_equal(every, candidates)


@pytest.mark.parametrize("kind", ["store", "dask"])
def test_the_same_rows_are_chosen_whether_they_are_held_or_not(kind, sources):
    source = sources[kind]
    held = HeldRows(source, source.read(0, N_ROWS))
    one, other = (rows.sample_indices(50, seed=3) for rows in (source, held))
    np.testing.assert_array_equal(one, other)
