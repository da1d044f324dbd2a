"""Chunks of foreign Zarr arrays that decode to more than their shape, or whose files are larger."""

import bz2
import gzip
import os
import subprocess
import sys
import zlib

import dask.array as da
import numpy as np
import pytest
import zarr
import zstandard
from numcodecs import BZ2, LZ4, Blosc, GZip, Zlib
from support.stores import make_matrix
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import zarr_chunks
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError

pytestmark = pytest.mark.fault("bombs")

PLAIN = {
    "zstd": {"compressors": ZstdCodec()},
    "zstd and crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "blosc": {"compressors": BloscCodec()},
    "gzip": {"compressors": GzipCodec()},
    "none": {"compressors": None},
    "format 2, gzip": {"zarr_format": 2, "compressors": GZip()},
    "format 2, zlib": {"zarr_format": 2, "compressors": Zlib()},
    "format 2, bz2": {"zarr_format": 2, "compressors": BZ2()},
    "gzip in shards": {"compressors": GzipCodec(), "shards": (256, 11)},
    "format 2, blosc": {"zarr_format": 2, "compressors": Blosc()},
    "format 2, lz4": {"zarr_format": 2, "compressors": LZ4()},
    "sharded": {"compressors": ZstdCodec(), "shards": (256, 11)},
}
MANY = 64 << 20
"""Bytes of zeros that a chunk decodes to."""


def make_array(path, **options):
    array = zarr.create_array(path, shape=(300, 11), chunks=(64, 11), dtype="f4", **options)
    array[...] = make_matrix(300, 11)
    return array


def chunk_files(path):
    return sorted(
        file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "z"))
    )


@pytest.mark.parametrize("kind", PLAIN)
def test_arrays_as_they_are_written_are_taken(kind, tmp_path):
    array = make_array(tmp_path / "x", **PLAIN[kind])
    np.testing.assert_array_equal(as_row_source(array).read(0, 300), make_matrix(300, 11))


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("of", [lambda array: array, da.from_zarr], ids=["zarr", "dask"])
def test_a_file_with_a_hole_is_refused(kind, of, tmp_path):
    array = make_array(tmp_path / "x", **PLAIN[kind])
    path = chunk_files(tmp_path / "x")[0]
    data = path.read_bytes()
    os.truncate(path, 8 << 30)
    if "shards" in PLAIN[kind]:  # whose index is at the end
        with path.open("r+b") as file:
            file.seek(-len(data), os.SEEK_END)
            file.write(data)
    with pytest.raises(DataError, match=r"X: file .* has 8\.\d+ GB, and the shape .* write the"):
        as_row_source(of(array))


BOMBS = {
    "zstd": lambda: zstandard.compress(bytes(MANY)),
    "zstd and crc32c": lambda: zstandard.compress(bytes(MANY)) + bytes(4),
    "blosc": lambda: bytes(Blosc().encode(np.zeros(MANY, np.uint8))),
    "format 2, blosc": lambda: bytes(Blosc().encode(np.zeros(MANY, np.uint8))),
    "format 2, lz4": lambda: bytes(LZ4().encode(np.zeros(MANY, np.uint8))),
}
UNSAID = {
    "zstd": lambda: zstandard.ZstdCompressor(write_content_size=False).compress(bytes(MANY)),
    "gzip": lambda: gzip.compress(bytes(MANY // 2)) + gzip.compress(bytes(MANY // 2)),
    "format 2, gzip": lambda: gzip.compress(bytes(MANY)),
    "format 2, zlib": lambda: zlib.compress(bytes(MANY)),
    "format 2, bz2": lambda: bz2.compress(bytes(MANY)),
}
"""Chunks that do not say how much they decode to."""


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_chunk_that_decodes_to_more_is_refused(kind, allow_missing, tmp_path):
    array = make_array(tmp_path / "x", **PLAIN[kind])
    small = BOMBS[kind]()
    assert len(small) < 1 << 19
    chunk_files(tmp_path / "x")[2].write_bytes(small)
    with pytest.raises(DataError, match=r"X: (a chunk of .* decodes to 67|file .* has 2)"):
        as_row_source(array, allow_missing=allow_missing)


@pytest.mark.parametrize("kind", UNSAID)
def test_a_chunk_that_does_not_say_what_it_decodes_to_is_decoded_as_far_as_its_shape(
    kind, tmp_path, monkeypatch
):
    array = make_array(tmp_path / "x", **PLAIN[kind])
    small = UNSAID[kind]()
    decoded, count = [], zarr_chunks._size_of

    def counted(pieces, limit):
        seen = []
        decoded.append(seen)
        return count((seen.append(len(piece)) or piece for piece in pieces), limit)

    monkeypatch.setattr(zarr_chunks, "_size_of", counted)
    chunk_files(tmp_path / "x")[2].write_bytes(small)
    with pytest.raises(DataError, match=r"X: a chunk of .* decodes to at least 1\.049 MB"):
        as_row_source(array)
    assert max(map(sum, decoded)) == 1 << 20


@pytest.mark.parametrize("kind", UNSAID)
def test_a_chunk_that_does_not_say_what_it_decodes_to_may_be_cut_off(kind, tmp_path):
    """The codec finds that when the chunk is read, if what is left is not too much already."""
    array = make_array(tmp_path / "x", **PLAIN[kind])
    file = chunk_files(tmp_path / "x")[2]
    file.write_bytes(UNSAID[kind]()[:20])
    with pytest.raises(DataError, match=r"of X cannot be read|decodes to at least"):
        as_row_source(array).read(0, 300)


def test_a_chunk_in_a_shard_that_decodes_to_more_is_refused(tmp_path):
    array = make_array(tmp_path / "x", **PLAIN["sharded"])
    path = chunk_files(tmp_path / "x")[0]
    data, small = path.read_bytes(), zstandard.compress(bytes(MANY))
    first = int.from_bytes(data[-68:-60], "little")  # of four chunks, and a checksum
    path.write_bytes(data[:first] + small[:18] + data[first + 18 :])
    with pytest.raises(DataError, match=r"a chunk of .* decodes to 67"):
        write_store(tmp_path / "s", array, np.arange(300) % 2, allow_missing=True)


CHILD = """
import resource, sys
import numpy as np, zarr
import bigsvm, bigsvm.data.sources
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
array = zarr.open_array(sys.argv[1])
before = peak()
try:
    bigsvm.write_store(sys.argv[2], array, np.arange(300) % 2, memory="50MB")
except bigsvm.errors.DataError as error:
    print(peak() - before)
"""


def test_no_memory_is_taken_for_it(tmp_path):
    make_array(tmp_path / "x", **PLAIN["zstd"])
    packer = zstandard.ZstdCompressor().compressobj(size=2 << 30)
    small = b"".join([packer.compress(bytes(1 << 24)) for _ in range(128)]) + packer.flush()
    chunk_files(tmp_path / "x")[0].write_bytes(small)
    words = [sys.executable, "-c", CHILD, str(tmp_path / "x"), str(tmp_path / "s")]
    child = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(child.stdout) < 60_000_000
