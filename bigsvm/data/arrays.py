"""Arrays of a store, written shard by shard and read chunk by chunk, hashed both ways."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.schema import REMEDY, ZSTD_LEVEL, ArraySpec, hash_values
from bigsvm.data.shards import Shards
from bigsvm.errors import DataCorruptionError, StoreError
from bigsvm.processors import default_threads

if TYPE_CHECKING:
    from pathlib import Path

    import zarr
    from numpy.typing import NDArray

_LEAST_BYTES_FOR_THREADS = 1 << 18
"""Decoding fewer bytes is faster than handing them to other threads."""


class ArrayWriter:
    """Append to one new array of a store, a shard at a time, and hash its chunks.

    Parameters
    ----------
    group : zarr.Group
    name : str
        Path of the array in the group.
    spec : ArraySpec
    shard_bytes : int
        Size of a buffer in which rows are collected; rounded to whole chunks. Writing takes about
        twice as much again for the compressed bytes.
    """

    def __init__(self, group: zarr.Group, name: str, spec: ArraySpec, *, shard_bytes: int) -> None:
        # Zarr takes 10 MB, which training on an array does without.
        from zarr.codecs import BytesCodec, ZstdCodec

        chunks = min(max(1, shard_bytes // max(spec.chunk_bytes, 1)), max(1, spec.n_chunks))
        self._spec = spec
        self._rows = spec.chunk_rows * chunks
        self._buffer = np.empty((self._rows, *spec.shape[1:]), spec.dtype)
        self._n_buffered = 0
        self._n_written = 0
        self._hashes: list[str] = []
        # Zarr wants no empty dimension in a chunk.
        rest = tuple(max(size, 1) for size in spec.shape[1:])
        self._array = group.create_array(
            name,
            shape=spec.shape,
            dtype=spec.dtype,
            chunks=(spec.chunk_rows, *rest),
            shards=(self._rows, *rest),
            serializer=BytesCodec(endian="little"),
            compressors=[ZstdCodec(level=ZSTD_LEVEL, checksum=True)],
            # What a missing chunk reads as: a value that is never written.
            fill_value=-1 if spec.dtype.kind == "i" else float("nan"),
            config={"write_empty_chunks": True},
        )

    def reserve(self, n_rows: int) -> NDArray[Any]:
        """Return the place of the next rows, at most `n_rows` of them, to be filled by the caller.

        Call `commit` with their number when they are.
        """
        return self._buffer[self._n_buffered : self._n_buffered + n_rows]

    def commit(self, n_rows: int) -> None:
        """Take over rows that were filled in by the caller; write the shard if it is full."""
        self._n_buffered += n_rows
        if self._n_buffered == self._rows:
            self._flush()

    def append(self, values: NDArray[Any]) -> None:
        """Append rows."""
        while len(values):
            place = self.reserve(len(values))
            place[...] = values[: len(place)]
            values = values[len(place) :]
            self.commit(len(place))

    def finish(self) -> tuple[str, ...]:
        """Write the rest; the hash of each chunk."""
        self._flush()
        if self._n_written != self._spec.shape[0]:
            raise AssertionError(f"{self._n_written} rows written of {self._spec.shape[0]}")
        return tuple(self._hashes)

    def _flush(self) -> None:
        rows = self._buffer[: self._n_buffered]
        if rows.size:
            self._array[self._n_written : self._n_written + len(rows)] = rows
        step = self._spec.chunk_rows
        self._hashes += [hash_values(rows[i : i + step]) for i in range(0, len(rows), step)]
        self._n_written += len(rows)
        self._n_buffered = 0


class VerifiedArray:
    """Read rows of one array of a store; every chunk is compared with the manifest.

    A hash only proves that a chunk belongs to its manifest, and a forger can change the manifest
    too. So every value of a chunk is also checked against the range of its array.

    The chunk read last is kept, as blocks rarely end where chunks do. May be used from several
    threads.

    Parameters
    ----------
    folder : Path
        Folder of the array.
    where : str
        What to call the array in messages.
    spec : ArraySpec
    hashes : tuple of str
        Hash of each chunk.
    """

    def __init__(self, folder: Path, where: str, spec: ArraySpec, hashes: tuple[str, ...]) -> None:
        self.spec = spec
        self._shards = Shards(folder, spec)
        self._where = where
        self._hashes = hashes
        self._last: tuple[int, NDArray[Any]] | None = None
        self._lock = Lock()
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        """Bytes decoded so far."""
        return self._bytes_read

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start … stop - 1``, a new array.

        Raises
        ------
        DataCorruptionError
            If a chunk is not the one that was written, or holds values out of range.
        StoreError
            If the system does not let it be read.
        """
        rows = self.spec.chunk_rows
        out = np.empty((max(stop - start, 0), *self.spec.shape[1:]), self.spec.dtype)
        if not out.size:
            return out
        whole = []
        for chunk in range(start // rows, -(-stop // rows)):
            first, end = chunk * rows, min((chunk + 1) * rows, self.spec.shape[0])
            place = out[max(first - start, 0) : end - start]
            if start <= first and end <= stop:
                whole.append((chunk, place))
            else:
                place[...] = self._chunk(chunk)[max(start - first, 0) : stop - first]
        if len(whole) == 1 or out.nbytes < _LEAST_BYTES_FOR_THREADS:
            for chunk, place in whole:
                self._decode(chunk, place)
        else:
            for _ in _decoding_threads().map(self._decode, *zip(*whole, strict=True)):
                pass
        return out

    def verify(self) -> None:
        """Read every chunk and compare it with the manifest."""
        step = self.spec.chunk_rows * READER_CHUNKS
        for start in range(0, self.spec.shape[0], step):
            self.read(start, min(start + step, self.spec.shape[0]))

    def _chunk(self, chunk: int) -> NDArray[Any]:
        last = self._last
        if last is not None and last[0] == chunk:
            return last[1]
        n = min(self.spec.chunk_rows, self.spec.shape[0] - chunk * self.spec.chunk_rows)
        values = np.empty((n, *self.spec.shape[1:]), self.spec.dtype)
        self._decode(chunk, values)
        self._last = (chunk, values)
        return values

    def _decode(self, chunk: int, out: NDArray[Any]) -> None:
        """Fill `out` with the rows of a chunk."""
        where = f"{self._where}: chunk {chunk}"
        try:
            self._shards.decode(chunk, out)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise StoreError(f"{where} cannot be read ({error.strerror or error})") from error
            raise DataCorruptionError(f"{where} is missing; {REMEDY}") from error
        except ValueError as error:
            raise DataCorruptionError(f"{where} cannot be read: {error}; {REMEDY}") from error
        if hash_values(out) != self._hashes[chunk]:
            raise DataCorruptionError(f"{where} is not the one that was written; {REMEDY}")
        least, largest = self.spec.least, self.spec.largest
        if least is not None and largest is not None:
            low, high = out.min(), out.max()
            # A chunk that holds NaN has no extremes, and every comparison with NaN is false.
            if not (least <= low and high <= largest):
                wrong = high if least <= low else low
                raise DataCorruptionError(
                    f"{where} holds {wrong}, but its values go from {least} to {largest}; {REMEDY}"
                )
        with self._lock:
            self._bytes_read += out.nbytes


@cache
def _decoding_threads() -> ThreadPoolExecutor:
    """Threads that decode chunks for all readers of this process."""
    n = min(READER_CHUNKS, default_threads())
    return ThreadPoolExecutor(n, thread_name_prefix="bigsvm-decode")


# A forked child does not have its parent's threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_decoding_threads.cache_clear)


def create_group(path: Path) -> zarr.Group:
    """Make a new Zarr group in a directory."""
    # 10 MB that training on an array does without.
    import zarr

    return zarr.create_group(path, zarr_format=3)
