"""RowSource: the rows of a training or test set, wherever they live, in blocks of bounded size.

Everything above this module sees data only through a `RowSource`: contiguous blocks read ahead by
one, scattered rows through `take`, column means and the variance that ``gamma="scale"`` needs.
"""

from __future__ import annotations

import itertools
import sys
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.data.rows import RowBlock, RowsAt, stack_rows
from bigsvm.data.statistics import Statistics, may_be_listed, statistics_of
from bigsvm.interruption import GivingUp, check_interrupt, checked_between, in_this_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import dask.array as da
    from dask.delayed import Delayed
    from numpy.typing import NDArray

    from bigsvm.arrays import I8
    from bigsvm.data.rows import Indices, Rows
    from bigsvm.data.scaler import Scaler
    from bigsvm.encoding import Encoding

    Convert = Callable[[Any, int, int], Rows]

PREDICTION_BLOCKS = 64 << 20
"""Bytes of rows in memory while predicting."""
DASK_BLOCK_BYTES = 32 << 20
"""Large enough that reading a block takes far longer than Dask's overhead for a task."""
_PASS_BYTES = 16 << 20
"""Bytes of blocks in the pass for statistics, of sources that have none and are not in memory."""


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
    n_features : int
        Number of columns: `n_columns`, and those that never occur and were left out.
    kept_bytes : int
        Bytes that the source keeps in memory besides the rows.
    encoding : dict or None
        How the columns were made from those of a table; see `bigsvm.encoding`.
    copied_bytes : int
        Bytes of rows in memory that the caller does not hold.
    share_drawn : float
        Share of the rows from which these were drawn at random; 1 if all are here. See `DrawnRows`.
    is_fetched : bool
        Whether rows come here from the workers of a cluster, when they are asked for.
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
    n_features: int
    kept_bytes: int = 0
    encoding: Encoding | None = None
    copied_bytes: int = 0
    share_drawn: float = 1.0
    is_fetched: bool = False
    _statistics: Statistics | None = None

    def __str__(self) -> str:
        """Say whose rows they are, as logs do."""
        return f"{self.n_rows} rows of {self.n_columns} columns"

    @property
    def scaler(self) -> Scaler | None:
        """Scaler that was applied to the rows; None if there was none, or it is not known."""
        return None

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur, (m,) ascending, if the source has very many columns.

        None if every column is kept; see `bigsvm.data.statistics.is_listed`.
        """
        is_listed = may_be_listed(self.n_columns, sparse=self.is_sparse)
        return self._survey().columns if is_listed else None

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
        # Where Dask has not been imported, no scheduler has been set.
        if self.row_alignment <= 1 or "dask" not in sys.modules:
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
        rows = self.take(indices)
        return RowsAt(rows, np.arange(rows.shape[0]))

    def portable(self) -> RowSource | None:
        """Return the same rows for another process, pickled in few bytes; None where they are here.

        It opens files or URLs again.
        """
        return None

    def remote_blocks(self) -> RemoteBlocks | None:
        """Blocks of the rows on workers of a cluster; None where the rows are elsewhere."""
        return None

    def values(
        self, function: Callable[[Rows], NDArray[Any]], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return a function of all rows, (n,), with a value for each that depends on it alone."""
        return function(self.read_whole())

    def placed(self) -> tuple[RowSource, Indices | None]:
        """Return the source that has these rows, and which of its rows they are; None for all.

        Other processes can read that source, if any, and this one reads it itself.
        """
        return self, None

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column, (n_columns,) float64; zeros of sparse rows count.

        If `occurring_columns` is not None, the mean of those, (m,).
        """
        return self._survey().mean

    def total_variance(self) -> float:
        """Variance of all entries of X together, population form, as scikit-learn's ``X.var()``."""
        return self._survey().total_variance()

    def _survey(self) -> Statistics:
        """Take the statistics of all rows, in a pass over them the first time."""
        if self._statistics is None:
            statistics = statistics_of(self.n_columns, sparse=self.is_sparse, dtype=self.dtype)
            for block in checked_between(self.blocks(_PASS_BYTES)):
                statistics.add(block.values)
            self._statistics = statistics.result()
        return self._statistics

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short hash of the content: equal only for equal rows in equal order."""

    def _hash_of_parts(self, parts: Iterable[str]) -> str:
        """Hash of the hashes of parts, and of how the rows are described."""
        # NumPy's `name` of a type takes longer than the hash.
        dtype = f"float{8 * self.dtype.itemsize}"
        head = f"{self.n_rows} {self.n_columns} {dtype} {self.is_sparse}"
        return xxhash.xxh3_128_hexdigest(" ".join([head, *parts]).encode())

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input, (n_rows,) int64, from 0."""
        return np.arange(self.n_rows)

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Give the rows as a lazy Dask array, explicit chunks along rows, one along columns.

        Each block is one read. `block_bytes` sets the size of a block if the source has no blocks
        of its own.
        """
        # 13 MB that training does without.
        import dask.array as da

        sizes, name = self._dask_blocks(block_bytes)
        meta: Any = np.empty((0, self.n_columns), self.dtype)
        return da.map_blocks(
            _read_block,
            self,
            chunks=(sizes, (self.n_columns,)),
            dtype=self.dtype,
            meta=sp.csr_array(meta) if self.is_sparse else meta,
            name=name,
        )

    def _dask_blocks(self, block_bytes: int) -> tuple[tuple[int, ...], str | None]:
        """Rows of each block of `as_dask`, and its name by content, which takes no pass."""
        step = min(self.rows_per_block(2 * block_bytes), self.n_rows)
        sizes = np.diff([*range(0, self.n_rows, step), self.n_rows])
        return tuple(sizes.tolist()), f"bigsvm-{self.fingerprint()}-{step}"

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

    def rows_with(self, indices: NDArray[np.int64], max_bytes: int) -> Rows:
        """Rows at ascending `indices`, in one pass over the blocks that hold them."""
        pieces: list[Any] = []
        for block, held in self.blocks_with(indices, max_bytes):
            check_interrupt()
            pieces.append(block.values[held - block.start])
            del block
        rows: Rows = stack_rows(pieces, self.n_columns, self.dtype, sparse=self.is_sparse)
        return rows

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose random rows that cost little to read; another seed chooses other rows.

        All rows have the same probability. If the order of the rows is random and the source is not
        in memory, the result is a contiguous run of rows; otherwise rows from anywhere. They
        ascend, and are at most `count` of the candidates, which ascend too.
        """
        m = self.n_rows if candidates is None else len(candidates)
        if count >= m:
            return np.arange(m) if candidates is None else candidates
        rng = np.random.default_rng(seed)
        if self.is_shuffled and self.row_alignment > 1:
            places = np.sort((rng.integers(m) + np.arange(count)) % m)
        else:
            places = np.sort(rng.choice(m, count, replace=False))
        return places if candidates is None else candidates[places]

    def spans(self, max_bytes: int) -> list[tuple[int, int]]:
        """First row, and one past the last, of each block that `blocks` yields."""
        return self._spans(max_bytes, 0, None)

    def _check_span(self, start: int, stop: int) -> None:
        """Refuse rows ``start … stop - 1`` that do not exist."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")

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


def _read_block(source: RowSource, block_info: dict[Any, Any]) -> Rows:
    """Read one block of `RowSource.as_dask`."""
    start, stop = block_info[None]["array-location"][0]
    return source.read(int(start), int(stop))


@dataclass(frozen=True)
class RemoteBlocks:
    """Blocks of the rows of a source, and how workers make rows of them.

    `edges` has the first row of each block, ascending, then the number of rows. `future` gives
    Dask's future of the block that begins with a row. `convert` takes the block and its first and
    last row + 1 and gives rows; workers call it. `holders` gives addresses of workers by the first
    row of the blocks that they have.
    """

    edges: I8
    future: Callable[[int], Any]
    convert: Convert
    holders: Callable[[], dict[int, str]]

    def followed_by(self, change: Callable[[Rows], Rows]) -> RemoteBlocks:
        """Return blocks whose rows are changed once more, after `convert`."""
        return replace(self, convert=_Changed(self.convert, change))


@dataclass(frozen=True)
class _Changed:
    """Converts a block and changes its rows."""

    convert: Convert
    change: Callable[[Rows], Rows]

    def __call__(self, block: Any, start: int, stop: int) -> Rows:
        return self.change(self.convert(block, start, stop))
