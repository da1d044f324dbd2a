"""Damaged, foreign and forged stores: never read as anything else than what was written."""

import itertools
import json
import random
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from support.stores import N_ROWS, chunk_files, dense, edit_attributes, everything, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import schema, shards
from bigsvm.data.shards import StoredChunks
from bigsvm.data.store import open_store
from bigsvm.errors import DataCorruptionError, StoreError


def edit_array(path, name, change):
    file = path / name / "zarr.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def assert_refused_or_unchanged(path, before):
    """Every reading raises or gives the right values; True if it raised."""
    try:
        store = open_store(path)
        store.verify()
        after = everything(store)
    except DataCorruptionError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert "convert the data again" in message
        return True
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    return False


def test_flipped_bits(store):
    before = everything(store)
    rng = random.Random(0)
    for file in chunk_files(store.path):
        content = file.read_bytes()
        # The first chunk's head, its middle or so, and the shard's index at the end.
        positions = {rng.randrange(8), rng.randrange(len(content)), len(content) - 1}
        positions.add(len(content) - rng.randrange(1, min(40, len(content))))
        for position in positions:
            changed = bytearray(content)
            bit = rng.randrange(8)
            changed[position] ^= 1 << bit
            file.write_bytes(changed)
            # Bit 4 of a zstd frame's descriptor has no meaning; without bit 2 the frame has no
            # checksum, but its content is hashed besides.
            may_pass = position == 4 and bit in (2, 4)
            assert assert_refused_or_unchanged(store.path, before) or may_pass
        file.write_bytes(content)
    assert not assert_refused_or_unchanged(store.path, before)


@pytest.mark.parametrize("few", [0, shards.FEW_CHUNKS], ids=["by Zarr", "here"])
def test_damaged_shards_name_array_and_chunk(store, monkeypatch, few):
    monkeypatch.setattr(shards, "FEW_CHUNKS", few)
    before = everything(store)
    for file in chunk_files(store.path):
        content = file.read_bytes()
        relative = file.relative_to(store.path).parts
        array = "/".join(relative[: relative.index("c")])
        for damaged in (content[: len(content) // 2], content[:-1], b"", None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            with pytest.raises(DataCorruptionError, match=rf"array '{array}': chunk \d+ "):
                open_store(store.path).verify()
            file.write_bytes(content)
    assert not assert_refused_or_unchanged(store.path, before)


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (MemoryError(), MemoryError, None),
        (
            OSError(24, "Too many open files"),
            StoreError,
            r"cannot be read \(Too many open files\)$",
        ),
        (OSError(5, "Input/output error"), StoreError, r"cannot be read \(Input/output error\)$"),
        (ValueError("bad bytes"), DataCorruptionError, "chunk 0 cannot be read: bad bytes; conv"),
    ],
)
def test_only_damage_is_corruption(store, monkeypatch, raised, expected, message):
    def fail(*_, **__):
        raise raised

    monkeypatch.setattr(StoredChunks, "decode", fail)
    with pytest.raises(expected, match=message) as caught:
        store.labels()
    assert caught.type is expected


def test_swapped_shards(store):
    by_array = {}
    for file in chunk_files(store.path):
        relative = file.relative_to(store.path).parts
        by_array.setdefault(relative[: relative.index("c")], []).append(file)
    swapped = 0
    for files in by_array.values():
        for one, other in itertools.pairwise(files):
            a, b = one.read_bytes(), other.read_bytes()
            one.write_bytes(b)
            other.write_bytes(a)
            with pytest.raises(DataCorruptionError, match="chunk"):
                open_store(store.path).verify()
            one.write_bytes(a)
            other.write_bytes(b)
            swapped += 1
    assert swapped >= 2


@pytest.mark.parametrize("name", ["X", "y", "row", "sample_weight", "statistics/mean"])
def test_valid_chunks_of_other_values(store, name):
    if name == "X" and store.attributes.layout == "csr":
        name = "X/indices"
    array = zarr.open_array(store.path / name, mode="r+")
    chunk = array.chunks[0]
    values = array[...]
    array[:1] = array[:1] + 1
    with pytest.raises(DataCorruptionError, match=f"array '{name}': chunk 0 is not the one"):
        open_store(store.path).verify()
    array[...] = values
    open_store(store.path).verify()
    if len(values) >= 3 * chunk:
        array[:chunk], array[chunk : 2 * chunk] = values[chunk : 2 * chunk], values[:chunk]
        with pytest.raises(DataCorruptionError, match="chunk 0"):
            open_store(store.path).verify()


def test_shard_of_another_store(store, tmp_path):
    layout = "dense" if store.attributes.layout == "dense" else "sparse"
    other = write_store(
        tmp_path / "o.zarr",
        make_matrix(N_ROWS, density=0.6, seed=9),
        np.zeros(N_ROWS),
        layout=layout,
    )
    name = "X" if layout == "dense" else "X/data"
    shutil.copy(chunk_files(other.path / name)[0], chunk_files(store.path / name)[0])
    with pytest.raises(DataCorruptionError, match=f"array '{name}': chunk 0"):
        store.rows.read(0, 10)


def test_reading_elsewhere_goes_on(store):
    name = "X" if store.attributes.layout == "dense" else "X/data"
    expected = dense(store.rows.read(N_ROWS - 100, N_ROWS))
    chunk_files(store.path / name)[0].unlink()
    again = open_store(store.path)
    np.testing.assert_array_equal(dense(again.rows.read(N_ROWS - 100, N_ROWS)), expected)
    with pytest.raises(DataCorruptionError):
        again.rows.read(0, 10)
    with pytest.raises(DataCorruptionError):
        again.rows.as_dask().compute()


def test_missing_chunk_of_zeros_is_noticed(tmp_path, small_chunks):
    store = write_store(tmp_path / "s.zarr", np.zeros((2000, 8)), np.zeros(2000))
    chunk_files(store.path / "X")[0].unlink()
    with pytest.raises(DataCorruptionError, match="array 'X': chunk 0 is missing"):
        store.rows.read(0, 1)


@pytest.mark.fault("columns-and-order")
def test_names_of_other_columns(store):
    edit_attributes(store.path, feature_names=["a"])
    with pytest.raises(DataCorruptionError, match=r"1 names of 23 columns"):
        open_store(store.path)


def test_metadata_bytes(store):
    before = everything(store)
    rng = random.Random(0)
    for file in store.path.rglob("zarr.json"):
        content = file.read_bytes()
        for _ in range(4):
            changed = bytearray(content)
            changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
            try:
                assert_refused_or_unchanged(store.path, before)
            except StoreError:
                pass
        file.write_bytes(content)


def test_folders_that_are_not_stores_are_refused(tmp_path):
    with pytest.raises(StoreError, match=r"not a store \(no zarr\.json\); make one with"):
        open_store(tmp_path)
    zarr.create_group(tmp_path / "group.zarr")
    with pytest.raises(StoreError, match="a Zarr group, but not a bigsvm store"):
        open_store(tmp_path / "group.zarr")
    zarr.create_array(tmp_path / "array.zarr", shape=(3,), dtype="f4")
    with pytest.raises(StoreError, match="a Zarr array, but not a bigsvm store"):
        open_store(tmp_path / "array.zarr")
    (tmp_path / "zarr.json").write_text("[" * 60_000)
    with pytest.raises(DataCorruptionError, match="not valid JSON"):
        open_store(tmp_path)


def test_not_complete(store):
    edit_attributes(store.path, complete=False)
    with pytest.raises(StoreError, match="not complete, its conversion did not finish"):
        open_store(store.path)


def test_newer_format(store):
    edit_attributes(store.path, format_version=5)
    with pytest.raises(StoreError, match=r"format version 5, .* reads up to 4; install"):
        open_store(store.path)


def test_attributes_that_were_edited(store):
    file = store.path / "zarr.json"
    file.write_text(file.read_text().replace('"shuffled": true', '"shuffled": false'))
    with pytest.raises(DataCorruptionError, match="attributes were changed"):
        open_store(store.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rows": 2**50},
        {"n_rows": -1},
        {"n_rows": 0},
        {"n_columns": 2**62},
        {"n_columns": -3},
        {"n_nonzero": -1},
        {"dtype": "object"},
        {"layout": "csc"},
        {"n_rows": N_ROWS - 1},
        {"n_columns": 24},
        {"dtype": "float64"},
        {"manifest": {}},
        {"label_counts": [1]},
        {"mean": 10**400},
        {"n_rows": float("inf")},
    ],
)
def test_hostile_attributes(store, changes):
    edit_attributes(store.path, **changes)
    with pytest.raises(DataCorruptionError):
        open_store(store.path)


def test_manifest_that_is_a_list(store):
    file = store.path / "zarr.json"
    content = json.loads(file.read_text())
    record = content["attributes"][schema.KEY]
    record["manifest"] = []
    record["checksum"] = schema.checksum(record)
    file.write_text(json.dumps(content))
    with pytest.raises(DataCorruptionError, match="attributes are not valid"):
        open_store(store.path)


def _shape(content, shape):
    content["shape"] = shape


def _codec(content):
    return content["codecs"][0]["configuration"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: _shape(c, [2**50]),
        lambda c: _shape(c, [-1]),
        lambda c: _shape(c, "x"),
        lambda c: _shape(c, [float("inf")]),
        lambda c: c.update(data_type="object"),
        lambda c: c.update(data_type="int32"),
        lambda c: c.update(node_type="group"),
        lambda c: c.update(codecs=[{"name": "bytes"}]),
        lambda c: _codec(c).update(chunk_shape=[0]),
        lambda c: _codec(c).update(chunk_shape=[2**40]),
        lambda c: _codec(c).update(chunk_shape=[100]),
        lambda c: _codec(c)["codecs"].append({"name": "gzip", "configuration": {"level": 1}}),
        lambda c: _codec(c)["codecs"][1]["configuration"].update(checksum=False),
        lambda c: _codec(c)["codecs"][0]["configuration"].update(endian="big"),
        lambda c: _codec(c).update(index_codecs=[{"name": "bytes"}]),
        lambda c: c["chunk_grid"]["configuration"].update(chunk_shape=[3]),
    ],
)
def test_hostile_array_metadata(store, change):
    edit_array(store.path, "y", change)
    with pytest.raises(DataCorruptionError, match="array 'y'"):
        open_store(store.path)


def test_chunks_too_large_to_decode(store):
    def change(content):
        content["chunk_grid"]["configuration"]["chunk_shape"] = [2**30]
        _codec(content)["chunk_shape"] = [2**30]

    edit_array(store.path, "y", change)
    with pytest.raises(
        DataCorruptionError, match=r"chunks of 1073741824 rows .* of an array of 400"
    ):
        open_store(store.path)


def test_missing_array(store):
    shutil.rmtree(store.path / "row")
    with pytest.raises(DataCorruptionError, match="array 'row' is missing; convert"):
        open_store(store.path)


@pytest.mark.parametrize("name", ["y", "y/c/0", "link"])
def test_links_are_refused(store, tmp_path, name):
    place = store.path / name
    if place.exists():
        place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is a symbolic link"):
        open_store(store.path)


def test_invalid_csr_rows_are_refused(tmp_path, monkeypatch):
    matrix = sp.csr_array(make_matrix(50))
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(50), layout="sparse")
    array = zarr.open_array(store.path / "X/indptr", mode="r+")
    values = array[...]
    values[3] = values[2] - 1
    array[...] = values
    manifest = dict(store.attributes.manifest)
    manifest["X/indptr"] = (schema.hash_values(values),)
    edit_attributes(store.path, manifest=manifest)
    with pytest.raises(DataCorruptionError, match="'X/indptr' does not ascend from 0 to"):
        open_store(store.path).rows.read(0, 1)
