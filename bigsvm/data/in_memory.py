"""Rows in memory: an array or a scipy.sparse matrix, or all rows of another source.

Also what is checked of containers in memory, of which some have to be copied, and of the labels and
weights beside them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.budget import HELD_SHARE, show_bytes
from bigsvm.data.dask_rows import client_of
from bigsvm.data.frames import (
    check_numbers,
    frame_type,
    is_frame,
    is_pandas,
    sparse_columns,
)
from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import (
    Digest,
    RowsAt,
    as_csr,
    check_finite,
    check_indices,
    check_shape,
    float_type,
    is_sparse,
    make_csr,
    refuse_masked,
)
from bigsvm.data.statistics import Statistics, statistics_of
from bigsvm.errors import DataError, MemoryBudgetError
from bigsvm.interruption import check_interrupt, checked_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

_PASS_BYTES = 4 << 20
"""Rows looked at together in a pass over an array in memory: they fit the last-level cache."""
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class ArrayRows(RowSource):
    """Rows of an array or a scipy.sparse matrix in memory; neither is copied if it need not be.

    float32 and float64 are kept, smaller types become float32, others float64. A read-only memory
    map is fine.
    """

    scaler = None
    bytes_read = 0

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
        self.n_features = self.n_columns
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
        self._fingerprint: str | None = None

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``, whose values are a view."""
        self._check_span(start, stop)
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

    def fingerprint(self) -> str:
        """Hash of the bytes."""
        if self._fingerprint is None:
            digest = Digest()
            for start in checked_between(range(0, self.n_rows, self._step())):
                digest.add(self.read(start, min(start + self._step(), self.n_rows)))
            self._fingerprint = self._hash_of_parts(digest.parts())
        return self._fingerprint

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


# -- containers in memory, and values beside them ----------------------------------------------


class OneArray(NamedTuple):
    """How a container in memory becomes one array.

    `types` are those that its values are kept in; others become the first: float32 if it holds
    them. `copied_bytes` are those of a copy, 0 if it is used as it is.
    """

    types: list[type[np.floating[Any]]]
    copied_bytes: int


def as_one_array(X: Any, memory: int) -> OneArray | None:
    """Say how X becomes one array; None if its copy is too large and it is read in blocks.

    X that is not numeric or is masked is refused, and so is one whose copy is too large but which
    cannot be read in blocks.
    """
    copied = copied_bytes(X)
    if copied > HELD_SHARE * memory and can_be_sliced(X):
        return None
    refuse_masked(X, "X")
    if not isinstance(X, np.ndarray):
        refuse_without_rows(X)
        check_numbers(X)
    check_copy(X, memory)
    dtype = getattr(X, "dtype", None)
    if dtype is None and is_frame(X):
        dtype = frame_type(X)
    types: list[type[np.floating[Any]]] = [np.float64, np.float32]
    if isinstance(dtype, np.dtype) and np.can_cast(dtype, np.float32):
        types.reverse()
    return OneArray(types, copied)


def refuse_without_rows(X: Any) -> None:
    """Refuse what has no rows that can be read by their numbers."""
    if hasattr(X, "__next__"):
        raise DataError(
            f"X is an iterator ({type(X).__name__}), which gives its rows only once; give an array "
            "of them, or a function that returns an iterator of batches each time it is called"
        )
    if hasattr(X, "__dask_graph__"):
        raise DataError(
            f"X is a {type(X).__name__} of Dask, which is no table; give an array or a data frame "
            "of Dask, as its to_dataframe makes of a bag"
        )


def is_copied_in_blocks(X: Any, memory: int) -> bool:
    """Whether a container in memory is read in blocks, as its copy takes too much of `memory`."""
    return can_be_sliced(X) and copied_bytes(X) > HELD_SHARE * memory


def can_be_sliced(X: Any) -> bool:
    """Whether a container in memory can be converted a slice of rows at a time."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 and X.dtype.kind in "buif"
    if is_sparse(X):
        return bool(X.format == "csr" and X.dtype.kind in "buif")
    return not sparse_columns(X) if is_pandas(X) else is_frame(X)


def copied_bytes(X: Any) -> int:
    """Bytes of the copy that is made of a container in memory; 0 if it is used as it is."""
    if isinstance(X, np.ndarray):
        as_it_is = X.dtype.kind not in "buif" or (X.dtype in _FLOATS and X.flags.c_contiguous)
        return 0 if as_it_is else X.size * float_type(X.dtype).itemsize
    if is_sparse(X):
        if X.format == "csr" and X.dtype in _FLOATS and X.has_canonical_format:
            return 0
        return int(X.nnz * 12 + 8 * X.shape[0])
    if is_pandas(X):
        return _copied_of_pandas(X)
    if is_frame(X):
        return int(X.shape[0] * X.shape[1] * 8)
    if isinstance(X, list | tuple) and X and hasattr(X[0], "__len__"):
        return 8 * len(X) * len(X[0])
    return 0


def check_copy(X: Any, memory: int | None) -> None:
    """Refuse a container in memory whose copy in another form takes over half of the budget.

    The message names a form that needs no copy.
    """
    copied = 0 if memory is None else copied_bytes(X)
    if memory is None or copied <= memory // 2 or can_be_sliced(X):
        return
    if is_sparse(X):
        what, way = f"a {X.format.upper()} matrix", "X.tocsr()"
        if X.format == "csr":
            what, way = "CSR, but not in order", "it after X.sum_duplicates()"
    elif is_pandas(X):
        what, way = "a frame of sparse columns", "X.sparse.to_coo().tocsr()"
    else:
        what, way = f"a {type(X).__name__}", "numpy.asarray(X, dtype=float)"
    raise MemoryBudgetError(
        f"X is {what}, of which a copy would take {show_bytes(copied)} of memory={memory}; give "
        f"{way}"
    )


def _copied_of_pandas(X: Any) -> int:
    n_rows, n_columns = map(int, X.shape)
    kinds = set(X.dtypes)
    if kinds and sparse_columns(X):
        return int(sum(X.iloc[:, i].sparse.npoints for i in range(n_columns)) * 28)
    if len(kinds) == 1 and next(iter(kinds)) in _FLOATS and n_rows > 1:
        # Views of one block of memory share it; two copies would not.
        some, again = X.iloc[:2].to_numpy(), X.iloc[:2].to_numpy()
        if np.shares_memory(some, again) and some.flags.c_contiguous:
            return 0
    return n_rows * n_columns * 8


def labels_in_memory(y: Any, sample_weight: Any, client: Any = None) -> tuple[Any, Any]:
    """Labels and weights as arrays of NumPy; see `in_memory`."""
    return in_memory(y, "y", client), in_memory(sample_weight, "sample_weight", client)


def in_memory(values: Any, name: str, client: Any = None) -> Any:
    """Give labels or weights of Dask, or of another library of arrays, as an array of NumPy.

    Messages call them `name`. The client is as for `client_of`; without one, Dask's current
    scheduler computes. Values under a mask are refused.
    """
    # Values are not of Dask where it has not been imported; importing it takes 4 MB.
    dask = sys.modules.get("dask")
    if dask is not None and dask.is_dask_collection(values):
        values = values.compute(scheduler=client_of(values, client))
    if not isinstance(values, np.ndarray) and hasattr(values, "__array_namespace__"):
        try:
            array = np.asarray(values)
            values = array if array.ndim else np.from_dlpack(values)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise DataError(
                f"{name} is a {type(values).__name__} that NumPy cannot read ({error}); give it as "
                "an array of NumPy"
            ) from None
    refuse_masked(values, name)
    return values
