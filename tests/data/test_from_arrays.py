"""`write_store`: every kind of array becomes the same store; bad values are refused by name."""

import os

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import dense, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ParameterError, StoreError

KINDS = {
    "array": np.asarray,
    "csr": sp.csr_matrix,
    "csc": sp.csc_array,
    "dask": lambda m: da.from_array(m, chunks=(130, 9)),
    "sparse dask": lambda m: da.from_array(m, chunks=(130, 23)).map_blocks(sp.csr_array),
    "rows": lambda m: as_row_source(da.from_array(m, chunks=(77, 23))),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_every_kind_makes_the_same_store(tmp_path, kind, layout, dtype):
    matrix = make_matrix(500)
    rng = np.random.default_rng(0)
    y, weights = rng.integers(0, 2, 500), rng.random(500)
    options = {"layout": layout, "dtype": dtype, "seed": 3}
    expected = write_store(tmp_path / "e.zarr", matrix, y, weights, **options).attributes
    store = write_store(tmp_path / "s.zarr", KINDS[kind](matrix), y, weights, **options)
    assert store.attributes == expected
    assert store.attributes.dtype == (dtype or "float32")
    order = store.original_rows()
    np.testing.assert_array_equal(dense(store.rows.read(0, 500)), matrix[order])
    np.testing.assert_array_equal(store.sample_weight(), weights[order])
    store.verify()


def test_layout_follows_the_input(tmp_path):
    matrix = make_matrix(100, density=0.1)
    y = np.zeros(100)
    assert write_store(tmp_path / "a", matrix, y).attributes.layout == "dense"
    assert write_store(tmp_path / "b", sp.csr_array(matrix), y).attributes.layout == "csr"
    full = sp.csr_array(make_matrix(100, density=0.5))
    assert write_store(tmp_path / "c", full, y).attributes.layout == "dense"


def test_order_is_kept_if_wanted(path):
    store = write_store(path, np.eye(5), np.arange(5), shuffle=False)
    assert store.labels().tolist() == [0, 1, 2, 3, 4]
    assert store.sample_weight() is None
    assert not store.attributes.shuffled
    assert store.attributes.seed is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(path, kind, bad):
    matrix = make_matrix(300)
    matrix[211, 20] = bad
    with pytest.raises(DataError, match=f"X has {bad} in row 211, column 20"):
        write_store(path, KINDS[kind](matrix), np.zeros(300))
    assert os.listdir(path.parent) == []


def test_values_too_large_for_float32(path):
    matrix = np.ones((3, 2))
    matrix[2, 1] = 1e39
    with pytest.raises(
        DataError, match=r"row 2, column 1.*too large for float32: use dtype='float64'"
    ):
        write_store(path, matrix, np.zeros(3), dtype="float32")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], r"y has shape \(2,\), but X has 3 rows"),
        (np.zeros((3, 1)), r"y has shape \(3, 1\)"),
        ([0, np.nan, 1], "y has nan in row 1"),
        ([0, 1, np.inf], "y has inf in row 2"),
        ([0, 1, 2**53 + 1], "y has 9007199254740993 in row 2; integers beyond"),
    ],
)
def test_labels_that_are_refused(path, y, message):
    with pytest.raises(DataError, match=message):
        write_store(path, np.eye(3), y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -2, 1], r"sample_weight has -2\.0 in row 1"),
        ([1, 1, np.nan], "sample_weight has nan in row 2"),
        ([1, 1, np.inf], "sample_weight has inf in row 2"),
        ([1, 1], r"sample_weight has shape \(2,\)"),
        (["1", "1", "1"], "sample_weight has type"),
    ],
)
def test_weights_that_are_refused(path, weights, message):
    with pytest.raises(DataError, match=message):
        write_store(path, np.eye(3), np.zeros(3), weights)


def test_labels_of_every_numeric_type(path):
    for i, y in enumerate(([True, False, True], np.array([1, 2, 3], np.int8), da.arange(3))):
        store = write_store(f"{path}{i}", np.eye(3), y, shuffle=False)
        np.testing.assert_array_equal(store.labels(), np.asarray(y, float))


def test_parameters_without_meaning(path):
    for options in ({"layout": "csr"}, {"dtype": "int8"}, {"seed": -1}, {"memory": "x"}):
        with pytest.raises(ParameterError):
            write_store(path, np.eye(3), np.zeros(3), **options)


def test_existing_store(path):
    write_store(path, np.eye(3), np.zeros(3))
    with pytest.raises(StoreError, match="already exists"):
        write_store(path, np.eye(3), np.zeros(3))
    assert write_store(path, np.eye(4), np.zeros(4), overwrite=True).rows.n_rows == 4


def test_dask_blocks_are_computed_once(path):
    computed = []

    def block(block_info):
        (start, stop), _ = block_info[None]["array-location"]
        computed.append((start, stop))
        return make_matrix(stop - start, 4, seed=start)

    X = da.map_blocks(
        block, chunks=((100,) * 20, (4,)), dtype=np.float32, meta=np.empty((0, 4), np.float32)
    )
    store = write_store(path, X, np.zeros(2000))
    assert sorted(computed) == [(i, i + 100) for i in range(0, 2000, 100)]
    assert store.rows.n_rows == 2000


def test_source_of_dask_blocks_that_cannot_be_read(path):
    def load(block):
        raise FileNotFoundError(2, "No such file or directory", "part-7.npy")

    X = da.zeros((40, 3), chunks=(20, 3)).map_blocks(load, dtype=float, meta=np.empty((0, 3)))
    with pytest.raises(DataError, match=r"blocks 0 to 1 of X cannot be read .*part-7\.npy"):
        write_store(path, X, np.zeros(40))


@pytest.mark.parametrize("kind", ["array", "csr", "dask"])
def test_values_that_become_zero_in_float32(path, kind):
    matrix = make_matrix(50, dtype=np.float64)
    matrix[3, 4] = 1e-60
    store = write_store(path, KINDS[kind](matrix), np.zeros(50), layout="sparse", dtype="float32")
    store.verify()
    rows = store.rows.read(0, 50)
    np.testing.assert_array_equal(dense(rows), matrix.astype(np.float32)[store.original_rows()])


def test_progress(path):
    events = []
    X = da.from_array(make_matrix(500), chunks=(100, 23))
    write_store(path, X, np.zeros(500), on_progress=events.append)
    assert {event.stage for event in events} == {"read", "write"}
    read = [event.done for event in events if event.stage == "read"]
    assert read[-1] == 500 * 23 * 4
    assert all(event.total == read[-1] for event in events if event.stage == "read")
    assert (events[-1].done, events[-1].total) == (500, 500)


class TestObjectsOfPython:
    """Labels and weights of numbers in an array of objects, as a frame with mixed columns has."""

    @pytest.mark.parametrize(
        "values", [[1, 2, 1, 7], [True, False, True, True], [1, 2.5, 1, 0], [np.int64(3), 1, 2, 3]]
    )
    def test_numbers_are_taken(self, tmp_path, values):
        store = write_store(tmp_path / "x.zarr", np.eye(4), np.array(values, object), shuffle=False)
        np.testing.assert_array_equal(store.labels(), np.array(values, np.float64))
        assert store.class_names is None

    def test_weights_are_taken(self, tmp_path):
        weights = np.array([1, 2.5, 1, 3], object)
        store = write_store(tmp_path / "x.zarr", np.eye(4), np.arange(4), weights, shuffle=False)
        np.testing.assert_array_equal(store.sample_weight(), weights.astype(np.float64))

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ([1, 2**53 + 1, 1, 2], "beyond 2\\*\\*53"),
            ([1, -(2**70), 1, 2], "beyond 2\\*\\*53"),
            ([1, None, 1, 2], "labels must be numbers or words"),
            ([1, "a", 1, 2], "labels must be numbers or words"),
            ([1, float("nan"), 1, 2], "y has nan in row 1"),
        ],
    )
    def test_others_are_refused(self, tmp_path, values, told):
        with pytest.raises(DataError, match=told):
            write_store(tmp_path / "x.zarr", np.eye(4), np.array(values, object))
