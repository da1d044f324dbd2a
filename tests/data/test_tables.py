"""Containers that are read in slices, as row sources; those of which no slice fits are refused."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from containers import CONTAINERS
from row_contracts import RowSourceContract
from support.stores import dense, make_matrix

from bigsvm import SVC
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.in_memory import ArrayRows, copied_bytes, is_copied_in_blocks
from bigsvm.data.sources import as_row_source
from bigsvm.data.tables import TableRows
from bigsvm.errors import DataError, MemoryBudgetError

MEMORY = 300_000
"""The matrix of the contract has 92 000 bytes: a copy takes too much to be held."""
LITTLE = 100_000
"""Blocks of all rows do not fit."""


class TableContract(RowSourceContract):
    container: str

    @pytest.fixture
    def make(self, tmp_path):
        names = itertools.count()

        def make(matrix):
            folder = tmp_path / str(next(names))
            folder.mkdir()
            X = CONTAINERS[self.container](matrix, folder)
            return as_row_source(X, memory=MEMORY)

        return make

    def test_is_read_in_slices(self, source):
        assert isinstance(source, TableRows)
        assert source.row_alignment <= 150

    def test_opening_reads_nothing(self, source):
        assert source.bytes_read == 0


class TestArrayOfColumns(TableContract):
    container, sparse = "array_of_columns", False


class TestNullableFrame(TableContract):
    container, sparse = "pandas_nullable", False

    @pytest.fixture
    def make(self):
        pandas = pytest.importorskip("pandas")

        def make(matrix):
            frame = pandas.DataFrame(matrix).astype(f"Float{8 * matrix.itemsize}")
            return as_row_source(frame, memory=MEMORY)

        return make


class TestPolarsFrame(TableContract):
    container, sparse = "polars_frame", False


class TestArrowTable(TableContract):
    container, sparse = "arrow_table", False


class TestZarrArray(TableContract):
    container, sparse = "zarr_rows", False


class TestHdf5(TableContract):
    container, sparse = "hdf5_chunks", False


class TestGroupOfCsr(TableContract):
    container, sparse = "zarr_group_of_csr", True


class TestCsrDataset(TableContract):
    container, sparse = "anndata_csr_dataset", True

    @pytest.fixture
    def make(self, tmp_path):
        names = itertools.count()

        def make(matrix):
            folder = tmp_path / str(next(names))
            folder.mkdir()
            return as_row_source(CONTAINERS[self.container](matrix, folder))

        return make

    def test_is_read_in_slices(self, source):
        assert isinstance(source, TableRows)


@pytest.mark.fault("containers")
@pytest.mark.parametrize(
    "given",
    [
        np.asfortranarray,
        lambda m: (10 * m).astype(np.int8),
        lambda m: sp.csr_array((10 * m).astype(np.int64)),
        lambda m: m.astype(np.float16),
    ],
)
def test_tables_that_would_be_copied_are_streamed(given, tmp_path):
    X = given(make_matrix())
    assert copied_bytes(X)
    assert is_copied_in_blocks(X, MEMORY)
    assert not is_copied_in_blocks(X, 100 * MEMORY)
    source, whole = as_row_source(X, memory=MEMORY), as_row_source(X)
    assert isinstance(whole, ArrayRows)
    assert whole.copied_bytes
    assert source.row_alignment <= 150
    assert source.dtype == whole.dtype
    np.testing.assert_array_equal(dense(source.read(0, 1000)), dense(whole.read(0, 1000)))


@pytest.mark.parametrize("given", [np.asarray, sp.csr_array])
def test_tables_that_are_not_copied_are_taken_whole(given):
    X = given(make_matrix())
    assert copied_bytes(X) == 0
    assert isinstance(as_row_source(X, memory=1000), ArrayRows)


def test_frame_of_one_block_is_not_copied():
    pandas = pytest.importorskip("pandas")
    matrix = make_matrix()
    frame = pandas.DataFrame(matrix, copy=False)
    assert copied_bytes(frame) == 0
    assert np.shares_memory(as_row_source(frame).read(0, 1000), matrix)
    assert copied_bytes(frame.assign(another=True)) == 1000 * 24 * 8


@pytest.mark.fault("containers")
@pytest.mark.parametrize(
    ("given", "way"),
    [
        (sp.csc_array, r"a CSC matrix.*give X\.tocsr\(\)"),
        (sp.coo_matrix, r"a COO matrix.*give X\.tocsr\(\)"),
        (np.ndarray.tolist, r"a list.*give numpy\.asarray\(X, dtype=float\)"),
    ],
)
def test_copies_that_do_not_fit_are_refused(given, way):
    with pytest.raises(MemoryBudgetError, match=way):
        as_row_source(given(make_matrix()), memory=LITTLE)


@pytest.mark.fault("containers")
def test_frame_of_sparse_columns_stays_sparse(tmp_path):
    pytest.importorskip("pandas")
    matrix = make_matrix(density=0.1)
    frame = CONTAINERS["pandas_sparse"](matrix, tmp_path)
    assert as_row_source(frame).is_sparse
    store = write_store(tmp_path / "s.zarr", frame, np.zeros(1000), shuffle=False)
    assert store.attributes.layout == "csr"
    np.testing.assert_array_equal(dense(store.rows.read(0, 1000)), matrix)
    with pytest.raises(MemoryBudgetError, match=r"give X\.sparse\.to_coo\(\)\.tocsr\(\)"):
        as_row_source(frame, memory=10_000)


@pytest.mark.fault("containers")
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": "boolean", "b": "boolean"}, np.float32),
        ({"a": "Int8", "b": "Float32"}, np.float32),
        ({"a": "bool", "b": "float64"}, np.float64),
        ({"a": "Int64", "b": "boolean"}, np.float64),
        ({"a": "category", "b": "bool"}, np.float64),
        ({"a": object, "b": "float32"}, np.float64),
    ],
)
def test_types_of_columns(columns, expected, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 0, 1], "b": [0, 1, 1]}).astype(columns)
    source = as_row_source(frame)
    assert source.dtype == expected
    np.testing.assert_array_equal(source.read(0, 3), [[1, 0], [0, 1], [1, 1]])
    sliced = as_row_source(frame, memory=10)
    assert isinstance(sliced, TableRows)
    np.testing.assert_array_equal(sliced.read(0, 3), source.read(0, 3))


class TestChunksOfManyRows:
    """Chunks of a column, or of everything, are decoded whole whatever is read of them."""

    def array(self, path, chunks, **options):
        array = zarr.create_array(path, shape=(1000, 23), dtype="f4", chunks=chunks, **options)
        array[...] = np.maximum(make_matrix(), 0.5)
        return array

    @pytest.mark.fault("containers")
    def test_columns_are_read_once_in_slices(self, tmp_path):
        array = self.array(tmp_path / "x.zarr", (1000, 1))
        source = as_row_source(array, memory=LITTLE, once=True)
        assert source.row_alignment * source.bytes_per_row <= LITTLE / 16
        np.testing.assert_array_equal(source.read(0, 1000), array[...])

    @pytest.mark.fault("containers")
    def test_columns_are_not_read_again_and_again(self, tmp_path):
        array = self.array(tmp_path / "x.zarr", (1000, 1))
        with pytest.raises(MemoryBudgetError, match=r"chunks of \(1000, 1\).*bigsvm\.write_store"):
            as_row_source(array, memory=LITTLE)
        # Ten slices, as a plan counts them.
        assert as_row_source(array, memory=10 * 92_000).row_alignment == 1000

    @pytest.mark.fault("containers")
    @pytest.mark.parametrize("once", [True, False])
    def test_array_of_one_chunk_needs_memory_for_it(self, tmp_path, once):
        array = self.array(tmp_path / "x.zarr", (1000, 23))
        with pytest.raises(
            MemoryBudgetError, match=r"decoded whole \(92 kB\).*at least memory=368000"
        ):
            as_row_source(array, memory=LITTLE, once=once)
        assert as_row_source(array, memory=368_000, once=True).n_rows == 1000

    def test_chunks_inside_a_shard_count(self, tmp_path):
        array = self.array(tmp_path / "x.zarr", (10, 23), shards=(1000, 23))
        assert as_row_source(array, memory=LITTLE).row_alignment == 30


class TestCsr:
    def group(self, path, **changes):
        rows = sp.csr_array(make_matrix())
        parts = {name: getattr(rows, name) for name in ("data", "indices", "indptr")} | changes
        group = zarr.create_group(path)
        group.attrs.update({"encoding-type": "csr_matrix", "shape": [1000, 23]})
        for name, part in parts.items():
            group.create_array(name, data=part)
        return group

    def test_long_rows_have_slices_of_their_own(self, tmp_path):
        lengths = np.sort(np.r_[np.full(900, 1), np.full(100, 400)])
        rows = sp.csr_array((np.arange(400) < lengths[:, None]).astype(np.float32))
        source = as_row_source(rows.astype(np.int32), memory=200_000)
        sizes = [rows[i:j].nnz for i, j in itertools.pairwise(source._edges)]
        assert max(sizes) <= 1.25 * source.row_alignment * rows.nnz / 1000 + 400
        np.testing.assert_array_equal(source.read(0, 1000).toarray(), rows.toarray())

    @pytest.mark.parametrize("wrong", [-1, 23])
    def test_index_of_no_column(self, tmp_path, wrong):
        indices = sp.csr_array(make_matrix()).indices.copy()
        indices[5] = wrong
        source = as_row_source(self.group(tmp_path / "g.zarr", indices=indices))
        with pytest.raises(DataError, match=r"an index of the rows 0 to 999 is none of its 23"):
            source.read(0, 1000)

    def test_columns_beyond_32_bits_stay_apart(self, tmp_path):
        indices = sp.csr_array(make_matrix()).indices.astype(np.int64)
        group = self.group(tmp_path / "g.zarr", indices=indices + 2**32)
        group.attrs["shape"] = [1000, 2**40]
        expected = indices + 2**32
        found = as_row_source(group).read(0, 1000).indices
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"indices": np.ones(5, int)}, "not one value for each entry"),
            ({"data": np.ones((3, 2))}, "not one value for each entry"),
            ({"data": np.array(1.0)}, "not one value for each entry"),
            ({"data": np.ones(2), "indices": np.ones(2)}, "must be whole numbers"),
            ({"indptr": np.arange(1001.0)}, "must be whole numbers"),
            ({"indptr": np.ones((1001, 1), int)}, "indptr is none of 1000 rows"),
            ({"indptr": np.ones(5000, int)}, "indptr is none of 1000 rows"),
        ],
    )
    @pytest.mark.fault("containers")
    def test_arrays_that_do_not_belong_together(self, tmp_path, changes, match):
        with pytest.raises(DataError, match=match):
            as_row_source(self.group(tmp_path / "g.zarr", **changes))

    @pytest.mark.parametrize("shape", [[1000, "x"], [1000], 1000, [1000, float("inf")], None])
    @pytest.mark.fault("containers")
    def test_invalid_shape_is_refused(self, tmp_path, shape):
        group = self.group(tmp_path / "g.zarr")
        group.attrs["shape"] = shape
        with pytest.raises(DataError, match="lacks one of data, indices, indptr and shape"):
            as_row_source(group)

    @pytest.mark.fault("containers")
    def test_parts_that_are_groups(self, tmp_path):
        group = self.group(tmp_path / "g.zarr")
        del group["data"]
        group.create_group("data")
        with pytest.raises(DataError, match="whose parts are groups"):
            as_row_source(group)

    def test_indptr_that_does_not_ascend(self, tmp_path):
        indptr = sp.csr_array(make_matrix()).indptr.copy()
        indptr[[3, 4]] = indptr[[4, 3]] + [1, 0]
        with pytest.raises(DataError, match="indptr is none of 1000 rows"):
            as_row_source(self.group(tmp_path / "g.zarr", indptr=indptr))


@pytest.mark.fault("containers")
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_without_columns(library):
    module = pytest.importorskip(library)
    frame = module.table({}) if library == "pyarrow" else module.DataFrame()
    with pytest.raises(DataError, match="must have rows and columns"):
        as_row_source(frame, memory=MEMORY)
    with pytest.raises(DataError, match="must have rows and columns"):
        SVC().fit(frame, [])


@pytest.mark.fault("containers")
def test_large_whole_numbers_of_arrow_are_rounded_as_in_other_frames():
    pyarrow = pytest.importorskip("pyarrow")
    numbers = 2**60 + np.arange(1000)
    source = as_row_source(pyarrow.table({"a": numbers}), memory=2000)
    np.testing.assert_array_equal(source.read(0, 1000)[:, 0], numbers.astype(float))


@pytest.mark.fault("containers")
@pytest.mark.parametrize("lazily", [False, True])
def test_a_chunk_that_cannot_be_decoded_is_named_by_its_rows(tmp_path, lazily):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(60, 4), chunks=(20, 4), dtype="f8")
    array[...] = make_matrix(60, 4)
    (tmp_path / "x.zarr" / "c" / "1" / "0").write_bytes(bytes(30))
    source = as_row_source(array)
    with pytest.raises(DataError, match=r"rows 0 to 59 of X cannot be read \(.*check its source"):
        source.as_dask().compute() if lazily else source.read(0, 60)
