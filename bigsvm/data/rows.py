"""Rows in memory, dense or CSR: their types, checks, and what is done to both alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

Rows: TypeAlias = "NDArray[np.float32] | NDArray[np.float64] | sp.csr_array"
"""Some rows as they are stored: (m, d) C-contiguous, or CSR with sorted column indices."""


class RowBlock(NamedTuple):
    """Rows ``start … start + m - 1`` of a source."""

    start: int
    values: Rows


class RowsAt(NamedTuple):
    """Rows at some places of others that are in memory, not copied."""

    rows: Rows
    places: NDArray[np.int64]


def is_sparse(rows: object) -> TypeGuard[Any]:
    """Whether these are rows of scipy.sparse, not an array."""
    return bool(sp.issparse(rows))


def make_csr(
    values: NDArray[Any],
    indices: NDArray[np.integer[Any]],
    indptr: NDArray[np.int64],
    n_columns: int,
) -> sp.csr_array:
    """CSR rows over the given arrays; `indptr` becomes int32 where it fits.

    scipy keeps both index arrays in one type: an int64 `indptr` would make it copy all indices
    to int64.
    """
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32, copy=False)
    return sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, n_columns))


def float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values of `dtype` are kept in: float32 if it holds all of them."""
    if dtype.kind not in "buif":
        raise DataError(f"X has type {dtype}; it must hold real numbers")
    if dtype == np.float32:
        return np.dtype(np.float32)
    return np.dtype(np.promote_types(dtype, np.float32) if dtype.itemsize <= 2 else np.float64)


def is_instance(X: object, module: str, *names: str) -> bool:
    """Whether `X` is an instance of a class of a module; False if the module is not imported."""
    library = sys.modules.get(module)
    kinds = tuple(kind for name in names if (kind := getattr(library, name, None)) is not None)
    return isinstance(X, kinds)


def refuse_masked(values: object, name: str) -> None:
    """Refuse arrays of NumPy with values under a mask, which would be used as data.

    `values` is an array, or a list of them.
    """
    for part in values if isinstance(values, list | tuple) else (values,):
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise DataError(
                f"{name} has values under a mask, which are no data; leave their rows out, or put "
                f"numbers in their place, as {name}.filled(0) does"
            )


def place_not_finite(rows: Rows) -> tuple[int, int] | None:
    """Row and column, both from 0, of the first value that is NaN or infinite; None if none is."""
    block: Any = rows
    values: Any = block.data if is_sparse(block) else block
    # A sum that is finite proves it, in a third of the time; if it is not, it may have overflowed.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return None
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return None
    if is_sparse(block):
        entry = int(bad[0, 0])
        row = int(np.searchsorted(np.asarray(block.indptr), entry, side="right")) - 1
        return row, int(block.indices[entry])
    row, column = map(int, bad[0])
    return row, column


def check_finite(rows: Rows, first_row: int) -> None:
    """Refuse NaN and infinity; the message counts rows from `first_row`."""
    block: Any = rows
    place = place_not_finite(rows)
    if place is None:
        return
    row, column = place
    value = block[row, column]
    raise DataError(
        f"X has {value} in row {first_row + row}, column {column} (from 0); remove the row, or put "
        "a number in its place"
    )


def as_csr(matrix: Any, dtype: np.dtype[Any]) -> sp.csr_array:
    """Any scipy.sparse matrix as CSR with sorted indices and no duplicates; not copied if it is."""
    rows = sp.csr_array(matrix, dtype=dtype)
    if rows.ndim != 2:
        raise DataError(f"X has {rows.ndim} dimensions; it must have two: rows and columns")
    if not rows.has_canonical_format:
        # Sorting is done in place, and the matrix may share its arrays with the caller's.
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def stack_rows(pieces: list[Any], n_columns: int, dtype: np.dtype[Any], *, sparse: bool) -> Any:
    """All rows of some pieces, which are all arrays or all CSR; one piece is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    if sparse:
        return (
            sp.vstack(pieces, format="csr") if pieces else sp.csr_array((0, n_columns), dtype=dtype)
        )
    return np.concatenate(pieces) if pieces else np.empty((0, n_columns), dtype)


def bytes_of(rows: Any) -> int:
    """Bytes of an array, or of the arrays of CSR rows."""
    if isinstance(rows, np.ndarray):
        return rows.nbytes
    return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)


def check_shape(n_rows: int, n_columns: int) -> None:
    """Refuse a table without rows or columns."""
    if n_rows < 1 or n_columns < 1:
        raise DataError(f"X has shape ({n_rows}, {n_columns}); it must have rows and columns")


def check_indices(indices: NDArray[np.int64], n_rows: int) -> None:
    """Refuse row numbers out of range."""
    if len(indices) and (np.min(indices) < 0 or np.max(indices) >= n_rows):
        raise IndexError(f"rows {np.min(indices)} to {np.max(indices)} of {n_rows}")


class Digest:
    """Hash of rows in order; it does not depend on the blocks they come in."""

    def __init__(self) -> None:
        self._parts = [xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()]

    def add(self, rows: Rows) -> None:
        """Take in the next rows."""
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

    def parts(self) -> list[str]:
        """Hashes of the arrays of the rows."""
        return [part.hexdigest() for part in self._parts]
