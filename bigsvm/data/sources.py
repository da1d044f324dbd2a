"""Row sources over arrays in memory and dask arrays, and the choice of the right one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from bigsvm.data.blocked import DaskRows, Digest, check_indices, check_shape
from bigsvm.data.blocks import as_csr, check_finite, float_type, is_sparse
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
        check_shape(self.n_rows, self.n_columns)
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
        check_indices(indices, self.n_rows)
        look()
        rows: Rows = self._rows[np.asarray(indices, np.int64)]
        return rows

    def lend(
        self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None
    ) -> RowsAt:
        """Rows at `indices`, where they are."""
        check_indices(indices, self.n_rows)
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
            digest = Digest()
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
