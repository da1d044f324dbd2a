"""ChosenRows: some rows of another source, in any order, as a source of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from bigsvm.data.rows import DASK_BLOCK_BYTES, RowSource

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.duplicates import Indices
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.data.scaler import Scaler


class ChosenRows(RowSource):
    """Rows `chosen` of a source, where taking them is cheap.

    Parameters
    ----------
    source : RowSource
        With `row_alignment` 1; or with any, where `chosen` ascends.
    chosen : (n_rows,) integers
        Distinct rows, in the order they get here.
    in_random_order : bool
        Whether that order is random; the order of the source does not matter.
    """

    def __init__(
        self, source: RowSource, chosen: Indices, *, in_random_order: bool = False
    ) -> None:
        self._source, self._chosen = source, chosen
        self.n_rows, self.n_columns = len(chosen), source.n_columns
        self.dtype = source.dtype
        self.is_sparse = source.is_sparse
        self.is_shuffled = source.is_shuffled or in_random_order
        self.bytes_per_row = source.bytes_per_row
        self.row_alignment = source.row_alignment
        self.first_index = source.first_index
        self.feature_names = source.feature_names
        self.share_drawn = source.share_drawn

    @property
    def scaler(self) -> Scaler | None:
        """What the rows of the source have been scaled by."""
        return self._source.scaler

    @property
    def n_features(self) -> int:
        """Number of columns of the data, including those that never occur and were left out."""
        return self._source.n_features

    @property
    def kept_bytes(self) -> int:
        """Bytes that the source keeps in memory for its own work."""
        return self._source.kept_bytes

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur in the source; None if all columns are kept."""
        return self._source.occurring_columns()

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
        return self._source.take(self._chosen[start:stop].astype(np.int64))

    def take(self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None) -> Rows:
        """Rows at `indices`."""
        return self._source.take(self._places(indices), look=look)

    def lend(
        self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None
    ) -> RowsAt:
        """Rows at `indices`, where they are."""
        return self._source.lend(self._places(indices), look=look)

    def _places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(indices) and (np.min(indices) < 0 or np.max(indices) >= self.n_rows):
            raise IndexError(f"rows {np.min(indices)} to {np.max(indices)} of {self.n_rows}")
        return self._chosen[indices].astype(np.int64)

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column, of all rows of the source."""
        return self._source.column_means()

    def total_variance(self) -> float:
        """Variance of all entries of the source."""
        return self._source.total_variance()

    def fingerprint(self) -> str:
        """Hash of the source's and of the choice."""
        chosen = xxhash.xxh3_128_hexdigest(self._chosen.data)
        return xxhash.xxh3_128_hexdigest(f"{self._source.fingerprint()} {chosen}".encode())

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()[self._chosen]

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Rows as a Dask array."""
        return self._source.as_dask(block_bytes=block_bytes)[self._chosen]

    @property
    def bytes_read(self) -> int:
        """Bytes of rows delivered from outside this process's memory."""
        return self._source.bytes_read
