"""Row sources: the contract, inherited by each, and the choice among them."""

import itertools
import pickle
import sys
import types

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from row_contracts import RowSourceContract
from support.stores import dense, make_matrix

import bigsvm
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import containers
from bigsvm.data.dask_rows import DaskRows
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.narrow import Numbering
from bigsvm.data.sources import as_row_source
from bigsvm.data.store_rows import StoreRows
from bigsvm.data.wrappers import NarrowRows, NumberedRows
from bigsvm.errors import DataError, StoreError


class TestDenseArray(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return ArrayRows

    def test_is_not_copied(self, matrix):
        assert np.shares_memory(ArrayRows(matrix).read(0, 10), matrix)

    def test_read_only_memory_map(self, matrix, tmp_path):
        np.save(tmp_path / "x.npy", matrix)
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        source = as_row_source(mapped)
        np.testing.assert_array_equal(source.take(np.array([3, 1])), matrix[[3, 1]])
        assert np.shares_memory(source.read(0, 10), mapped)

    def test_costs_no_reading(self, source):
        source.read(0, 100)
        assert source.bytes_read == 0

    def test_the_order_of_its_rows_is_not_known_to_be_random(self, source):
        assert not source.is_shuffled


class TestSparseArray(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return lambda matrix: ArrayRows(sp.csr_matrix(matrix))

    @pytest.mark.parametrize("form", ["csc", "coo", "lil", "dok", "bsr"])
    def test_every_format(self, matrix, form):
        rows = ArrayRows(sp.csr_array(matrix).asformat(form)).read(0, 1000)
        np.testing.assert_array_equal(rows.toarray(), matrix)

    def test_unsorted_and_duplicate_entries(self):
        given = sp.csr_array(
            (np.array([1.0, 2, 4, 8]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), shape=(2, 3)
        )
        rows = ArrayRows(given).read(0, 2)
        np.testing.assert_array_equal(rows.toarray(), [[2, 0, 5], [0, 8, 0]])
        assert rows.has_sorted_indices
        assert given.indices.tolist() == [2, 0, 2, 1]

    def test_is_not_copied(self, matrix):
        given = sp.csr_array(matrix)
        assert np.shares_memory(ArrayRows(given)._rows.data, given.data)

    def test_some_rows_are_not_copied(self, matrix):
        given = sp.csr_array(matrix)
        rows = ArrayRows(given).read(137, 731)
        assert np.shares_memory(rows.data, given.data)
        assert np.shares_memory(rows.indices, given.indices)


class TestDenseDask(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return lambda matrix: DaskRows(da.from_array(matrix, chunks=(130, 9)))

    def test_unknown_chunk_sizes(self, matrix):
        array = da.from_array(matrix, chunks=(130, 23))
        source = DaskRows(array[da.from_array(np.arange(1000) % 3 > 0, chunks=130)])
        np.testing.assert_array_equal(
            source.read(0, source.n_rows), matrix[np.arange(1000) % 3 > 0]
        )

    def test_uneven_chunks(self, matrix):
        source = DaskRows(da.from_array(matrix, chunks=((1, 500, 499), 23)))
        assert source.row_alignment == 500
        np.testing.assert_array_equal(source.read(0, 1000), matrix)

    def test_fingerprint_does_not_depend_on_chunks(self, matrix):
        prints = {
            DaskRows(da.from_array(matrix, chunks=(n, 23))).fingerprint() for n in (7, 130, 1000)
        }
        assert len(prints) == 1

    def test_each_block_is_computed_once_in_a_pass(self, matrix):
        calls = []
        array = da.from_array(matrix, chunks=(100, 23)).map_blocks(
            lambda block: calls.append(block.shape) or block, dtype=matrix.dtype, meta=matrix[:0]
        )
        for _ in DaskRows(array).blocks(30_000):
            pass
        assert len(calls) == 10

    def test_block_of_another_shape(self, matrix):
        array = da.from_array(matrix, chunks=(100, 23)).map_blocks(
            lambda block: block[:-1], dtype=matrix.dtype, meta=matrix[:0]
        )
        with pytest.raises(
            DataError, match=r"begins with row 0 has shape \(99, 23\).*compute_chunk_sizes"
        ):
            DaskRows(array).read(0, 10)


class TestSparseDask(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return lambda matrix: DaskRows(
            da.from_array(matrix, chunks=(130, 23)).map_blocks(sp.csr_array)
        )


class TestZarrArray(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self, tmp_path):
        names = itertools.count()

        def make(matrix):
            array = zarr.create_array(
                tmp_path / f"{next(names)}.zarr",
                shape=matrix.shape,
                dtype=matrix.dtype,
                chunks=(64, 5),
            )
            array[...] = matrix
            return as_row_source(array)

        return make


class StoreContract(RowSourceContract):
    @pytest.fixture
    def make(self, tmp_path, small_chunks):
        names = itertools.count()
        layout = "sparse" if self.sparse else "dense"

        def make(matrix):
            path = tmp_path / f"{next(names)}.zarr"
            y = np.zeros(len(matrix))
            return as_row_source(write_store(path, matrix, y, shuffle=False, layout=layout))

        return make

    def test_reads_count(self, source):
        size = source.read(0, 1000)
        size = size.data.nbytes + size.indices.nbytes if self.sparse else size.nbytes
        assert source.bytes_read >= size

    def test_opening_reads_no_rows(self, source):
        assert as_row_source(str(source._place.path)).bytes_read == 0

    def test_survives_pickling(self, source, matrix):
        copy = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(dense(copy.read(3, 9)), matrix[3:9])

    def test_pickled_rows_of_a_store_that_was_replaced(self, source):
        frozen = pickle.dumps(source)
        write_store(source._place.path, make_matrix(10), np.zeros(10), overwrite=True)
        with pytest.raises(StoreError, match="replaced"):
            pickle.loads(frozen)

    def test_take_decodes_each_chunk_once(self, make):
        matrix = make_matrix(4000)
        source = make(matrix)
        order = np.random.default_rng(0).permutation(4000)
        source.take(order[:2000])
        assert source.bytes_read <= 2.2 * source.bytes_per_row * 4000


class TestDenseStore(StoreContract):
    sparse = False

    def test_has_many_chunks(self, source):
        assert source.row_alignment == 64
        assert len(source._attributes.manifest["X"]) == 16


class TestSparseStore(StoreContract):
    sparse = True

    def test_has_many_chunks(self, source):
        assert len(source._attributes.manifest["X/data"]) > 4

    def test_blocks_and_lookups_are_small_where_rows_are_long(self, make):
        # Ordered by length: the last rows have 400 entries, the mean is 20.
        lengths = np.sort(np.r_[np.full(3800, 1), np.full(200, 400)])
        matrix = (np.arange(400) < lengths[:, None]).astype(np.float32)
        source = make(matrix)
        share = source.rows_per_block(50_000) * source.bytes_per_row
        blocks = list(source.blocks(50_000))
        assert max(b.values.data.nbytes + b.values.indices.nbytes for b in blocks) < 1.3 * share
        np.testing.assert_array_equal(np.concatenate([b.values.toarray() for b in blocks]), matrix)
        # The same blocks from any of them on.
        starts = [b.start for b in blocks]
        for i in (1, len(starts) // 2, len(starts) - 1):
            assert [b.start for b in source.blocks(50_000, start=starts[i])] == starts[i:]
        calls = []
        read = source._read_spans
        source._read_spans = lambda spans: calls.append(spans) or read(spans)
        source.take(np.arange(3800, 4000))
        assert len(calls) > 1
        assert max(sum(stop - start for start, stop in spans) for spans in calls) <= 4


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.int8, np.float32),
        (np.uint16, np.float32),
        (np.float16, np.float32),
        (bool, np.float32),
        (np.float32, np.float32),
        (np.int32, np.float64),
        (np.int64, np.float64),
    ],
)
def test_types_are_kept_exactly(given, expected):
    assert as_row_source(np.ones((2, 2), given)).dtype == expected


def test_lists_and_sources_are_taken():
    source = as_row_source([[1, 2], [3, 4]])
    assert as_row_source(source) is source
    assert source.read(1, 2).tolist() == [[3.0, 4.0]]


def test_store_is_taken(tmp_path):
    store = write_store(tmp_path / "s.zarr", np.eye(3), np.arange(3))
    assert isinstance(as_row_source(store), StoreRows)
    assert isinstance(as_row_source(tmp_path / "s.zarr"), StoreRows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones(3), r"1 dimensions.*reshape"),
        (np.ones((2, 2, 2)), "3 dimensions"),
        (np.ones((0, 2)), "rows and columns"),
        (np.ones((2, 0)), "rows and columns"),
        (np.array([["a"]]), "real numbers"),
        (np.array([[1j]]), "real numbers"),
        (sp.csr_array((0, 3)), "rows and columns"),
        (da.ones(3), "1 dimensions"),
    ],
)
def test_invalid_X_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        as_row_source(given)


def test_path_that_is_not_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="not a store"):
        as_row_source(str(tmp_path))


@pytest.mark.parametrize(
    "wrap", [np.asarray, sp.csr_array, lambda m: da.from_array(m, chunks=(40, 23))]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_first_pass_finds_nonfinite_values(wrap, bad):
    matrix = make_matrix(100)
    matrix[61, 22] = bad
    with pytest.raises(DataError, match=f"X has {bad} in row 61, column 22"):
        as_row_source(wrap(matrix)).total_variance()


def test_a_sum_that_overflows_is_no_mistake():
    assert as_row_source(np.full((4, 2), 3e38, np.float32)).column_means()[0] == pytest.approx(3e38)


def test_a_new_kind_of_container_is_a_line_of_the_table(monkeypatch):
    class Halves:
        def __init__(self, X):
            self.parts = np.array_split(X, 2)

    library = types.ModuleType("halves")
    library.Halves = Halves
    monkeypatch.setitem(sys.modules, "halves", library)
    line = containers.Container(
        "halves",
        "Halves",
        lambda X, how: containers.rows_of_container(np.concatenate(X.parts), how),
    )
    monkeypatch.setattr(containers, "CONTAINERS", (line, *containers.CONTAINERS))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), rng.integers(0, 2, 90)
    ours, plain = (bigsvm.SVC(gamma=0.5).fit(rows, y) for rows in (Halves(X), X))
    assert ours.n_features_in_ == 3
    np.testing.assert_array_equal(
        ours.decision_function(Halves(X)), plain.decision_function(X), strict=True
    )


def test_dask_arrays_are_of_the_changed_rows():
    K = np.arange(12.0).reshape(3, 4)
    numbered = NumberedRows(ArrayRows(K), np.array([3, 1, 2])).as_dask().compute()
    np.testing.assert_array_equal(numbered, np.column_stack([[3, 1, 2], K]))
    wide = sp.csr_array((np.ones(3), [7, 500, 7], [0, 1, 2, 3]), shape=(3, 1000))
    narrow = NarrowRows(ArrayRows(wide), Numbering(np.array([7, 500]), 1000)).as_dask()
    assert narrow.shape == (3, 2)
    np.testing.assert_array_equal(narrow.compute().toarray(), [[1, 0], [0, 1], [1, 0]])
