"""Containers of rows from other libraries: detection, and how they are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from bigsvm.budget import HELD_SHARE, READER_CHUNKS, show_bytes
from bigsvm.data.frames import FrameTable, frame_names, is_dask_frame, is_frame, names_of
from bigsvm.data.in_memory import is_copied_in_blocks
from bigsvm.data.rows import is_instance, is_sparse
from bigsvm.data.schema import KEY
from bigsvm.data.tables import ArrayTable, CsrTable, SparseTable
from bigsvm.data.zarr_chunks import check_array
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    import dask.array as da
    import zarr

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


def is_dask_array(X: object) -> TypeGuard[da.Array]:
    """Whether `X` is a Dask array; False if Dask has not been imported."""
    return is_instance(X, "dask.array", "Array")


def is_zarr_array(X: object) -> TypeGuard[zarr.Array[Any]]:
    """Whether `X` is a Zarr array; False if zarr has not been imported."""
    return is_instance(X, "zarr", "Array")


def is_anndata(X: object) -> TypeGuard[Any]:
    """Whether `X` is an AnnData."""
    return is_instance(X, "anndata", "AnnData")


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


def is_lazy(X: object) -> bool:
    """Whether predictions for `X` are a lazy Dask array."""
    return is_dask_array(X) or is_zarr_array(X) or is_dask_frame(X)


def is_stored_or_lazy(X: object) -> bool:
    """Whether the rows of `X`, which is no store and no array, are read or computed in blocks."""
    return (
        is_lazy(X)
        or is_anndata(X)
        or is_instance(X, "h5py", "Dataset", "Group")
        or is_instance(X, "zarr", "Group")
        or is_instance(X, "anndata.abc", "CSRDataset", "CSCDataset")
    )


def open_table(X: Any, *, memory: int | None, allow_missing: bool) -> Table | None:
    """Table of a container on disk, or of one in memory that must not be copied; else None."""
    if is_zarr_array(X):
        check_array(X, allow_missing=allow_missing)
        return ArrayTable(X, X.chunks)
    if is_instance(X, "h5py", "Dataset"):
        _check_open(X)
        return ArrayTable(X, X.chunks)
    if is_instance(X, "anndata.abc", "CSCDataset"):
        raise DataError(
            "X is a CSCDataset, which is stored by columns; write it as CSR, as with "
            "anndata.io.write_elem(group, 'X', X.to_memory().tocsr())"
        )
    if is_instance(X, "anndata.abc", "CSRDataset"):
        return _open_group(X.group, allow_missing=allow_missing)
    if is_instance(X, "zarr", "Group") or is_instance(X, "h5py", "Group"):
        return _open_group(X, allow_missing=allow_missing)
    if memory is None or not is_copied_in_blocks(X, memory):
        return None
    if is_frame(X):
        return FrameTable(X)
    return SparseTable(X) if is_sparse(X) else ArrayTable(X)


def _check_open(X: Any) -> None:
    if not X:
        raise DataError("X is in an HDF5 file that was closed; open it, and keep it open")


def _open_group(group: Any, *, allow_missing: bool) -> Table:
    """Table of a group that is CSR in anndata's encoding."""
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
            check_array(array, f"X[{name!r}]", allow_missing=allow_missing)
    return CsrTable(data, indices, indptr, (n_rows, n_columns), "X")


def path_of_store(X: Any) -> Path | None:
    """Path of a bigsvm store that was opened as a Zarr group; None for anything else.

    A store that is not on a local disk is refused.
    """
    if not is_instance(X, "zarr", "Group") or KEY not in X.attrs:
        return None
    group: Any = X
    root = getattr(group.store, "root", None)
    if not isinstance(root, Path):
        raise DataError(
            f"X is a bigsvm store in a {type(group.store).__name__}; copy it to a local folder, "
            "and give the path of that"
        )
    return root / str(group.path)


def matrix_of_anndata(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Matrix of an AnnData and the names of its columns.

    A matrix that could only be read as a whole is refused.
    """
    if X.isbacked and X.is_view:
        raise DataError(
            "X is a view of a backed AnnData, which anndata reads as a whole; give "
            "X.to_memory(), or write the view to a file of its own"
        )
    matrix = X.X
    if matrix is None:
        raise DataError("X is an AnnData without a matrix X; give one of its layers")
    return matrix, names_of(map(str, X.var_names))


def rows_of_slice(table: Table, memory: int | None, *, once: bool) -> int:
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
    if fits(slice_bytes, table.n_rows * table.bytes_per_row, memory):
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


def fits(block_bytes: float, all_bytes: float, memory: int, *, once: bool = False) -> bool:
    """Whether blocks of rows fit in a run, all held in memory or read as `plan_training` counts.

    With `once` a single pass reads them, which holds fewer blocks in memory.
    """
    n_blocks = -(-all_bytes // max(block_bytes, 1))
    counted = (2 * min(READER_CHUNKS, n_blocks) + min(2, n_blocks)) * block_bytes
    if once:
        counted = min(counted, BLOCKS_OF_A_PASS * block_bytes)
    return all_bytes <= HELD_SHARE * memory or counted <= memory


def names_of_columns(X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a container; None if it has none."""
    return matrix_of_anndata(X)[1] if is_anndata(X) else frame_names(X)
