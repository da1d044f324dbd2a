"""ChosenRows: some rows of another source, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xxhash

from bigsvm.data.row_source import DASK_BLOCK_BYTES, DerivedRows

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.duplicates import Indices
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows, RowsAt


class ChosenRows(DerivedRows):
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
        super().__init__(source)
        self._chosen = chosen
        self.n_rows = len(chosen)
        self.is_shuffled = source.is_shuffled or in_random_order

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
        return self._source.take(self._chosen[start:stop].astype(np.int64))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return self._source.take(self._places(indices))

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are."""
        return self._source.lend(self._places(indices))

    def _places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(indices) and (np.min(indices) < 0 or np.max(indices) >= self.n_rows):
            raise IndexError(f"rows {np.min(indices)} to {np.max(indices)} of {self.n_rows}")
        return self._chosen[indices].astype(np.int64)

    def portable(self) -> RowSource | None:
        """Return the choice among the rows of the source, if another process can read it.

        None where `chosen` does not ascend: a block of such rows is in all chunks of a store.
        """
        source, chosen = self._source.portable(), self._chosen
        if source is None or not bool((chosen[1:] > chosen[:-1]).all()):
            return None
        return ChosenRows(source, chosen)

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
