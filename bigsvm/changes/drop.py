"""A store without some rows of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.writing import ConversionProgress, memory_bytes
from bigsvm.data.place import Place
from bigsvm.data.schema import CSR
from bigsvm.data.store import Store, open_place, open_store
from bigsvm.data.store_rows import StoreRows
from bigsvm.data.store_writer import RowBatch, StoreWriter
from bigsvm.data.workspace import workspace_at
from bigsvm.data.wrappers import ChosenRows
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from os import PathLike

    from bigsvm.conversion.writing import OnProgress


def drop(
    store: str | PathLike[str] | Store,
    rows: Any,
    path: str | PathLike[str],
    *,
    memory: str | int = "1GB",
    on_progress: OnProgress | None = None,
) -> Store:
    """Write a store without some rows of another one, in its order; a model of that can start fits.

    Parameters
    ----------
    store : path, URL or Store
    rows : (m,) array of int
        Numbers of rows in the input of the store, from 0, as ``store.original_rows()`` has them.
    path : path or URL
        The store to be made. Its rows are numbered as if its input had not had the others.
    memory : str or int
        Bytes to stay below, besides 24 bytes a row.
    on_progress : callable, optional
        Called with a `ConversionProgress` now and then.

    Raises
    ------
    ParameterError, StoreError, DataCorruptionError, UnreachableError
        As for `write_store` and `open_store`.
    DataError
        The store has no such row, or only such rows.

    See Also
    --------
    append : More rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> store = bigsvm.write_store("iris.zarr", *load_iris(return_X_y=True))
    >>> bigsvm.drop(store, [3, 149], "clean.zarr").shape
    (148, 4)
    """
    place, budget = Place.of(path, name="path"), memory_bytes(memory)
    store = store if isinstance(store, Store) else open_store(store)
    a, numbers = store.attributes, store.original_rows()
    is_dropped = np.zeros(a.n_rows, np.bool_)
    is_dropped[_row_numbers(rows, store)] = True
    chosen = np.flatnonzero(~is_dropped[numbers])
    if not len(chosen):
        raise DataError(f"{store}: all of its {a.n_rows} rows would be dropped; keep some")
    numbers -= np.cumsum(is_dropped)[numbers]
    n_entries, kept = 0, ChosenRows(store.rows, chosen)
    if isinstance(store.rows, StoreRows) and a.layout == CSR:
        n_entries = int(np.diff(store.rows.indptr())[chosen].sum())
    parts = np.searchsorted(chosen, [n for n, _ in a.earlier or ()]).tolist()
    # Where appended rows begin counts on; no model is of these parts, so they have no fingerprint.
    earlier = tuple((n, "") for n in parts if 0 < n < len(chosen)) or None
    labels, weights, names = store.label_numbers(), store.sample_weight(), a.class_names
    if names is not None:
        left = np.unique(labels[chosen])
        names = tuple(names[int(place)] for place in left)
        labels = np.searchsorted(left, labels).astype(np.float64)
    with workspace_at(place, overwrite=False, cache_dir=None) as work:
        writer = StoreWriter(
            work, n_rows=len(chosen), n_columns=a.n_columns, n_entries=n_entries,
            dtype=kept.dtype, layout=a.layout, weights=a.has_weights, scaler=store.scaler,
            memory_bytes=budget // 4, statistics_bytes=budget // 4,
        )  # fmt: skip
        for start, values in kept.blocks(budget // 8):
            some = chosen[start : start + values.shape[0]]
            of_rows = None if weights is None else weights[some]
            writer.append(RowBatch(values, labels[some], numbers[some], of_rows))
            if on_progress is not None:
                on_progress(ConversionProgress("write", start + len(some), len(chosen)))
        writer.finish(
            shuffled=a.shuffled, seed=a.seed, sources=a.sources, first_index=a.first_index,
            feature_names=a.feature_names, class_names=names, encoding=a.encoding,
            earlier=earlier,
        )  # fmt: skip
        work.commit()
    return open_place(place)


def _row_numbers(rows: Any, store: Store) -> Any:
    """Check numbers of rows."""
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ParameterError("rows must be numbers of rows, at least one: (m,) integers")
    wrong = numbers[(numbers < 0) | (numbers >= len(store))]
    if len(wrong):
        raise DataError(
            f"{store}: has no row {wrong[0]}; its rows are 0 to {len(store) - 1}, as in its input"
        )
    return numbers
