"""Row sources over arrays in memory and dask arrays, and the choice of the right one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import xxhash

from bigsvm.data.blocks import as_csr, check_finite, float_type, is_sparse, stack_rows
from bigsvm.data.rows import RowsAt, RowSource
from bigsvm.data.statistics import ColumnStatistics, Statistics
from bigsvm.data.store import Store, open_store
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    import zarr
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

_PASS_BYTES = 4 << 20
"""Rows looked at together in a pass over an array in memory: they fit the last-level cache."""

_DASK_BLOCK_BYTES = 32 << 20


class _Digest:
    """Hash of rows in order, whatever the blocks they come in."""

    def __init__(self) -> None:
        self._parts = [xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()]

    def add(self, rows: Rows) -> None:
        block = rows
        if is_sparse(block):
            arrays = [
                block.data,
                block.indices.astype(np.int64),
                np.diff(block.indptr).astype(np.int64),
            ]
        else:
            arrays = [np.ascontiguousarray(block)]
        for part, array in zip(self._parts, arrays, strict=False):
            if array.size:
                part.update(array.data.cast("B"))

    def result(self, source: RowSource) -> str:
        head = f"{source.n_rows} {source.n_columns} {source.dtype.name} {source.is_sparse}"
        text = " ".join([head, *(part.hexdigest() for part in self._parts)])
        return xxhash.xxh3_128_hexdigest(text.encode())


class ArrayRows(RowSource):
    """Rows of an array or a scipy.sparse matrix in memory; neither is copied if it need not be.

    Parameters
    ----------
    X : (n_rows, n_columns) array or scipy.sparse matrix
        float32 and float64 are kept, smaller types become float32, others float64. A read-only
        memory map is fine.

    Raises
    ------
    DataError
        If it has not two dimensions, no rows, no columns, or other than real numbers.
    """

    def __init__(self, X: Any) -> None:
        self._rows: Any
        if is_sparse(X):
            self._rows = as_csr(X, float_type(X.dtype))
        else:
            array = np.asarray(X)
            if array.ndim != 2:
                raise DataError(
                    f"X has {array.ndim} dimensions; it must have two (rows and columns): use "
                    "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row"
                )
            self._rows = np.ascontiguousarray(array, dtype=float_type(array.dtype))
        self.n_rows, self.n_columns = map(int, self._rows.shape)
        _check_shape(self.n_rows, self.n_columns)
        self.dtype = self._rows.dtype
        self.is_sparse = is_sparse(self._rows)
        self.is_shuffled = True
        self.row_alignment = 1
        item = self.dtype.itemsize
        self.bytes_per_row = float(
            self._rows.nnz / self.n_rows * (item + self._rows.indices.itemsize) + 8
            if self.is_sparse
            else self.n_columns * item
        )
        self._statistics: Statistics | None = None
        self._fingerprint: str | None = None

    @property
    def bytes_read(self) -> int:
        """Always 0: all rows are in memory."""
        return 0

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; a view, if they are dense."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
        # Slicing copies sparse rows.
        whole = start == 0 and stop == self.n_rows
        rows: Rows = self._rows if whole else self._rows[start:stop]
        return rows

    def take(self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None) -> Rows:
        """Rows at `indices`."""
        _check_indices(indices, self.n_rows)
        look()
        rows: Rows = self._rows[np.asarray(indices, np.int64)]
        return rows

    def lend(
        self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None
    ) -> RowsAt:
        """Rows at `indices`, where they are."""
        _check_indices(indices, self.n_rows)
        look()
        return RowsAt(self._rows, indices)

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column."""
        return self._survey().mean

    def total_variance(self) -> float:
        """Variance of all entries of X."""
        return self._survey().total_variance()

    def fingerprint(self) -> str:
        """Hash of the bytes."""
        if self._fingerprint is None:
            digest = _Digest()
            for start in range(0, self.n_rows, self._step()):
                digest.add(self.read(start, min(start + self._step(), self.n_rows)))
            self._fingerprint = digest.result(self)
        return self._fingerprint

    def as_dask(self) -> da.Array:
        """Rows as a Dask array in blocks of some 32 MiB."""
        # 13 MB that training does without.
        import dask.array as da

        rows = min(self.rows_per_block(2 * _DASK_BLOCK_BYTES), self.n_rows)
        return da.from_array(
            self._rows,
            chunks=(rows, self.n_columns),
            name=f"bigsvm-array-{self.fingerprint()}-{rows}",
            asarray=False,
        )

    def _step(self) -> int:
        return self.rows_per_block(2 * _PASS_BYTES)

    def _survey(self) -> Statistics:
        if self._statistics is None:
            statistics = ColumnStatistics(self.n_columns)
            for start in range(0, self.n_rows, self._step()):
                rows = self.read(start, min(start + self._step(), self.n_rows))
                check_finite(rows, start)
                statistics.add(rows)
            self._statistics = statistics.result()
        return self._statistics


class DaskRows(RowSource):
    """Rows of a dask array, computed block by block in the thread that reads them.

    Parameters
    ----------
    X : dask.array.Array, (n_rows, n_columns)
        Of numpy or scipy.sparse blocks, which must fit in memory two at a time. Unknown chunk sizes
        are computed; several chunks along the columns are merged.

    Attributes
    ----------
    bytes_per_row : float
        For sparse blocks an estimate from the first one.

    Raises
    ------
    DataError
        If it has not two dimensions, no rows, no columns, or other than real numbers.
    """

    def __init__(self, X: da.Array) -> None:
        if X.ndim != 2:
            raise DataError(f"X has {X.ndim} dimensions; it must have two: rows and columns")
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            # 4 MB that rows in memory do without.
            import dask

            with dask.config.set(scheduler="synchronous"):
                X = X.compute_chunk_sizes()
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        self.n_rows, self.n_columns = map(int, X.shape)
        _check_shape(self.n_rows, self.n_columns)
        self.dtype = float_type(X.dtype)
        self.is_sparse = is_sparse(X._meta)
        self.is_shuffled = False
        self._blocks = X
        self._edges = np.concatenate([[0], np.cumsum(X.chunks[0], dtype=np.int64)])
        self._last: tuple[int, Any] | None = None
        self._bytes_read = 0
        # Chunks are computed whole, so the largest one is what a reader has to have room for.
        self.row_alignment = int(max(X.chunks[0]))
        if self.is_sparse:
            first = self._block(int(np.flatnonzero(np.diff(self._edges))[0]))
            entries = first.nnz / first.shape[0]
            self.bytes_per_row = entries * (self.dtype.itemsize + first.indices.itemsize) + 8
        else:
            self.bytes_per_row = float(self.n_columns * self.dtype.itemsize)
        self._survey_result: tuple[Statistics, str] | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks computed so far."""
        return self._bytes_read

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; computes the blocks that hold them."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        pieces = []
        for i in range(first, len(self._edges) - 1):
            low, high = int(self._edges[i]), int(self._edges[i + 1])
            if low >= stop:
                break
            if max(low, start) < min(high, stop):
                pieces.append(self._block(i)[max(start - low, 0) : stop - low])
        rows: Rows = stack_rows(pieces, self.n_columns, self.dtype, sparse=self.is_sparse)
        return rows

    def take(self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None) -> Rows:
        """Rows at `indices`; each block is computed once, whatever their order."""
        _check_indices(indices, self.n_rows)
        rows, back = np.unique(np.asarray(indices, np.int64), return_inverse=True)
        block = np.searchsorted(self._edges, rows, side="right") - 1
        pieces = []
        for i in np.unique(block):
            look()
            pieces.append(self._block(int(i))[rows[block == i] - int(self._edges[i])])
        found: Any = stack_rows(pieces, self.n_columns, self.dtype, sparse=self.is_sparse)
        rows_taken: Rows = found[back]
        return rows_taken

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column; computes every block once, together with all that needs it."""
        return self._survey()[0].mean

    def total_variance(self) -> float:
        """Variance of all entries of X."""
        return self._survey()[0].total_variance()

    def fingerprint(self) -> str:
        """Hash of the values, whatever the chunks."""
        return self._survey()[1]

    def as_dask(self) -> da.Array:
        """Return the array itself, with one chunk along the columns."""
        return self._blocks.astype(self.dtype)

    def _block(self, i: int) -> Any:
        last = self._last
        if last is not None and last[0] == i:
            return last[1]
        # Frees the last one before the next is made.
        self._last = last = None
        try:
            block = self._blocks.blocks[i].compute(scheduler="synchronous")
        except OSError as error:
            raise DataError(f"block {i} of X cannot be read ({error}); check its source") from error
        if self.is_sparse:
            block = as_csr(block, self.dtype)
            n_bytes = block.data.nbytes + block.indices.nbytes + block.indptr.nbytes
        else:
            block = block.toarray() if is_sparse(block) else block
            block = np.ascontiguousarray(block, dtype=self.dtype)
            n_bytes = block.nbytes
        expected = (int(self._edges[i + 1] - self._edges[i]), self.n_columns)
        if block.shape != expected:
            raise DataError(
                f"block {i} of X has shape {block.shape}, but its chunks say {expected}; call "
                "X.compute_chunk_sizes() first"
            )
        self._bytes_read += n_bytes
        self._last = (i, block)
        return block

    def _survey(self) -> tuple[Statistics, str]:
        if self._survey_result is None:
            statistics, digest = ColumnStatistics(self.n_columns), _Digest()
            for i in range(len(self._edges) - 1):
                block = self._block(i)
                check_finite(block, int(self._edges[i]))
                statistics.add(block)
                digest.add(block)
            self._survey_result = statistics.result(), digest.result(self)
        return self._survey_result


def _check_shape(n_rows: int, n_columns: int) -> None:
    if n_rows < 1 or n_columns < 1:
        raise DataError(f"X has shape ({n_rows}, {n_columns}); it must have rows and columns")


def _check_indices(indices: NDArray[np.int64], n_rows: int) -> None:
    if len(indices) and (np.min(indices) < 0 or np.max(indices) >= n_rows):
        raise IndexError(f"rows {np.min(indices)} to {np.max(indices)} of {n_rows}")


def _dask_over_zarr(array: Any) -> da.Array:
    """Return a foreign Zarr array in blocks of whole chunks (or shards) of some 32 MiB."""
    # 13 MB that rows in memory do without.
    import dask.array as da

    if array.ndim != 2:
        raise DataError(f"X has {array.ndim} dimensions; it must have two: rows and columns")
    unit = (array.shards or array.chunks)[0]
    row_bytes = max(1, array.shape[1] * array.dtype.itemsize)
    rows = max(1, _DASK_BLOCK_BYTES // (row_bytes * unit)) * unit
    return da.from_array(array, chunks=(rows, array.shape[1]))


def is_dask_array(X: object) -> TypeGuard[da.Array]:
    """Whether `X` is a Dask array; nothing is one where nobody has imported Dask."""
    # Saves the 13 MB of importing it to find that out.
    array = getattr(sys.modules.get("dask.array"), "Array", None)
    return array is not None and isinstance(X, array)


def is_zarr_array(X: object) -> TypeGuard[zarr.Array[Any]]:
    """Whether `X` is a Zarr array; nothing is one where nobody has imported zarr."""
    # Saves the 10 MB of importing it to find that out.
    array = getattr(sys.modules.get("zarr"), "Array", None)
    return array is not None and isinstance(X, array)


def as_row_source(X: Any) -> RowSource:
    """Rows of whatever a user gives.

    Parameters
    ----------
    X : RowSource, Store, path of a store, dask array, Zarr array, scipy.sparse matrix, or array
        A Zarr array is read without a manifest, hence without the check that no chunk is missing.

    Raises
    ------
    DataError
        If it is not a table of real numbers.
    StoreError
        If it is a path, but not of a store.
    """
    if isinstance(X, RowSource):
        return X
    if isinstance(X, Store):
        return X.rows
    if isinstance(X, (str, os.PathLike)):
        return open_store(X).rows
    if is_zarr_array(X):
        X = _dask_over_zarr(X)
    if is_dask_array(X):
        return DaskRows(X)
    return ArrayRows(X)
