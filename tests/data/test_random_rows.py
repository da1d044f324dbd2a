"""Random rows: what comes depends on the seed and the position, and each row comes in its turn."""

import itertools
import threading

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from stores import dense, make_chunks_small, make_matrix

from bigsvm.data.random_rows import ROWS_AT_ONCE, RandomRows
from bigsvm.data.sources import as_row_source
from bigsvm.data.write import write_store

N_ROWS = 1000
BLOCK_BYTES = 1 << 14


@pytest.fixture(scope="module")
def matrix():
    return make_matrix(N_ROWS)


@pytest.fixture(scope="module")
def sources(matrix, tmp_path_factory):
    """Sources of the same rows; a store has its own order of them."""
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        folder = tmp_path_factory.mktemp("stores")
        stores = {
            layout: write_store(folder / layout, matrix, np.zeros(N_ROWS), layout=layout).rows
            for layout in ("dense", "sparse")
        }
    return {
        "array": as_row_source(matrix),
        "csr": as_row_source(sp.csr_array(matrix)),
        "store": stores["dense"],
        "sparse store": stores["sparse"],
        "dask": as_row_source(da.from_array(matrix, chunks=(130, -1))),
    }


KINDS = ("array", "csr", "store", "sparse store", "dask")
BY_BLOCKS = ("store", "sparse store", "dask")


@pytest.fixture
def make(request, sources):
    """Make random rows; all of them are closed at the end."""
    made = []

    def make(kind, position=0, *, seed=0, block_bytes=BLOCK_BYTES, **options):
        made.append(RandomRows(sources[kind], block_bytes, seed, position, **options))
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


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_their_indices(kind, make, sources):
    indices, values = drawn(make(kind), 60, 60, 700, 1, 900)
    np.testing.assert_array_equal(values, dense(sources[kind].read(0, N_ROWS))[indices])


@pytest.mark.parametrize("kind", KINDS)
def test_the_position_alone_decides_what_comes(kind, make):
    """One that has got there agrees with one that begins there; in memory, draw by draw."""
    draws = (60, 60, 120, 480, 60, 480, 480)
    whole, _ = drawn(make(kind), *draws)
    for k in range(1, len(draws)):
        position = sum(draws[:k])
        rest, _ = drawn(make(kind, position), *draws[k:])
        np.testing.assert_array_equal(rest, whole[position:])


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_by_blocks_it_does_not_matter_how_many_are_drawn_at_once(kind, make):
    one, _ = drawn(make(kind), 2300)
    many, _ = drawn(make(kind), *[1, 7, 61] * 33, 23)
    np.testing.assert_array_equal(one[: len(many)], many)


@pytest.mark.parametrize("kind", BY_BLOCKS)
@pytest.mark.parametrize("block_bytes", [1, 1 << 14, 1 << 22])
def test_by_blocks_each_row_comes_once_a_pass(kind, block_bytes, make):
    indices, _ = drawn(make(kind, block_bytes=block_bytes), *[60] * 50)
    for start in range(0, 3000, N_ROWS):
        np.testing.assert_array_equal(np.sort(indices[start : start + N_ROWS]), np.arange(N_ROWS))


@pytest.mark.parametrize("kind", ["store", "sparse store"])
def test_a_store_is_read_from_its_beginning_on(kind, make):
    """Its rows are in random order already."""
    indices, _ = drawn(make(kind), 2 * N_ROWS)
    np.testing.assert_array_equal(indices, np.tile(np.arange(N_ROWS), 2))


def test_of_an_array_in_order_blocks_and_rows_are_shuffled(make):
    one, _ = drawn(make("dask"), 2 * N_ROWS)
    other, _ = drawn(make("dask", seed=1), 2 * N_ROWS)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[:N_ROWS], one[N_ROWS:])
    assert np.abs(np.diff(one)).mean() > 20
    blocks = one[:N_ROWS] // 130
    assert (np.diff([key for key, _ in itertools.groupby(blocks)]) != 1).any()


@pytest.mark.parametrize("kind", ["array", "csr"])
def test_in_memory_rows_are_drawn_with_replacement(kind, make):
    indices, _ = drawn(make(kind), 600, 600)
    assert 600 < len(set(indices)) < 900
    assert indices.min() < 10
    assert indices.max() > N_ROWS - 10
    other, _ = drawn(make(kind, seed=1), 600, 600)
    assert not np.array_equal(indices, other)


def test_more_than_all_of_them_at_once_is_random_too(make):
    indices, _ = drawn(make("array"), 3 * N_ROWS)
    assert np.abs(np.diff(indices)).mean() > 200
    assert abs(indices[:N_ROWS].mean() - N_ROWS / 2) < 60


def test_all_of_them_are_in_order_where_that_is_asked_for(make):
    indices, _ = drawn(make("array", 300, in_order=True), N_ROWS, N_ROWS)
    np.testing.assert_array_equal(indices, (300 + np.arange(2 * N_ROWS)) % N_ROWS)


def test_large_draws_come_in_parts(make, monkeypatch):
    monkeypatch.setattr("bigsvm.data.random_rows.ROWS_AT_ONCE", 100)
    for kind in KINDS:
        parts = [len(indices) for indices, _ in make(kind).draw(950)]
        assert sum(parts) == 950
        assert max(parts) <= 100


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_a_block_is_read_once_and_the_next_one_meanwhile(kind, make, sources, monkeypatch):
    source, read = sources[kind], []
    original = type(source).read

    def counted(self, start, stop):
        read.append((start, stop, threading.current_thread().name))
        return original(self, start, stop)

    monkeypatch.setattr(type(source), "read", counted)
    rows = make(kind)
    n_blocks = -(-N_ROWS // source.rows_per_block(BLOCK_BYTES))
    assert n_blocks > 3
    drawn(rows, *[10] * (N_ROWS // 10))
    rows.close()
    assert len(read) == len({start for start, _, _ in read}) == n_blocks
    ahead = [name for _, _, name in read if name.startswith("bigsvm-read")]
    assert len(ahead) == n_blocks - 1


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_closed_it_has_no_thread_left(kind, make):
    rows = make(kind)
    list(rows.draw(10))
    rows.close()
    rows.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bigsvm-read")]


def test_in_memory_there_is_nothing_to_close(make):
    rows = make("array")
    list(rows.draw(10))
    rows.close()
    assert sum(len(indices) for indices, _ in rows.draw(10)) == 10


@pytest.mark.parametrize("kind", BY_BLOCKS)
def test_an_error_of_reading_ahead_is_raised_where_its_block_comes(
    kind, make, sources, monkeypatch
):
    source = sources[kind]
    original, size = type(source).read, source.rows_per_block(BLOCK_BYTES)

    def failing(self, start, stop):
        if threading.current_thread().name.startswith("bigsvm-read"):
            raise OSError("the disk is gone")
        return original(self, start, stop)

    monkeypatch.setattr(type(source), "read", failing)
    rows = make(kind)
    first, _ = drawn(rows, 5)
    assert len(first) == 5
    with pytest.raises(OSError, match="the disk is gone"):
        list(rows.draw(size))


@pytest.mark.parametrize("kind", ["array", "csr"])
def test_a_row_in_memory_is_drawn_as_often_as_its_weight_says(kind, make, sources):
    n = sources[kind].n_rows
    weights = np.zeros(n)
    weights[[0, 3, n - 1]] = 1.0, 2.0, 5.0
    rows = make(kind, weights=weights)
    drawn = np.concatenate([indices for indices, _ in rows.draw(8000)])
    counts = np.bincount(drawn, minlength=n)
    assert counts.sum() == counts[[0, 3, n - 1]].sum() == 8000
    # Five standard deviations of a share of 8000.
    np.testing.assert_allclose(counts[[0, 3, n - 1]] / 8000, [1 / 8, 2 / 8, 5 / 8], atol=0.028)
