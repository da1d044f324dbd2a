"""Which chunks of a foreign Zarr array its store has, and how large they are, stored and decoded.

Zarr reads a missing chunk as the fill value, whether the chunk was left out because it holds
nothing else or was lost. Only the keys of the store and the index of each shard show which chunks
exist.

Zarr reads a file whole and decodes a chunk to any size that its bytes say. It looks at the shape
afterwards, so that a file of some kilobytes can take gigabytes. Most compressors write the decoded
size into the first bytes of a chunk, which are read here. Chunks of the others are decoded once
before they are used, in pieces, up to the size of their shape.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import itertools
import math
import re
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zstandard

from bigsvm.budget import show_bytes
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import dask.array as da
    import zarr
    from numpy.typing import NDArray

_PIECE = 1 << 20
"""Bytes that are decoded at once."""
_HEAD_BYTES = 18
"""Length of the longest head, which is that of a zstd frame."""


def check_array(array: zarr.Array[Any], name: str = "X", *, allow_missing: bool) -> None:
    """Refuse an array whose chunks are missing, or larger than its shape says.

    Messages call it `name`. `allow_missing` takes chunks that are missing for fill values.
    """
    from zarr.core.sync import sync
    from zarr.storage import LocalStore, MemoryStore, ZipStore

    grid = grid_of(array)
    n_chunks = math.prod(grid.n_chunks)
    if not allow_missing and n_chunks > _MOST_CHUNKS:
        raise DataError(
            f"{name} is stored in {n_chunks:.3g} chunks, more than {_MOST_CHUNKS}; write it again "
            "in larger ones"
        )
    # In a remote store each look at a chunk would be a request.
    sizes = isinstance(array.store, LocalStore | MemoryStore | ZipStore)
    if 0 not in array.shape and (sizes or not allow_missing):
        sync(_check_files(array, grid, name, sizes=sizes, allow_missing=allow_missing))


async def _check_files(
    array: zarr.Array[Any], grid: Grid, name: str, *, sizes: bool, allow_missing: bool
) -> None:
    """Look for missing chunks; compare the sizes of files and chunks with the shape if asked to."""
    compressor, is_sharded = _compressor(array), array.shards is not None
    is_known = compressor in {*_DECODED_SIZES, *_PIECES}
    largest_file = _with_slack(math.prod(grid.shards) * array.dtype.itemsize)
    files = await files_of(array, grid)
    present = np.zeros(grid.n_chunks, bool) if is_sharded and not allow_missing else files
    for position in np.argwhere(files):
        place = tuple(map(int, position))
        key, spans = key_of(array, place), [(0, largest_file)]
        if sizes:
            size = await array.store.getsize(key)
            _refuse_larger(size, largest_file, f"{name}: file {key!r} has")
        if is_sharded and (is_known or not allow_missing):
            index = await index_of(array, grid, place, name)
            exist = (index != ABSENT).any(axis=-1)
            spans = [(start, start + size) for start, size in index[exist].tolist()]
            if not allow_missing:
                among = grid.of_shard(place)
                inside = tuple(slice(part.stop - part.start) for part in among)
                present[among] = exist[inside]
        if sizes and is_known:
            await _check_chunks(array, key, spans, name=name, compressor=compressor)
    if not (allow_missing or present.all()):
        raise _missing(array, name, present)


async def _check_chunks(
    array: zarr.Array[Any], key: str, spans: list[tuple[int, int]], *, name: str, compressor: str
) -> None:
    """Compare the decoded sizes of chunks, at some spans of a file, with the shape."""
    from zarr.abc.store import RangeByteRequest
    from zarr.buffer import default_buffer_prototype

    grid, what = grid_of(array), f"{name}: a chunk of {key!r}"
    largest_file, largest_chunk = (
        _with_slack(math.prod(shape) * array.dtype.itemsize) for shape in (grid.shards, grid.chunks)
    )
    decoded_size, pieces = _DECODED_SIZES.get(compressor), _PIECES.get(compressor)

    async def stored(start: int, n_bytes: int) -> bytes:
        span = RangeByteRequest(start, start + n_bytes)
        buffer = await array.store.get(key, default_buffer_prototype(), byte_range=span)
        return b"" if buffer is None else buffer.to_bytes()

    for start, stop in spans:
        size = -1 if decoded_size is None else decoded_size(await stored(start, _HEAD_BYTES))
        if size >= 0 or pieces is None:
            _refuse_larger(size, largest_chunk, f"{what} decodes to")
        else:
            # The index of a shard may say any length.
            data = await stored(start, min(stop - start, largest_file))
            size = _size_of(pieces(data), largest_chunk)
            _refuse_larger(size, largest_chunk, f"{what} decodes to at least")


def _with_slack(n_bytes: int) -> int:
    """Bytes that a chunk may have: filters, checksums and an index add some."""
    return n_bytes + n_bytes // 8 + (1 << 16)


def _refuse_larger(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise DataError(
            f"{what} {show_bytes(size)}, and the shape of the array has at most "
            f"{show_bytes(limit)}; write the array again"
        )


def _compressor(array: zarr.Array[Any]) -> str:
    """Name of what compresses the chunks of an array; empty where nothing does."""
    record: Any = array.metadata.to_dict()
    if "codecs" not in record:
        return str((record.get("compressor") or {}).get("id", ""))
    codecs = record["codecs"]
    if array.shards is not None:
        codecs = codecs[0].get("configuration", {}).get("codecs", ())
    names = [codec["name"].removeprefix("numcodecs.") for codec in codecs]
    # A checksum stands behind the compressed bytes, so that these come first.
    return next((name for name in reversed(names) if name != "crc32c"), "")


def _of_zstd(head: bytes) -> int:
    """Read the decoded size of a zstd frame; -1 where the frame does not say it, or is none."""
    try:
        return zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return -1


def _of_blosc(head: bytes) -> int:
    """Read the decoded size of a Blosc chunk; -1 where it is cut off."""
    return int(struct.unpack_from("<I", head, 4)[0]) if len(head) >= 8 else -1


def _of_lz4(head: bytes) -> int:
    """Read the decoded size of an LZ4 chunk of numcodecs; -1 where it is cut off."""
    return int(struct.unpack_from("<I", head)[0]) if len(head) >= 4 else -1


def _size_of(pieces: Iterator[bytes], limit: int) -> int:
    """Count the decoded bytes of a chunk, until they exceed a limit or the chunk is damaged.

    A damaged chunk is refused when it is read.
    """
    size = 0
    with contextlib.suppress(EOFError, OSError, zlib.error, zstandard.ZstdError):
        for piece in pieces:
            size += len(piece)
            if size > limit:
                break
    return size


def _pieces_of_zlib(data: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    while data and (piece := stream.decompress(data, _PIECE)):
        yield piece
        data = stream.unconsumed_tail


def _pieces_of_gzip(data: bytes) -> Iterator[bytes]:
    return iter(partial(gzip.GzipFile(fileobj=io.BytesIO(data)).read, _PIECE), b"")


def _pieces_of_bz2(data: bytes) -> Iterator[bytes]:
    return iter(partial(bz2.BZ2File(io.BytesIO(data)).read, _PIECE), b"")


def _pieces_of_zstd(data: bytes) -> Iterator[bytes]:
    # A small piece of a frame can decode to a thousand times its size.
    frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    return iter(partial(frames.read, _PIECE), b"")


_PIECES: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "zlib": _pieces_of_zlib,
    "gzip": _pieces_of_gzip,
    "bz2": _pieces_of_bz2,
    "zstd": _pieces_of_zstd,
}
"""A chunk decoded in pieces, for compressors that do not always write the decoded size."""
_DECODED_SIZES: dict[str, Callable[[bytes], int]] = {
    "zstd": _of_zstd,
    "blosc": _of_blosc,
    "lz4": _of_lz4,
}
"""Decoded size of a chunk by its first bytes, for each compressor that writes it."""


_MOST_CHUNKS = 1 << 26
"""Most chunks of an accepted array: the table of chunks takes one byte each."""
ABSENT = np.uint64(2**64 - 1)
"""Offset and length of a missing chunk in the index of a shard."""


class Grid(NamedTuple):
    """Chunks of an array, those of shards included.

    `shards` is the shape of a file: that of a shard, or of a chunk without shards.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...]

    @property
    def n_chunks(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.chunks, strict=True))

    @property
    def n_shards(self) -> tuple[int, ...]:
        """Shards along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.shards, strict=True))

    @property
    def per_shard(self) -> tuple[int, ...]:
        """Chunks of a shard along each axis."""
        return tuple(a // b for a, b in zip(self.shards, self.chunks, strict=True))

    def of_shard(self, shard: tuple[int, ...]) -> tuple[slice, ...]:
        """Chunks of one shard, in the table of all."""
        sizes = zip(shard, self.per_shard, self.n_chunks, strict=True)
        return tuple(slice(i * size, min((i + 1) * size, n)) for i, size, n in sizes)


def grid_of(array: zarr.Array[Any]) -> Grid:
    """Chunks and shards of an array."""
    return Grid(array.shape, array.chunks, array.shards or array.chunks)


def _missing(array: zarr.Array[Any], name: str, present: NDArray[np.bool_]) -> DataError:
    """Error for an array that lacks some of its chunks."""
    count = present.size - int(np.count_nonzero(present))
    place = tuple(map(int, np.unravel_index(int(present.argmin()), present.shape)))
    return DataError(
        f"{name} lacks {count} of {present.size} chunks, the first of them at row "
        f"{place[0] * array.chunks[0]}, which Zarr reads as {array.fill_value}: restore what was "
        "lost; where nothing was, as Zarr leaves out chunks that are all fill value, make a store "
        "with bigsvm.write_store(…, allow_missing=True) and use that"
    )


def arrays_below(X: da.Array) -> Iterator[zarr.Array[Any]]:
    """Zarr arrays with the same number of columns that are found in the graph of a Dask array."""
    import zarr

    seen = set()
    for layer in X.dask.layers.values():
        # The array is a separate task, or an argument of all tasks.
        values = [value for value, _ in getattr(layer, "indices", ())]
        if type(layer).__name__ == "MaterializedLayer":
            values += [getattr(task, "value", task) for task in layer.values()]
        for value in values:
            if isinstance(value, zarr.Array) and id(value) not in seen:
                seen.add(id(value))
                if value.ndim == 2 and value.shape[1] == X.shape[1]:
                    yield value


def key_of(array: zarr.Array[Any], place: tuple[int, ...]) -> str:
    """Key of a chunk, or shard, in the store."""
    prefix = f"{array.path}/" if array.path else ""
    key: str = prefix + array.metadata.encode_chunk_key(place)
    return key


async def files_of(array: zarr.Array[Any], grid: Grid) -> NDArray[np.bool_]:
    """Which chunks, or shards, have a key in the store."""
    exists = np.zeros(grid.n_shards, bool)
    if not array.store.supports_listing:
        for place in itertools.product(*map(range, grid.n_shards)):
            exists[place] = await array.store.exists(key_of(array, place))
        return exists
    prefix = f"{array.path}/" if array.path else ""
    async for key in array.store.list_prefix(prefix):
        if not key.startswith(prefix):
            continue
        numbers = tuple(map(int, re.findall(r"\d+", key[len(prefix) :])))[-exists.ndim :]
        if len(numbers) == exists.ndim and all(
            i < n for i, n in zip(numbers, exists.shape, strict=True)
        ):
            exists[numbers] |= key_of(array, numbers) == key
    return exists


async def index_of(
    array: zarr.Array[Any], grid: Grid, shard: tuple[int, ...], name: str
) -> NDArray[np.uint64]:
    """Offset and length of each chunk of a shard, (…, 2), from its index."""
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.buffer import default_buffer_prototype

    record: dict[str, Any] = array.metadata.to_dict()
    # Other codecs around the shards, or nested shards, hide where chunks are.
    codec: dict[str, Any] = record["codecs"][0] if len(record["codecs"]) == 1 else {"name": None}
    sharding: dict[str, Any] = codec.get("configuration", {})
    ways = [c["name"] for c in sharding.get("index_codecs", ())]
    nested = any(c["name"] == "sharding_indexed" for c in sharding.get("codecs", ()))
    known = ways in (["bytes"], ["bytes", "crc32c"]) and not nested
    if codec["name"] != "sharding_indexed" or not known:
        raise DataError(
            f"{name} has shards whose index is encoded by {', '.join(ways) or 'other codecs'}, so "
            "that missing chunks do not show; copy it to an array without shards"
        )
    shape = (*grid.per_shard, 2)
    n_bytes = 8 * int(np.prod(shape))
    size = n_bytes + 4 * (len(ways) - 1)
    start = sharding.get("index_location", "end") == "start"
    key = key_of(array, shard)
    buffer = await array.store.get(
        key,
        default_buffer_prototype(),
        byte_range=RangeByteRequest(0, size) if start else SuffixByteRequest(size),
    )
    data = b"" if buffer is None else buffer.to_bytes()
    if len(data) != size:
        raise DataError(f"{name}: shard {shard} is shorter than its index; restore {key!r}")
    big = sharding["index_codecs"][0].get("configuration", {}).get("endian") == "big"
    return np.frombuffer(data[:n_bytes], ">u8" if big else "<u8").reshape(shape)
