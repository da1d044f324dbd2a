"""Rows for a kernel that is not defined for negative values: looked at before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.row_source import PREDICTION_BLOCKS
from bigsvm.data.rows import is_sparse
from bigsvm.errors import DataError
from bigsvm.interruption import checked_between

if TYPE_CHECKING:
    from bigsvm.data.row_source import RowSource


def refuse_negative(source: RowSource, kernel: str) -> None:
    """Raise a DataError that names row and column of the first value below 0, if there is one.

    The row is that of the input, the column is counted from 0. It takes one pass over the rows.
    """
    for first, block in checked_between(source.blocks(PREDICTION_BLOCKS)):
        rows: Any = block
        values = rows.data if is_sparse(rows) else rows
        if not values.min(initial=0) < 0:
            continue
        place = np.argwhere(values < 0)[0]
        if is_sparse(rows):
            entry = int(place[0])
            row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
            column, value = int(rows.indices[entry]), values[entry]
        else:
            row, column = map(int, place)
            value = values[row, column]
        number = int(source.original_rows()[first + row])
        raise DataError(
            f"X has {value:.6g} in row {number}, column {column} (from 0), and the kernel {kernel} "
            "is for rows without negative values; take another kernel, or other features"
        )
