"""Rows in another order, and rows kept in memory, are sources like any other."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from row_contracts import RowSourceContract
from support.stores import dense, make_matrix

from bigsvm.budget import HELD_SHARE
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.fetched import FetchedRows, hold
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.wrappers import ChosenRows, DrawnRows, HeldRows


def scattered(matrix, form):
    """Give the rows of `matrix` as some rows of a larger source, in another order."""
    rng = np.random.default_rng(3)
    n = len(matrix)
    chosen = rng.permutation(n + 20)[:n].astype(np.int32)
    larger = np.full((n + 20, matrix.shape[1]), 7, matrix.dtype)
    larger[chosen] = matrix
    return ChosenRows(ArrayRows(form(larger)), chosen)


class TestChosenDenseRows(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return lambda matrix: _with_means_of(scattered(matrix, np.asarray), matrix)


class TestChosenSparseRows(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return lambda matrix: _with_means_of(scattered(matrix, sp.csr_array), matrix)


class TestFetchedDenseRows(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return lambda matrix: FetchedRows(Elsewhere(matrix))


class TestFetchedSparseRows(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return lambda matrix: FetchedRows(Elsewhere(sp.csr_array(matrix)))


class Elsewhere(ArrayRows):
    """Rows that workers would send; notes which are taken."""

    is_fetched = True

    def __init__(self, X):
        super().__init__(X)
        self.row_alignment, self.taken = 100, []

    def take(self, indices):
        self.taken.extend(indices.tolist())
        return self._rows[indices]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@given(
    asked=st.lists(st.lists(st.integers(0, 49), max_size=20), max_size=6),
    at_once=st.sampled_from([1, 60, 10**6]),
)
def test_rows_that_are_fetched_are_taken_once(form, asked, at_once):
    matrix = make_matrix(50)
    source = Elsewhere(form(matrix))
    held = hold(source, 10**9)
    with mock.patch("bigsvm.data.fetched.AT_ONCE_BYTES", at_once):
        for indices in asked:
            lent = held.lend(np.array(indices, np.int64))
            np.testing.assert_array_equal(dense(lent.rows[lent.places]), matrix[indices])
    needed = {row for indices in asked for row in indices}
    assert needed <= set(source.taken)
    assert len(set(source.taken)) == len(source.taken)
    np.testing.assert_array_equal(dense(held.read(10, 30)), matrix[10:30])


def test_rows_are_fetched_few_times_however_few_are_asked_for():
    source = Elsewhere(np.arange(2000.0, dtype=np.float32).reshape(-1, 1))
    held, fetched = hold(source, 10**9), 0
    for row in np.random.default_rng(0).permutation(2000).tolist():
        before = len(source.taken)
        assert held.take(np.array([row])).item() == row
        fetched += len(source.taken) > before
    assert fetched < 70
    assert len(source.taken) == 2000


def test_rows_are_placed_in_the_source_that_has_them():
    source, permuted = Elsewhere(make_matrix(50)), np.random.default_rng(0).permutation(50)
    every = hold(source, 10**9)
    some = ChosenRows(ChosenRows(every, permuted), np.array([7, 3]))
    base, places = some.placed()
    assert base is source
    np.testing.assert_array_equal(places, permuted[[7, 3]])
    drawn = DrawnRows(source, np.array([2, 40]), source.read(0, 2))
    base, places = ChosenRows(drawn, np.array([1, 0])).placed()
    assert base is source
    assert places.tolist() == [40, 2]
    assert every.placed() == source.placed() == (source, None)


def _with_means_of(source, matrix):
    """Statistics are those of the whole source; the contract asks for those of its own rows."""
    own = ArrayRows(matrix)
    source._source.column_means = own.column_means
    source._source.total_variance = own.total_variance
    return source


def test_statistics_are_those_of_all_rows():
    matrix = make_matrix()
    source = ChosenRows(ArrayRows(matrix), np.array([5, 3]))
    np.testing.assert_allclose(source.column_means(), matrix.mean(0, dtype=float))
    assert source.total_variance() == pytest.approx(matrix.var(dtype=float))


def test_rows_are_in_random_order_where_their_source_or_their_choice_is():
    source, chosen = ArrayRows(make_matrix()), np.array([5, 3])
    assert not ChosenRows(source, chosen).is_shuffled
    assert ChosenRows(source, chosen, in_random_order=True).is_shuffled
    source.is_shuffled = True
    assert ChosenRows(source, chosen).is_shuffled


@pytest.mark.parametrize("layout", ["dense", "sparse"])
class TestHeldRows:
    @pytest.fixture
    def store(self, layout, tmp_path):
        matrix = make_matrix()
        return write_store(tmp_path / "s.zarr", matrix, np.ones(len(matrix)), layout=layout).rows

    def test_has_the_rows_and_all_that_is_known_of_them(self, store, layout):
        held = hold(store, 10**9)
        indices = np.array([4, 900, 4])
        np.testing.assert_array_equal(dense(held.read(3, 70)), dense(store.read(3, 70)))
        np.testing.assert_array_equal(dense(held.take(indices)), dense(store.take(indices)))
        assert held.is_sparse is (layout == "sparse")
        assert held.fingerprint() == store.fingerprint()
        assert held.total_variance() == store.total_variance()
        np.testing.assert_array_equal(held.column_means(), store.column_means())
        assert held.row_alignment == 1
        with pytest.raises(IndexError):
            held.read(0, 1001)
        with pytest.raises(IndexError):
            held.take(np.array([1000]))

    def test_is_read_once(self, store, layout):
        held = hold(store, 10**9)
        read = held.bytes_read
        list(held.blocks(10_000))
        held.take(np.arange(500))
        assert held.bytes_read == read > 0

    def test_only_what_is_small_is_held(self, store, layout):
        size = store.n_rows * store.bytes_per_row
        assert isinstance(hold(store, int(size / HELD_SHARE) + 1), HeldRows)
        assert hold(store, int(size / HELD_SHARE) - 1) is store

    def test_rows_in_memory_are_left_alone(self, store, layout):
        source = ArrayRows(store.read(0, 1000))
        assert hold(source, 10**9) is source


def test_only_ascending_choices_of_a_store_are_read_by_other_processes(tmp_path):
    """Each block of rows in another order is in all chunks: they are sent instead."""
    matrix = make_matrix()
    rows = write_store(tmp_path / "a.zarr", matrix, np.arange(len(matrix)) % 2).rows
    ascending = ChosenRows(rows, np.array([2, 5, 8], np.int32)).portable()
    np.testing.assert_array_equal(ascending.read(0, 3), rows.take(np.array([2, 5, 8])))
    assert ChosenRows(rows, np.array([5, 2, 8], np.int32)).portable() is None
    assert ChosenRows(ArrayRows(make_matrix()), np.arange(3)).portable() is None
