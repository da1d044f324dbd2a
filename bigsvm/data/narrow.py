"""Sparse rows of very many columns, renumbered by the columns that occur: how they are numbered.

Memory per column, such as scratch memory of products and weights of a linear function, then grows
with the columns that occur, not with all columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.rows import make_csr
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Numbering:
    """New column numbers: the place of each column in a list.

    `columns`, (m,), ascend; `n_columns` counts all columns, listed or not. If `spread`, rows may
    have columns that are not listed. The listed column at place p becomes ``2 p + 1``; all columns
    between places p - 1 and p become ``2 p``. The order of columns stays, and entries in columns
    that are not listed still count for the length of a row. Without it, a column that is not listed
    is an error.
    """

    def __init__(
        self, columns: NDArray[np.integer[Any]], n_columns: int, *, spread: bool = False
    ) -> None:
        self.columns, self._n_columns, self._spread = columns, n_columns, spread
        per_column = n_columns // max(len(columns), 1)
        # One bucket per column or so keeps the search within a bucket short.
        self._shift = max(0, per_column.bit_length() - 1)
        edges = np.arange(((n_columns - 1) >> self._shift) + 2, dtype=np.int64) << self._shift
        self._starts = np.searchsorted(columns, edges).astype(np.int32)

    @property
    def n_columns(self) -> int:
        """Number of columns after renumbering."""
        return 2 * len(self.columns) + 1 if self._spread else max(len(self.columns), 1)

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes."""
        return self.columns.nbytes + self._starts.nbytes

    def apply(self, rows: Any) -> sp.csr_array:
        """CSR rows with new numbers; values and row pointers are shared, not copied."""
        # Imported here, as it takes Numba, which looking at a model does without.
        from bigsvm.core import wide

        places = np.empty(len(rows.indices), np.int32)
        wrong = wide.find_columns(
            rows.indices, self.columns, self._starts, self._shift, places, int(self._spread)
        )
        if wrong >= 0:
            row = int(np.searchsorted(rows.indptr, wrong, side="right")) - 1
            raise DataError(
                f"row {row} of a block has column {rows.indices[wrong]} (from 0), which is not "
                f"one of the {len(self.columns)} that were found to occur; the data are damaged, "
                "or have changed: convert or load them again"
            )
        return make_csr(rows.data, places, rows.indptr, self.n_columns)

    def undo(self, rows: Any) -> sp.csr_array:
        """CSR rows with the original column numbers; not for `spread`."""
        indices = self.columns[rows.indices] if len(self.columns) else rows.indices
        return sp.csr_array(
            (rows.data, indices, rows.indptr), shape=(rows.shape[0], self._n_columns)
        )
