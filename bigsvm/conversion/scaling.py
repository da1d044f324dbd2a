"""From a store to the same store with its columns scaled, block by block."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from bigsvm.budget import show_bytes
from bigsvm.conversion.writing import ConversionProgress, OnProgress, check_columns, memory_bytes
from bigsvm.data.place import Place, lies_below
from bigsvm.data.scaler import choose_scaler
from bigsvm.data.schema import DENSE
from bigsvm.data.store import Store, open_place, open_store
from bigsvm.data.store_writer import RowBatch, StoreWriter
from bigsvm.data.workspace import workspace_at
from bigsvm.data.wrappers import ScaledRows
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigsvm.data.scaler import Method, Scaler


class HasScaler(Protocol):
    """A store or a model: what may have been scaled."""

    @property
    def scaler(self) -> Scaler | None:
        """How, or None."""

    @property
    def first_index(self) -> int | None:
        """Index of column 0 in LIBSVM text, None where that was no text."""


def scale_store(
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    method: Method | None = None,
    lower: float | None = None,
    upper: float | None = None,
    like: HasScaler | str | os.PathLike[str] | None = None,
    memory: str | int = "1GB",
    overwrite: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Store:
    """Scale the columns of a store, and write them as a new store.

    Rows keep their order, numbers, labels and weights. The new store, and a model that is trained
    on it, remember how they were scaled. A constant column becomes 0. Sample weights do not change
    the statistics of the columns.

    Parameters
    ----------
    store : Store, or path or URL of one
        Its rows must not be scaled yet.
    path : path or URL
        Directory to be made, or the place on object storage, such as ``s3://bucket/name.zarr``;
        see `open_store`.
    method : {"minmax", "standard", "maxabs"}, optional
        See `choose_scaler`; "minmax" unless given. Sparse rows stay sparse where each column keeps
        its zeros, as it does with "maxabs"; else the new store is dense, as the text of svm-scale.
    lower, upper : float, optional
        Range of "minmax"; -1 and 1 unless given.
    like : Store, path or URL of one, or KernelExpansion, optional
        Scale as this store or model was scaled, in place of a method.
    memory : str or int
        Bytes to stay below.
    overwrite : bool
        Replace a store that is there, once the new one is whole; not at a URL.
    cache_dir : path, optional
        Folder for temporary files of a store at a URL, which take as much space as its rows;
        without it, the system's.
    storage_options : mapping, optional
        Arguments of the file system of fsspec, only for a URL; see `open_store`.
    on_progress : callable, optional
        Called with a `ConversionProgress` now and then.

    Raises
    ------
    ParameterError
        A parameter has no meaning, or none beside `like`.
    DataError
        The store is scaled already; `like` is not scaled, or has other columns; a column cannot be
        scaled; or zeros of sparse rows become other values, and dense rows exceed `memory`.
    StoreError
        If the store exists, is being made by another process, or cannot be written.
    UnreachableError
        If its URL cannot be reached for a while; see `open_store`.

    See Also
    --------
    write_store : A store of arrays, tables and files.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> X, y = load_iris(return_X_y=True)
    >>> store = bigsvm.scale_store(bigsvm.write_store("iris.zarr", X, y), "scaled.zarr")
    >>> model = bigsvm.SVC(gamma=0.5).fit(store)
    >>> len(model.predict(X))  # rows that are not scaled
    150
    """
    place = Place.of(path, storage_options, name="path")
    budget = memory_bytes(memory)
    report = on_progress or (lambda _: None)
    store = store if isinstance(store, Store) else open_store(store)
    attributes = store.attributes
    if attributes.scaler is not None:
        raise DataError(
            f"{store}: is scaled already ({attributes.scaler}); scale the store it was made of"
        )
    if lies_below(place, store.place):
        raise ParameterError(f"path is {str(path)!r}, which lies in the store; give another")
    check_columns(attributes.n_columns, attributes.layout, budget)
    if like is None:
        scaler = choose_scaler(store.statistics, method or "minmax", lower=lower, upper=upper)
    elif (method, lower, upper) == (None, None, None):
        scaler = _scaler_of(
            open_store(like) if isinstance(like, str | os.PathLike) else like, store
        )
    else:
        raise ParameterError("like brings all parameters; give no method, lower or upper beside it")
    rows = ScaledRows(store.rows, scaler)
    layout = DENSE if not rows.is_sparse else attributes.layout
    dense_bytes = attributes.n_rows * attributes.n_columns * rows.dtype.itemsize
    if layout != attributes.layout and (scaler.columns is not None or dense_bytes > budget):
        column = int(scaler.moved_columns()[0])
        remedy = "method='maxabs', which keeps zeros"
        if like is None and scaler.method == "minmax":
            from_0 = choose_scaler(store.statistics, "minmax", lower=0.0, upper=1.0)
            if not len(from_0.moved_columns()):
                remedy = "lower=0, which keeps zeros"
        raise DataError(
            f"{store}: its rows are sparse, but {scaler.method} turns the zeros of column "
            f"{column} (from 0) into other values, and dense rows take {show_bytes(dense_bytes)}, "
            f"more than memory={budget}; use {remedy}, or more memory"
        )
    with workspace_at(place, overwrite=overwrite, cache_dir=cache_dir) as work:
        writer = StoreWriter(
            work,
            n_rows=attributes.n_rows,
            n_columns=attributes.n_columns,
            n_entries=attributes.n_nonzero,
            dtype=rows.dtype,
            layout=layout,
            weights=attributes.has_weights,
            scaler=scaler,
            memory_bytes=budget // 4,
            statistics_bytes=budget // 4,
        )
        for start, values in rows.blocks(budget // 8):
            stop = start + values.shape[0]
            weights = store.sample_weight(start, stop)
            writer.append(
                RowBatch(
                    values,
                    store.label_numbers(start, stop),
                    store.original_rows(start, stop),
                    weights,
                )
            )
            report(ConversionProgress("write", stop, attributes.n_rows))
        writer.finish(
            shuffled=attributes.shuffled,
            seed=attributes.seed,
            sources=attributes.sources,
            first_index=attributes.first_index,
            feature_names=attributes.feature_names,
            class_names=attributes.class_names,
            encoding=attributes.encoding,
            earlier=attributes.parts,
        )
        work.commit()
    return open_place(place)


def _scaler_of(other: HasScaler, store: Store) -> Scaler:
    """Scaler of a store or a model, whose columns must be numbered as those of `store`."""
    if other.scaler is None:
        raise DataError("what the rows are to be scaled like is not scaled; give a scaled store")
    if None not in (other.first_index, store.first_index) and (
        other.first_index != store.first_index
    ):
        meant = "yes" if other.first_index == 0 else "no"
        raise DataError(
            f"{store}: column 0 is index {store.first_index} of its text, but index "
            f"{other.first_index} where the scaling is from; convert it with --zero-based {meant}"
        )
    return other.scaler
