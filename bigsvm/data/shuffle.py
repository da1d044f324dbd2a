"""The external shuffle: rows are scattered over files by a random key, then each file is sorted.

The key of a row is a bijective hash of its number in the input, so keys differ, and the order of
the rows by key depends on the seed alone, not on memory, number of files, chunk sizes or threads.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.blocks import is_sparse, make_csr, stack_rows
from bigsvm.data.writer import RowBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

MAX_FILES = 64
"""Files open at once, each with a buffer that must stay long enough to be written in one go; far
below the limit of 256 open files that some systems have."""
_SPLIT_BITS = 3
"""A bucket that is too large becomes eight: such buckets are rarely more than a few times too
large, and splitting goes on where it was not enough."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of splitmix64 (Steele, Lea, Flood 2014), a bijection of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def shuffle_keys(seed: int, row: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Key of each row; rows in ascending order of their keys are in random order.

    Parameters
    ----------
    seed : int
        0 ≤ seed < 2**64.
    row : (m,) int64
        Numbers of the rows in the input.

    Returns
    -------
    keys : (m,) uint64
        Different for different rows.
    """
    start = _mix(np.array([seed], np.uint64) + _GOLDEN)
    return _mix(start + row.astype(np.uint64) * _GOLDEN)


@dataclass
class _Bucket:
    """A file of records, and what they contain."""

    path: Path
    n_rows: int = 0
    n_entries: int = 0
    n_bytes: int = 0


class Spool:
    """Rows on disk, given back in order: shuffled, or as they came; a context manager.

    Parameters
    ----------
    folder : Path
        New directory for the files.
    seed : int or None
        None keeps the order.
    bits : int
        The rows are scattered over ``2**bits`` files.
    memory_bytes : int
        Files are split further until one of them, loaded and sorted, takes no more than this; three
        times its size.

    Attributes
    ----------
    n_rows, n_entries : int
        Rows and entries (values, where they are dense) so far.
    """

    def __init__(self, folder: Path, *, seed: int | None, bits: int, memory_bytes: int) -> None:
        folder.mkdir()
        self.n_rows = 0
        self.n_entries = 0
        self._folder = folder
        self._seed = seed
        self._memory_bytes = memory_bytes
        self._scatter = _Scatter(
            folder / "rows",
            seed=seed,
            bits=0 if seed is None else bits,
            skip=0,
            memory=memory_bytes,
        )

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        # After an error files are open, and what they hold back may not find room on the disk.
        self._scatter.abandon()

    def append(self, batch: RowBatch) -> None:
        """Add rows; all batches must be dense, or all CSR, with or without weights."""
        self._scatter.append(batch)
        self.n_rows += len(batch.labels)
        self.n_entries += batch.values.nnz if is_sparse(batch.values) else batch.values.size

    def batches(self, n_columns: int, first_column: int) -> Iterator[RowBatch]:
        """Give the rows back, and remove the files on the way.

        Parameters
        ----------
        n_columns : int
        first_column : int
            Index, as it was appended, of the column that is to be column 0.
        """
        for bucket in self._scatter.close():
            yield from self._ordered(bucket, n_columns, first_column, self._scatter.bits)

    def _ordered(
        self, bucket: _Bucket, n_columns: int, first_column: int, bits: int
    ) -> Iterator[RowBatch]:
        if self._seed is None:
            for batch in _records(bucket):
                yield _shifted(batch, n_columns, first_column)
        elif bucket.n_bytes * 3 > self._memory_bytes and bucket.n_rows > 1 and bits < 60:
            scatter = _Scatter(
                bucket.path.with_name(f"{bucket.path.name}-"),
                seed=self._seed,
                bits=_SPLIT_BITS,
                skip=bits,
                memory=self._memory_bytes,
            )
            try:
                for batch in _records(bucket):
                    scatter.append(batch)
                parts = scatter.close()
            finally:
                scatter.abandon()
            bucket.path.unlink()
            for part in parts:
                yield from self._ordered(part, n_columns, first_column, bits + _SPLIT_BITS)
            return
        elif bucket.n_rows:
            batch = _shifted(_join(list(_records(bucket))), n_columns, first_column)
            order = np.argsort(shuffle_keys(self._seed, batch.row))
            # In slices, so that the sorted rows do not exist all at once.
            step = max(1, len(order) // 16)
            for i in range(0, len(order), step):
                yield batch.select(order[i : i + step])
        bucket.path.unlink()


class _Scatter:
    """Files over which rows are scattered by some bits of their keys."""

    def __init__(self, stem: Path, *, seed: int | None, bits: int, skip: int, memory: int) -> None:
        self.bits = bits
        self._seed = seed
        self._skip = skip
        self._buckets = [_Bucket(stem.with_name(f"{stem.name}{i}")) for i in range(1 << bits)]
        buffering = max(1 << 12, min(1 << 19, memory // 4 >> bits))
        self._files = [bucket.path.open("wb", buffering=buffering) for bucket in self._buckets]

    def append(self, batch: RowBatch) -> None:
        if self._seed is None or self.bits == 0:
            self._write(0, batch)
            return
        keys = shuffle_keys(self._seed, batch.row) << np.uint64(self._skip)
        bucket = (keys >> np.uint64(64 - self.bits)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        batch = batch.select(order)
        edges = np.searchsorted(bucket[order], np.arange(len(self._files) + 1)).tolist()
        for i, (start, stop) in enumerate(itertools.pairwise(edges)):
            if start < stop:
                self._write(i, batch.select(slice(start, stop)))

    def close(self) -> list[_Bucket]:
        for file in self._files:
            file.close()
        return self._buckets

    def abandon(self) -> None:
        for file in self._files:
            with suppress(OSError):
                file.close()

    def _write(self, i: int, batch: RowBatch) -> None:
        file, bucket = self._files[i], self._buckets[i]
        start = file.tell()
        _write_record(file, batch)
        bucket.n_rows += len(batch.labels)
        bucket.n_bytes += file.tell() - start


def _write_record(file: IO[bytes], batch: RowBatch) -> None:
    """Write a record: a head of five int64, then the arrays."""
    values = batch.values
    sparse = is_sparse(values)
    n_entries = values.nnz if sparse else values.size
    head = [
        len(batch.labels),
        n_entries,
        values.dtype.itemsize,
        int(sparse),
        int(batch.weights is not None),
    ]
    arrays: list[NDArray[Any]] = [np.array(head, np.int64), batch.labels, batch.row]
    if batch.weights is not None:
        arrays.append(batch.weights)
    if sparse:
        arrays += [
            values.indptr.astype(np.int64),
            values.indices.astype(np.int32, copy=False),
            values.data,
        ]
    else:
        arrays.append(values)
    for array in arrays:
        file.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")


def _records(bucket: _Bucket) -> Iterator[RowBatch]:
    """Read the records of a bucket; sparse values have as many columns as an index can name."""
    with bucket.path.open("rb") as file:

        def read(n: int, dtype: type) -> NDArray[Any]:
            array: NDArray[Any] = np.empty(n, dtype)
            if n and file.readinto(array.data.cast("B")) != array.nbytes:
                raise OSError(f"{bucket.path.name} is shorter than it was written")
            return array

        at = 0
        while at < bucket.n_bytes:
            n, n_entries, item, sparse, weighted = read(5, np.int64).tolist()
            dtype = np.float32 if item == 4 else np.float64
            labels, row = read(n, np.float64), read(n, np.int64)
            weights = read(n, np.float64) if weighted else None
            values: Any
            if sparse:
                indptr, indices = read(n + 1, np.int64), read(n_entries, np.int32)
                values = make_csr(read(n_entries, dtype), indices, indptr, np.iinfo(np.int32).max)
            else:
                values = read(n_entries, dtype).reshape(n, -1)
            yield RowBatch(values, labels, row, weights)
            at = file.tell()


def _join(batches: list[RowBatch]) -> RowBatch:
    """All rows of `batches` in one."""
    values = [batch.values for batch in batches]
    return RowBatch(
        stack_rows(values, values[0].shape[1], values[0].dtype, sparse=is_sparse(values[0])),
        np.concatenate([batch.labels for batch in batches]),
        np.concatenate([batch.row for batch in batches]),
        None
        if batches[0].weights is None
        else np.concatenate([batch.weights for batch in batches if batch.weights is not None]),
    )


def _shifted(batch: RowBatch, n_columns: int, first_column: int) -> RowBatch:
    """Return the rows with columns numbered from 0."""
    values = batch.values
    if not is_sparse(values):
        return batch
    indices = values.indices
    indices -= first_column
    shifted = sp.csr_array(
        (values.data, indices, values.indptr), shape=(values.shape[0], n_columns)
    )
    return batch._replace(values=shifted)
