"""Wrappers: sources whose rows are those of another source, changed, chosen, or held in memory.

Training wraps the rows of a container in this order, and a model wraps rows to predict in the same
way:

================  ============================================================================
`ScaledRows`      each column scaled, as the rows that the model was trained on were
`NumberedRows`    the rows of a kernel matrix, each with its number in front
`NarrowRows`      sparse rows of very many columns, renumbered by the columns that occur
`DrawnRows`       random rows that stand for all, for training without a certificate
`HeldRows`        all rows in memory, where they take a small share of it
`FetchedRows`     the same where workers have the rows (`bigsvm.data.fetched`)
`ChosenRows`      some rows: those of two classes, of a fold, or in another order
`PartRows`        rows of a store that a split of scikit-learn has chosen
================  ============================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.narrow import Numbering
from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import check_indices, place_not_finite
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RemoteBlocks
    from bigsvm.data.rows import Indices, Rows, RowsAt
    from bigsvm.data.scaler import Scaler

_FILLED_ROW_BYTES = 16 << 20
"""Most columns of sparse rows that scaling may fill: a sparse row may have 2**31 - 1 columns."""


class DerivedRows(RowSource):
    """Rows made from those of another source; what a subclass does not define is the source's."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.n_rows, self.n_columns = source.n_rows, source.n_columns
        self.dtype, self.is_sparse = source.dtype, source.is_sparse
        self.is_shuffled = source.is_shuffled
        self.bytes_per_row, self.row_alignment = source.bytes_per_row, source.row_alignment
        self.first_index, self.feature_names = source.first_index, source.feature_names
        self.encoding = source.encoding
        self.share_drawn, self.is_fetched = source.share_drawn, source.is_fetched
        self.n_features, self.kept_bytes = source.n_features, source.kept_bytes

    def __str__(self) -> str:
        return str(self._source)

    @property
    def scaler(self) -> Scaler | None:
        """What the rows of the source have been scaled by."""
        return self._source.scaler

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur in the source; None if all columns are kept."""
        return self._source.occurring_columns()

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column of the source."""
        return self._source.column_means()

    def total_variance(self) -> float:
        """Variance of all entries of the source."""
        return self._source.total_variance()

    def fingerprint(self) -> str:
        """Hash of the content of the source."""
        return self._source.fingerprint()

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()

    @property
    def bytes_read(self) -> int:
        """Bytes of rows delivered so far from outside this process's memory."""
        return self._source.bytes_read

    def _placed_at(self, chosen: Indices) -> tuple[RowSource, Indices]:
        """Do what `placed` does for some rows of the source."""
        source, places = self._source.placed()
        return source, chosen if places is None else places[chosen]

    def _hash_with(self, array: NDArray[Any]) -> str:
        """Hash of the source's fingerprint and of an array."""
        digest = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).data)
        return xxhash.xxh3_128_hexdigest(f"{self._source.fingerprint()} {digest}".encode())


class MappedRows(DerivedRows):
    """Rows of another source, each of which is changed by itself when it is read."""

    def __init__(self, source: RowSource) -> None:
        super().__init__(source)
        # 1 would say that the changed rows are in memory, but only their source may be.
        self.row_alignment = max(2, source.row_alignment)

    @abstractmethod
    def _map(self, rows: Any, numbers: NDArray[np.int64]) -> Rows:
        """Change rows that have these numbers in the source."""

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        return self._map(self._source.read(start, stop), np.arange(start, stop))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return self._map(self._source.take(indices), indices)

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        return self._source._end_of_block(start, stop, max_bytes)


class ScaledRows(MappedRows):
    """Rows as `scaler` makes them, in their own type; sparse if they are and zeros stay zeros.

    The source is not scaled. A scaler that moves the zeros of sparse rows with very many columns to
    other values is refused, and so is a scaled value that is too large for the type.
    """

    def __init__(self, source: RowSource, scaler: Scaler) -> None:
        if scaler.n_columns != source.n_columns:
            raise DataError(
                f"the rows have {source.n_columns} columns, their scaler {scaler.n_columns}; give "
                f"the number of columns when converting (--features {scaler.n_columns})"
            )
        super().__init__(source)
        self._scaler = scaler
        moved = scaler.moved_columns() if source.is_sparse else np.empty(0, np.int64)
        if not len(moved):
            return
        if self.n_columns * self.dtype.itemsize > _FILLED_ROW_BYTES:
            raise DataError(
                f"the rows are sparse and have {self.n_columns} columns, but {scaler.method} "
                f"turns the zeros of column {moved[0]} (from 0) into other values, which would "
                "fill them; scale by maxabs, which keeps zeros"
            )
        # Sparse rows that are cheapest to read together may be far too many dense ones.
        self.is_sparse, self.row_alignment = False, 2
        self.bytes_per_row = float(self.n_columns * self.dtype.itemsize)

    @property
    def scaler(self) -> Scaler:
        """What the rows are scaled by."""
        return self._scaler

    # A pass over the scaled rows, the first time.
    column_means, total_variance = RowSource.column_means, RowSource.total_variance

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur in the source; None if all columns are kept."""
        return self._source.occurring_columns() if self.is_sparse else None

    def portable(self) -> RowSource | None:
        """Return scaled rows of the source, if another process can read it."""
        source = self._source.portable()
        return None if source is None else ScaledRows(source, self._scaler)

    def fingerprint(self) -> str:
        """Hash of the source's and of the scaler."""
        hasher = xxhash.xxh3_128(self._source.fingerprint().encode())
        hasher.update(self._scaler.offset.tobytes() + self._scaler.factor.tobytes())
        if self._scaler.columns is not None:
            hasher.update(self._scaler.columns.tobytes())
        return hasher.hexdigest()

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        # A block that becomes dense is bounded by its rows.
        return super()._end_of_block(start, stop, max_bytes) if self.is_sparse else stop

    def _map(self, rows: Any, numbers: NDArray[np.int64]) -> Rows:
        scaled = self._scaler.apply(rows)
        place = place_not_finite(scaled)
        if place is not None:
            row, column = place
            raise DataError(
                f"X has {rows[row, column]} in row {numbers[row]}, column {column} (from 0), which "
                f"has no finite {rows.dtype} when scaled; correct it, or give the rows as float64"
            )
        return scaled


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


class NumberedRows(MappedRows):
    """Rows of a matrix of kernel values with all training rows, numbered from 1 in column 0.

    They are read in blocks even where they are in memory: to number them all would copy them. The
    source is dense, (m, n). `numbers`, (m,), says which of the n columns each row belongs to; None
    is for rows that none belongs to.
    """

    def __init__(self, source: RowSource, numbers: NDArray[np.int64] | None) -> None:
        super().__init__(source)
        self._numbers = np.zeros(source.n_rows, np.int64) if numbers is None else numbers
        self.n_columns = self.n_features = source.n_columns + 1
        self.bytes_per_row = source.bytes_per_row + self.dtype.itemsize
        self.first_index, self.feature_names = 0, None

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column, that of the numbers in front."""
        return np.concatenate([[self._numbers.mean()], self._source.column_means()])

    def fingerprint(self) -> str:
        """Hash of the source's and of the numbers."""
        return self._hash_with(self._numbers)

    def _map(self, rows: Any, numbers: NDArray[np.int64]) -> Rows:
        out: NDArray[Any] = np.empty((len(rows), self.n_columns), self.dtype)
        out[:, 0], out[:, 1:] = self._numbers[numbers], rows
        return out


class NarrowRows(MappedRows):
    """Sparse rows with new numbers for their columns.

    `copied_bytes` counts the copied column numbers that are kept.
    """

    def __init__(self, source: RowSource, numbering: Numbering, *, copied_bytes: int = 0) -> None:
        super().__init__(source)
        self._numbering = numbering
        self.n_columns = numbering.n_columns
        self.kept_bytes += source.copied_bytes + numbering.nbytes + copied_bytes

    def occurring_columns(self) -> None:
        """Return None: all columns are kept."""

    def portable(self) -> RowSource | None:
        """Return renumbered rows of the source, if another process can read it."""
        source = self._source.portable()
        return None if source is None else NarrowRows(source, self._numbering)

    def remote_blocks(self) -> RemoteBlocks | None:
        """Renumbered rows of the source's blocks on workers."""
        blocks = self._source.remote_blocks()
        return None if blocks is None else blocks.followed_by(self._numbering.apply)

    def _map(self, rows: Any, numbers: NDArray[np.int64]) -> Rows:
        return self._numbering.apply(rows)


class RowsInMemory(DerivedRows):
    """The rows of a source, in memory; other processes have them from the source."""

    def portable(self) -> RowSource | None:
        """Return the source that these rows were read from, if another process can read it."""
        return self._source.portable()

    def remote_blocks(self) -> RemoteBlocks | None:
        """Blocks of the source on workers."""
        return self._source.remote_blocks()

    def placed(self) -> tuple[RowSource, Indices | None]:
        """Return the source that has these rows, and which of its rows they are."""
        return self._source.placed()

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose the same random rows as the source that is not held in memory."""
        return self._source.sample_indices(count, seed=seed, candidates=candidates)


class HeldRows(RowsInMemory):
    """All rows of a source, read once and kept in memory."""

    def __init__(self, source: RowSource, rows: Rows) -> None:
        super().__init__(source)
        self._rows = ArrayRows(rows)
        self.row_alignment, self.is_fetched = 1, False

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; a view, if they are dense."""
        return self._rows.read(start, stop)

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return self._rows.take(indices)

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are."""
        return self._rows.lend(indices)


def narrowed(
    source: RowSource, *, keep_numbers: bool = False
) -> tuple[RowSource, Numbering | None]:
    """Rows to train on: `source` itself, or its rows renumbered by the columns that occur.

    They keep their numbers where something is known of each column.

    Rows in memory are renumbered once, which copies their column numbers but not their values. The
    numbering is None if the columns were not renumbered.
    """
    columns = None if keep_numbers else source.occurring_columns()
    if columns is None:
        return source, None
    numbering = Numbering(columns, source.n_columns)
    if source.row_alignment > 1:
        return NarrowRows(source, numbering), numbering
    rows = numbering.apply(source.read(0, source.n_rows))
    narrow = NarrowRows(source, numbering, copied_bytes=rows.indices.nbytes)
    return HeldRows(narrow, rows), numbering


class DrawnRows(HeldRows):
    """Some rows of another source, held in memory, which stand for all of them.

    `drawn`, (m,), says which rows of the source; its numbers ascend and are distinct.
    """

    def __init__(self, source: RowSource, drawn: NDArray[np.int64], rows: Rows) -> None:
        super().__init__(source, rows)
        self.drawn = drawn
        self.n_rows, self.share_drawn = len(drawn), len(drawn) / source.n_rows

    def portable(self) -> RowSource | None:
        """Return the choice among the rows of the source, if another process can read it."""
        source = self._source.portable()
        return None if source is None else ChosenRows(source, self.drawn)

    def remote_blocks(self) -> None:
        """Return None: blocks have other rows too."""

    def placed(self) -> tuple[RowSource, Indices]:
        """Return the source that has these rows, and which of its rows they are."""
        return self._placed_at(self.drawn)

    def of(self, values: NDArray[Any] | None) -> NDArray[Any] | None:
        """Take what belongs to the rows, (m,), from values of all rows, if there are any."""
        return None if values is None else np.asarray(values)[self.drawn]

    def sample_indices(
        self, count: int, *, seed: int, candidates: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Choose random rows among those that are held."""
        return self._rows.sample_indices(count, seed=seed, candidates=candidates)

    def fingerprint(self) -> str:
        """Hash of the source's and of the choice."""
        return self._hash_with(self.drawn)

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()[self.drawn]


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
        self._check_span(start, stop)
        return self._source.take(self._chosen[start:stop].astype(np.int64))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`."""
        return self._source.take(self._places(indices))

    def lend(self, indices: NDArray[np.int64]) -> RowsAt:
        """Rows at `indices`, where they are."""
        return self._source.lend(self._places(indices))

    def _places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        check_indices(indices, self.n_rows)
        return self._chosen[indices].astype(np.int64)

    def portable(self) -> RowSource | None:
        """Return the choice among the rows of the source, if another process can read it.

        None where `chosen` does not ascend: a block of such rows is in all chunks of a store.
        """
        source, chosen = self._source.portable(), self._chosen
        if source is None or not bool((chosen[1:] > chosen[:-1]).all()):
            return None
        return ChosenRows(source, chosen)

    def placed(self) -> tuple[RowSource, Indices]:
        """Return the source that has these rows, and which of its rows they are."""
        return self._placed_at(self._chosen)

    def fingerprint(self) -> str:
        """Hash of the source's and of the choice."""
        return self._hash_with(self._chosen)

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in its input."""
        return self._source.original_rows()[self._chosen]


class PartRows(ChosenRows):
    """Chosen rows of a source, with statistics of their own, by a pass over them."""

    occurring_columns = RowSource.occurring_columns
    column_means, total_variance = RowSource.column_means, RowSource.total_variance
