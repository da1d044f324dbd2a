"""Rows appended to a store, behind all rows that it has."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import READER_CHUNKS
from bigsvm.conversion.formats import Asked, chooses_columns, is_source
from bigsvm.conversion.from_arrays import batches_of, write_store, written
from bigsvm.conversion.from_text import convert
from bigsvm.conversion.streams import STANDARD_INPUT
from bigsvm.conversion.writing import ConversionProgress, memory_bytes
from bigsvm.data.kernel_matrix import training_matrix
from bigsvm.data.metadata import read_attributes
from bigsvm.data.place import Folder, Place
from bigsvm.data.schema import CSR
from bigsvm.data.sources import as_store
from bigsvm.data.statistics import ColumnStatistics, Moments, Statistics, is_listed
from bigsvm.data.store import Store, open_place
from bigsvm.data.store_rows import open_arrays
from bigsvm.data.store_writer import RowBatch, StoreWriter
from bigsvm.data.workspace import Workspace
from bigsvm.data.wrappers import in_scale_of
from bigsvm.errors import BigsvmError, DataError, ParameterError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.conversion.from_text import ZeroBased
    from bigsvm.conversion.writing import OnProgress
    from bigsvm.data.arrays import VerifiedArray
    from bigsvm.data.row_values import Order


def append(
    store: str | PathLike[str] | Store,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    columns: Sequence[str] | None = None,
    rows: str | None = None,
    y_order: Order | None = None,
    seed: int = 0,
    memory: str | int = "1GB",
    allow_missing: bool = False,
    on_progress: OnProgress | None = None,
) -> Store:
    """Append rows to a store, all of them or none.

    The new rows come behind all others, shuffled among themselves if the store is shuffled, and get
    the numbers that follow in its input. Whole shards of the store, 128 MB of rows each, are kept
    as they are; smaller arrays, and what follows the last whole shard, are written again. If the
    process is killed, the store is the old or the new one.

    A fit that begins anew takes all rows of such a store at once, as the first ones are no sample
    of all; ``write_store(new, store, store.labels())`` shuffles all rows. A model of the store
    before can start the fit: see the parameter `warm_start`. Words of tables and missing values
    become what they became when the store was made.

    Parameters
    ----------
    store : path or Store
        A folder.
    X : (m, n_columns) container, RowSource, path, or source with labels
        As `write_store` takes it, or the path of another store, or, without y, of LIBSVM text. It
        needs the columns of the store; those of files and tables are chosen by their names. If the
        store is scaled, rows that are not scaled are scaled alike. Values get the type of the
        store.
    y : (m,) array or RowValues, or name
        Labels; words must be among the store's class names. Without it those of another store.
    sample_weight : (m,) array or RowValues, or name, optional
        Needed if the store has weights, else refused.
    columns, rows, y_order, allow_missing
        As for `write_store`.
    seed : int
        Seed of the order of the new rows, 0 … 2**64 - 1.
    memory : str or int
        Bytes to stay below, besides X, y and weights themselves.
    on_progress : callable, optional
        Called with a `ConversionProgress` now and then.

    Returns
    -------
    Store
        The larger store. Those that were opened before read the rows they had, or are refused.

    Raises
    ------
    ParameterError, MemoryBudgetError
        As for `write_store`; or the store is at a URL.
    DataError
        As for `write_store`; or the rows have other columns than the store, or other labels.
    StoreError
        There is no such store, it is being made by another process, or cannot be written.

    See Also
    --------
    write_store : A new store.
    drop : A store without some rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> X, y = load_iris(return_X_y=True)
    >>> store = bigsvm.write_store("iris.zarr", X[:140], y[:140])
    >>> bigsvm.append("iris.zarr", X[140:], y[140:]).shape
    (150, 4)
    """
    place = store.place if isinstance(store, Store) else Place.of(store, name="store")
    if not isinstance(place, Folder):
        raise ParameterError(
            f"{place}: a store on object storage cannot be appended to, as readers would see parts "
            "of both; write all rows to another name"
        )
    budget, place = memory_bytes(memory), Folder(place.path.resolve())
    open_place(place)  # the workspace would refuse what is no store as if it were to be replaced
    with Workspace(place.path, overwrite=True) as work:
        attributes, arrays = open_arrays(place)
        old = Store(place, attributes, arrays)
        if _is_kernel_matrix(old):
            raise DataError(
                f"{place}: is a kernel matrix, which has a column for each row; write the larger "
                "matrix as a new store"
            )
        added = work.path / "added"
        try:
            new = _written(
                added, old, X, y, sample_weight, columns=columns, rows=rows, y_order=y_order,
                seed=seed, memory=memory, allow_missing=allow_missing, on_progress=on_progress,
            )  # fmt: skip
        except BigsvmError as error:  # of a store that the caller does not know
            raise type(error)(str(error).replace(str(added), str(place))) from error
        places = _places(old, new)
        _write(work, old, arrays, new, places, budget, on_progress or (lambda _: None))
        if read_attributes(place).fingerprint != attributes.fingerprint:
            raise StoreError(f"{place}: was replaced meanwhile; append to it again")
        work.commit()
    return open_place(place)


def _is_kernel_matrix(store: Store) -> bool:
    """Whether the rows are kernel values with one another."""
    if store.attributes.n_columns == 1:
        return False
    try:
        training_matrix(store.rows)
    except DataError:
        return False
    return True


def _written(
    path: Path,
    old: Store,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    columns: Sequence[str] | None,
    seed: int,
    memory: str | int,
    on_progress: OnProgress | None,
    **options: Any,
) -> Store:
    """Write new rows as a store of their own, which checks them."""
    a = old.attributes
    form: dict[str, Any] = {
        "dtype": a.dtype, "layout": "sparse" if a.layout == CSR else "dense",
        "shuffle": a.shuffled, "seed": seed, "memory": memory, "on_progress": on_progress,
    }  # fmt: skip
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    is_path = isinstance(first, str | PathLike)
    may_be_source = is_path or callable(X) or isinstance(y, str)
    of_source = may_be_source and ((is_path and first == STANDARD_INPUT) or is_source(X))
    if of_source and is_path and y is None:
        if columns or sample_weight is not None or any(options.values()):
            raise ParameterError(
                f"without a name of the labels, {X} is LIBSVM text, which has no named columns and "
                "no weights; name the column of the labels"
            )
        return _of_text(path, old, X, form)
    other = None if of_source else as_store(X)
    if other is not None and y is None:
        y = other.labels()
        sample_weight = other.sample_weight() if sample_weight is None else sample_weight
    if of_source and chooses_columns(X):
        if a.encoding is not None:
            asked = Asked.of(
                y, sample_weight, features=columns, rows=options["rows"], encoding=a.encoding,
                memory=memory,
            )  # fmt: skip
            return written(
                Place.of(path), batches_of(X, asked), dtype=a.dtype, layout=form["layout"],
                seed=seed if a.shuffled else None, budget=memory_bytes(memory),
                report=on_progress or (lambda _: None),
            )  # fmt: skip
        columns = old.feature_names if columns is None else columns
    return write_store(path, X, y, sample_weight, columns=columns, **options, **form)


def _of_text(path: Path, old: Store, X: Any, form: dict[str, Any]) -> Store:
    """Convert LIBSVM text whose columns are numbered as those of the store."""
    n_columns = old.attributes.n_columns
    if old.first_index is None:
        raise DataError(
            f"{old}: was not made of LIBSVM text, so it is not known what column an index of {X} "
            "means; give a file with named columns, or arrays"
        )
    zero_based: ZeroBased = "yes" if old.first_index == 0 else "no"
    try:
        return convert(X, path, zero_based=zero_based, n_features=n_columns, **form)
    except DataError as error:
        if f"n_features={n_columns}" not in str(error):
            raise
        raise DataError(f"{X}: has an index past the {n_columns} columns of {old}") from error


def _places(old: Store, new: Store) -> NDArray[np.float64] | None:
    """Refuse rows that do not fit a store; the places that its class names give to theirs."""
    a, b = old.attributes, new.attributes
    pairs = zip(a.feature_names or (), b.feature_names or (), strict=False)
    column, names = next(
        ((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1]), (0, ("", ""))
    )
    first = (a.first_index, a.first_index if b.first_index is None else b.first_index)
    for what, (wanted, given) in {
        "number of columns": (a.n_columns, b.n_columns),
        f"name of column {column} (from 0)": names,
        "index of column 0 in the text": first if a.first_index is not None else (0, 0),
        "labels": [("words" if each.class_names else "numbers") for each in (a, b)],
        "weights": [("given" if each.has_weights else "none") for each in (a, b)],
    }.items():
        if wanted != given:
            raise DataError(
                f"{what}: {given} in the new rows, but {wanted} in {old}; give rows that fit it, "
                "or write all rows as a new store"
            )
    known = {name: float(place) for place, name in enumerate(a.class_names or ())}
    for name in b.class_names or ():
        if name not in known:
            raise DataError(
                f"y has the label {name!r}, which is no class of {old}; correct it, or write all "
                "rows as a new store"
            )
    return np.array([known[name] for name in b.class_names]) if b.class_names else None


def _write(
    work: Workspace,
    old: Store,
    arrays: dict[str, VerifiedArray],
    new: Store,
    places: NDArray[np.float64] | None,
    budget: int,
    report: OnProgress,
) -> None:
    """Write the rows of both stores as one."""
    a, n_new = old.attributes, new.attributes.n_rows
    rows = in_scale_of(new.rows, old.scaler)
    writer = _AppendingWriter(
        work, old, arrays, n_rows=a.n_rows + n_new, n_columns=a.n_columns,
        n_entries=a.n_nonzero + new.attributes.n_nonzero, dtype=np.dtype(a.dtype), layout=a.layout,
        weights=a.has_weights, scaler=old.scaler, memory_bytes=budget // 4,
        statistics_bytes=budget // 4,
    )  # fmt: skip
    for start, values in rows.blocks(budget // 8):
        stop = start + values.shape[0]
        labels = new.label_numbers(start, stop)
        if places is not None:
            labels = places[labels.astype(np.intp)]
        numbers = a.n_rows + new.original_rows(start, stop)
        writer.append(RowBatch(values, labels, numbers, new.sample_weight(start, stop)))
        report(ConversionProgress("write", stop, n_new))
    writer.finish(
        shuffled=a.shuffled, seed=a.seed, sources=a.sources + new.attributes.sources,
        first_index=a.first_index, feature_names=a.feature_names, class_names=a.class_names,
        encoding=a.encoding, earlier=(*(a.earlier or ()), (a.n_rows, a.rows_fingerprint)),
    )  # fmt: skip


class _AppendingWriter(StoreWriter):
    """Begins with the rows of another store, whose whole shards are not decoded."""

    def __init__(
        self, work: Workspace, old: Store, arrays: dict[str, VerifiedArray], **options: Any
    ) -> None:
        self._old, self._old_arrays = old, arrays
        super().__init__(work, **options)

    def _begin(self) -> None:
        a, path = self._old.attributes, self._old.path
        self._labels = None if a.label_counts is None else dict(a.label_counts)
        self._n_entries = a.n_nonzero if a.layout == CSR else 0
        for name, array in self._arrays.items():
            before = self._old_arrays[name]
            n, step = before.spec.shape[0], before.spec.chunk_rows * READER_CHUNKS
            for start in range(array.keep(path / name, before.spec, a.manifest[name]), n, step):
                array.append(before.read(start, min(start + step, n)))

    def _result(self) -> tuple[Statistics, int]:
        added, n_nonzero = super()._result()
        a = self._old.attributes
        both = merged((self._old.statistics, a.n_rows), (added, self._shape[0] - a.n_rows))
        return both, a.n_nonzero + n_nonzero


def merged(*parts: tuple[Statistics, int]) -> Statistics:
    """Statistics of the rows of several parts, each given with its number of rows."""
    n_columns, lists = parts[0][0].n_columns, [part.columns for part, _ in parts]
    columns = None
    if all(listed is not None for listed in lists):
        columns = np.unique(np.concatenate([np.asarray(listed) for listed in lists]))
        columns = columns if is_listed(len(columns), n_columns) else None
    width = n_columns if columns is None else len(columns)
    both = ColumnStatistics(width)
    for part, n_rows in parts:
        moments = [part.minimum, part.maximum, part.mean, part.variance * n_rows]
        if part.columns is not None:
            at = part.columns if columns is None else np.searchsorted(columns, part.columns)
            spread = np.zeros((4, width))
            spread[:, at] = moments
            moments = list(spread)
        both.merge(Moments(n_rows, 0, *moments))
    return both.result()._replace(n_columns=n_columns, columns=columns)
