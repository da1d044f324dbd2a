"""The rows of a kernel matrix, each with its own number in front.

With it a kernel value of two rows is looked up in the first of them, in the column that the second
one's number names. It is the form of LIBSVM's text for ``-t 4``: ``0:number 1:K(i, 1) 2:K(i, 2)``…
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.wrappers import NumberedRows
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource

CHECKED_ROWS = 256
"""Random rows whose kernel values with one another are checked for symmetry."""
SYMMETRY = 1e-3
"""Largest share of the largest value by which K_ij and K_ji may differ: half precision and more."""
NUMBERS_AT_ONCE = 32 << 20
"""Bytes of rows that are read together for their numbers."""


def training_matrix(source: RowSource) -> RowSource:
    """Give the rows of a square kernel matrix their numbers, which LIBSVM's text for one has.

    The source is (n, n) with columns in the order that rows had in the input; or (m, n + 1),
    numbered in column 0, which was index 0 in LIBSVM's text. It must be dense and symmetric.
    """
    _refuse_sparse(source)
    if source.scaler is not None:
        raise DataError(
            "X is scaled; kernel values of a matrix must be as they are: take its source"
        )
    numbered: RowSource
    if source.first_index == 0 and source.n_columns > source.n_rows:
        numbered = source
    elif source.n_columns == source.n_rows:
        numbered = NumberedRows(source, source.original_rows() + 1)
    else:
        raise DataError(
            f"X has shape ({source.n_rows}, {source.n_columns}); a precomputed kernel needs the "
            "kernel values of all training rows with one another, a square matrix"
        )
    rows: Any = numbered.take(numbered.sample_indices(CHECKED_ROWS, seed=0))
    numbers = row_numbers(rows, np.arange(len(rows)))
    among: NDArray[np.float64] = rows[:, numbers].astype(np.float64)
    apart = np.abs(among - among.T)
    if apart.max() > SYMMETRY * np.abs(among).max():
        i, j = np.unravel_index(apart.argmax(), apart.shape)
        raise DataError(
            f"X is no kernel matrix: its value for the rows {numbers[i] - 1} and {numbers[j] - 1} "
            f"is {among[i, j]:g}, and the other way round {among[j, i]:g}; kernels are symmetric"
        )
    return numbered


def support_rows(source: RowSource, rows: NDArray[np.int64]) -> sp.csr_array:
    """All that is to be kept of `rows`, (m,), of a numbered source: their numbers; (m, columns)."""
    numbers = _numbers_of(source, rows)
    places = np.zeros(len(rows), np.int32)
    return sp.csr_array(
        (numbers.astype(source.dtype), places, np.arange(len(rows) + 1)),
        shape=(len(rows), source.n_columns),
    )


def prediction_matrix(source: RowSource, n_training: int) -> RowSource:
    """Bring kernel values of some rows with `n_training` training rows into the same form."""
    _refuse_sparse(source)
    if source.n_columns == n_training + 1:
        return source  # with a number in front, as LIBSVM's text has one
    if source.n_columns == n_training:
        return NumberedRows(source, None)
    raise DataError(
        f"the rows have {source.n_columns} columns, the model was trained on a kernel matrix of "
        f"{n_training}; give the kernel values of each row with all training rows"
    )


def _numbers_of(source: RowSource, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of `rows`; a bounded number of rows at a time."""
    step = max(1, int(NUMBERS_AT_ONCE / source.bytes_per_row))
    pieces = []
    for start in range(0, len(rows), step):
        part: Any = source.take(rows[start : start + step])
        pieces.append(row_numbers(part, np.arange(len(part))))
    return np.concatenate([np.empty(0, np.int64), *pieces])


def row_numbers(rows: Any, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers in column 0 of rows at `places`, (m,), each the index of one of their columns."""
    values = rows[places, 0] if isinstance(rows, np.ndarray) else rows[:, :1].toarray()[places, 0]
    numbers: NDArray[np.int64] = np.nan_to_num(values).astype(np.int64)
    wrong = np.flatnonzero((numbers != values) | (numbers < 1) | (numbers >= rows.shape[1]))
    if len(wrong):
        raise DataError(
            f"a row of the kernel matrix has the number {values[wrong[0]]:g}; it must be a whole "
            f"number from 1 to {rows.shape[1] - 1}, the columns there are"
        )
    return numbers


def _refuse_sparse(source: RowSource) -> None:
    if source.is_sparse:
        raise DataError(
            "X is sparse; a precomputed kernel needs dense rows (layout='dense' for a store)"
        )
