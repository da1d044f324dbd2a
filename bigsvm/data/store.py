"""Open a store and read its rows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import READER_CHUNKS
from bigsvm.data.arrays import VerifiedArray, read_together
from bigsvm.data.consistency import (
    check_class_places,
    check_columns_ascend,
    check_indptr,
    check_label_counts,
    check_permutation,
    check_statistics,
)
from bigsvm.data.metadata import (
    check_array,
    check_files,
    read_array_metadata,
    read_attributes,
)
from bigsvm.data.place import Folder, Place
from bigsvm.data.row_source import DASK_BLOCK_BYTES, RowSource
from bigsvm.data.row_values import OR_LEAVE_OUT, in_order_of, put_in_order, to_input_order
from bigsvm.data.rows import ascend_below, make_csr, stack_rows
from bigsvm.data.scaler import Scaler
from bigsvm.data.schema import (
    COLUMN,
    CSR,
    REMEDY,
    SCALER,
    STATISTICS,
    StoreAttributes,
    array_specs,
)
from bigsvm.data.statistics import Statistics
from bigsvm.data.store_part import StorePart, is_own, refuse_array, row_numbers
from bigsvm.data.workspace import put_back
from bigsvm.errors import DataCorruptionError, DataError, StoreError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_values import Order, RowValues
    from bigsvm.data.rows import Rows

_LABELS_AT_ONCE = 1 << 16


class Store:
    """A store, opened for reading; nothing of X has been read.

    Attributes
    ----------
    place : Place
    attributes : StoreAttributes
    rows : StoreRows
        X.
    """

    def __init__(
        self, place: Place, attributes: StoreAttributes, arrays: dict[str, VerifiedArray]
    ) -> None:
        self.place = place
        self.attributes = attributes
        self._arrays = arrays
        self._rows = StoreRows(place, attributes, arrays)
        self.rows: RowSource = self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.place, self.attributes.fingerprint)

    @property
    def path(self) -> Path:
        """Absolute path of the folder.

        Raises
        ------
        StoreError
            The store is at a URL, which `str(store)` gives.
        """
        if not isinstance(self.place, Folder):
            raise StoreError(f"{self.place}: has no path, as it is at a URL; use str(store)")
        return self.place.path

    def __str__(self) -> str:
        return str(self.place)

    def __repr__(self) -> str:
        a = self.attributes
        told = [
            f"{a.n_rows} rows",
            f"{a.n_columns} columns",
            f"{'sparse' if a.layout == CSR else 'dense'} {a.dtype}",
        ]
        if self.class_names is not None:
            told.append(f"{len(self.class_names)} classes")
        elif a.label_counts is not None:
            told.append(f"{len(a.label_counts)} distinct labels")
        for word, holds in {
            "weights": a.has_weights,
            f"scaled ({a.scaler})": a.scaler is not None,
            "shuffled": a.shuffled,
        }.items():
            if holds:
                told.append(word)
        return f"<Store {self}: {', '.join(told)}>"

    # So that scikit-learn's tools can split a store, as in cross_val_score.

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.attributes.n_rows, self.attributes.n_columns

    def __len__(self) -> int:
        return self.attributes.n_rows

    def __getitem__(self, key: Any) -> StorePart:
        return StorePart(self, row_numbers(key, len(self)))

    __iter__ = None  # one row at a time would be read slowly

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        refuse_array(self)

    def labels(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Labels of the rows ``start … stop - 1``, (m,), as they were given.

        They are float64, or str in an array of objects if the store has `class_names`.
        """
        numbers = self.label_numbers(start, stop)
        if self.class_names is None:
            return numbers
        names = np.array(self.class_names, object)
        labels = np.empty(len(numbers), object)
        for first in range(0, len(labels), _LABELS_AT_ONCE):
            some = slice(first, first + _LABELS_AT_ONCE)
            labels[some] = names[numbers[some].astype(np.intp)]
        return labels

    def label_numbers(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
        """Labels as they are stored, (m,) float64: of words their places in `class_names`."""
        numbers = self._read("y", start, stop)
        if self.class_names is not None:
            check_class_places(numbers, len(self.class_names), str(self))
        if len(numbers) == self.attributes.n_rows:
            check_label_counts(numbers, self.attributes, str(self))
        return numbers

    def sample_weight(self, start: int = 0, stop: int | None = None) -> NDArray[np.float64] | None:
        """Weights of these rows, (m,) float64, or None if there are none."""
        return self._read("sample_weight", start, stop) if self.attributes.has_weights else None

    def original_rows(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return the number that each of these rows had in the input, (m,) int64, from 0."""
        rows = self._read("row", start, stop)
        if len(rows) == self.attributes.n_rows:
            check_permutation(rows, str(self))
        return rows

    def row_values(self, values: Any, *, order: Order) -> RowValues:
        """Put values, such as labels or weights, into the order of the rows of this store.

        With a shuffled store, estimators accept only such values: its rows do not have the order
        of its input.

        Parameters
        ----------
        values : (n_rows,) array
        order : {"input", "store"}
            Order of the values: that of the input, or that of `labels` and of predictions for
            this store.

        Returns
        -------
        RowValues
            For `fit`, `score` and `C_path`, as `y` or `sample_weight`. NumPy takes it for an array.

        Raises
        ------
        DataError
            There is not one value for each row.
        ParameterError
            `order` is neither of these.
        """
        return put_in_order(values, order, self.attributes, self.original_rows)

    def beside(
        self, values: Any, name: str, order: Order | None, *, instead: str = OR_LEAVE_OUT
    ) -> NDArray[Any]:
        """Convert values for the rows of this store to an array in their order.

        Parameters
        ----------
        values : RowValues, or (n_rows,) array
        name : str
            Name of the argument, for messages.
        order : {"input", "store"} or None
            Order of values that are no `RowValues`; None is refused for a shuffled store, unless
            they are the store's own.
        instead : str
            What the message advises.

        Raises
        ------
        DataError
            The order is unknown, or that of another store.
        """
        if order is None and self.attributes.shuffled and is_own(self, values, name):
            return np.asarray(values)
        return in_order_of(
            self.attributes, values, name, order=order, original_rows=self.original_rows,
            instead=instead,
        )  # fmt: skip

    def in_input_order(self, values: Any) -> NDArray[Any]:
        """Put values, such as predictions for this store, into the order of its input.

        Parameters
        ----------
        values : (n_rows,) or (n_rows, m) array
            In the order of `labels`, of `rows` and of predictions. A Dask array is computed.

        Returns
        -------
        array of the same shape and dtype

        Raises
        ------
        DataError
            There is not one value for each row.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> import bigsvm
        >>> X, y = load_iris(return_X_y=True)
        >>> store = bigsvm.write_store("iris.zarr", X, y)
        >>> bool((store.in_input_order(store.labels()) == y).all())
        True
        """
        return to_input_order(np.asarray(values), self.original_rows())

    @property
    def first_index(self) -> int | None:
        """Index that column 0 had in LIBSVM text; None if the input was not text."""
        return self.attributes.first_index

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns; None if they have none."""
        return self.attributes.feature_names

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Words that the labels are, sorted; None if labels are numbers."""
        return self.attributes.class_names

    @property
    def scaler(self) -> Scaler | None:
        """Scaler that was applied to X; None if X is not scaled."""
        return self.rows.scaler

    @property
    def statistics(self) -> Statistics:
        """Minimum, maximum, mean and variance of each column, or of those that occur.

        Raises
        ------
        DataCorruptionError
            If they are not what was written, or no rows can have such statistics.
        """
        self._rows.check_statistics()
        minimum, maximum, mean, variance = (self._read(f"statistics/{name}") for name in STATISTICS)
        columns = self.rows.occurring_columns()
        return Statistics(minimum, maximum, mean, variance, self.attributes.n_columns, columns)

    def verify(self) -> None:
        """Read every chunk of every array.

        Raises
        ------
        DataCorruptionError
            If an array is not what was written, or does not fit the others.
        """
        for array in self._arrays.values():
            array.verify()
        self.label_numbers()
        self.original_rows()
        self._rows.check_statistics()
        self._rows.occurring_columns()
        _ = self.scaler
        if self.attributes.layout == CSR:
            for _block in self.rows.blocks(1 << 26):
                pass

    def _read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        array = self._arrays[name]
        return array.read(start, array.spec.shape[0] if stop is None else stop)


class StoreRows(RowSource):
    """The rows of a store; every chunk read is verified. `bytes_read` counts decoded bytes.

    Made by `open_store`. Of CSR rows, `indptr` is read at the first use and stays in memory, 8
    bytes a row.
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
        """Scaler that was applied to the rows; read each time, 16 to 20 bytes a column.

        Raises
        ------
        DataCorruptionError
            If it is not what was written, or nothing that can have been.
        """
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
        """Columns that occur, None if all are kept; read each time, 4 bytes a column.

        Raises
        ------
        DataCorruptionError
            If they are not what was written, or do not ascend.
        """
        if self._attributes.listed_columns is None:
            return None
        columns = self._whole(f"statistics/{COLUMN}")
        if not ascend_below(columns, self.n_columns):
            raise DataCorruptionError(
                f"{self._place}: array 'statistics/{COLUMN}' makes no sense; {REMEDY}"
            )
        return columns

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``.

        Raises
        ------
        DataCorruptionError
            If a chunk is not the one that was written, or holds values out of range.
        """
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

    def take(self, indices: NDArray[np.int64], *, look: Callable[[], None] = lambda: None) -> Rows:
        """Rows at `indices`, in any order; each chunk is read once."""
        indices = np.asarray(indices, np.int64)
        if indices.size and (indices.min() < 0 or indices.max() >= self.n_rows):
            raise IndexError(f"rows {indices.min()} to {indices.max()} of {self.n_rows}")
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        if self.is_sparse:
            # By the chunk of the first entry: by rows, the longest ones would come all together.
            group = self.indptr()[wanted] // self._arrays["X/data"].spec.chunk_rows
        else:
            group = wanted // self.row_alignment
        edges = np.flatnonzero(np.diff(group)) + 1
        spans = list(itertools.pairwise([0, *edges.tolist(), len(wanted)])) if len(wanted) else []
        out = np.empty((0 if self.is_sparse else len(indices), self.n_columns), self.dtype)
        pieces = []
        at_once = READER_CHUNKS if self._place.is_far else 1
        for first in range(0, len(spans), at_once):
            batch = spans[first : first + at_once]
            look()
            blocks = self._read_spans([(int(wanted[a]), int(wanted[b - 1]) + 1) for a, b in batch])
            for (a, b), block in zip(batch, blocks, strict=True):
                chosen = block[wanted[a:b] - wanted[a]]
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

    def check_statistics(self) -> None:
        """Refuse statistics that no rows can have; they are read the first time only.

        Raises
        ------
        DataCorruptionError
            If they are not what was written, or no rows can have such statistics.
        """
        if not self._statistics_checked:
            check_statistics(self._arrays, self._attributes, str(self._place))
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
        """Place of each row in the entries, (n_rows + 1,) int64; only of CSR rows.

        Raises
        ------
        DataCorruptionError
            If it does not ascend from 0 to the number of entries.
        """
        if self._indptr is None:
            array = self._arrays["X/indptr"]
            indptr = array.read(0, self.n_rows + 1)
            check_indptr(indptr, self._attributes.n_nonzero, str(self._place))
            self._indptr = indptr
        return self._indptr


def _read_block(rows: StoreRows, block_info: dict[Any, Any]) -> Rows:
    start, stop = block_info[None]["array-location"][0]
    return rows.read(start, stop)


def _reopen(place: Place, fingerprint: str) -> Store:
    """Open the store again, in another process."""
    store = open_place(place)
    if store.attributes.fingerprint != fingerprint:
        raise StoreError(f"{place}: was replaced by a store with other content since it was opened")
    return store


def _reopen_rows(place: Place, fingerprint: str) -> RowSource:
    return _reopen(place, fingerprint).rows


def open_store(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Open a store for reading.

    Its attributes and the metadata of its arrays are read and checked. No rows are read.

    If a process was killed while it replaced the store, the store gets its name back first.

    Parameters
    ----------
    path : path or URL
        A folder, or a URL that begins with ``s3://``, ``gs://``, ``az://``, ``abfs://``,
        ``http://`` or ``https://``, which takes the extra ``bigsvm[cloud]``.
    storage_options : mapping, optional
        Arguments of the file system of fsspec, only for URLs. By default credentials come from the
        environment. They are not pickled, except for a few that cannot hold secrets.

    Raises
    ------
    ParameterError
        If the URL names no place of a store, or the package that reads it is missing.
    StoreError
        If `path` is not a store, is not complete, has a newer format, or contains links; or if
        access to a URL is refused.
    UnreachableError
        If a URL cannot be reached for the seconds that the environment variable
        ``BIGSVM_STORE_TIMEOUT`` gives, by default 300.
    DataCorruptionError
        If an array is missing or is not what the attributes say.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> X, y = load_iris(return_X_y=True)
    >>> bigsvm.write_store("iris.zarr", X, y).path.name
    'iris.zarr'
    >>> store = bigsvm.open_store("iris.zarr")
    >>> bool((store.labels() == y[store.original_rows()]).all())
    True
    """
    return open_place(Place.of(path, storage_options))


def open_place(place: Place) -> Store:
    """Open the store at a place; see `open_store`."""
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
        metadata = read_array_metadata(place, list(expected))
    except OSError as error:
        raise StoreError(f"{place}: cannot be read ({error.strerror or error})") from error
    arrays = {}
    for (name, spec), data in zip(expected.items(), metadata, strict=True):
        hashes, where = attributes.manifest[name], f"{place}: array {name!r}"
        spec = check_array(where, data, spec, len(hashes))
        arrays[name] = VerifiedArray(place / name, where, spec, hashes)
    return Store(place, attributes, arrays)


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
