"""RowSource: the rows of a training or test set, wherever they live, in blocks of bounded size.

Everything above this module sees data only through a `RowSource`: contiguous blocks read ahead by
one, scattered rows through `take`, column means and the variance that ``gamma="scale"`` needs.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from bigsvm.data.rows import RowBlock, rows_at
from bigsvm.interruption import GivingUp, in_this_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import dask.array as da
    from dask.delayed import Delayed
    from numpy.typing import NDArray

    from bigsvm.data.remote_blocks import RemoteBlocks
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.data.scaler import Scaler

PREDICTION_BLOCKS = 64 << 20
"""Bytes of rows in memory while predicting."""
DASK_BLOCK_BYTES = 32 << 20
"""Large enough that reading a block takes far longer than Dask's overhead for a task."""


class RowSource(ABC):
    """The rows of one data set, (n_rows, n_columns), float32 or float64, dense or sparse.

    Attributes
    ----------
    is_sparse : bool
        Whether `read` and `take` give `scipy.sparse.csr_array` instead of arrays.
    is_shuffled : bool
        Whether the order of the rows is random, so that a contiguous run is a random sample.
    bytes_per_row : float
        Mean bytes one row takes in memory as `read` gives it.
    row_alignment : int
        Blocks that start and end at multiples of this are cheapest to read (1 where it is all one).
    first_index : int or None
        Index that column 0 had in LIBSVM text, 0 or 1; None where the rows are of other origin.
    feature_names : tuple of str or None
        Names of the columns; None if they have none.
    copied_bytes : int
        Bytes of rows in memory that the caller does not hold.
    share_drawn : float
        Share of the rows from which these were drawn at random; 1 if all are here. See `DrawnRows`.
    """

    n_rows: int
    n_columns: int
    dtype: np.dtype[np.float32] | np.dtype[np.float64]
    is_sparse: bool
    is_shuffled: bool
    bytes_per_row: float
    row_alignment: int
    first_index: int | None = None
    feature_names: tuple[str, ...] | None = None
    copied_bytes: int = 0
    share_drawn: float = 1.0

    @property
    def scaler(self) -> Scaler | None:
        """Scaler that was applied to the rows; None if there was none, or it is not known."""
        return None

    @property
    def n_features(self) -> int:
        """Number of columns: `n_columns`, and those that never occur and were left out."""
        return self.n_columns

    @property
    def kept_bytes(self) -> int:
        """Bytes that the source keeps in memory besides the rows."""
        return 0

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur, (m,) ascending, if the source has very many columns.

        None if every column is kept; see `bigsvm.data.statistics.is_listed`.
        """
        return None

    @abstractmethod
    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; verified, where the source has checksums."""

    def lazy_block(self, start: int, stop: int) -> Delayed:
        """Rows ``start … stop - 1`` as a task of Dask, which reads them once it is computed."""
        from dask import delayed

        block: Delayed = delayed(self.read, pure=False)(start, stop)
        return block

    def _read_lazily(self, start: int, stop: int) -> Rows:
        """Compute a lazy block by the scheduler that the caller has set, else in this thread.

        Rows in memory stay as they are. A client that is open, which has set itself, computes
        blocks only where it is given.
        """
        if self.row_alignment <= 1:
            return self.read(start, stop)
        import dask

        block, scheduler = self.lazy_block(start, stop), dask.config.get("scheduler", None)
        if scheduler in (None, "dask.distributed", "distributed"):
            # A block is one task: it needs no scheduler.
            rows: Rows = dask.core.get(block.dask, block.key)
        else:
            rows = block.compute(scheduler=scheduler, optimize_graph=False)
        return rows

    def read_whole(self) -> Rows:
        """All rows, for those that hold them in memory."""
        return self.read(0, self.n_rows)

    @abstractmethod
    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices` ((m,) int64, any order, repeats allowed), in that order.

        It checks for an interruption before each chunk that is read; an interruption gives the rows
        up.
        """

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are if they are in memory; else taken there."""
        return rows_at(self.take(indices))

    def portable(self) -> RowSource | None:
        """Return the same rows for another process, pickled in few bytes; None where they are here.

        It opens files or URLs again.
        """
        return None

    def remote_blocks(self) -> RemoteBlocks | None:
        """Blocks of the rows on workers of a cluster; None where the rows are elsewhere."""
        return None

    @abstractmethod
    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column, (n_columns,) float64; zeros of sparse rows count.

        If `occurring_columns` is not None, the mean of those, (m,).
        """

    @abstractmethod
    def total_variance(self) -> float:
        """Variance of all entries of X together, population form, as scikit-learn's ``X.var()``."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short hash of the content: equal only for equal rows in equal order."""

    def _hash_of_parts(self, parts: Iterable[str]) -> str:
        """Hash of the hashes of parts, and of how the rows are described."""
        head = f"{self.n_rows} {self.n_columns} {self.dtype.name} {self.is_sparse}"
        return xxhash.xxh3_128_hexdigest(" ".join([head, *parts]).encode())

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input, (n_rows,) int64, from 0."""
        return np.arange(self.n_rows)

    @abstractmethod
    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Give the rows as a lazy Dask array, explicit chunks along rows, one along columns.

        `block_bytes` sets the size of a block if the source has no blocks of its own.
        """

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """Bytes of rows delivered so far from outside this process's memory; 0 if all is inside."""

    def blocks(
        self, max_bytes: int, *, start: int = 0, stop: int | None = None
    ) -> Iterator[RowBlock]:
        """Yield contiguous blocks covering ``start … stop - 1``, the next one read ahead.

        `max_bytes` are for the two blocks that exist at once, as `read` gives them. It counts as no
        less than two times `row_alignment` mean rows, which callers project; a block of a store may
        take a quarter more than its half, or be one row.
        """
        return self.read_ahead(self._spans(max_bytes, start, stop))

    def blocks_with(
        self, indices: NDArray[np.int64], max_bytes: int
    ) -> Iterator[tuple[RowBlock, NDArray[np.int64]]]:
        """Yield the blocks that hold some of the given rows, each with the rows found in it.

        The indices ascend; repeats are allowed. `max_bytes` is as for `blocks`.
        """
        spans = self.spans(max_bytes)
        edges = np.array([0, *(stop for _, stop in spans)])
        places = np.searchsorted(indices, edges)
        held = np.flatnonzero(np.diff(places)).tolist()
        following = iter(held)
        for block in self.read_ahead(spans[k] for k in held):
            k = next(following)
            yield block, indices[places[k] : places[k + 1]]
            del block

    def read_ahead(self, spans: Iterable[tuple[int, int]]) -> Iterator[RowBlock]:
        """Yield the rows of each span (first, and one past the last), the next one read ahead.

        Rows that are not in memory are lazy blocks of Dask, which a thread computes.
        """
        left = iter(spans)
        span = next(left, None)
        if span is None:
            return
        with ThreadPoolExecutor(1, thread_name_prefix="bigsvm-read") as reader:
            given_up = GivingUp()
            ahead = reader.submit(in_this_context(self._read_lazily, given_up), *span)
            try:
                while span is not None:
                    values, first = ahead.result(), span[0]
                    span = next(left, None)
                    if span is not None:
                        ahead = reader.submit(in_this_context(self._read_lazily, given_up), *span)
                    yield RowBlock(first, values)
                    del values
            finally:
                given_up.set()
                ahead.cancel()

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose random rows that cost little to read; another seed chooses other rows.

        All rows have the same probability. If the order of the rows is random and the source is not
        in memory, the result is a contiguous run of rows; otherwise rows from anywhere. They
        ascend, and are at most `count` of the candidates, which ascend too.
        """
        m = self.n_rows if candidates is None else len(candidates)
        rng = np.random.default_rng(seed)
        if count >= m:
            places = np.arange(m)
        elif self.is_shuffled and self.row_alignment > 1:
            places = np.sort((rng.integers(m) + np.arange(count)) % m)
        else:
            places = np.sort(rng.choice(m, count, replace=False))
        return places if candidates is None else candidates[places]

    def spans(self, max_bytes: int) -> list[tuple[int, int]]:
        """First row, and one past the last, of each block that `blocks` yields."""
        return self._spans(max_bytes, 0, None)

    def _spans(self, max_bytes: int, start: int, stop: int | None) -> list[tuple[int, int]]:
        """First row, and one past the last, of each block of ``start … stop - 1``."""
        stop = self.n_rows if stop is None else stop
        rows = self.rows_per_block(max_bytes)
        edges = [start, *range((start // rows + 1) * rows, stop, rows), stop]
        spans = []
        for a, b in itertools.pairwise(edges):
            first = a
            while first < b:
                # Depends on `first` alone, so that a pass may be resumed at any block.
                end = self._end_of_block(first, b, max_bytes)
                spans.append((first, end))
                first = end
        return spans

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        """Where the block at `start` must end, at `stop` or before, to have about its bytes."""
        return stop

    def rows_per_block(self, max_bytes: int) -> int:
        """Rows of a block when two of them may take `max_bytes`: a multiple of `row_alignment`."""
        rows = int(max_bytes / 2 / max(self.bytes_per_row, 1e-9))
        return max(self.row_alignment, rows // self.row_alignment * self.row_alignment, 1)


class DerivedRows(RowSource):
    """Rows made from those of another source; what a subclass does not define is the source's."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.n_rows, self.n_columns = source.n_rows, source.n_columns
        self.dtype, self.is_sparse = source.dtype, source.is_sparse
        self.is_shuffled = source.is_shuffled
        self.bytes_per_row, self.row_alignment = source.bytes_per_row, source.row_alignment
        self.first_index, self.feature_names = source.first_index, source.feature_names
        self.share_drawn = source.share_drawn

    @property
    def scaler(self) -> Scaler | None:
        """What the rows of the source have been scaled by."""
        return self._source.scaler

    @property
    def n_features(self) -> int:
        """Number of columns of the data, including those that never occur and were left out."""
        return self._source.n_features

    @property
    def kept_bytes(self) -> int:
        """Bytes that the source keeps in memory besides the rows."""
        return self._source.kept_bytes

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur in the source; None if all columns are kept."""
        return self._source.occurring_columns()

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column of the source."""
        return self._source.column_means()

    def total_variance(self) -> float:
        """Variance of all entries of the source."""
        return self._source.total_variance()

    def fingerprint(self) -> str:
        """Hash of the content of the source."""
        return self._source.fingerprint()

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Rows of the source as a Dask array."""
        return self._source.as_dask(block_bytes=block_bytes)

    @property
    def bytes_read(self) -> int:
        """Bytes of rows delivered so far from outside this process's memory."""
        return self._source.bytes_read
