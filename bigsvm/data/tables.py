"""Tables: containers of other libraries, on disk or in memory, read one slice of rows at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.blocked import BlockedRows
from bigsvm.data.rows import check_shape, float_type, make_csr
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DECODED_AT_ONCE = 8 << 20
"""Most bytes of chunks decoded together if slices and chunks have different edges."""


class Table(ABC):
    """A matrix whose rows are read by number.

    Attributes
    ----------
    dtype : numpy.dtype
        Type that rows are converted to, float32 or float64.
    is_sparse : bool
        Whether slices are CSR.
    bytes_per_row : float
        Mean bytes of a row as `dtype`.
    rows_together : int
        Rows of a chunk: reading one of them costs as much as reading all.
    chunk_bytes : int
        Decoded bytes of the largest chunk; 0 without chunks.
    chunk_shape : tuple of int or None
        Shape of a chunk, for messages.
    """

    n_rows: int
    n_columns: int
    dtype: np.dtype[Any]
    is_sparse: bool = False
    bytes_per_row: float
    feature_names: tuple[str, ...] | None = None
    rows_together: int = 1
    chunk_bytes: int = 0
    chunk_shape: tuple[int, ...] | None = None

    @abstractmethod
    def rows(self, start: int, stop: int) -> Any:
        """Rows ``start … stop - 1``, (m, n_columns), an array or a scipy.sparse matrix."""

    def edges(self, step: int) -> NDArray[np.int64]:
        """First rows of blocks of at most `step` rows, then the number of rows."""
        return np.append(np.arange(0, self.n_rows, step, dtype=np.int64), self.n_rows)


class ArrayTable(Table):
    """A dense array of NumPy, h5py or Zarr; `chunks` is the shape of its chunks, if it has any."""

    def __init__(self, array: Any, chunks: tuple[int, ...] | None = None) -> None:
        if array.ndim != 2:
            raise DataError(f"X has {array.ndim} dimensions; it must have two: rows and columns")
        self.n_rows, self.n_columns = map(int, array.shape)
        check_shape(self.n_rows, self.n_columns)
        self.dtype = float_type(array.dtype)
        self.bytes_per_row = float(self.n_columns * self.dtype.itemsize)
        self._array = array
        if chunks is not None:
            self.chunk_shape = tuple(map(int, chunks))
            self.rows_together = min(self.chunk_shape[0], self.n_rows)
            self.chunk_bytes = prod(self.chunk_shape) * array.dtype.itemsize

    def rows(self, start: int, stop: int) -> Any:
        """Rows ``start … stop - 1``; a bounded number of narrow chunks is decoded together."""
        if self.chunk_shape is None or stop - start >= self.rows_together:
            return self._array[start:stop]
        width = self.chunk_shape[1] * max(1, _DECODED_AT_ONCE // max(2 * self.chunk_bytes, 1))
        out = np.empty((stop - start, self.n_columns), self.dtype)
        for first in range(0, self.n_columns, width):
            out[:, first : first + width] = self._array[start:stop, first : first + width]
        return out


class CsrTable(Table):
    """CSR in arrays of NumPy, h5py or Zarr, of any type of number.

    `indptr` is kept in memory, 8 bytes a row; messages call the matrix `where`. Arrays that do not
    belong together are refused.
    """

    is_sparse = True

    def __init__(
        self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int], where: str
    ) -> None:
        self.n_rows, self.n_columns = map(int, shape)
        check_shape(self.n_rows, self.n_columns)
        self._data, self._indices, self._where = data, indices, where
        if data.ndim != 1 or indices.shape != data.shape:
            raise DataError(
                f"{where}: its data have shape {data.shape} and its indices {indices.shape}, not "
                "one value for each entry; write it again"
            )
        if indices.dtype.kind not in "ui" or indptr.dtype.kind not in "ui":
            raise DataError(
                f"{where}: its indices have type {indices.dtype} and its indptr {indptr.dtype}; "
                "both must be whole numbers: write it again"
            )
        n_entries = int(data.shape[0])
        wrong = f"{where}: its indptr is none of {self.n_rows} rows; write it again"
        if indptr.shape != (self.n_rows + 1,):  # before it is read: it could take any memory
            raise DataError(wrong)
        self._indptr = np.asarray(indptr[...]).astype(np.int64, copy=False)
        if self._indptr[[0, -1]].tolist() != [0, n_entries] or (np.diff(self._indptr) < 0).any():
            raise DataError(wrong)
        self._index_type = np.int32 if self.n_columns <= np.iinfo(np.int32).max else np.int64
        self.dtype = float_type(data.dtype)
        self._entry_bytes = self.dtype.itemsize + np.dtype(self._index_type).itemsize
        per_row = n_entries / self.n_rows
        self.bytes_per_row = per_row * self._entry_bytes + 8
        chunks = [int((getattr(a, "chunks", None) or (1,))[0]) for a in (data, indices)]
        if max(chunks) > 1:
            self.chunk_shape = (max(chunks),)
            self.chunk_bytes = sum(
                n * a.dtype.itemsize for n, a in zip(chunks, (data, indices), strict=True)
            )
            self.rows_together = max(1, min(int(max(chunks) / max(per_row, 1e-9)), self.n_rows))

    def rows(self, start: int, stop: int) -> Any:
        """Rows ``start … stop - 1``; refuses column indices out of range."""
        indptr = self._indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        indices = np.asarray(self._indices[first:last])
        if len(indices) and not (0 <= indices.min() and indices.max() < self.n_columns):
            raise DataError(
                f"{self._where}: an index of the rows {start} to {stop - 1} is none of its "
                f"{self.n_columns} columns; write it again"
            )
        data = np.asarray(self._data[first:last])
        indices = indices.astype(self._index_type, copy=False)
        return make_csr(data, indices, indptr - first, self.n_columns)

    def edges(self, step: int) -> NDArray[np.int64]:
        """First rows of blocks, none of more than `step` rows or a quarter more bytes."""
        limit = 1.25 * step * self.bytes_per_row
        entries = max(int((limit - 8 * step) / self._entry_bytes), 0)
        edges, start = [0], 0
        while start < self.n_rows:
            most = int(self._indptr[start]) + entries
            end = int(np.searchsorted(self._indptr, most, side="right")) - 1
            start = min(start + step, max(end, start + 1), self.n_rows)
            edges.append(start)
        return np.array(edges, np.int64)


class TableRows(BlockedRows):
    """Rows of a table, a slice of `step` rows at a time."""

    def __init__(self, table: Table, step: int) -> None:
        self._table = table
        super().__init__(
            n_columns=table.n_columns,
            dtype=table.dtype,
            edges=table.edges(step),
            is_sparse=table.is_sparse,
            bytes_per_row=table.bytes_per_row,
        )
        self.feature_names = table.feature_names

    def _load(self, i: int) -> Any:
        start, stop = int(self._edges[i]), int(self._edges[i + 1])
        try:
            return self._table.rows(start, stop)
        except (DataError, MemoryError):
            raise
        except Exception as error:  # each codec of Zarr has errors of its own
            raise DataError(
                f"rows {start} to {stop - 1} of X cannot be read ({error}); check its source"
            ) from error
