"""Row sources over arrays in memory and dask arrays, and the choice of the right one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import show_bytes
from bigsvm.data.blocked import Digest, check_indices, check_shape
from bigsvm.data.containers import (
    check_copy,
    copied_bytes,
    fits,
    is_anndata,
    is_dask_array,
    matrix_of_anndata,
    open_table,
    path_of_store,
    rows_of_slice,
)
from bigsvm.data.dask_rows import DaskRows
from bigsvm.data.frames import (
    FrameTable,
    frame_names,
    frame_type,
    frame_values,
    is_dask_frame,
    is_frame,
    is_pandas,
    sparse_columns,
)
from bigsvm.data.row_source import DASK_BLOCK_BYTES, RowSource
from bigsvm.data.rows import (
    RowsAt,
    as_csr,
    check_finite,
    float_type,
    is_sparse,
    make_csr,
    refuse_masked,
)
from bigsvm.data.statistics import Statistics, may_be_listed, statistics_of
from bigsvm.data.store import Store, open_store
from bigsvm.data.store_part import StorePart
from bigsvm.data.tables import TableRows
from bigsvm.data.zarr_chunks import arrays_below, check_array
from bigsvm.errors import DataError, MemoryBudgetError
from bigsvm.interruption import check_interrupt, checked_between

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

_PASS_BYTES = 4 << 20
"""Rows looked at together in a pass over an array in memory: they fit the last-level cache."""


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
        self.is_shuffled = False
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
        """Rows ``start … stop - 1``, whose values are a view."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
        if start == 0 and stop == self.n_rows:
            rows: Rows = self._rows
        elif self.is_sparse:  # scipy copies what it slices
            indptr = self._rows.indptr[start : stop + 1]
            entries = slice(indptr[0], indptr[-1])
            values, indices = self._rows.data[entries], self._rows.indices[entries]
            rows = make_csr(values, indices, indptr - indptr[0], self.n_columns)
        else:
            rows = self._rows[start:stop]
        return rows

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        check_indices(indices, self.n_rows)
        check_interrupt()
        rows: Rows = self._rows[np.asarray(indices, np.int64)]
        return rows

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are."""
        check_indices(indices, self.n_rows)
        check_interrupt()
        return RowsAt(self._rows, indices)

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur; None if all columns are kept."""
        return (
            self._survey().columns if may_be_listed(self.n_columns, sparse=self.is_sparse) else None
        )

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
            for start in checked_between(range(0, self.n_rows, self._step())):
                digest.add(self.read(start, min(start + self._step(), self.n_rows)))
            self._fingerprint = digest.result(self)
        return self._fingerprint

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Rows as a Dask array."""
        # 13 MB that training does without.
        import dask.array as da

        rows = min(self.rows_per_block(2 * block_bytes), self.n_rows)
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
            statistics = statistics_of(self.n_columns, sparse=self.is_sparse, dtype=self.dtype)
            for start in checked_between(range(0, self.n_rows, self._step())):
                rows = self.read(start, min(start + self._step(), self.n_rows))
                check_finite(rows, start)
                statistics.add(rows)
            self._statistics = statistics.result()
        return self._statistics


def as_store(X: Any) -> Store | StorePart | None:
    """Store that `X` is or refers to, or chosen rows of one; None if `X` is another container.

    Raises
    ------
    StoreError
        `X` is a path, but not of a store.
    """
    if isinstance(X, Store | StorePart):
        return X
    if isinstance(X, RowSource):
        return None
    path = X if isinstance(X, str | os.PathLike) else path_of_store(X)
    return None if path is None else open_store(path)


def as_row_source(
    X: Any,
    *,
    memory: int | None = None,
    once: bool = False,
    allow_missing: bool = False,
    client: Any = None,
) -> RowSource:
    """Rows of any container that a user may give.

    Parameters
    ----------
    X : RowSource, Store, StorePart, path of a store, or container
        A container is an array or a scipy.sparse matrix; a data frame of pandas, Polars, Arrow or
        Dask; an array of Dask, Zarr or h5py; a group of Zarr or h5py that is CSR in anndata's
        encoding; an AnnData.
    memory : int, optional
        Bytes that a run may take. Containers that are not used as one array are read in blocks
        that fit; if no block fits, the container is refused.
    once : bool
        Whether rows are read in a single pass, for which chunks may be decoded several times.
    allow_missing : bool
        Whether to take Zarr arrays that lack chunks.
    client : distributed.Client, optional
        Computes blocks of Dask arrays and data frames; see `DaskRows`.

    Raises
    ------
    DataError
        If X is not a table of real numbers, or lacks chunks.
    MemoryBudgetError
        If X cannot be read in `memory`.
    StoreError
        If X is a path, but not of a store.
    """
    if isinstance(X, RowSource):
        return X
    refuse_masked(X, "X")
    store = as_store(X)
    if store is not None:
        return store.rows
    source: RowSource
    if is_anndata(X):
        X, names = matrix_of_anndata(X)
        source = as_row_source(X, memory=memory, once=once, allow_missing=allow_missing)
        source.feature_names = names
        return source
    if is_dask_array(X) or is_dask_frame(X):
        return _of_dask(X, memory, once=once, allow_missing=allow_missing, client=client)
    table = open_table(X, memory=memory, allow_missing=allow_missing)
    if table is not None:
        return TableRows(table, rows_of_slice(table, memory, once=once))
    refuse_without_rows(X)
    check_copy(X, memory)
    source = ArrayRows(_as_array(X))
    source.feature_names = frame_names(X)
    source.copied_bytes = copied_bytes(X)
    return source


def refuse_without_rows(X: Any) -> None:
    """Refuse what has no rows that can be read by their numbers.

    Raises
    ------
    DataError
    """
    if hasattr(X, "__next__"):
        raise DataError(
            f"X is an iterator ({type(X).__name__}), which gives its rows only once; give an array "
            "of them"
        )
    if hasattr(X, "__dask_graph__"):
        raise DataError(
            f"X is a {type(X).__name__} of Dask, which is no table; give an array or a data frame "
            "of Dask, as its to_dataframe makes of a bag"
        )


def _as_array(X: Any) -> Any:
    """Convert a container in memory to an array or a sparse matrix."""
    if not is_frame(X) or not copied_bytes(X):
        return X
    if is_pandas(X) and sparse_columns(X):
        return X.sparse.to_coo().tocsr()
    return FrameTable(X).rows(0, X.shape[0])


def _of_dask(
    X: Any, memory: int | None, *, once: bool, allow_missing: bool, client: Any
) -> RowSource:
    """Rows of a Dask array or data frame, whose blocks must fit in `memory`."""
    source = DaskRows(dask_array(X, allow_missing=allow_missing), client=client)
    source.feature_names = frame_names(X)
    size = source.row_alignment * source.bytes_per_row
    all_bytes = source.n_rows * source.bytes_per_row
    if memory is not None and not fits(size, all_bytes, memory, once=once):
        raise _large_blocks(X, source.row_alignment, size, memory)
    return source


def dask_array(X: Any, *, memory: int | None = None, allow_missing: bool = False) -> da.Array:
    """Give the rows of a Dask array or data frame as an array with one chunk along the columns.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame, (n_rows, n_columns)
    memory : int, optional
        Bytes that a block and its copies may take, if the size of blocks is known.
    allow_missing : bool
        Whether to take an array whose graph reads Zarr arrays that lack chunks.

    Raises
    ------
    DataError
        X is not two-dimensional or lacks chunks.
    MemoryBudgetError
        Its blocks are too large.
    """
    array = X
    if is_dask_frame(X):
        dtype = frame_type(X._meta)
        meta = np.empty((0, len(X.columns)), dtype)
        array = X.map_partitions(frame_values, dtype, meta=meta)
    elif X.ndim != 2:
        raise DataError(f"X has {X.ndim} dimensions; it must have two: rows and columns")
    else:
        if isinstance(X._meta, np.ma.MaskedArray):
            raise DataError(
                "X is an array of Dask with a mask, and values under it are no data; give "
                "dask.array.ma.filled(X, 0), or another number in their place"
            )
        for below in arrays_below(X):
            check_array(below, allow_missing=allow_missing)
    if array.numblocks[1] > 1:
        array = array.rechunk({1: -1})
    rows = max(array.chunks[0], default=0)
    size = rows * array.shape[1] * array.dtype.itemsize
    # Unknown sizes are NaN.
    if memory is not None and not is_sparse(array._meta) and 2 * size > memory:
        raise _large_blocks(X, rows, size, memory)
    return array


def _large_blocks(X: Any, rows: int, size: float, memory: int) -> MemoryBudgetError:
    way = "make it in chunks of fewer rows and all columns where it is read"
    if is_dask_frame(X):
        way = "repartition it, as with X.repartition(partition_size='16MB')"
    return MemoryBudgetError(
        f"X has blocks of up to {rows} rows ({show_bytes(size)}), too many for memory={memory}; "
        f"{way}"
    )
