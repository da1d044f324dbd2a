"""The rows of any container that a user may give: the choice of the right source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import show_bytes
from bigsvm.data.containers import (
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
from bigsvm.data.in_memory import ArrayRows, check_copy, copied_bytes, refuse_without_rows
from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import is_sparse, refuse_masked
from bigsvm.data.store import Store, open_store
from bigsvm.data.store_part import StorePart
from bigsvm.data.tables import TableRows
from bigsvm.data.zarr_chunks import arrays_below, check_array
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    import dask.array as da


def as_store(X: Any) -> Store | StorePart | None:
    """Store that `X` is or refers to, or chosen rows of one; None if `X` is another container.

    A path that is not one of a store is refused.
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

    X is a `RowSource`, a `Store`, a `StorePart`, the path of a store, or a container: an array or a
    scipy.sparse matrix; a data frame of pandas, Polars, Arrow or Dask; an array of Dask, Zarr or
    h5py; a group of Zarr or h5py that is CSR in anndata's encoding; an AnnData.

    Parameters
    ----------
    memory : int, optional
        Bytes that a run may take. Containers that are not used as one array are read in blocks
        that fit; if no block fits, the container is refused.
    once : bool
        Whether rows are read in a single pass, for which chunks may be decoded several times.
    allow_missing : bool
        Whether to take Zarr arrays that lack chunks.
    client : distributed.Client, optional
        Computes blocks of Dask arrays and data frames; see `DaskRows`.
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

    A block and its copies may take `memory`, if the size of blocks is known. `allow_missing` takes
    an array whose graph reads Zarr arrays that lack chunks.
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
