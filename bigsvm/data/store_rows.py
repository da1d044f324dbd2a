"""Open the arrays of a store, after all that is checked before, and read its rows."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.arrays import VerifiedArray, read_together
from bigsvm.data.metadata import MAX_ARRAY_JSON, check_array, check_files, read_attributes
from bigsvm.data.place import Folder
from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import make_csr, stack_rows
from bigsvm.data.scaler import Scaler
from bigsvm.data.schema import COLUMN, CSR, NAME, REMEDY, SCALER, STATISTICS, array_specs
from bigsvm.data.workspace import put_back
from bigsvm.declared import ascend_below
from bigsvm.errors import DataCorruptionError, DataError, StoreError
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.data.place import Place
    from bigsvm.data.rows import Rows
    from bigsvm.data.schema import StoreAttributes


_CHUNKS_AT_ONCE = 2
"""Chunks of statistics that are read together, 1 MB of each: a read takes Zarr two milliseconds."""
_ROUNDING = 1e-6
"""Relative rounding error allowed in statistics; a sum of 1e12 values has about 1e-10."""
_OVERFLOWS_FROM = 1e150
"""Sums of squares of values above this may overflow."""


class StoreRows(RowSource):
    """The rows of a store; every chunk read is verified. `bytes_read` counts decoded bytes.

    Made by `bigsvm.open_store`. Of CSR rows, `indptr` is read at the first use and stays in memory,
    8 bytes a row.
    """

    def __init__(
        self, place: Place, attributes: StoreAttributes, arrays: dict[str, VerifiedArray]
    ) -> None:
        self.n_rows = attributes.n_rows
        self.n_columns = self.n_features = attributes.n_columns
        self.dtype = np.dtype(attributes.dtype)
        self.is_sparse = attributes.layout == CSR
        # Rows that were appended are behind all others.
        self.is_shuffled = attributes.shuffled and attributes.earlier is None
        self.first_index = attributes.first_index
        self.feature_names, self.encoding = attributes.feature_names, attributes.encoding
        item = self.dtype.itemsize
        if self.is_sparse:
            per_entry = item + 4
            self.bytes_per_row = attributes.n_nonzero / self.n_rows * per_entry + 8
            chunk_rows = (
                arrays["X/data"].spec.chunk_rows * self.n_rows / max(attributes.n_nonzero, 1)
            )
            # Rows do not end where chunks do; a power of two of about one chunk keeps blocks apart.
            self.row_alignment = 1 << max(0, min(int(chunk_rows), self.n_rows).bit_length() - 1)
        else:
            self.bytes_per_row = float(self.n_columns * item)
            self.row_alignment = arrays["X"].spec.chunk_rows
        self._place = place
        self._attributes = attributes
        self._arrays = arrays
        self._indptr: NDArray[np.int64] | None = None
        self._statistics_checked = False

    def __str__(self) -> str:
        return f"{super().__str__()} in {self._place}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_rows, (self._place, self._attributes.fingerprint)

    @property
    def bytes_read(self) -> int:
        """Decoded bytes of X read so far."""
        return sum(array.bytes_read for name, array in self._arrays.items() if name[0] == "X")

    @property
    def scaler(self) -> Scaler | None:
        """Scaler that was applied to the rows; read each time, 16 to 20 bytes a column."""
        if self._attributes.scaler is None:
            return None
        offset, factor = (self._whole(f"scaler/{name}") for name in SCALER)
        columns, width = None, None
        if self._attributes.scaler_columns is not None:
            columns, width = self._whole(f"scaler/{COLUMN}"), self.n_columns
        try:
            return Scaler(self._attributes.scaler, offset, factor, columns, width)
        except DataError as error:
            raise DataCorruptionError(f"{self._place}: {error}; {REMEDY}") from error

    def occurring_columns(self) -> NDArray[np.integer[Any]] | None:
        """Columns that occur, None if all are kept; read each time, 4 bytes a column."""
        if self._attributes.listed_columns is None:
            return None
        columns = self._whole(f"statistics/{COLUMN}")
        if not ascend_below(columns, self.n_columns):
            raise DataCorruptionError(
                f"{self._place}: array 'statistics/{COLUMN}' makes no sense; {REMEDY}"
            )
        return columns

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``; refuses other chunks than were written."""
        self._check_span(start, stop)
        [rows] = self._read_spans([(start, stop)])
        return rows

    def _read_spans(self, spans: Sequence[tuple[int, int]]) -> list[Rows]:
        """Rows of several spans, whose chunks are read together."""
        if not self.is_sparse:
            return list(read_together([(self._arrays["X"], *span) for span in spans]))
        indptrs = [self.indptr()[start : stop + 1] for start, stop in spans]
        entries = read_together(
            [
                (self._arrays[name], int(indptr[0]), int(indptr[-1]))
                for indptr in indptrs
                for name in ("X/data", "X/indices")
            ]
        )
        rows = []
        for (start, _), indptr, data, indices in zip(
            spans, indptrs, entries[::2], entries[1::2], strict=True
        ):
            places = indptr - indptr[0]
            _check_columns_ascend(indices, places, start, str(self._place))
            rows.append(make_csr(data, indices, places, self.n_columns))
        return rows

    def _end_of_block(self, start: int, stop: int, max_bytes: int) -> int:
        if not self.is_sparse:
            return stop
        # Shuffled rows seldom pass a quarter more than the mean, so that they keep their chunks.
        limit = 1.25 * self.bytes_per_row * self.rows_per_block(max_bytes)
        n_entries = int((limit - 8 * (stop - start)) / (self.dtype.itemsize + 4))
        indptr = self.indptr()
        end = int(np.searchsorted(indptr, indptr[start] + n_entries, side="right")) - 1
        return min(stop, max(start + 1, end))

    def take(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at `indices`, in any order; each chunk is read once."""
        indices = np.asarray(indices, np.int64)
        if indices.size and (indices.min() < 0 or indices.max() >= self.n_rows):
            raise IndexError(f"rows {indices.min()} to {indices.max()} of {self.n_rows}")
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        if self.is_sparse:
            # By the chunk of the first entry: by rows, the longest ones would come all together.
            chunk = self.indptr()[wanted] // self._arrays["X/data"].spec.chunk_rows
        else:
            chunk = wanted // self.row_alignment
        out = np.empty((0 if self.is_sparse else len(indices), self.n_columns), self.dtype)
        pieces = []
        for batch in self._batches(chunk):
            check_interrupt()
            read = [self._around(int(wanted[a]), int(wanted[b - 1])) for a, b in batch]
            for (a, b), (start, _), block in zip(batch, read, self._read_spans(read), strict=True):
                chosen = block[wanted[a:b] - start]
                if self.is_sparse:
                    pieces.append(chosen)
                else:
                    out[order[a:b]] = chosen
        if not self.is_sparse:
            return out
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        grouped = stack_rows(pieces, self.n_columns, self.dtype, sparse=True)
        return cast("Rows", grouped[back])

    def _batches(self, chunk: NDArray[np.int64]) -> Iterator[list[tuple[int, int]]]:
        """Yield what is read together of rows whose chunks ascend, as the places of first and last.

        From far, as many chunks as a plan has memory for; neighbours are one span, as one request
        has them.
        """
        most = READER_CHUNKS if self._place.is_far else 1
        edges = (np.flatnonzero(np.diff(chunk // most)) + 1).tolist()
        batch: list[tuple[int, int]] = []
        n_chunks = 0
        for a, b in itertools.pairwise([0, *edges, len(chunk)] if len(chunk) else []):
            size = int(chunk[b - 1] - chunk[a]) + 1
            if n_chunks + size > most and batch:
                yield batch
                batch, n_chunks = [], 0
            batch.append((a, b))
            n_chunks += size
        if batch:
            yield batch

    def _around(self, first: int, last: int) -> tuple[int, int]:
        """First row, and one past the last, of what is read for two rows and those between them.

        Dense rows of several chunks are those of whole chunks, which come in one request.
        """
        size = self.row_alignment
        if self.is_sparse or first // size == last // size:
            return first, last + 1
        return first // size * size, min((last // size + 1) * size, self.n_rows)

    def portable(self) -> RowSource:
        """Return these rows, which open their store again by its path."""
        return self

    def column_means(self) -> NDArray[np.float64]:
        """Mean of each column, from the statistics of the store."""
        self.check_statistics()
        return self._whole("statistics/mean")

    def total_variance(self) -> float:
        """Variance of all entries of X, from the statistics of the store."""
        self.check_statistics()
        return self._attributes.variance

    def check_statistics(self, whole: Mapping[str, NDArray[np.float64]] | None = None) -> None:
        """Refuse statistics that no rows can have, once; `whole` has those that were read."""
        if not self._statistics_checked:
            _check_statistics(self._arrays, self._attributes, str(self._place), whole=whole)
            self._statistics_checked = True

    def fingerprint(self) -> str:
        """Hash of the manifest of X."""
        return self._attributes.rows_fingerprint

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in the input."""
        rows = self._arrays["row"].read(0, self.n_rows)
        check_permutation(rows, str(self._place))
        return rows

    def _whole(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        return array.read(0, array.spec.shape[0])

    def indptr(self) -> NDArray[np.int64]:
        """Place of each row in the entries, (n_rows + 1,) int64; only of CSR rows."""
        if self._indptr is None:
            array = self._arrays["X/indptr"]
            indptr = array.read(0, self.n_rows + 1)
            _check_indptr(indptr, self._attributes.n_nonzero, str(self._place))
            self._indptr = indptr
        return self._indptr


def _reopen_rows(place: Place, fingerprint: str) -> StoreRows:
    return StoreRows(place, *open_arrays(place, fingerprint))


def open_arrays(
    place: Place, fingerprint: str | None = None
) -> tuple[StoreAttributes, dict[str, VerifiedArray]]:
    """Read and check the attributes of a store and the metadata of its arrays.

    If a process was killed while it replaced the store, the store gets its name back first. With a
    fingerprint, that of a store which is opened again, a store with another one is refused.
    """
    if isinstance(place, Folder):
        put_back(place.path)
    try:
        attributes = read_attributes(place)
        if isinstance(place, Folder):
            check_files(place.path)
        expected = _expected(attributes)
        for name in expected:
            if name not in attributes.manifest:
                raise DataCorruptionError(f"{place}: the manifest lacks array {name!r}; {REMEDY}")
        metadata = place.read_each([f"{name}/{NAME}" for name in expected], MAX_ARRAY_JSON)
    except OSError as error:
        raise StoreError(f"{place}: cannot be read ({error.strerror or error})") from error
    _refuse_replaced(place, fingerprint, attributes)
    arrays = {}
    for (name, spec), data in zip(expected.items(), metadata, strict=True):
        hashes, where = attributes.manifest[name], f"{place}: array {name!r}"
        spec = check_array(where, data, spec, len(hashes))
        check = partial(_refuse_replaced, place, attributes.fingerprint)
        arrays[name] = VerifiedArray(place / name, where, spec, hashes, check_current=check)
    return attributes, arrays


def _refuse_replaced(
    place: Place, fingerprint: str | None, attributes: StoreAttributes | None = None
) -> None:
    """Refuse a store whose fingerprint is another one than when it was opened."""
    now = read_attributes(place) if attributes is None else attributes
    if fingerprint not in (None, now.fingerprint):
        raise StoreError(
            f"{place}: was replaced by a store with other content since it was opened; open it "
            "again"
        )


def _expected(attributes: StoreAttributes) -> dict[str, Any]:
    return array_specs(
        attributes.n_rows,
        attributes.n_columns,
        attributes.n_nonzero,
        dtype=np.dtype(attributes.dtype),
        layout=attributes.layout,
        weights=attributes.has_weights,
        scaled=attributes.scaler is not None,
        listed_columns=attributes.listed_columns,
        scaler_columns=attributes.scaler_columns,
    )


# -- checks that arrays and attributes agree with each other ------------------------------------
#
# Hashes only prove that the bytes are those of the manifest. A forger can change the manifest too,
# so these checks run whenever the arrays are read.


def _check_indptr(indptr: NDArray[np.int64], n_entries: int, where: str) -> None:
    """Refuse row pointers, (n_rows + 1,), that do not ascend from 0 to the number of entries."""
    if indptr[0] != 0 or indptr[-1] != n_entries or (np.diff(indptr) < 0).any():
        raise DataCorruptionError(
            f"{where}: array 'X/indptr' does not ascend from 0 to {n_entries}; {REMEDY}"
        )


def _check_columns_ascend(
    indices: NDArray[np.int32], indptr: NDArray[np.int64], first_row: int, where: str
) -> None:
    """Refuse CSR rows whose columns do not ascend: compiled code relies on their order.

    `indptr`, (m + 1,), goes from 0 to nnz. Messages count rows from `first_row` and call the store
    `where`.
    """
    ascends = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    if not ascends.all():
        entry = int(np.argmin(ascends))
        row = first_row + int(np.searchsorted(indptr, entry, side="right")) - 1
        raise DataCorruptionError(
            f"{where}: the column indices of row {row} do not ascend; {REMEDY}"
        )


def check_permutation(rows: NDArray[np.int64], where: str) -> None:
    """Refuse row numbers, (n_rows,), each below n_rows, unless each occurs once."""
    seen = np.zeros(len(rows), np.bool_)
    seen[rows] = True
    if not seen.all():
        raise DataCorruptionError(
            f"{where}: array 'row' lacks row {int(np.argmin(seen))}; {REMEDY}"
        )


def _check_statistics(
    arrays: Mapping[str, VerifiedArray],
    attributes: StoreAttributes,
    where: str,
    *,
    whole: Mapping[str, NDArray[np.float64]] | None = None,
) -> None:
    """Refuse statistics that no rows can have, or that contradict the attributes.

    Each column has ``minimum ≤ mean ≤ maximum`` and ``0 ≤ variance ≤ (maximum - minimum)² / 4``
    (Popoviciu's inequality). They are read a few chunks at a time, unless `whole` has them.
    """

    def read(name: str, start: int, stop: int) -> NDArray[np.float64]:
        if whole is not None:
            return whole[name][start:stop]
        return arrays[f"statistics/{name}"].read(start, stop)

    spec = arrays["statistics/mean"].spec
    # Only listed columns have statistics: the others are 0 in every row.
    n, step = spec.shape[0], _CHUNKS_AT_ONCE * spec.chunk_rows
    absent = attributes.n_columns - n if attributes.listed_columns is not None else 0
    spans = [(start, min(start + step, n)) for start in range(0, n, step)]
    largest, means, variances = 0.0, 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start, stop in spans:
            low, high, mean, variance = (read(name, start, stop) for name in STATISTICS)
            scale = np.maximum(np.abs(low), np.abs(high))
            slack = _ROUNDING * scale
            half = high / 2 - low / 2
            possible = (low - slack <= mean) & (mean <= high + slack)
            possible &= (variance >= 0) & (variance <= half**2 * (1 + _ROUNDING) + slack**2)
            wrong = np.flatnonzero(~((low <= high) & (possible | (scale >= _OVERFLOWS_FROM))))
            if len(wrong):
                column = start + int(wrong[0])
                if absent:
                    [column] = arrays[f"statistics/{COLUMN}"].read(column, column + 1)
                raise DataCorruptionError(
                    f"{where}: no column can have the statistics of column {column}; {REMEDY}"
                )
            largest = max(largest, float(scale.max()))
            means, variances = means + float(mean.sum()), variances + float(variance.sum())
        if largest >= _OVERFLOWS_FROM:
            return
        total_mean = means / attributes.n_columns
        between = absent * total_mean**2
        for start, stop in spans:
            between += float(((read("mean", start, stop) - total_mean) ** 2).sum())
    for name, computed, slack_of_all in (
        ("mean", total_mean, _ROUNDING * largest),
        ("variance", (variances + between) / attributes.n_columns, (_ROUNDING * largest) ** 2),
    ):
        recorded: float = getattr(attributes, name)
        if not math.isclose(recorded, computed, rel_tol=_ROUNDING, abs_tol=slack_of_all):
            raise DataCorruptionError(
                f"{where}: its {name} is {recorded}, but {computed} by the statistics of its "
                f"columns; {REMEDY}"
            )
