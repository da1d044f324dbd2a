"""Chunks that a foreign Zarr array lacks: found in every kind of store, and never read as zeros."""

import itertools

import dask.array as da
import numpy as np
import pytest
import zarr
from containers import CONTAINERS, act
from support.stores import make_matrix
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ZipStore

from bigsvm import SVC
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError

pytestmark = pytest.mark.fault("missing-chunks")

NUMBERS = itertools.count()
STORES = {
    "local": lambda path: LocalStore(path / "x.zarr"),
    "memory": lambda path: MemoryStore(),
    "fsspec": lambda path: FsspecStore.from_url(f"memory://chunks-{next(NUMBERS)}"),
}
SENTENCE = r"lacks 1 of \d+ chunks, the first of them at row 128, which Zarr reads as 0.*"
REMEDY = r"bigsvm\.write_store\(…, allow_missing=True\)"


def make_array(store, **options):
    given = {"name": "a/x1", "chunks": (64, 6), "config": {"write_empty_chunks": True}} | options
    array = zarr.create_array(store, shape=(300, 11), dtype="f4", **given)
    array[...] = make_matrix(300, 11)
    return array


def lose_chunk(array, place=(2, 1)):
    prefix = f"{array.path}/" if array.path else ""
    sync(array.store.delete(prefix + array.metadata.encode_chunk_key(place)))
    return array


@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", STORES)
def test_chunk_that_was_lost(kind, zarr_format, separator, tmp_path):
    encoding = {"name": "v2" if zarr_format == 2 else "default", "separator": separator}
    options = {"zarr_format": zarr_format, "chunk_key_encoding": encoding}
    array = make_array(STORES[kind](tmp_path), **options)
    np.testing.assert_array_equal(as_row_source(array).read(0, 300), array[...])
    with pytest.raises(DataError, match=SENTENCE + REMEDY):
        as_row_source(lose_chunk(array))


def test_array_that_is_no_part_of_a_group(tmp_path):
    array = make_array(tmp_path / "x.zarr", name=None)
    assert as_row_source(array).n_rows == 300
    with pytest.raises(DataError, match=SENTENCE):
        as_row_source(lose_chunk(array))


def test_store_that_does_not_list_its_keys(tmp_path, monkeypatch):
    monkeypatch.setattr(MemoryStore, "supports_listing", False)
    array = make_array(MemoryStore())
    assert as_row_source(array).n_rows == 300
    with pytest.raises(DataError, match=SENTENCE):
        as_row_source(lose_chunk(array))


def test_zip_file(tmp_path):
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        make_array(store)
    with ZipStore(tmp_path / "x.zip") as store:
        array = zarr.open_array(store, path="a/x1")
        np.testing.assert_array_equal(as_row_source(array).read(0, 300), array[...])


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("kind", STORES)
def test_chunk_that_a_shard_lacks(kind, location, tmp_path):
    from zarr.codecs import ShardingCodec

    codec = ShardingCodec(chunk_shape=(64, 6), index_location=location)
    options = {"chunks": (128, 12), "serializer": codec, "compressors": None}
    array = make_array(STORES[kind](tmp_path), **options)
    assert as_row_source(array).n_rows == 300
    # Zarr leaves out what is all fill value, unless it is told otherwise.
    array = zarr.open_array(array.store, path=array.path)
    rows = make_matrix(300, 11)
    rows[128:192, :6] = 0
    array[...] = rows
    with pytest.raises(DataError, match=SENTENCE):
        as_row_source(array)


def test_shard_that_was_lost(tmp_path):
    array = make_array(tmp_path / "x.zarr", shards=(128, 12))
    with pytest.raises(DataError, match=r"lacks 4 of 10 chunks, the first of them at row 128"):
        as_row_source(lose_chunk(array, (1, 0)))


def test_shard_that_was_cut(tmp_path):
    array = make_array(tmp_path / "x.zarr", shards=(128, 12))
    shard = tmp_path / "x.zarr" / "a" / "x1" / array.metadata.encode_chunk_key((1, 0))
    shard.write_bytes(shard.read_bytes()[:20])
    with pytest.raises(DataError, match=r"shard \(1, 0\) is shorter than its index; restore"):
        as_row_source(array)


class TestFrontDoors:
    """Whatever reads a Zarr array refuses one that lacks chunks."""

    Y = np.arange(300) % 2

    @pytest.fixture
    def array(self, tmp_path):
        return lose_chunk(make_array(tmp_path / "x.zarr"))

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda array: array,
            da.from_zarr,
            lambda array: da.from_array(array, inline_array=True),
            lambda array: (da.from_zarr(array) * 2 + 1).rechunk((100, 11)),
        ],
    )
    @pytest.mark.parametrize("action", ["fit", "predict", "write_store"])
    def test_refusal(self, array, wrap, action, tmp_path):
        X, model = wrap(array), SVC().fit(np.eye(11), np.arange(11) % 2)
        with pytest.raises(DataError, match=SENTENCE + REMEDY):
            act(action, X, self.Y, tmp_path / "s.zarr", model)
        assert not (tmp_path / "s.zarr").exists()

    @pytest.mark.parametrize("wrap", [lambda array: array, da.from_zarr])
    def test_allow_missing_fills_missing_chunks(self, array, wrap, tmp_path):
        store = write_store(
            tmp_path / "s.zarr", wrap(array), self.Y, shuffle=False, allow_missing=True
        )
        expected = make_matrix(300, 11)
        expected[128:192, 6:] = 0
        np.testing.assert_array_equal(store.rows.read(0, 300), expected)

    @pytest.mark.parametrize("name", ["data", "indices"])
    def test_group_of_csr(self, name, tmp_path):
        group = CONTAINERS["zarr_group_of_csr"](make_matrix(300, 11), tmp_path)
        lose_chunk(group[name], (1,))
        with pytest.raises(DataError, match=rf"X\['{name}'\] lacks 1 of"):
            SVC().fit(group, self.Y)

    def test_arrays_that_are_not_rows_may_lack_chunks(self, tmp_path):
        rows = make_array(tmp_path / "x.zarr")
        mask = zarr.create_array(tmp_path / "m.zarr", shape=(300,), dtype="f4", chunks=(64,))
        X = da.from_zarr(rows) + da.from_zarr(mask)[:, None]
        np.testing.assert_array_equal(as_row_source(X).read(0, 300), rows[...])
