"""HeldRows: all rows of a source that is small for the memory there is, read once and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.budget import HELD_SHARE
from bigsvm.data.rows import DASK_BLOCK_BYTES, RowSource
from bigsvm.data.sources import ArrayRows

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.data.scaler import Scaler


class HeldRows(RowSource):
    """Rows in memory; what is known of them as a whole is asked of where they came from.

    Parameters
    ----------
    source : RowSource
    rows : (n_rows, n_columns)
        All that it has.
    """

    def __init__(self, source: RowSource, rows: Rows) -> None:
        self._source = source
        self._rows = ArrayRows(rows)
        self.n_rows, self.n_columns = source.n_rows, source.n_columns
        self.dtype = source.dtype
        self.is_sparse = source.is_sparse
        self.is_shuffled = source.is_shuffled
        self.bytes_per_row = source.bytes_per_row
        self.row_alignment = 1
        self.first_index = source.first_index
        self.feature_names = source.feature_names

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
        """Rows ``start … stop - 1``; a view, if they are dense."""
        return self._rows.read(start, stop)

    def take(self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None) -> Rows:
        """Rows at `indices`."""
        return self._rows.take(indices, look=look)

    def lend(
        self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None
    ) -> RowsAt:
        """Rows at `indices`, where they are."""
        return self._rows.lend(indices, look=look)

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose the same random rows as the source that is not held in memory."""
        return self._source.sample_indices(count, seed=seed, candidates=candidates)

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column."""
        return self._source.column_means()

    def total_variance(self) -> float:
        """Variance of all entries."""
        return self._source.total_variance()

    def fingerprint(self) -> str:
        """Hash of the content."""
        return self._source.fingerprint()

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Rows as a Dask array, of where they came from."""
        return self._source.as_dask(block_bytes=block_bytes)

    @property
    def bytes_read(self) -> int:
        """Bytes of rows delivered from outside this process's memory, once."""
        return self._source.bytes_read


def hold(source: RowSource, memory: int) -> RowSource:
    """Keep the rows of a source that costs reading, where they take a small share of `memory`."""
    size = source.n_rows * source.bytes_per_row
    if source.row_alignment <= 1 or size > HELD_SHARE * memory:
        return source
    return HeldRows(source, source.read(0, source.n_rows))
