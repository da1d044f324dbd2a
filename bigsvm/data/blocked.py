"""Row sources that read or compute their rows one block at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import (
    Digest,
    as_csr,
    bytes_of,
    check_finite,
    check_indices,
    check_shape,
    is_sparse,
    refuse_masked,
    stack_rows,
)
from bigsvm.data.statistics import statistics_of
from bigsvm.interruption import check_interrupt, checked_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.data.statistics import Statistics

SIZED_BLOCKS = 4
"""Sparse blocks read to estimate the bytes of a row: reading all would cost a pass."""


class BlockedRows(RowSource):
    """Rows in blocks, each read or computed whole in the thread that needs it.

    The block read last is kept.

    Parameters
    ----------
    edges : (n_blocks + 1,) int64
        First row of each block, then the number of rows.
    is_sparse : bool
        Whether blocks are CSR.
    bytes_per_row : float or None
        Mean bytes of a row; None for sparse rows estimates it from some random blocks.
    """

    def __init__(
        self,
        *,
        n_columns: int,
        dtype: np.dtype[Any],
        edges: NDArray[np.int64],
        is_sparse: bool,
        bytes_per_row: float | None = None,
    ) -> None:
        self.n_rows, self.n_columns, self.n_features = int(edges[-1]), n_columns, n_columns
        check_shape(self.n_rows, self.n_columns)
        self.dtype = dtype
        self.is_sparse = is_sparse
        self.is_shuffled = False
        self._edges = edges
        self._last: tuple[int, Any] | None = None
        self._bytes_read = 0
        self._hash = ""  # known with the statistics
        # Blocks are read whole, so a reader needs room for the largest one.
        self.row_alignment = int(np.diff(edges).max())
        if not is_sparse:
            bytes_per_row = float(n_columns * dtype.itemsize)
        elif bytes_per_row is None:
            bytes_per_row = self._estimated_row_bytes()
        self.bytes_per_row = bytes_per_row

    @abstractmethod
    def _load(self, i: int) -> Any:
        """Read or compute block `i`, an array or a scipy.sparse matrix of any type."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks read so far."""
        return self._bytes_read

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; reads the blocks that hold them."""
        self._check_span(start, stop)
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        end = int(np.searchsorted(self._edges, stop))
        numbers = [i for i in range(first, end) if self._edges[i] < self._edges[i + 1]]
        if start == stop:
            numbers = []
        pieces = [
            block[max(start - low, 0) : stop - low]
            for low, block in zip(self._edges[numbers].tolist(), self._loaded(numbers), strict=True)
        ]
        rows: Rows = stack_rows(pieces, self.n_columns, self.dtype, sparse=self.is_sparse)
        return rows

    def read_whole(self) -> Rows:
        """All rows; their statistics and their hash are found on the way."""
        blocks = self._loaded(list(range(len(self._edges) - 1)))
        self._survey(blocks)
        rows: Rows = stack_rows(blocks, self.n_columns, self.dtype, sparse=self.is_sparse)
        return rows

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`, in any order; each block is read once."""
        check_indices(indices, self.n_rows)
        rows, back = np.unique(np.asarray(indices, np.int64), return_inverse=True)
        block = np.searchsorted(self._edges, rows, side="right") - 1
        chosen = [(i, rows[block == i] - int(self._edges[i])) for i in np.unique(block).tolist()]
        pieces = list(self._rows_of_blocks(chosen))
        in_order: Any = stack_rows(pieces, self.n_columns, self.dtype, sparse=self.is_sparse)
        rows_taken: Rows = in_order[back]
        return rows_taken

    def fingerprint(self) -> str:
        """Hash of the values; it does not depend on the blocks."""
        self._survey()
        return self._hash

    def _dask_blocks(self, block_bytes: int) -> tuple[tuple[int, ...], None]:
        return tuple(np.diff(self._edges).tolist()), None

    def __getstate__(self) -> dict[str, Any]:
        # For tasks of Dask, which do not need the block.
        return {**vars(self), "_last": None}

    def _rows_of_blocks(self, chosen: list[tuple[int, NDArray[np.int64]]]) -> Iterator[Rows]:
        """Yield rows of some blocks, each given by its number and the places of the rows in it."""
        for i, places in chosen:
            check_interrupt()
            yield self._block(i)[places]

    def _loaded(self, numbers: list[int]) -> list[Any]:
        """Blocks that ascend, converted; the last one is kept."""
        return [self._block(i) for i in numbers]

    def _block(self, i: int) -> Any:
        last = self._last
        if last is not None and last[0] == i:
            return last[1]
        # Free the last block before the next is made.
        self._last = last = None
        block = converted(self._load(i), self.dtype, sparse=self.is_sparse)
        self._bytes_read += bytes_of(block)
        self._last = (i, block)
        return block

    def _estimated_row_bytes(self) -> float:
        """Mean bytes of a sparse row in some random blocks, as rows may be sorted by length."""
        filled = np.flatnonzero(np.diff(self._edges))
        chosen = np.random.default_rng(0).permutation(filled)[:SIZED_BLOCKS]
        sizes = list(self._sizes_of_blocks(np.sort(chosen).tolist()))
        n_entries, n_rows, index_bytes = np.sum(sizes, axis=0)
        item = self.dtype.itemsize + index_bytes / len(sizes)
        return float(n_entries / n_rows * item + 8)

    def _sizes_of_blocks(self, numbers: list[int]) -> Iterator[tuple[int, int, int]]:
        """Yield the entries, the rows and the bytes of a column number of some sparse blocks."""
        for i in numbers:
            yield size_of_csr(self._block(i))

    def _survey(self, blocks: Iterable[Any] | None = None) -> Statistics:
        """Take the statistics and the hash of all blocks, which are given or read."""
        if self._statistics is None:
            starts, digest = self._edges[:-1].tolist(), Digest()
            statistics = statistics_of(self.n_columns, sparse=self.is_sparse, dtype=self.dtype)
            blocks = map(self._block, range(len(starts))) if blocks is None else blocks
            for start, block in checked_between(zip(starts, blocks, strict=True)):
                check_finite(block, start)
                statistics.add(block)
                digest.add(block)
            self._statistics = statistics.result()
            self._hash = self._hash_of_parts(digest.parts())
        return self._statistics


def converted(block: Any, dtype: np.dtype[Any], *, sparse: bool) -> Any:
    """Convert a block, an array or a scipy.sparse matrix of any type, to dense or CSR rows."""
    refuse_masked(block, "X")
    if sparse:
        return as_csr(block, dtype)
    return np.ascontiguousarray(block.toarray() if is_sparse(block) else block, dtype=dtype)


def size_of_csr(rows: Any) -> tuple[int, int, int]:
    """Entries, rows and bytes of a column number of CSR rows."""
    return rows.nnz, rows.shape[0], rows.indices.itemsize
