"""Shards of an array of a store: written chunk by chunk, and decoded in bounded memory.

A shard is a file: its chunks, each a zstd frame, then an index of one (offset, size) pair of uint64
for each chunk, then the CRC-32C of that index. The metadata says how large the index and each
decoded chunk are. A file that says anything else is refused before memory is taken for it.
"""

from __future__ import annotations

from contextlib import nullcontext
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.schema import ZSTD_LEVEL
from bigsvm.files import begin_sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.data.place import Place
    from bigsvm.data.schema import ArraySpec

_NO_CHUNK = 2**64 - 1
"""Offset and size of a chunk that was never written, as Zarr has them."""
_INDEX_ENTRY_BYTES = 16
_CRC_BYTES = 4


class _Index(NamedTuple):
    """Offset and size of each chunk of a shard, (n, 2) uint64, and where the last chunk ends."""

    entries: NDArray[np.uint64]
    end: int


class Shards:
    """The shards of one array. May be used from several threads.

    The index of a shard is kept once it has been read, 16 bytes a chunk.

    Parameters
    ----------
    place : Place
        Place of the array.
    spec : ArraySpec
        Spec from the metadata of the array.
    """

    def __init__(self, place: Place, spec: ArraySpec) -> None:
        self._place = place
        self._spec = spec
        # This is above zstd's own bound, ZSTD_compressBound.
        self._most_stored_bytes = spec.chunk_bytes + spec.chunk_bytes // 128 + 1024
        self._indices: dict[int, _Index] = {}
        # Threads that read from far ask for an index once. Local files need no locks, which a
        # forked child may find taken.
        self._asking: AbstractContextManager[Any] = Lock() if place.is_far else nullcontext()
        # Many chunks may be on their way, but no more are decoded than a plan has memory for.
        self._decoding: AbstractContextManager[Any] = (
            BoundedSemaphore(READER_CHUNKS) if place.is_far else nullcontext()
        )

    def decode(self, chunk: int, out: NDArray[Any]) -> None:
        """Decode the first rows of a chunk, which may be longer than its array.

        Parameters
        ----------
        chunk : int
        out : (m, ...) array
            Filled with the first m rows of the chunk.

        Raises
        ------
        OSError
            The file cannot be opened or read, or is no regular file.
        StoreError
            The file cannot be reached.
        ValueError
            The file does not hold the chunk, or the chunk does not have the size in the metadata.
        """
        stored = self._stored(chunk)
        with self._decoding:
            out[...] = self._decoded(stored)[: len(out)]

    def forget(self, chunk: int) -> None:
        """Have the index of the shard of a chunk read again."""
        self._indices.pop(chunk // self._spec.chunks_per_shard, None)

    def _stored(self, chunk: int) -> bytes:
        """Compressed bytes of a chunk."""
        shard, place = divmod(chunk, self._spec.chunks_per_shard)
        name = _name_of(self._spec, shard)
        with self._asking:
            index = self._indices.get(shard)
            if index is None:
                index = self._indices[shard] = self._index(name)
        offset, size = index.entries[place].tolist()
        if (offset, size) == (_NO_CHUNK, _NO_CHUNK):
            raise ValueError("its shard does not have it")
        if offset + size > index.end or size > self._most_stored_bytes:
            raise ValueError(f"its shard has {size} bytes for it at {offset}, which cannot be")
        stored = self._place.part(name, offset, size)
        if len(stored) < size:
            raise ValueError(f"its shard ends before it, after {offset + len(stored)} bytes")
        return stored

    def _index(self, name: str) -> _Index:
        """Read the index of a shard."""
        import google_crc32c

        n_bytes = self._spec.chunks_per_shard * _INDEX_ENTRY_BYTES
        data = self._place.tail(name, n_bytes + _CRC_BYTES)
        if len(data) < n_bytes + _CRC_BYTES:
            raise ValueError("its shard is shorter than an index")
        index, crc = data[:n_bytes], data[n_bytes:]
        if google_crc32c.value(index) != int.from_bytes(crc, "little"):
            raise ValueError("the index of its shard is damaged")
        entries = np.frombuffer(index, "<u8").reshape(-1, 2)
        # Chunks are written one after another, without gaps.
        end = sum(size for size in entries[:, 1].tolist() if size != _NO_CHUNK)
        return _Index(entries, end)

    def _decoded(self, stored: bytes) -> NDArray[Any]:
        """Values of a chunk, (chunk_rows, ...)."""
        import zstandard

        expected = self._spec.chunk_bytes
        try:
            # The frame declares the size of its content, and zstd never decodes more than that.
            size = zstandard.frame_content_size(stored)
            if size != expected:
                raise ValueError(f"it decodes to {size} bytes instead of {expected}")
            data = zstandard.ZstdDecompressor().decompress(stored)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        if len(data) != expected:
            raise ValueError(f"it decodes to {len(data)} bytes instead of {expected}")
        spec = self._spec
        return np.frombuffer(data, spec.dtype.newbyteorder("<")).reshape(
            spec.chunk_rows, *spec.shape[1:]
        )


def _name_of(spec: ArraySpec, shard: int) -> str:
    """Name of a shard, below the place of its array."""
    return "/".join(("c", str(shard), *("0" for _ in spec.shape[1:])))


def encode_chunk(values: NDArray[Any]) -> bytes:
    """Compress a whole chunk, (chunk_rows, ...)."""
    import zstandard

    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
    return compressor.compress(little.data.cast("B"))


class ShardWriter:
    """Append the chunks of an array to its shards, in their order.

    Parameters
    ----------
    folder : Path
        Folder of the array.
    spec : ArraySpec
        With `chunks_per_shard`.
    finished : callable
        Given the path of each shard that is complete.
    """

    def __init__(self, folder: Path, spec: ArraySpec, finished: Callable[[Path], None]) -> None:
        self._folder = folder
        self._spec = spec
        self._finished = finished
        self._shard = 0
        self._sizes: list[int] = []

    def append(self, stored: bytes) -> None:
        """Append a compressed chunk.

        Raises
        ------
        OSError
        """
        path = self._path()
        if not self._sizes:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(stored)
            begin_sync(file, file.tell() - len(stored), len(stored))
        self._sizes.append(len(stored))
        if len(self._sizes) == self._spec.chunks_per_shard:
            self.finish()

    def finish(self) -> None:
        """Complete the last shard.

        Raises
        ------
        OSError
        """
        import google_crc32c

        if not self._sizes:
            return
        index = np.full((self._spec.chunks_per_shard, 2), _NO_CHUNK, "<u8")
        ends = np.cumsum(self._sizes)
        index[: len(ends), 0] = ends - self._sizes
        index[: len(ends), 1] = self._sizes
        data = index.tobytes()
        path = self._path()
        with path.open("ab") as file:
            file.write(data + google_crc32c.value(data).to_bytes(_CRC_BYTES, "little"))
        self._shard += 1
        self._sizes = []
        self._finished(path)

    def _path(self) -> Path:
        return self._folder / _name_of(self._spec, self._shard)
