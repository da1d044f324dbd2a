"""From arrays to a store, in bounded memory."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.conversion.from_text import (
    ConversionProgress,
    DType,
    Layout,
    OnProgress,
    check_class_names,
    check_columns,
    check_seed,
    choose_layout,
    memory_bytes,
    write_spool,
)
from bigsvm.data.far_workspace import workspace_at
from bigsvm.data.place import Place
from bigsvm.data.row_values import WHICH_ORDER, check_y_order, in_memory
from bigsvm.data.rows import check_finite
from bigsvm.data.schema import DENSE
from bigsvm.data.shuffle import Spool, bits_for, shuffle_keys
from bigsvm.data.sources import ArrayRows, as_row_source, as_store
from bigsvm.data.store import Store, open_place
from bigsvm.data.store_writer import RowBatch, StoreWriter
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.data.far_workspace import FarWorkspace
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.store_part import StorePart
    from bigsvm.data.workspace import Workspace


def write_store(
    path: str | os.PathLike[str],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    y_order: Order | None = None,
    dtype: DType | None = None,
    layout: Layout = "auto",
    shuffle: bool = True,
    seed: int = 0,
    memory: str | int = "1GB",
    overwrite: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow_missing: bool = False,
    on_progress: OnProgress | None = None,
) -> Store:
    """Write arrays as a store.

    Parameters
    ----------
    path : path or URL
        Directory to be made, or the place on object storage, such as ``s3://bucket/name.zarr``;
        see `open_store`.
    X : (n_rows, n_columns) container or RowSource
        An array or a scipy.sparse matrix; a data frame of pandas, Polars, Arrow or Dask; an array
        of Dask, Zarr or h5py; a group of Zarr or h5py that is CSR in anndata's encoding; an
        AnnData. What is not in memory as an array is read block by block. The store keeps the names
        of columns, and what the rows of a scaled store were scaled by.
    y : (n_rows,) array or RowValues
        Labels: numbers, stored as float64, or words, which the store keeps as `class_names`. If X
        is a shuffled store, an array needs `y_order`.
    sample_weight : (n_rows,) array or RowValues, optional
        Not negative; beside a shuffled store as `y`.
    y_order : {"input", "store"}, optional
        Only if X is a store: order of `y` and `sample_weight`, that of the input of X or that of
        its rows.
    dtype : {"float32", "float64"}, optional
        Without it, that of X; float32 for bool, float16 and integers of 8 or 16 bits, else
        float64.
    layout : {"auto", "dense", "sparse"}
        "auto": as X is; sparse X becomes dense where a quarter of its values is not zero.
    shuffle : bool
        Put the rows in random order, so that any run of them is a random sample.
    seed : int
        Seed of that order, 0 … 2**64 - 1.
    memory : str or int
        Bytes to stay below, besides X, y and weights themselves.
    overwrite : bool
        Replace a store that is there, once the new one is whole; not at a URL.
    cache_dir : path, optional
        Folder for temporary files of a store at a URL, which take as much space as its rows;
        without it, the system's.
    storage_options : mapping, optional
        Arguments of the file system of fsspec, only for a URL; see `open_store`.
    allow_missing : bool
        Take a Zarr array that lacks chunks, which then read as its fill value: Zarr leaves out
        chunks that hold nothing else.
    on_progress : callable, optional
        Called with a `ConversionProgress` now and then.

    Raises
    ------
    ParameterError
        If a parameter has no meaning.
    DataError
        If X, y or the weights hold values that no model can be trained on (the message names row
        and column), or X lacks chunks.
    MemoryBudgetError
        If X cannot be read in blocks that fit in `memory`.
    StoreError
        If the store exists, is being made by another process, or cannot be written.
    UnreachableError
        If its URL cannot be reached for a while; see `open_store`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> store = bigsvm.write_store("iris.zarr", *load_iris(return_X_y=True))
    >>> bigsvm.SVC(gamma=0.1).fit(store).converged_
    True
    """
    place = Place.of(path, storage_options, name="path")
    check_seed(seed)
    store = as_store(X)
    check_y_order(y_order, (y, sample_weight), beside_store=store is not None)
    if store is not None:
        y = _in_order_of(store, y, "y", y_order)
        if sample_weight is not None:
            sample_weight = _in_order_of(store, sample_weight, "sample_weight", y_order)
    if layout not in ("auto", "dense", "sparse"):
        raise ParameterError(f"layout={layout!r}; it must be one of auto, dense, sparse")
    if dtype not in (None, "float32", "float64"):
        raise ParameterError(f"dtype={dtype!r}; it must be one of float32, float64")
    budget = memory_bytes(memory)
    source = as_row_source(X, memory=budget, once=True, allow_missing=allow_missing)
    labels, class_names = label_numbers(y, source.n_rows)
    weights = None if sample_weight is None else weight_array(sample_weight, source.n_rows)
    writing = _Writing(
        source=source,
        labels=labels,
        class_names=class_names,
        weights=weights,
        dtype=np.dtype(dtype or source.dtype),
        layout=layout,
        seed=seed if shuffle else None,
        budget=budget,
        report=on_progress or (lambda _: None),
    )
    with workspace_at(place, overwrite=overwrite, cache_dir=cache_dir) as work:
        if isinstance(source, ArrayRows):
            writing.from_memory(work)
        else:
            writing.through_spool(work)
        work.commit()
    return open_place(place)


def _in_order_of(
    store: Store | StorePart, values: Any, name: str, order: Order | None
) -> NDArray[Any]:
    return store.beside(values, name, order, instead=WHICH_ORDER)


class _Writing:
    """One call of `write_store`, with its parameters checked."""

    def __init__(
        self,
        *,
        source: RowSource,
        labels: NDArray[np.float64],
        class_names: tuple[str, ...] | None,
        weights: NDArray[np.float64] | None,
        dtype: np.dtype[Any],
        layout: Layout,
        seed: int | None,
        budget: int,
        report: OnProgress,
    ) -> None:
        self._source = source
        self._labels = labels
        self._class_names = class_names
        self._weights = weights
        self._dtype = dtype
        self._layout = layout
        self._seed = seed
        self._budget = budget
        self._report = report

    def from_memory(self, work: Workspace | FarWorkspace) -> None:
        """Rows that are cheap to take one by one are taken in their final order."""
        source = self._source
        n_entries = 0
        step = max(1, source.rows_per_block(self._budget // 8))
        for start in range(0, source.n_rows, step):
            rows: Any = source.read(start, min(start + step, source.n_rows))
            rows = self._converted(rows, start)
            # As they will be stored: conversion turns the smallest numbers into zeros.
            n_entries += rows.nnz if source.is_sparse else int(np.count_nonzero(rows))
        layout = self._final_layout(n_entries)
        check_columns(source.n_columns, layout, self._budget)
        writer = StoreWriter(
            work,
            n_rows=source.n_rows,
            n_columns=source.n_columns,
            n_entries=n_entries,
            dtype=self._dtype,
            layout=layout,
            weights=self._weights is not None,
            scaler=source.scaler,
            memory_bytes=self._budget // 2,
            statistics_bytes=self._budget // 4,
        )
        order = np.arange(source.n_rows)
        if self._seed is not None:
            order = np.argsort(shuffle_keys(self._seed, order))
        for start in range(0, source.n_rows, step):
            row = order[start : start + step]
            writer.append(self._batch(source.take(row), row))
            self._report(ConversionProgress("write", start + len(row), source.n_rows))
        writer.finish(
            shuffled=self._seed is not None,
            seed=self._seed,
            sources=(),
            feature_names=source.feature_names,
            class_names=self._class_names,
        )

    def through_spool(self, work: Workspace | FarWorkspace) -> None:
        """Rows that come in blocks are scattered over files first."""
        source = self._source
        size = int(source.n_rows * source.bytes_per_row)
        bits = bits_for(size, self._budget)
        with Spool(
            work.path / "spool", seed=self._seed, bits=bits, memory_bytes=self._budget // 2
        ) as spool:
            for block in source.blocks(self._budget // 8):
                values = self._converted(block.values, block.start)
                if self._layout == "sparse" and not source.is_sparse:
                    values = sp.csr_array(values)
                row = np.arange(block.start, block.start + values.shape[0])
                spool.append(self._batch(values, row))
                done = int(spool.n_rows * source.bytes_per_row)
                self._report(ConversionProgress("read", done, size))
            write_spool(
                spool,
                work,
                n_columns=source.n_columns,
                first_index=None,
                layout=self._final_layout(spool.n_entries),
                dtype=self._dtype,
                weights=self._weights is not None,
                scaler=source.scaler,
                feature_names=source.feature_names,
                class_names=self._class_names,
                seed=self._seed,
                sources=(),
                budget=self._budget,
                report=self._report,
            )

    def _final_layout(self, n_entries: int) -> str:
        if self._layout == "auto" and not self._source.is_sparse:
            return DENSE
        source = self._source
        return choose_layout(
            self._layout,
            n_entries=n_entries,
            n_rows=source.n_rows,
            n_columns=source.n_columns,
        )

    def _batch(self, values: Any, row: NDArray[np.int64]) -> RowBatch:
        weights = None if self._weights is None else self._weights[row]
        if values.dtype != self._dtype:
            values = values.astype(self._dtype)
        return RowBatch(values, self._labels[row], row, weights)

    def _converted(self, values: Any, first_row: int) -> Any:
        """Rows in the type of the store, in which all values must be finite."""
        check_finite(values, first_row)
        if values.dtype == self._dtype:
            return values
        with np.errstate(over="ignore"):
            converted = values.astype(self._dtype)
        try:
            check_finite(converted, first_row)
        except DataError as error:
            raise DataError(
                f"{error}; it is too large for {self._dtype}: use dtype='float64', or rescale it"
            ) from None
        return converted


def _vector(values: Any, n_rows: int, name: str) -> NDArray[Any]:
    array = np.asarray(in_memory(values, name))
    if array.shape != (n_rows,):
        raise DataError(
            f"{name} has shape {array.shape}, but X has {n_rows} rows; it must be ({n_rows},)"
        )
    return array


def label_numbers(y: Any, n_rows: int) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Labels as float64; of words their places among the distinct ones, and these, sorted.

    Raises
    ------
    DataError
        If they are neither finite numbers nor words, one for each row, are integers that float64
        does not hold, or too many different words.
    """
    array = _vector(y, n_rows, "y")
    if array.dtype.kind in "UT" or (array.dtype == object and isinstance(array[0], str)):
        return _places_of_words(array)
    return _numbers(array), None


def _places_of_words(array: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    if array.dtype == object:
        for row, word in enumerate(array):
            if not isinstance(word, str):
                raise DataError(
                    f"y has {word!r} in row {row} (from 0), and words elsewhere; give all labels "
                    "as words, or remove the row"
                )
    distinct, places = np.unique(array, return_inverse=True)
    names = tuple(map(str, distinct))
    check_class_names(names, "y")
    return places.astype(np.float64), names


def _numbers(array: NDArray[Any]) -> NDArray[np.float64]:
    if not _are_numbers(array):
        raise DataError(f"y has type {array.dtype}; labels must be numbers or words")
    labels = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(labels))
    if len(bad):
        raise DataError(f"y has {labels[bad[0]]} in row {bad[0]} (from 0); remove the row")
    if (array.dtype.kind in "ui" and array.dtype.itemsize == 8) or array.dtype == object:
        beyond = np.flatnonzero((array > 2**53) | (array < -(2**53)))
        row = next((row for row in beyond if isinstance(array[row], Integral)), None)
        if row is not None:
            raise DataError(
                f"y has {array[row]} in row {row}; integers beyond 2**53 are not float64 "
                "numbers: renumber the labels"
            )
    return labels


def _are_numbers(array: NDArray[Any]) -> bool:
    """Whether an array holds numbers, those that are Python objects included."""
    if array.dtype == object:
        return all(isinstance(value, Real) for value in array)
    return array.dtype.kind in "buif"


def weight_array(weights: Any, n_rows: int) -> NDArray[np.float64]:
    """Weights as float64.

    Raises
    ------
    DataError
        If one is negative or not finite, or there is not one for each row; names the row.
    """
    array = _vector(weights, n_rows, "sample_weight")
    if not _are_numbers(array):
        raise DataError(f"sample_weight has type {array.dtype}; weights must be numbers")
    numbers = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers) | (numbers < 0))
    if len(bad):
        raise DataError(
            f"sample_weight has {numbers[bad[0]]} in row {bad[0]} (from 0); weights must be finite "
            "and not negative"
        )
    return numbers
