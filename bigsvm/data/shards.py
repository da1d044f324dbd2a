"""Shards of an array of a store: written chunk by chunk, and decoded in bounded memory.

A shard is a file: its chunks, each a zstd frame, then an index of one (offset, size) pair of uint64
for each chunk, then the CRC-32C of that index. The metadata says how large the index and each
decoded chunk are. A file that says anything else is refused before memory is taken for it.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.schema import CRC_BYTES, NO_CHUNK, ZSTD_LEVEL
from bigsvm.files import begin_sync, link_or_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import zarr
    from numpy.typing import NDArray

    from bigsvm.data.place import Place
    from bigsvm.data.schema import ArraySpec
    from bigsvm.data.zarr_arrays import FetchedChunks

_INDEX_ENTRY_BYTES = 16
REQUEST_BYTES = 8 << 20
"""Chunks of fewer decoded bytes come from far `READER_CHUNKS` in a request, which takes as long as
some megabytes."""
FEW_CHUNKS = 8
"""Chunks of a local array that are decoded here, one by one: to import Zarr takes as long as to
decode dozens."""
_HEAD_BYTES = 18
"""Length of the longest head of a zstd frame, which says the size that the frame decodes to."""


class _Index(NamedTuple):
    """The index of a shard: its bytes with their checksum, and where the last chunk ends.

    `entries`, (n, 2), has the offset and size of each chunk.
    """

    data: bytes
    entries: NDArray[np.uint64]
    end: int


class Claims:
    """What the shards of one array say of themselves, checked before Zarr decodes a chunk.

    Zarr decodes a chunk to any size that its bytes say. The index of a shard is kept once it has
    been read, 16 bytes a chunk. May be used from several threads. The spec is that from the
    metadata of the array.
    """

    def __init__(self, place: Place, spec: ArraySpec) -> None:
        self._place, self._spec = place, spec
        # This is above zstd's own bound, ZSTD_compressBound.
        self._most_stored_bytes = spec.chunk_bytes + spec.chunk_bytes // 128 + 1024
        self._indices: dict[str, _Index] = {}
        # Threads that read from far ask for an index once. Local files need no locks, which a
        # forked child may find taken.
        self._asking: AbstractContextManager[Any] = Lock() if place.is_far else nullcontext()

    def check(self, first: int, stop: int) -> None:
        """Check chunks ``first … stop - 1`` of a local array.

        Raises `OSError` if a file cannot be read or is no regular file, and `ValueError` if it does
        not hold its chunks or a chunk does not have the size in the metadata.
        """
        for name, spans in self._spans(first, stop):
            heads = [(offset, min(size, _HEAD_BYTES)) for _, offset, size in spans]
            for head in self._place.parts(name, heads):
                self._check_head(head)

    def fetched(self, first: int, stop: int) -> Iterator[tuple[str, bytes, int, memoryview]]:
        """Read the stored bytes of chunks; those of one shard come in one request.

        Yields the shard of each chunk, the index of that, the offset of the chunk, and its bytes.
        """
        for name, spans in self._spans(first, stop):
            begin = spans[0][1]
            end = begin + sum(size for _, _, size in spans)
            [stored] = self._place.parts(name, [(begin, end - begin)])
            if len(stored) < end - begin:
                raise ValueError(f"its shard ends before it, after {begin + len(stored)} bytes")
            for index, offset, size in spans:
                chunk = memoryview(stored)[offset - begin :][:size]
                # Chunks lie one after another; a shard that says otherwise is no shard of ours.
                if len(chunk) < size:
                    raise ValueError("its shard has its chunks in another order")
                self._check_head(bytes(chunk[:_HEAD_BYTES]))
                yield name, index.data, offset, chunk

    def _spans(self, first: int, stop: int) -> Iterator[tuple[str, list[tuple[_Index, int, int]]]]:
        """Yield the name of each shard of chunks ``first … stop - 1``, and the `_span` of each."""
        per_shard = self._spec.chunks_per_shard
        for shard in range(first // per_shard, -(-stop // per_shard)):
            name = _name_of(self._spec, shard)
            low, high = first - shard * per_shard, stop - shard * per_shard
            places = range(max(low, 0), min(high, per_shard))
            yield name, list(map(partial(self._span, name), places))

    def _span(self, name: str, place: int) -> tuple[_Index, int, int]:
        """Index of a shard, and offset and size of one of its chunks.

        Another thread may forget the index meanwhile.
        """
        with self._asking:
            index = self._indices.get(name)
            if index is None:
                index = self._indices[name] = self._index(name)
        offset, size = index.entries[place].tolist()
        if (offset, size) == (NO_CHUNK, NO_CHUNK):
            raise ValueError("its shard does not have it")
        if offset + size > index.end or size > self._most_stored_bytes:
            raise ValueError(f"its shard has {size} bytes for it at {offset}, which cannot be")
        return index, offset, size

    def _index(self, name: str) -> _Index:
        """Read the index of a shard."""
        import google_crc32c

        n_bytes = self._spec.chunks_per_shard * _INDEX_ENTRY_BYTES
        data = self._place.tail(name, n_bytes + CRC_BYTES)
        if len(data) < n_bytes + CRC_BYTES:
            raise ValueError("its shard is shorter than an index")
        if google_crc32c.value(data[:n_bytes]) != int.from_bytes(data[n_bytes:], "little"):
            raise ValueError("the index of its shard is damaged")
        entries = np.frombuffer(data[:n_bytes], "<u8").reshape(-1, 2)
        # Chunks are written one after another, without gaps.
        end = sum(size for size in entries[:, 1].tolist() if size != NO_CHUNK)
        return _Index(data, entries, end)

    def _check_head(self, head: bytes) -> None:
        """Check the size that a chunk decodes to by its first bytes."""
        import zstandard

        try:
            size = zstandard.frame_content_size(head)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        if size != self._spec.chunk_bytes:
            raise ValueError(f"it decodes to {size} bytes instead of {self._spec.chunk_bytes}")

    def forget(self) -> None:
        """Have the index of each shard read again."""
        self._indices.clear()


class StoredChunks:
    """The chunks of one array, decoded once `Claims` of them are checked.

    Zarr decodes them, but for those of a small local array. May be used from several threads. The
    spec is that from the metadata of the array.
    """

    def __init__(self, place: Place, spec: ArraySpec) -> None:
        self._place, self._spec = place, spec
        self._claims = Claims(place, spec)
        self._opened: tuple[zarr.Array[Any], FetchedChunks | None] | None = None
        self._is_small = spec.n_chunks <= FEW_CHUNKS and not place.is_far
        together = READER_CHUNKS if spec.chunk_bytes < REQUEST_BYTES else 1
        self._together = together if place.is_far else max(1, spec.n_chunks)
        # Many chunks may be on their way, but no more are decoded than a plan has memory for.
        self._decoding: AbstractContextManager[Any] = (
            BoundedSemaphore(READER_CHUNKS // self._together) if place.is_far else nullcontext()
        )

    @property
    def at_once(self) -> int:
        """Most chunks that one call decodes: of a place that is far, those of one request."""
        if self._is_small:
            return 1
        from bigsvm.data.zarr_arrays import HAS_ZARRS

        self._open()  # an error of this would look like one of the chunks
        return self._together if HAS_ZARRS or self._place.is_far else 1

    def _open(self) -> tuple[zarr.Array[Any], FetchedChunks | None]:
        """Open the array, once."""
        if self._opened is None:
            from bigsvm.data.zarr_arrays import FetchedChunks, open_array

            fetched = FetchedChunks() if self._place.is_far else None
            self._opened = open_array(self._place, self._spec, fetched), fetched
        return self._opened

    def decode(self, first: int, stop: int, out: NDArray[Any]) -> None:
        """Decode chunks ``first … stop - 1`` into `out`, which is filled with their rows.

        Raises `OSError` if a file cannot be read or is no regular file, `StoreError` if it cannot
        be reached, and `ValueError` if it does not hold its chunks or a chunk is not what the
        metadata say.
        """
        if self._is_small:
            self._decode_here(first, stop, out)
            return
        from bigsvm.data.zarr_arrays import read_rows

        array, fetched = self._open()
        if fetched is None:
            self._claims.check(first, stop)
        else:
            for chunk in list(self._claims.fetched(first, stop)):
                fetched.put(*chunk)
            del chunk  # all chunks of a request share its memory
        with self._decoding:
            try:
                read_rows(array, first * self._spec.chunk_rows, out)
            except (OSError, RuntimeError, ValueError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise ValueError(" ".join(str(error).split())) from error  # those of the codecs

    def _decode_here(self, first: int, stop: int, out: NDArray[Any]) -> None:
        """Decode chunks as Zarr would: each is a zstd frame of little-endian values."""
        import zstandard

        spec = self._spec
        rows, little = spec.chunk_rows, spec.dtype.newbyteorder("<")
        stored = self._claims.fetched(first, stop)
        for start, (_, _, _, chunk) in zip(range(0, len(out), rows), stored, strict=True):
            try:
                data = zstandard.ZstdDecompressor().decompress(chunk)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error
            place = out[start : start + rows]
            place[...] = np.frombuffer(data, little).reshape(rows, *spec.shape[1:])[: len(place)]

    def forget(self) -> None:
        """Have the index of each shard read again."""
        self._claims.forget()


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

    `finished` is given the path of each shard that is complete.
    """

    def __init__(self, folder: Path, spec: ArraySpec, finished: Callable[[Path], None]) -> None:
        self._folder = folder
        self._spec = spec
        self._finished = finished
        self._shard = 0
        self._sizes: list[int] = []

    def keep(self, folder: Path, n_shards: int) -> None:
        """Begin with the first shards of another array, whose files are shared where possible."""
        for self._shard in range(n_shards):
            path = self._path()
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(folder / path.relative_to(self._folder), path)
        self._shard = n_shards

    def append(self, stored: bytes) -> None:
        """Append a compressed chunk."""
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
        """Complete the last shard."""
        import google_crc32c

        if not self._sizes:
            return
        index = np.full((self._spec.chunks_per_shard, 2), NO_CHUNK, "<u8")
        ends = np.cumsum(self._sizes)
        index[: len(ends), 0] = ends - self._sizes
        index[: len(ends), 1] = self._sizes
        data = index.tobytes()
        path = self._path()
        with path.open("ab") as file:
            file.write(data + google_crc32c.value(data).to_bytes(CRC_BYTES, "little"))
        self._shard += 1
        self._sizes = []
        self._finished(path)

    def _path(self) -> Path:
        return self._folder / _name_of(self._spec, self._shard)
