"""Arrays of a store, written shard by shard and read chunk by chunk, hashed both ways."""

from __future__ import annotations

import errno
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.schema import REMEDY, ZSTD_LEVEL, ArraySpec, hash_values
from bigsvm.errors import DataCorruptionError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    import zarr
    from numpy.typing import NDArray

_CHUNKS_PER_READ = 4
"""Chunks asked of zarr at once: enough for its threads. Whole shards of 64 MiB were read at half
the speed (0.55 GB/s against 1.1), as their bytes leave the caches before they are decoded."""
_LEAST_BYTES_PER_READ = 1 << 16
"""More chunks are asked for where four are smaller than this together: a call of zarr's waits for
its threads some 5 ms on a busy machine, whatever the size. Chunks of 0.5 to 4 kB, 80 verifications
of a damaged store: 16 s instead of 31, one run each."""


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

    The chunk read last is kept, as blocks rarely end where chunks do. May be used from several
    threads.

    Parameters
    ----------
    array : zarr.Array
    where : str
        What to call the array in messages.
    spec : ArraySpec
    hashes : tuple of str
        Hash of each chunk.
    """

    def __init__(
        self, array: zarr.Array[Any], where: str, spec: ArraySpec, hashes: tuple[str, ...]
    ) -> None:
        self.spec = spec
        self._array = array
        self._where = where
        self._hashes = hashes
        small = _LEAST_BYTES_PER_READ // max(spec.chunk_bytes, 1)
        self._chunks_per_read = max(_CHUNKS_PER_READ, small)
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
            If a chunk is not the one that was written.
        StoreError
            If the system does not let it be read.
        """
        rows = self.spec.chunk_rows
        out = np.empty((max(stop - start, 0), *self.spec.shape[1:]), self.spec.dtype)
        at = start
        while at < stop:
            chunk = at // rows
            end = min((chunk + 1) * rows, self.spec.shape[0])
            if at > chunk * rows or end > stop:
                values = self._chunk(chunk)[at - chunk * rows : stop - chunk * rows]
                out[at - start : at - start + len(values)] = values
                at += len(values)
            else:
                last = min(chunk + self._chunks_per_read, stop // rows)
                end = min(max(last * rows, end), stop)
                self._decode(at, out[at - start : end - start])
                at = end
        return out

    def verify(self) -> None:
        """Read every chunk and compare it with the manifest."""
        step = self.spec.chunk_rows * self._chunks_per_read
        for start in range(0, self.spec.shape[0], step):
            self.read(start, min(start + step, self.spec.shape[0]))

    def _chunk(self, chunk: int) -> NDArray[Any]:
        last = self._last
        if last is not None and last[0] == chunk:
            return last[1]
        start = chunk * self.spec.chunk_rows
        n = min(self.spec.chunk_rows, self.spec.shape[0] - start)
        values = np.empty((n, *self.spec.shape[1:]), self.spec.dtype)
        self._decode(start, values)
        self._last = (chunk, values)
        return values

    def _decode(self, start: int, out: NDArray[Any]) -> None:
        """Fill `out` with whole chunks, the first of which starts at row `start`."""
        # Zarr takes 10 MB, which training on an array does without.
        from zarr.buffer.cpu import NDBuffer

        rows = self.spec.chunk_rows
        first = start // rows
        if out.size:
            try:
                self._array.get_basic_selection(
                    (slice(start, start + len(out)), *(slice(None) for _ in out.shape[1:])),
                    out=NDBuffer.from_numpy_array(out),
                )
            except MemoryError:
                raise
            # Damaged bytes raise whatever zarr, numcodecs or the JSON of the metadata raise.
            except Exception as error:
                if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
                    raise StoreError(
                        f"{self._where}: chunk {first} cannot be read ({error.strerror})"
                    ) from error
                if len(out) > rows:
                    # One by one, to name the one that is damaged.
                    for i in range(0, len(out), rows):
                        self._decode(start + i, out[i : i + rows])
                    return
                raise DataCorruptionError(
                    f"{self._where}: chunk {first} cannot be read "
                    f"({type(error).__name__}: {error}); {REMEDY}"
                ) from error
        for i in range(0, len(out), rows):
            if hash_values(out[i : i + rows]) != self._hashes[first + i // rows]:
                raise DataCorruptionError(
                    f"{self._where}: chunk {first + i // rows} is missing, or is not the one "
                    f"that was written; {REMEDY}"
                )
        with self._lock:
            self._bytes_read += out.nbytes


def create_group(path: Path) -> zarr.Group:
    """Make a new Zarr group in a directory."""
    # 10 MB that training on an array does without.
    import zarr

    return zarr.create_group(path, zarr_format=3)
