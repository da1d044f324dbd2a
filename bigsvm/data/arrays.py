"""Arrays of a store, written and read chunk by chunk, hashed both ways."""

from __future__ import annotations

import itertools
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.schema import REMEDY, ArraySpec, hash_values, write_array
from bigsvm.data.shards import ShardWriter, StoredChunks, encode_chunk
from bigsvm.errors import DataCorruptionError, StoreError
from bigsvm.interruption import together
from bigsvm.processors import default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.data.place import Place

SHARD_BYTES = 128 << 20
"""Decoded bytes of a file: a store of a terabyte has some eight thousand."""
FAR_SHARD_BYTES = 32 << 20
"""Most decoded bytes of an object: it is sent whole, and again if that fails."""
_REQUESTS_AT_ONCE = 16
"""Requests under way together: 128 MB in 30 ms are more than most networks carry. A chunk on its
way takes no more memory than its place in the result, which is not written to before."""
_LEAST_BYTES_FOR_THREADS = 1 << 18
"""Decoding fewer bytes is faster than handing them to other threads."""


class ArrayWriter:
    """Append to one new array of a store, and hash its chunks.

    Full chunks are compressed in other threads while further rows come. Chunks may take
    `memory_bytes`; one chunk is always held. `finished` is given the path of each shard that is
    complete. Shards that go to a URL, `is_far`, are smaller.
    """

    def __init__(
        self,
        folder: Path,
        spec: ArraySpec,
        *,
        memory_bytes: int,
        finished: Callable[[Path], None] = lambda _: None,
        is_far: bool = False,
    ) -> None:
        most = FAR_SHARD_BYTES if is_far else SHARD_BYTES
        chunks = min(most // max(spec.chunk_bytes, 1), spec.n_chunks)
        self._spec = spec._replace(chunks_per_shard=max(1, chunks))
        write_array(folder, self._spec)
        self._shards = ShardWriter(folder, self._spec, finished)
        self._free: list[NDArray[Any]] = []
        self._buffer = self._new_buffer()
        self._n_buffered = 0
        self._n_written = 0
        self._hashes: list[str] = []
        # A chunk that waits is held decoded and compressed.
        most = memory_bytes // max(2 * spec.chunk_bytes, 1) - 1
        self._most_waiting = max(0, min(most, 2 * default_threads()))
        self._waiting: deque[tuple[NDArray[Any], Future[tuple[bytes, str]]]] = deque()

    def keep(self, folder: Path, spec: ArraySpec, hashes: Sequence[str]) -> int:
        """Begin with the whole shards of another array, and return how many rows they have.

        They are not decoded. There are none if its chunks or shards have another size.
        """
        own = self._spec
        if (spec.chunk_rows, spec.chunks_per_shard) != (own.chunk_rows, own.chunks_per_shard):
            return 0
        n_shards = spec.shape[0] // (own.chunk_rows * own.chunks_per_shard)
        self._shards.keep(folder, n_shards)
        self._hashes += hashes[: n_shards * own.chunks_per_shard]
        self._n_written = n_shards * own.chunks_per_shard * own.chunk_rows
        return self._n_written

    def append(self, values: NDArray[Any]) -> None:
        """Append rows."""
        while len(values):
            place = self._buffer[self._n_buffered : self._n_buffered + len(values)]
            place[...] = values[: len(place)]
            values = values[len(place) :]
            self._n_buffered += len(place)
            if self._n_buffered == self._spec.chunk_rows:
                self._end_chunk()

    def finish(self) -> tuple[str, ...]:
        """Write the rest; the hash of each chunk."""
        if self._n_buffered:
            self._end_chunk()
        while self._waiting:
            self._write_oldest()
        self._shards.finish()
        if self._n_written != self._spec.shape[0]:
            raise AssertionError(f"{self._n_written} rows written of {self._spec.shape[0]}")
        return tuple(self._hashes)

    def _new_buffer(self) -> NDArray[Any]:
        return np.empty((self._spec.chunk_rows, *self._spec.shape[1:]), self._spec.dtype)

    def _end_chunk(self) -> None:
        """Have the rows in the buffer compressed, as one chunk."""
        job = _codec_threads().submit(_encode, self._buffer, self._n_buffered, self._spec)
        self._waiting.append((self._buffer, job))
        self._n_written += self._n_buffered
        self._n_buffered = 0
        while len(self._waiting) > self._most_waiting:
            self._write_oldest()
        self._buffer = self._free.pop() if self._free else self._new_buffer()

    def _write_oldest(self) -> None:
        buffer, job = self._waiting.popleft()
        stored, digest = job.result()
        self._shards.append(stored)
        self._hashes.append(digest)
        self._free.append(buffer)


def _encode(values: NDArray[Any], n_rows: int, spec: ArraySpec) -> tuple[bytes, str]:
    """Compress a chunk of which `n_rows` rows are used; the hash of these.

    The other rows are filled with a value that is never written.
    """
    values[n_rows:] = spec.fill_value
    return encode_chunk(values), hash_values(values[:n_rows])


class VerifiedArray:
    """Read rows of one array of a store; every chunk is compared with the manifest.

    A hash only proves that a chunk belongs to its manifest, and a forger can change the manifest
    too. So every value of a chunk is also checked against the range of its array.

    The chunk read last is kept, as blocks rarely end where chunks do. May be used from several
    threads. `where` is what messages call the array; `hashes` has that of each chunk.
    `check_current` raises an error if the store has been replaced, where a chunk is another one.
    """

    def __init__(
        self,
        place: Place,
        where: str,
        spec: ArraySpec,
        hashes: tuple[str, ...],
        *,
        check_current: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.is_far = place.is_far
        self._chunks = StoredChunks(place, spec)
        self._where = where
        self._hashes = hashes
        self._check_current = check_current
        self._last: tuple[int, NDArray[Any]] | None = None
        self._lock = Lock()
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        """Bytes decoded so far."""
        return self._bytes_read

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows ``start … stop - 1``, a new array; refuses other chunks than were written."""
        [values] = read_together([(self, start, stop)])
        return values

    def verify(self) -> None:
        """Read every chunk and compare it with the manifest."""
        step = self.spec.chunk_rows * READER_CHUNKS
        for start in range(0, self.spec.shape[0], step):
            self.read(start, min(start + step, self.spec.shape[0]))

    def jobs(self, start: int, stop: int, out: NDArray[Any]) -> list[Callable[[], None]]:
        """Functions of which each fills some rows of `out`, those of one chunk or more."""
        rows = self.spec.chunk_rows
        jobs: list[Callable[[], None]] = []
        whole = []
        for chunk in range(start // rows, -(-stop // rows)):
            first, end = chunk * rows, min((chunk + 1) * rows, self.spec.shape[0])
            if start <= first and end <= stop:
                whole.append(chunk)
            else:
                place = out[max(first - start, 0) : end - start]
                jobs.append(partial(self._copy, chunk, max(start - first, 0), place, end > stop))
        step = self._chunks.at_once
        # The same chunks come together wherever rows begin.
        for _, group in itertools.groupby(whole, lambda chunk: chunk // step):
            first, *_ = chunks = list(group)
            end = first + len(chunks)
            place = out[first * rows - start : end * rows - start]
            jobs.append(partial(self._decode, first, end, place))
        return jobs

    def _copy(self, chunk: int, first: int, out: NDArray[Any], goes_on: bool) -> None:
        """Fill `out` with rows of a chunk from number `first` on; kept if it `goes_on` after."""
        last = self._last
        if last is not None and last[0] == chunk:
            values = last[1]
        else:
            n = min(self.spec.chunk_rows, self.spec.shape[0] - chunk * self.spec.chunk_rows)
            values = np.empty((n, *self.spec.shape[1:]), self.spec.dtype)
            self._decode(chunk, chunk + 1, values)
            if goes_on:
                self._last = (chunk, values)
        out[...] = values[first : first + len(out)]

    def _decode(self, first: int, stop: int, out: NDArray[Any]) -> None:
        """Fill `out` with the rows of some chunks."""
        try:
            self._verified(first, stop, out)
        except DataCorruptionError:
            # What comes from far is damaged if it is so twice.
            if not self.is_far:
                self._check_current()
                raise
            self._chunks.forget()
            self._verified(first, stop, out)
        with self._lock:
            self._bytes_read += out.nbytes

    def _verified(self, first: int, stop: int, out: NDArray[Any]) -> None:
        rows = self.spec.chunk_rows
        parts = [(chunk, out[(chunk - first) * rows :][:rows]) for chunk in range(first, stop)]
        where = f"{self._where}: chunk {first}"
        try:
            self._chunks.decode(first, stop, out)
        except (OSError, ValueError) as error:
            if len(parts) > 1:  # one of these chunks
                for chunk, values in parts:
                    self._verified(chunk, chunk + 1, values)
                return
            if isinstance(error, FileNotFoundError):
                raise DataCorruptionError(f"{where} is missing; {REMEDY}") from error
            if isinstance(error, OSError):
                raise StoreError(f"{where} cannot be read ({error.strerror or error})") from error
            raise DataCorruptionError(f"{where} cannot be read: {error}; {REMEDY}") from error
        for chunk, values in parts:
            self._check(chunk, values)

    def _check(self, chunk: int, values: NDArray[Any]) -> None:
        """Compare the values of a chunk with its hash, and with the range of the array."""
        where = f"{self._where}: chunk {chunk}"
        if hash_values(values) != self._hashes[chunk]:
            raise DataCorruptionError(f"{where} is not the one that was written; {REMEDY}")
        least, largest = self.spec.least, self.spec.largest
        if least is not None and largest is not None:
            low, high = values.min(), values.max()
            # A chunk that holds NaN has no extremes, and every comparison with NaN is false.
            if not (least <= low and high <= largest):
                wrong = high if least <= low else low
                raise DataCorruptionError(
                    f"{where} holds {wrong}, but its values go from {least} to {largest}; {REMEDY}"
                )


def read_together(parts: Sequence[tuple[VerifiedArray, int, int]]) -> list[NDArray[Any]]:
    """Rows ``start … stop - 1`` of each array, whose chunks are read together."""
    outs, jobs = [], []
    for array, start, stop in parts:
        out = np.empty((max(stop - start, 0), *array.spec.shape[1:]), array.spec.dtype)
        outs.append(out)
        if out.size:
            jobs += array.jobs(start, stop, out)
    is_far = any(array.is_far for array, _, _ in parts)
    n_bytes = sum(out.nbytes for out in outs)
    if len(jobs) == 1 or (n_bytes < _LEAST_BYTES_FOR_THREADS and not is_far):
        for job in jobs:
            job()
    elif jobs:
        together(_far_threads() if is_far else _codec_threads(), jobs)
    return outs


@cache
def _codec_threads() -> ThreadPoolExecutor:
    """Threads that decode and compress chunks for all arrays of this process."""
    n = min(READER_CHUNKS, default_threads())
    return ThreadPoolExecutor(n, thread_name_prefix="bigsvm-codec")


@cache
def _far_threads() -> ThreadPoolExecutor:
    """Threads that wait for chunks from other machines, for all arrays of this process."""
    return ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="bigsvm-far")


# A forked child does not have its parent's threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_codec_threads.cache_clear)
os.register_at_fork(after_in_child=_far_threads.cache_clear)
