"""Rows of a Dask array, computed block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.blocked import BlockedRows, check_shape
from bigsvm.data.row_source import DASK_BLOCK_BYTES
from bigsvm.data.rows import float_type, is_sparse
from bigsvm.errors import DataError

if TYPE_CHECKING:
    import dask.array as da


class DaskRows(BlockedRows):
    """Rows of a dask array, computed block by block in the thread that reads them.

    Parameters
    ----------
    X : dask.array.Array, (n_rows, n_columns)
        Its blocks are numpy or scipy.sparse; two blocks must fit in memory. Unknown chunk sizes
        are computed; several chunks along the columns are merged.

    Attributes
    ----------
    bytes_per_row : float
        For sparse blocks, an estimate from some random blocks.

    Raises
    ------
    DataError
        If X is not two-dimensional, has no rows or no columns, or holds no real numbers.
    """

    def __init__(self, X: da.Array) -> None:
        if X.ndim != 2:
            raise DataError(f"X has {X.ndim} dimensions; it must have two: rows and columns")
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            # Imported here, as rows in memory do not need it.
            import dask

            with dask.config.set(scheduler="synchronous"):
                X = X.compute_chunk_sizes()
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        check_shape(*map(int, X.shape))
        self._blocks = X
        super().__init__(
            n_columns=int(X.shape[1]),
            dtype=float_type(X.dtype),
            edges=np.concatenate([[0], np.cumsum(X.chunks[0], dtype=np.int64)]),
            is_sparse=is_sparse(X._meta),
        )

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Return the array itself, with one chunk along the columns."""
        return self._blocks.astype(self.dtype)

    def _load(self, i: int) -> Any:
        try:
            block = self._blocks.blocks[i].compute(scheduler="synchronous")
        except OSError as error:
            raise DataError(f"block {i} of X cannot be read ({error}); check its source") from error
        expected = (int(self._edges[i + 1] - self._edges[i]), self.n_columns)
        if block.shape != expected:
            raise DataError(
                f"block {i} of X has shape {block.shape}, but its chunks say {expected}; call "
                "X.compute_chunk_sizes() first"
            )
        return block
