"""How large the chunks of a foreign Zarr array are, stored and decoded.

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
import math
import struct
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from bigsvm.budget import show_bytes
from bigsvm.data.zarr_chunks import ABSENT, check_chunks, files_of, grid_of, index_of, key_of
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import zarr

_PIECE = 1 << 20
"""Bytes that are decoded at once."""
_HEAD_BYTES = 18
"""Length of the longest head, which is that of a zstd frame."""


def check_array(array: zarr.Array[Any], name: str = "X", *, allow_missing: bool) -> None:
    """Refuse an array whose chunks are missing, or larger than its shape says.

    Parameters
    ----------
    array : zarr.Array
    name : str
        Name of the array, for messages.
    allow_missing : bool
        Whether chunks that are missing are taken for fill values.

    Raises
    ------
    DataError
    """
    from zarr.core.sync import sync
    from zarr.storage import LocalStore, MemoryStore, ZipStore

    if not allow_missing:
        check_chunks(array, name)
    # In a remote store each look at a chunk would be a request.
    if 0 not in array.shape and isinstance(array.store, LocalStore | MemoryStore | ZipStore):
        sync(_check_sizes(array, name))


async def _check_sizes(array: zarr.Array[Any], name: str) -> None:
    """Compare the size of each file, and the decoded size of each chunk, with the shape."""
    from zarr.abc.store import RangeByteRequest
    from zarr.buffer import default_buffer_prototype

    grid, prototype = grid_of(array), default_buffer_prototype()
    largest_file, largest_chunk = (
        _with_slack(math.prod(shape) * array.dtype.itemsize) for shape in (grid.shards, grid.chunks)
    )
    compressor = _compressor(array)
    decoded_size, pieces = _DECODED_SIZES.get(compressor), _PIECES.get(compressor)
    for position in np.argwhere(await files_of(array, grid)):
        place = tuple(map(int, position))
        key = key_of(array, place)
        _refuse_larger(await array.store.getsize(key), largest_file, f"{name}: file {key!r} has")
        if decoded_size is None and pieces is None:
            continue
        spans = [(0, largest_file)]
        if array.shards is not None:
            index = (await index_of(array, grid, place, name)).reshape(-1, 2)
            index = index[(index != ABSENT).any(axis=1)]
            spans = [(start, start + size) for start, size in index.tolist()]
        for start, stop in spans:

            async def stored(n_bytes: int, start: int = start) -> bytes:
                span = RangeByteRequest(start, start + n_bytes)
                # Awaited within this turn of the loop, so its variables are still the same.
                buffer = await array.store.get(key, prototype, byte_range=span)  # noqa: B023
                return b"" if buffer is None else buffer.to_bytes()

            what = f"{name}: a chunk of {key!r} decodes to"
            size = -1 if decoded_size is None else decoded_size(await stored(_HEAD_BYTES))
            if size < 0 and pieces is not None:
                # The index of a shard may say any length.
                data = await stored(min(stop - start, largest_file))
                size, what = _size_of(pieces(data), largest_chunk), f"{what} at least"
            _refuse_larger(size, largest_chunk, what)


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
