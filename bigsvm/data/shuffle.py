"""The external shuffle: rows are scattered over files by a random key, then each file is sorted.

The key of a row is a bijective hash of its number in the input, so keys differ, and the order of
the rows by key depends on the seed alone, not on memory, number of files, chunk sizes or threads.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bigsvm.core import records
from bigsvm.data import few_records
from bigsvm.data.rows import is_sparse, make_csr
from bigsvm.data.store_writer import RowBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.int32]

MAX_FILES = 64
"""Files open at once, each with a buffer that must stay long enough to be written in one go; far
below the limit of 256 open files that some systems have."""
_FILE_BYTES = 4 << 20
"""Bytes of a file whose rows are taken in random order: they stay in the cache of a processor."""
FEW_WORDS = 1 << 20
"""Words of a spool that NumPy copies: 4 MiB, which takes it some milliseconds. Compiled code is
faster, but has to be loaded."""
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

    Rows are given by their numbers in the input, (m,). Different rows have different keys.
    """
    start = _mix(np.array([seed], np.uint64) + _GOLDEN)
    return _mix(start + row.astype(np.uint64) * _GOLDEN)


class _Form(NamedTuple):
    """What all rows of a spool have in common; how they are records of 32-bit words.

    n_dense : columns of dense rows, None if rows are sparse.
    """

    dtype: np.dtype[Any]
    n_dense: int | None
    weighted: bool

    @classmethod
    def of(cls, batch: RowBatch) -> _Form:
        values = batch.values
        n_dense = None if is_sparse(values) else values.shape[1]
        return cls(values.dtype, n_dense, batch.weights is not None)

    @property
    def head_words(self) -> int:
        """Words of the number of a row, its label, its weight and its number of entries."""
        return 7 if self.weighted else 5

    @property
    def value_words(self) -> int:
        return self.dtype.itemsize // 4

    @property
    def entry_words(self) -> int:
        return self.value_words + (self.n_dense is None)

    def find(
        self, words: Words, n_rows: int, copying: ModuleType
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the records in some pieces, and the numbers of their rows."""
        places, numbers = np.empty(n_rows, np.int64), np.empty((n_rows, 2), np.int32)
        copying.find(words, self.head_words, self.entry_words, places, numbers)
        return places, numbers.view(np.int64)[:, 0]

    def rows(
        self,
        words: Words,
        places: NDArray[np.int64],
        n_columns: int,
        first_column: int,
        copying: ModuleType,
    ) -> RowBatch:
        """Rows of the records at `places`, whose column `first_column` becomes column 0."""
        head = np.empty((len(places), self.head_words), np.int32)
        indptr = np.empty(len(places) + 1, np.int64)
        n_entries = int(words[places + (self.head_words - 1)].sum())
        columns = np.empty(n_entries if self.n_dense is None else 0, np.int32)
        values = np.empty(n_entries, self.dtype)
        copying.gather(
            words, places, first_column, self.value_words,
            head, indptr, columns, values.view(np.int32),
        )  # fmt: skip
        row: NDArray[np.int64] = _eights(head, 0).view(np.int64)
        labels = _eights(head, 1)
        weights = _eights(head, 2) if self.weighted else None
        rows: Any = (
            make_csr(values, columns, indptr, n_columns)
            if self.n_dense is None
            else values.reshape(len(places), self.n_dense)
        )
        return RowBatch(rows, labels, row, weights)


def _copying(n_words: int) -> ModuleType:
    """Return the module that copies the records of so many words in all."""
    return few_records if n_words <= FEW_WORDS else records


def _eights(head: Words, i: int) -> NDArray[np.float64]:
    """Values i of the heads, of 8 bytes each."""
    return np.ascontiguousarray(head[:, 2 * i : 2 * i + 2]).view(np.float64)[:, 0]


def bits_for(n_bytes: int, memory: int) -> int:
    """Files to scatter rows over, as a power of two; those that are too large are split.

    `n_bytes` is the size of the rows, or a guess; `memory` is what a conversion may take.
    """
    wanted = max(6 * n_bytes // memory, n_bytes // _FILE_BYTES)
    return min(wanted.bit_length(), MAX_FILES.bit_length() - 1)


@dataclass
class _Bucket:
    """A file of pieces, and what they contain."""

    path: Path
    n_rows: int = 0
    n_words: int = 0

    def words(self) -> Words:
        """All pieces."""
        with self.path.open("rb") as file:
            return self._read(file, self.n_words)

    def pieces(self) -> Iterator[tuple[Words, int]]:
        """One piece after the other, and the number of its rows."""
        with self.path.open("rb") as file:
            n_read = 0
            while n_read < self.n_words:
                head = self._read(file, few_records.PIECE_HEAD)
                body = self._read(file, int(head[2:].view(np.int64)[0]))
                yield np.concatenate((head, body)), int(head[0])
                n_read += len(head) + len(body)

    def _read(self, file: IO[bytes], n_words: int) -> Words:
        words = np.empty(n_words, np.int32)
        if n_words and file.readinto(words.data.cast("B")) != words.nbytes:  # type: ignore[attr-defined]
            raise OSError(f"{self.path.name} is shorter than it was written")
        return words


class Spool:
    """Rows on disk, given back in order: shuffled, or as they came; a context manager.

    Without a seed they keep the order. The rows are scattered over ``2**bits`` files in `folder`, a
    new directory. Files are split further until one of them, loaded and sorted, fits in
    `memory_bytes`; this takes three times its size. `n_rows` and `n_entries` count rows and entries
    (values, where they are dense) so far.
    """

    def __init__(self, folder: Path, *, seed: int | None, bits: int, memory_bytes: int) -> None:
        folder.mkdir()
        self.n_rows = 0
        self.n_entries = 0
        self._seed = seed
        self._memory_bytes = memory_bytes
        self._form: _Form | None = None
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
        self._form = _Form.of(batch)
        self._scatter.append(batch)
        self.n_rows += len(batch.labels)
        self.n_entries += batch.values.nnz if is_sparse(batch.values) else batch.values.size

    def batches(self, n_columns: int, first_column: int, *, step: int) -> Iterator[RowBatch]:
        """Give the rows back, and remove the files on the way.

        `first_column` is the index, as it was appended, of the column that is to be column 0. A
        batch ends at each multiple of `step` rows, or before.
        """
        n_given = 0
        buckets = self._scatter.close()
        copying = _copying(self._scatter.n_words)
        for bucket in buckets:
            for words, places in self._ordered(bucket, self._scatter.bits):
                start = 0
                while start < len(places):
                    part = places[start : start + step - n_given % step]
                    yield self._known_form.rows(words, part, n_columns, first_column, copying)
                    start += len(part)
                    n_given += len(part)

    @property
    def _known_form(self) -> _Form:
        if self._form is None:
            raise AssertionError("a spool without rows has no records")
        return self._form

    def _ordered(self, bucket: _Bucket, bits: int) -> Iterator[tuple[Words, NDArray[np.int64]]]:
        """Pieces, and the places of their records in order."""
        form, copying = self._known_form, _copying(self._scatter.n_words)
        if self._seed is None:
            for words, n_rows in bucket.pieces():
                yield words, form.find(words, n_rows, copying)[0]
        elif bucket.n_words * 12 > self._memory_bytes and bucket.n_rows > 1 and bits < 60:
            for part in self._split(bucket, bits):
                yield from self._ordered(part, bits + _SPLIT_BITS)
            return
        elif bucket.n_rows:
            words = bucket.words()
            places, row = form.find(words, bucket.n_rows, copying)
            yield words, places[np.argsort(shuffle_keys(self._seed, row))]
        bucket.path.unlink()

    def _split(self, bucket: _Bucket, bits: int) -> list[_Bucket]:
        """Scatter the rows of a bucket by further bits of their keys."""
        form, copying = self._known_form, _copying(self._scatter.n_words)
        scatter = _Scatter(
            bucket.path.with_name(f"{bucket.path.name}-"),
            seed=self._seed,
            bits=_SPLIT_BITS,
            skip=bits,
            memory=self._memory_bytes,
        )
        try:
            for words, n_rows in bucket.pieces():
                places = form.find(words, n_rows, copying)[0]
                scatter.append(form.rows(words, places, np.iinfo(np.int32).max, 0, copying))
            buckets = scatter.close()
        finally:
            scatter.abandon()
        bucket.path.unlink()
        return buckets


class _Scatter:
    """Files over which rows are scattered by some bits of their keys."""

    def __init__(self, stem: Path, *, seed: int | None, bits: int, skip: int, memory: int) -> None:
        self.bits = bits
        self.n_words = 0
        self._seed = seed
        self._skip = skip
        self._buckets = [_Bucket(stem.with_name(f"{stem.name}{i}")) for i in range(1 << bits)]
        buffering = max(1 << 12, min(1 << 19, memory // 4 >> bits))
        self._files = [bucket.path.open("wb", buffering=buffering) for bucket in self._buckets]

    def append(self, batch: RowBatch) -> None:
        form, values = _Form.of(batch), batch.values
        n_rows = len(batch.labels)
        head = np.empty((n_rows, form.head_words), np.int32)
        of_rows = [batch.row, batch.labels]
        of_rows += [] if batch.weights is None else [batch.weights]
        for i, array in enumerate(of_rows):
            head[:, 2 * i : 2 * i + 2] = np.ascontiguousarray(array).view(np.int32).reshape(-1, 2)
        if form.n_dense is None:
            indptr, data = values.indptr.astype(np.int64), values.data
            columns = values.indices.astype(np.int32, copy=False)
        else:
            indptr, data = (
                np.arange(n_rows + 1) * form.n_dense,
                np.ascontiguousarray(values).ravel(),
            )
            columns = np.empty(0, np.int32)
        bucket = self._bucket_of(batch.row)
        edges = np.empty(len(self._files) + 1, np.int64)
        out = np.empty(head.size + int(indptr[-1]) * form.entry_words, np.int32)
        self.n_words += len(out)
        _copying(self.n_words).scatter(
            bucket, head, indptr, columns, data.view(np.int32), form.value_words, edges, out
        )
        rows_of = np.bincount(bucket, minlength=len(self._files)).tolist()
        for i, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
            if start < stop:
                self._write(i, rows_of[i], out[start:stop])

    def close(self) -> list[_Bucket]:
        for file in self._files:
            file.close()
        return self._buckets

    def abandon(self) -> None:
        for file in self._files:
            with suppress(OSError):
                file.close()

    def _bucket_of(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._seed is None or self.bits == 0:
            return np.zeros(len(row), np.int64)
        keys = shuffle_keys(self._seed, row) << np.uint64(self._skip)
        return (keys >> np.uint64(64 - self.bits)).astype(np.int64)

    def _write(self, i: int, n_rows: int, words: Words) -> None:
        head = np.zeros(few_records.PIECE_HEAD, np.int32)
        head[0] = n_rows
        head[2:].view(np.int64)[0] = len(words)
        for part in (head, words):
            self._files[i].write(part.data.cast("B"))
        self._buckets[i].n_rows += n_rows
        self._buckets[i].n_words += len(head) + len(words)
