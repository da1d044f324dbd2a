"""Containers of other libraries: the table of those that are read or computed in blocks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import HELD_SHARE, READER_CHUNKS, show_bytes
from bigsvm.data.dask_rows import DaskRows
from bigsvm.data.frames import (
    FrameTable,
    frame_names,
    frame_type,
    frame_values,
    is_dask_frame,
    is_frame,
    is_pandas,
    names_of,
    sparse_columns,
)
from bigsvm.data.in_memory import (
    ArrayRows,
    check_copy,
    copied_bytes,
    is_copied_in_blocks,
    refuse_without_rows,
)
from bigsvm.data.rows import is_instance, is_sparse
from bigsvm.data.tables import ArrayTable, CsrTable, TableRows
from bigsvm.data.zarr_chunks import arrays_below, check_array
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.tables import Table

LARGEST_SLICE = 32 << 20
"""Most bytes of a slice: larger slices are not read faster."""
_SLICES = 29
"""Slices per budget: a training plan holds ten of them; from 1 GB on slices have full size."""
_SLICES_ONCE = 20
"""Slices per budget of a single pass, which decodes all chunks for each and holds few slices."""
_CHUNKS = 4
"""Decoded chunks that a budget must hold: one and its stored bytes exist beside two slices."""
BLOCKS_OF_A_PASS = 7
"""Blocks counted for a single pass: two exist at once, each with its source and its copies."""


class Reading(NamedTuple):
    """How a container is to be read; see `bigsvm.data.sources.as_row_source`."""

    memory: int | None = None
    once: bool = False
    allow_missing: bool = False
    client: Any = None


class Container(NamedTuple):
    """Containers of a class, `name` of a module, and what opens them.

    `open` refuses what has no rows that can be read in blocks, and names the remedy. `is_lazy`
    tells whether predictions for them are lazy Dask arrays.
    """

    module: str
    name: str
    open: Callable[[Any, Reading], RowSource]
    is_lazy: bool = False


def container_of(X: object) -> Container | None:
    """Line of the table for `X`; None for what is in memory, and for what is no container."""
    return next((line for line in CONTAINERS if is_instance(X, line.module, line.name)), None)


def is_lazy_table(X: object) -> bool:
    """Whether `X` is a data set or reader of Arrow, or a lazy frame of Polars."""
    return (
        is_instance(X, "pyarrow.dataset", "Dataset")
        or is_instance(X, "pyarrow", "RecordBatchReader")
        or is_instance(X, "polars", "LazyFrame")
    )


def is_named(X: object) -> bool:
    """Whether `X` is a path, a lazy table, or a caller's function that makes batches."""
    return isinstance(X, str | os.PathLike) or callable(X) or is_lazy_table(X)


def rows_of_container(X: Any, how: Reading) -> RowSource:
    """Rows of a container of another library, or of one in memory."""
    line = container_of(X)
    if line is not None:
        return line.open(X, how)
    if how.memory is not None and is_copied_in_blocks(X, how.memory):
        if is_sparse(X):
            table: Table = CsrTable(X.data[: X.nnz], X.indices[: X.nnz], X.indptr, X.shape, "X")
        else:
            table = FrameTable(X) if is_frame(X) else ArrayTable(X)
        return _rows_of_table(table, how)
    refuse_without_rows(X)
    check_copy(X, how.memory)
    copied, names, array = copied_bytes(X), frame_names(X), X
    if is_frame(X) and copied:
        is_csr = is_pandas(X) and sparse_columns(X)
        array = X.sparse.to_coo().tocsr() if is_csr else FrameTable(X).rows(0, X.shape[0])
    source = ArrayRows(array)
    source.feature_names, source.copied_bytes = names, copied
    return source


def _open_anndata(X: Any, how: Reading) -> RowSource:
    """Rows of the matrix of an AnnData, unless it could only be read as a whole."""
    if X.isbacked and X.is_view:
        raise DataError(
            "X is a view of a backed AnnData, which anndata reads as a whole; give "
            "X.to_memory(), or write the view to a file of its own"
        )
    if X.X is None:
        raise DataError("X is an AnnData without a matrix X; give one of its layers")
    source = rows_of_container(X.X, how)
    source.feature_names = names_of(map(str, X.var_names))
    return source


def _open_dask(X: Any, how: Reading) -> RowSource:
    """Rows of a Dask array or data frame, whose blocks must fit in the memory."""
    source = DaskRows(dask_array(X, allow_missing=how.allow_missing), client=how.client)
    source.feature_names = frame_names(X)
    size = source.row_alignment * source.bytes_per_row
    all_bytes = source.n_rows * source.bytes_per_row
    if how.memory is not None and not _fits(size, all_bytes, how.memory, once=how.once):
        raise _large_blocks(X, source.row_alignment, size, how.memory)
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


def _open_xarray(X: Any, how: Reading) -> RowSource:
    """Rows of the array of Dask or NumPy that an array of xarray has."""
    return rows_of_container(X.data, how)


def _refuse_dataset(X: Any, how: Reading) -> RowSource:
    names = [repr(name) for name in X.data_vars][:5]
    way = f"give one of them, as X[{names[0]}]" if names else "it is empty"
    raise DataError(f"X is a Dataset of xarray, with the arrays {', '.join(names)}; {way}")


def _open_zarr(X: Any, how: Reading) -> RowSource:
    check_array(X, allow_missing=how.allow_missing)
    return _rows_of_table(ArrayTable(X, X.chunks), how)


def _open_hdf5(X: Any, how: Reading) -> RowSource:
    _check_open(X)
    return _rows_of_table(ArrayTable(X, X.chunks), how)


def _refuse_csc(X: Any, how: Reading) -> RowSource:
    raise DataError(
        "X is a CSCDataset, which is stored by columns; write it as CSR, as with "
        "anndata.io.write_elem(group, 'X', X.to_memory().tocsr())"
    )


def _check_open(X: Any) -> None:
    if not X:
        raise DataError("X is in an HDF5 file that was closed; open it, and keep it open")


def _open_group(group: Any, how: Reading) -> RowSource:
    """Rows of a group that is CSR in anndata's encoding."""
    is_zarr = is_instance(group, "zarr", "Group")
    if not is_zarr:
        _check_open(group)
    encoding = group.attrs.get("encoding-type")
    if encoding != "csr_matrix":
        names = sorted(str(name) for name in group)
        if encoding == "anndata" or "X" in names:
            way = "give its matrix, X['X']"
        elif encoding == "csc_matrix":
            way = "it is stored by columns: write it as CSR"
        else:
            way = f"give one of its arrays, as X[{names[0]!r}]" if names else "it is empty"
        raise DataError(f"X is a group of arrays ({', '.join(names[:5])}), not a matrix; {way}")
    try:
        data, indices, indptr = (group[name] for name in ("data", "indices", "indptr"))
        n_rows, n_columns = map(int, group.attrs["shape"])
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"X is a group of CSR, but lacks one of data, indices, indptr and shape ({error}); "
            "write it again"
        ) from None
    if not all(hasattr(array, "dtype") for array in (data, indices, indptr)):
        raise DataError("X is a group of CSR, whose parts are groups, not arrays; write it again")
    if is_zarr:
        for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
            check_array(array, f"X[{name!r}]", allow_missing=how.allow_missing)
    return _rows_of_table(CsrTable(data, indices, indptr, (n_rows, n_columns), "X"), how)


CONTAINERS = (
    Container("dask.array", "Array", _open_dask, is_lazy=True),
    Container("dask.dataframe", "DataFrame", _open_dask, is_lazy=True),
    Container("xarray", "DataArray", _open_xarray),
    Container("xarray", "Dataset", _refuse_dataset),
    Container("zarr", "Array", _open_zarr, is_lazy=True),
    Container("zarr", "Group", _open_group),
    Container("h5py", "Dataset", _open_hdf5),
    Container("h5py", "Group", _open_group),
    Container("anndata.abc", "CSRDataset", lambda X, how: _open_group(X.group, how)),
    Container("anndata.abc", "CSCDataset", _refuse_csc),
    Container("anndata", "AnnData", _open_anndata),
)
"""A new kind of container is a line here."""


def _rows_of_table(table: Table, how: Reading) -> RowSource:
    """Rows of a table, read in slices that fit in the memory."""
    return TableRows(table, _rows_of_slice(table, how.memory, once=how.once))


def _rows_of_slice(table: Table, memory: int | None, *, once: bool) -> int:
    """Count the rows of a table that are read together: whole chunks, if these fit.

    `memory` is what the run may take. `once` says that rows are read in a single pass, for which
    chunks may be decoded several times. A table of which not even a small slice fits is refused.
    """
    together = table.rows_together
    target = LARGEST_SLICE if memory is None else min(LARGEST_SLICE, memory // _SLICES)
    rows = max(1, int(target / table.bytes_per_row))
    if memory is None or rows >= together:
        return min(max(1, rows // together) * together, table.n_rows)
    slice_bytes = together * table.bytes_per_row
    if _fits(slice_bytes, table.n_rows * table.bytes_per_row, memory):
        return together
    chunks = f"X is stored in chunks of {table.chunk_shape}"
    needed = _CHUNKS * table.chunk_bytes
    if needed > memory:
        raise MemoryBudgetError(
            f"{chunks}, of which each is decoded whole ({show_bytes(table.chunk_bytes)}); write it "
            f"again in chunks of fewer rows, or give at least memory={needed}"
        )
    if once:
        return max(1, int(memory / _SLICES_ONCE / table.bytes_per_row))
    raise MemoryBudgetError(
        f"{chunks}, so that its rows are read {together} at a time ({show_bytes(slice_bytes)}), "
        f"too many for memory={memory}; make a store with bigsvm.write_store(path, X, y), which "
        "reads them in slices, and use that"
    )


def _fits(block_bytes: float, all_bytes: float, memory: int, *, once: bool = False) -> bool:
    """Whether blocks of rows fit in a run, all held in memory or read as `plan_training` counts.

    With `once` a single pass reads them, which holds fewer blocks in memory.
    """
    n_blocks = -(-all_bytes // max(block_bytes, 1))
    counted = (2 * min(READER_CHUNKS, n_blocks) + min(2, n_blocks)) * block_bytes
    if once:
        counted = min(counted, BLOCKS_OF_A_PASS * block_bytes)
    return all_bytes <= HELD_SHARE * memory or counted <= memory
