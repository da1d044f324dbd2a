"""Read the rows of a store."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.arrays import VerifiedArray, read_together
from bigsvm.data.consistency import (
    check_columns_ascend,
    check_indptr,
    check_permutation,
    check_statistics,
)
from bigsvm.data.row_source import DASK_BLOCK_BYTES, RowSource
from bigsvm.data.rows import make_csr, stack_rows
from bigsvm.data.scaler import Scaler
from bigsvm.data.schema import COLUMN, CSR, REMEDY, SCALER
from bigsvm.data.store_arrays import open_arrays
from bigsvm.declared import ascend_below
from bigsvm.errors import DataCorruptionError, DataError
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.place import Place
    from bigsvm.data.rows import Rows
    from bigsvm.data.schema import StoreAttributes


class StoreRows(RowSource):
    """The rows of a store; every chunk read is verified. `bytes_read` counts decoded bytes.

    Made by `bigsvm.open_store`. Of CSR rows, `indptr` is read at the first use and stays in memory,
    8 bytes a row.
    """

    def __init__(
        self, place: Place, attributes: StoreAttributes, arrays: dict[str, VerifiedArray]
    ) -> None:
        self.n_rows = attributes.n_rows
        self.n_columns = attributes.n_columns
        self.dtype = np.dtype(attributes.dtype)
        self.is_sparse = attributes.layout == CSR
        self.is_shuffled = attributes.shuffled
        self.first_index = attributes.first_index
        self.feature_names = attributes.feature_names
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
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start} to {stop} of {self.n_rows}")
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
            check_columns_ascend(indices, places, start, str(self._place))
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
            check_statistics(self._arrays, self._attributes, str(self._place), whole=whole)
            self._statistics_checked = True

    def fingerprint(self) -> str:
        """Hash of the manifest of X."""
        return self._attributes.rows_fingerprint

    def original_rows(self) -> NDArray[np.int64]:
        """Return the number that each row had in the input."""
        rows = self._arrays["row"].read(0, self.n_rows)
        check_permutation(rows, str(self._place))
        return rows

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Give the rows as a Dask array; each task is one verified read."""
        # 13 MB that training does without.
        import dask.array as da

        rows = min(self.rows_per_block(2 * block_bytes), self.n_rows)
        chunks = (*(rows for _ in range(self.n_rows // rows)), self.n_rows % rows)
        sizes = tuple(n for n in chunks if n)
        meta = (
            sp.csr_array((0, self.n_columns), dtype=self.dtype)
            if self.is_sparse
            else np.empty((0, self.n_columns), self.dtype)
        )
        return da.map_blocks(
            _read_block,
            self,
            chunks=(sizes, (self.n_columns,)),
            dtype=self.dtype,
            meta=meta,
            name=f"bigsvm-{self.fingerprint()}-{rows}",
        )

    def _whole(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        return array.read(0, array.spec.shape[0])

    def indptr(self) -> NDArray[np.int64]:
        """Place of each row in the entries, (n_rows + 1,) int64; only of CSR rows."""
        if self._indptr is None:
            array = self._arrays["X/indptr"]
            indptr = array.read(0, self.n_rows + 1)
            check_indptr(indptr, self._attributes.n_nonzero, str(self._place))
            self._indptr = indptr
        return self._indptr


def _read_block(rows: StoreRows, block_info: dict[Any, Any]) -> Rows:
    start, stop = block_info[None]["array-location"][0]
    return rows.read(start, stop)


def _reopen_rows(place: Place, fingerprint: str) -> StoreRows:
    return StoreRows(place, *open_arrays(place, fingerprint))
