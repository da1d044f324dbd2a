"""Views: rows of another source that are chosen, or scaled as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.data.row_source import DASK_BLOCK_BYTES, DerivedRows
from bigsvm.data.rows import place_not_finite
from bigsvm.data.statistics import Statistics, statistics_of
from bigsvm.errors import DataError
from bigsvm.interruption import checked_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.duplicates import Indices
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.data.scaler import Scaler

_PASS_BYTES = 16 << 20
"""Bytes of blocks in the pass for statistics; a store has them without a pass."""
_FILLED_ROW_BYTES = 16 << 20
"""Most columns of sparse rows that scaling may fill: a sparse row may have 2**31 - 1 columns."""


class ScaledRows(DerivedRows):
    """Rows as `scaler` makes them, in their own type; sparse if they are and zeros stay zeros.

    The source is not scaled. A scaler that moves the zeros of sparse rows with very many columns to
    other values is refused.
    """

    def __init__(self, source: RowSource, scaler: Scaler) -> None:
        if scaler.n_columns != source.n_columns:
            raise DataError(
                f"the rows have {source.n_columns} columns, their scaler {scaler.n_columns}; give "
                f"the number of columns when converting (--features {scaler.n_columns})"
            )
        super().__init__(source)
        self._scaler = scaler
        self.is_sparse = source.is_sparse and not len(scaler.moved_columns())
        # 1 would say that the scaled rows are in memory, but only their source may be.
        self.row_alignment = max(2, source.row_alignment)
        if self.is_sparse != source.is_sparse:
            self._check_filled()
            # Sparse rows that are cheapest to read together may be far too many dense ones.
            self.bytes_per_row, self.row_alignment = float(self.n_columns * self.dtype.itemsize), 2
        self._statistics: Statistics | None = None

    def _check_filled(self) -> None:
        """Refuse sparse rows that would be far larger when they are dense."""
        if self.n_columns * self.dtype.itemsize > _FILLED_ROW_BYTES:
            column = int(self._scaler.moved_columns()[0])
            raise DataError(
                f"the rows are sparse and have {self.n_columns} columns, but {self._scaler.method} "
                f"turns the zeros of column {column} (from 0) into other values, which would fill "
                "them; scale by maxabs, which keeps zeros"
            )

    @property
    def scaler(self) -> Scaler:
        """What the rows are scaled by."""
        return self._scaler

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur in the source; None if all columns are kept."""
        return self._source.occurring_columns() if self.is_sparse else None

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; a scaled value that is too large for their type is refused."""
        return _scale(self._source.read(start, stop), self._scaler, range(start, stop))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return _scale(self._source.take(indices), self._scaler, indices)

    def portable(self) -> RowSource | None:
        """Return scaled rows of the source, if another process can read it."""
        source = self._source.portable()
        return None if source is None else ScaledRows(source, self._scaler)

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column; a pass over the rows, the first time."""
        return self._survey().mean

    def total_variance(self) -> float:
        """Variance of all entries; a pass over the rows, the first time."""
        return self._survey().total_variance()

    def fingerprint(self) -> str:
        """Hash of the source's and of the scaler."""
        hasher = xxhash.xxh3_128(self._source.fingerprint().encode())
        hasher.update(self._scaler.offset.tobytes() + self._scaler.factor.tobytes())
        if self._scaler.columns is not None:
            hasher.update(self._scaler.columns.tobytes())
        return hasher.hexdigest()

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Rows as a Dask array, scaled where its blocks are computed."""
        rows = self._source.as_dask(block_bytes=block_bytes)
        meta: Any = np.empty((0, self.n_columns), self.dtype)
        if self.is_sparse:
            meta = sp.csr_array(meta)
        elif self._source.is_sparse:
            step = self.rows_per_block(2 * block_bytes)
            sizes = [min(step, n - start) for n in rows.chunks[0] for start in range(0, n, step)]
            rows = rows.rechunk((tuple(sizes), rows.chunks[1]))
        return rows.map_blocks(_scale_block, scaler=self._scaler, dtype=self.dtype, meta=meta)

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        # A block that becomes dense is bounded by its rows.
        return self._source._end_of_block(start, stop, max_bytes) if self.is_sparse else stop

    def _survey(self) -> Statistics:
        if self._statistics is None:
            statistics = statistics_of(self.n_columns, sparse=self.is_sparse, dtype=self.dtype)
            for block in checked_between(self.blocks(_PASS_BYTES)):
                statistics.add(block.values)
            self._statistics = statistics.result()
        return self._statistics


def _scale(rows: Rows, scaler: Scaler, numbers: Sequence[int] | NDArray[np.int64]) -> Rows:
    """Scale rows that have these numbers; a scaled value that is not finite is an error."""
    scaled = scaler.apply(rows)
    place = place_not_finite(scaled)
    if place is not None:
        row, column = place
        values: Any = rows
        raise DataError(
            f"X has {values[row, column]} in row {numbers[row]}, column {column} (from 0), which "
            f"has no finite {rows.dtype} when scaled; correct it, or give the rows as float64"
        )
    return scaled


def _scale_block(rows: Rows, scaler: Scaler, block_info: dict[Any, Any]) -> Rows:
    """Scale one block of a Dask array."""
    start, stop = block_info[0]["array-location"][0]
    return _scale(rows, scaler, range(start, stop))


def in_scale_of(source: RowSource, scaler: Scaler | None) -> RowSource:
    """Rows in the scale of a model that was trained on rows scaled by `scaler`, or not scaled.

    They are `source` itself if it has that scale. Rows that are scaled in another way are refused.
    """
    if source.scaler is None:
        return source if scaler is None else ScaledRows(source, scaler)
    if scaler is None:
        raise DataError(
            f"the rows are those of a scaled store ({source.scaler.method}), but the model was "
            "trained on rows that were not scaled; give it the store from which they were scaled"
        )
    if source.scaler != scaler:
        raise DataError(
            f"the rows were scaled with other parameters ({source.scaler.method}) than those the "
            f"model was trained on ({scaler.method}); give it the store from which they were "
            "scaled, or scale that with --like and the model"
        )
    return source


class ChosenRows(DerivedRows):
    """Rows `chosen` of a source, where taking them is cheap.

    The source has `row_alignment` 1, or `chosen` ascends. `chosen` are distinct rows, in the order
    they get here; `in_random_order` says whether that order is random, whatever the order of the
    source.
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
