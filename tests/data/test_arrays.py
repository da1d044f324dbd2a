"""Arrays that `ArrayWriter` writes are arrays of Zarr, whatever their shape."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

from bigsvm.data import arrays, schema
from bigsvm.data.schema import ZSTD_LEVEL, ArraySpec, hash_values

SHAPES = {
    "one chunk": ((7,), 7, 1),
    "a last chunk that is not full": ((100,), 16, 4),
    "full shards": ((128,), 16, 4),
    "two dimensions": ((50, 3), 8, 2),
    "no rows": ((0,), 1, 1),
}


def values_of(shape, dtype):
    return np.random.default_rng(0).integers(0, 1000, shape).astype(dtype)


def made(path, spec, values, pieces=3, memory_bytes=1 << 20):
    writer = arrays.ArrayWriter(path, spec, memory_bytes=memory_bytes)
    for piece in np.array_split(values, pieces):
        writer.append(piece)
    return writer.finish()


@pytest.fixture(params=SHAPES)
def spec(request, monkeypatch):
    shape, chunk_rows, chunks_per_shard = SHAPES[request.param]
    spec = ArraySpec(shape, np.dtype(np.float32), chunk_rows)
    monkeypatch.setattr(arrays, "SHARD_BYTES", chunks_per_shard * spec.chunk_bytes)
    return spec


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_zarr_reads_what_was_written(tmp_path, spec, dtype):
    spec = spec._replace(dtype=np.dtype(dtype))
    values = values_of(spec.shape, dtype)
    hashes = made(tmp_path / "a", spec, values)
    found = zarr.open_array(tmp_path / "a", mode="r")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[...], values)
    step = spec.chunk_rows
    assert hashes == tuple(hash_values(values[i : i + step]) for i in range(0, len(values), step))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_metadata_are_those_that_zarr_writes(tmp_path, spec, dtype):
    names = ("sample", "feature")[: len(spec.shape)]
    spec = spec._replace(dtype=np.dtype(dtype), dimensions=names)
    made(tmp_path / "a", spec, values_of(spec.shape, dtype))
    written = zarr.open_array(tmp_path / "a", mode="r")
    expected = zarr.create_array(
        tmp_path / "b",
        shape=spec.shape,
        dtype=dtype,
        chunks=(spec.chunk_rows, *spec.shape[1:]),
        shards=written.shards,
        serializer=BytesCodec(endian="little"),
        compressors=[ZstdCodec(level=ZSTD_LEVEL, checksum=True)],
        fill_value=-1 if dtype == np.int64 else np.nan,
        attributes={"encoding-type": "array", "encoding-version": "0.2.0"},
        dimension_names=names,
    )
    assert str(written.metadata.to_dict()) == str(expected.metadata.to_dict())
    assert (tmp_path / "a/zarr.json").read_text() == (tmp_path / "b/zarr.json").read_text()


def test_the_end_of_the_last_chunk_is_the_fill_value(tmp_path):
    spec = ArraySpec((5,), np.dtype(np.int64), 4)
    made(tmp_path / "a", spec, np.arange(5))
    longer = zarr.open_array(tmp_path / "a", mode="r+")
    longer.resize((8,))
    assert longer[...].tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_files_do_not_depend_on_the_memory_and_the_pieces(tmp_path, spec, memory_bytes):
    values = values_of(spec.shape, np.float32)
    made(tmp_path / "a", spec, values)
    made(tmp_path / "b", spec, values, pieces=1, memory_bytes=memory_bytes)
    folder_b = tmp_path / "b"
    files = [path.relative_to(tmp_path / "a") for path in sorted((tmp_path / "a").rglob("?*"))]
    assert files == [path.relative_to(folder_b) for path in sorted(folder_b.rglob("?*"))]
    for name in files:
        if (tmp_path / "a" / name).is_file():
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_groups_are_groups_of_zarr(tmp_path):
    schema.write_group(tmp_path / "g", {})
    schema.write_group(tmp_path / "g/inner", {"a": [1, 2]})
    schema.write_group(tmp_path / "g", {"b": float("inf")})
    group = zarr.open_group(tmp_path / "g", mode="r")
    assert dict(group.attrs) == {"b": float("inf")}
    assert dict(group["inner"].attrs) == {"a": [1, 2]}
