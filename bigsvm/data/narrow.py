"""NarrowRows: sparse rows of very many columns, renumbered by the columns that occur.

Memory per column, such as scratch memory of products and weights of a linear function, then grows
with the columns that occur, not with all columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.core import wide
from bigsvm.data.in_memory import HeldRows
from bigsvm.data.row_source import DerivedRows
from bigsvm.data.rows import make_csr
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.remote_blocks import RemoteBlocks
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows


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


class NarrowRows(DerivedRows):
    """Sparse rows with new numbers for their columns.

    `copied_bytes` counts the copied column numbers that are kept.
    """

    def __init__(self, source: RowSource, numbering: Numbering, *, copied_bytes: int = 0) -> None:
        super().__init__(source)
        self._numbering, self._copied_bytes = numbering, copied_bytes
        self.n_columns = numbering.n_columns
        # 1 would say that these rows are in memory, but only their source may be.
        self.row_alignment = max(2, source.row_alignment)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the numbering, and of column numbers that were copied."""
        of_source = self._source.kept_bytes + self._source.copied_bytes
        return of_source + self._numbering.nbytes + self._copied_bytes

    def occurring_columns(self) -> None:
        """Return None: all columns are kept."""

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        return self._numbering.apply(self._source.read(start, stop))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return self._numbering.apply(self._source.take(indices))

    def portable(self) -> RowSource | None:
        """Return renumbered rows of the source, if another process can read it."""
        source = self._source.portable()
        return None if source is None else NarrowRows(source, self._numbering)

    def remote_blocks(self) -> RemoteBlocks | None:
        """Renumbered rows of the source's blocks on workers."""
        blocks = self._source.remote_blocks()
        return None if blocks is None else blocks.followed_by(self._numbering.apply)

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        return self._source._end_of_block(start, stop, max_bytes)


def narrowed(source: RowSource) -> tuple[RowSource, Numbering | None]:
    """Rows to train on: `source` itself, or its rows renumbered by the columns that occur.

    Rows in memory are renumbered once, which copies their column numbers but not their values. The
    numbering is None if the columns were not renumbered.
    """
    columns = source.occurring_columns()
    if columns is None:
        return source, None
    numbering = Numbering(columns, source.n_columns)
    if source.row_alignment > 1:
        return NarrowRows(source, numbering), numbering
    rows = numbering.apply(source.read(0, source.n_rows))
    narrow = NarrowRows(source, numbering, copied_bytes=rows.indices.nbytes)
    return HeldRows(narrow, rows), numbering
