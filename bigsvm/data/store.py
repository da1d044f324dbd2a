"""Store: a data set in chunked Zarr arrays, opened for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bigsvm.data.place import Folder, Place
from bigsvm.data.row_values import OR_LEAVE_OUT, in_order_of, put_in_order, to_input_order
from bigsvm.data.schema import (
    CSR,
    REMEDY,
    STATISTICS,
    StoreAttributes,
)
from bigsvm.data.statistics import Statistics
from bigsvm.data.store_part import StorePart, is_own, refuse_array, row_numbers
from bigsvm.data.store_rows import StoreRows, check_permutation, open_arrays
from bigsvm.errors import DataCorruptionError, StoreError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.data.arrays import VerifiedArray
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order, RowValues
    from bigsvm.data.scaler import Scaler

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
            _check_class_places(numbers, len(self.class_names), str(self))
        if len(numbers) == self.attributes.n_rows:
            _check_label_counts(numbers, self.attributes, str(self))
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

        `order` is that of values that are no `RowValues`; None is refused for a shuffled store,
        unless they are the store's own. Messages call the values `name` and advise `instead`.
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
        whole = {name: self._read(f"statistics/{name}") for name in STATISTICS}
        self._rows.check_statistics(whole)
        columns = self.rows.occurring_columns()
        return Statistics(**whole, n_columns=self.attributes.n_columns, columns=columns)

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


def _check_label_counts(
    labels: NDArray[np.float64], attributes: StoreAttributes, where: str
) -> None:
    """Refuse the labels of all rows, (n_rows,), unless their counts are those in the attributes."""
    if attributes.label_counts is None:
        return
    known = np.array([label for label, _ in attributes.label_counts])
    counts = np.zeros(len(known) + 1, np.int64)
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        some = labels[start : start + _LABELS_AT_ONCE]
        place = np.searchsorted(known, some)
        place[known[np.minimum(place, len(known) - 1)] != some] = len(known)
        counts += np.bincount(place, minlength=len(counts))
    if counts[:-1].tolist() != [n for _, n in attributes.label_counts]:
        raise DataCorruptionError(f"{where}: its labels are not those it has counted; {REMEDY}")


def _check_class_places(places: NDArray[np.float64], n_names: int, where: str) -> None:
    """Refuse labels that are not places in a list of `n_names` names."""
    if not ((places >= 0) & (places < n_names) & (places == np.floor(places))).all():
        raise DataCorruptionError(
            f"{where}: array 'y' has a value that is no place in its {n_names} class names; "
            f"{REMEDY}"
        )


def _reopen(place: Place, fingerprint: str) -> Store:
    """Open the store again, in another process."""
    return Store(place, *open_arrays(place, fingerprint))


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

    See Also
    --------
    write_store : A store of arrays, tables and files.
    convert : A store of LIBSVM text.

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
    return Store(place, *open_arrays(place))
