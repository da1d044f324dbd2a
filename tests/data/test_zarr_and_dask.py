"""Rows of a store are read by zarr, as blocks of Dask, and other libraries open stores too."""

import os
import signal

import dask
import numpy as np
import pytest
import zarr
from support.stores import chunk_files, make_matrix

from bigsvm import SVC
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import shards, zarr_arrays
from bigsvm.data.row_source import RowSource
from bigsvm.data.store import open_store
from bigsvm.errors import DataCorruptionError

N_ROWS, WIDTH = 40_000, 100


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, WIDTH), dtype=np.float32)
    y = X[:, 0] > 0
    return write_store(tmp_path_factory.mktemp("stores") / "s.zarr", X, y.astype(int)).path


def trained(store):
    model = SVC(C=0.1, kernel="linear", tol=0.1, memory="60MB").fit(store).model_
    return model.support.tobytes(), model.coefficients.tobytes()


def test_all_rows_of_a_run_are_read_by_zarr_in_blocks_of_dask(monkeypatch, path):
    read, computed, streamed = [], [], []
    read_rows, get, read_ahead = zarr_arrays.read_rows, dask.core.get, RowSource.read_ahead

    def counting_read(array, start, out):
        if array.ndim == 2:
            read.append(len(out))
        read_rows(array, start, out)

    def counting_get(graph, key):
        rows = get(graph, key)
        computed.append(len(rows))
        return rows

    def counting_blocks(source, spans):
        for block in read_ahead(source, spans):
            streamed.append(len(block.values))
            yield block

    monkeypatch.setattr(RowSource, "read_ahead", counting_blocks)
    monkeypatch.setattr(zarr_arrays, "read_rows", counting_read)
    monkeypatch.setattr(dask.core, "get", counting_get)
    store = open_store(path)
    trained(store)
    assert sum(read) * WIDTH * 4 == store.rows.bytes_read > 0
    assert sum(computed) == sum(streamed) > 2 * N_ROWS


def test_blocks_run_on_the_scheduler_that_the_caller_has_set(path):
    asked = []

    def scheduler(graph, keys, **options):
        asked.append(keys)
        return dask.get(graph, keys, **options)

    expected = trained(path)
    with dask.config.set(scheduler=scheduler):
        assert trained(path) == expected
    assert asked


def test_a_lazy_block_is_read_when_it_is_computed(path):
    rows = open_store(path).rows
    block = rows.lazy_block(100, 250)
    assert rows.bytes_read == 0
    np.testing.assert_array_equal(block.compute(), rows.read(100, 250))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_same_rows_without_zarrs(monkeypatch, tmp_path, layout):
    matrix = make_matrix(1000)
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(1000), layout=layout)
    expected = store.rows.read(0, 1000)
    monkeypatch.setattr(shards, "FEW_CHUNKS", 0)
    rows = open_store(store.path).rows
    assert (rows.read(0, 1000) != expected).sum() == 0
    monkeypatch.setattr(zarr_arrays, "HAS_ZARRS", False)
    rows = open_store(store.path).rows
    assert (rows.read(0, 1000) != expected).sum() == 0
    assert (rows.read(3, 701) != expected[3:701]).sum() == 0
    file = next(iter(chunk_files(store.path / "y")))
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataCorruptionError, match="array 'y': chunk 0 cannot be read"):
        open_store(store.path).labels()


def test_a_forked_child_reads(path):
    rows = open_store(path).rows
    expected = rows.read(0, 5000)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if np.array_equal(rows.read(0, 5000), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_zarr_opens_a_store_alone(tmp_path, layout):
    matrix = make_matrix(300)
    store = write_store(tmp_path / "s.zarr", matrix, np.arange(300.0), layout=layout, shuffle=False)
    group = zarr.open_group(store.path, mode="r")
    np.testing.assert_array_equal(group["y"][:], np.arange(300.0))
    assert group["y"].metadata.dimension_names == ("sample",)
    if layout == "dense":
        np.testing.assert_array_equal(group["X"][:], matrix)
        assert group["X"].metadata.dimension_names == ("sample", "feature")


def test_xarray_opens_a_store(tmp_path):
    xarray = pytest.importorskip("xarray")
    matrix = make_matrix(300)
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(300), shuffle=False)
    opened = xarray.open_zarr(store.path, consolidated=False)
    assert dict(opened.sizes) == {"sample": 300, "feature": matrix.shape[1]}
    np.testing.assert_array_equal(opened["X"].values, matrix)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_anndata_reads_the_rows_of_a_store(tmp_path, layout):
    io = pytest.importorskip("anndata.io")
    matrix = make_matrix(300)
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(300), layout=layout, shuffle=False)
    rows = io.read_elem(zarr.open_group(store.path, mode="r")["X"])
    np.testing.assert_array_equal(rows.toarray() if layout == "sparse" else rows, matrix)
