"""From arrays to a store, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bigsvm.conversion.batches import Batch, Batches, converted
from bigsvm.conversion.columns import Encode, Fill
from bigsvm.conversion.formats import Asked, is_source, opened
from bigsvm.conversion.labels import label_numbers, weight_array
from bigsvm.conversion.writing import (
    ConversionProgress,
    DType,
    Layout,
    OnProgress,
    check_columns,
    check_seed,
    memory_bytes,
)
from bigsvm.data.containers import is_lazy_table
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.place import Place
from bigsvm.data.row_values import WHICH_ORDER, check_y_order
from bigsvm.data.shuffle import shuffle_keys
from bigsvm.data.sources import as_row_source, as_store
from bigsvm.data.store import Store, open_place
from bigsvm.data.store_writer import RowBatch, StoreWriter
from bigsvm.data.workspace import workspace_at
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.data.far_workspace import FarWorkspace
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.store_part import StorePart
    from bigsvm.data.workspace import Workspace


def write_store(
    path: str | os.PathLike[str],
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    columns: Sequence[str] | None = None,
    rows: str | None = None,
    categories: Literal["onehot"] | None = None,
    max_categories: int = 100,
    missing: Fill | None = None,
    missing_indicator: bool = False,
    unknown: Literal["refuse", "zeros"] = "refuse",
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
    """Write arrays, or the rows of files of other programs, as a store.

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

        Or a source that holds labels too: files of Parquet, Feather, Arrow or CSV with a header
        (paths, folders, patterns, URLs); a file of npy, npz, HDF5 or h5ad; a group of Zarr; a
        ``pyarrow.dataset.Dataset``; a Polars ``LazyFrame``; or a callable that returns an iterator
        of ``(X, y)`` or ``(X, y, weight)``. Their libraries are in the extra ``bigsvm[tables]``.
    y : (n_rows,) array or RowValues, or name
        Labels: numbers, stored as float64, or words, which the store keeps as `class_names`. If X
        is a shuffled store, an array needs `y_order`. Of a source, the name of its column or array
        of labels.
    sample_weight : (n_rows,) array or RowValues, or name, optional
        Not negative; beside a shuffled store as `y`. Of a source, the name of a column or array.
    columns : sequence of str, optional
        Columns of a table that become X, in this order; without it all but label and weight.
    rows : str, optional
        Array or group of HDF5 or Zarr that has the rows, as ``"layers/counts"``; without it X, or
        the only matrix.
    categories : {"onehot"}, optional
        Make columns of words of a table (text, dictionaries of Arrow, categories of pandas) a
        column ``column=word`` of 0 and 1 for each word, sorted. Without it they are refused. The
        store keeps the words, and models that are trained on it encode other tables alike.
    max_categories : int
        Most words of a column.
    missing : {"mean", "median", "zero"}, optional
        What missing values of a table become: the mean or median of their column, or 0; of words,
        0 in all of their columns. NaN is missing, too. Without it missing values are refused.
    missing_indicator : bool
        Add a column ``column=missing`` of 0 and 1 for each column that lacks values.
    unknown : {"refuse", "zeros"}
        What becomes of words in other tables that this one lacks; ``"zeros"``: 0 in all columns.
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

    See Also
    --------
    convert : A store of LIBSVM text.
    open_store : Read a store.
    append : More rows.

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
    if layout not in ("auto", "dense", "sparse"):
        raise ParameterError(f"layout={layout!r}; it must be one of auto, dense, sparse")
    if dtype not in (None, "float32", "float64"):
        raise ParameterError(f"dtype={dtype!r}; it must be one of float32, float64")
    budget = memory_bytes(memory)
    encode = Encode(categories, max_categories, missing, missing_indicator, unknown)
    batches: Batches
    if (callable(X) or is_lazy_table(X) or isinstance(y, str)) and is_source(X):
        asked = Asked.of(
            y, sample_weight, features=columns, rows=rows, memory=memory, **encode._asdict()
        )
        batches = batches_of(X, asked)
    elif columns is not None or rows is not None or encode.is_asked:
        raise ParameterError(
            "columns, rows, categories and missing are for files and tables that are given with "
            "the name of their labels"
        )
    else:
        store = as_store(X)
        if y_order is not None:
            check_y_order(y_order, (y, sample_weight), beside_store=store is not None)
        if store is not None:
            y = _in_order_of(store, y, "y", y_order)
            if sample_weight is not None:
                sample_weight = _in_order_of(store, sample_weight, "sample_weight", y_order)
        source = as_row_source(X, memory=budget, once=True, allow_missing=allow_missing)
        batches = SourceBatches.of(source, y, sample_weight)
    with workspace_at(place, overwrite=overwrite, cache_dir=cache_dir) as work:
        batches.write(
            work, dtype=dtype, layout=layout, seed=seed if shuffle else None, budget=budget,
            report=on_progress or (lambda _: None),
        )  # fmt: skip
        work.commit()
    return open_place(place)


def batches_of(X: Any, asked: Asked) -> Batches:
    """Open a source; see `bigsvm.conversion.formats`. Without labels these are 0."""
    found = opened(X, asked)
    if isinstance(found, Batches):
        return found
    source = found.rows(asked.memory)
    y = np.zeros(source.n_rows) if found.y is None else found.y
    return SourceBatches.of(source, y, found.weight)


def written(
    place: Place,
    batches: Batches,
    *,
    overwrite: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Store:
    """Write batches as the store at a place; options are those of `Batches.write`."""
    with workspace_at(place, overwrite=overwrite, cache_dir=cache_dir) as work:
        batches.write(work, **options)
        work.commit()
    return open_place(place)


def _in_order_of(
    store: Store | StorePart, values: Any, name: str, order: Order | None
) -> NDArray[Any]:
    return store.beside(values, name, order, instead=WHICH_ORDER)


class SourceBatches(Batches):
    """Rows of a source, with labels and weights in memory, (n_rows,) float64 each.

    `class_names` are what the labels are places of, if they are words.
    """

    name = "X"

    def __init__(
        self,
        source: RowSource,
        labels: NDArray[np.float64],
        class_names: tuple[str, ...] | None,
        weights: NDArray[np.float64] | None,
    ) -> None:
        self.source, self._labels, self._weights = source, labels, weights
        self.n_columns, self.dtype = source.n_columns, source.dtype
        self.feature_names, self.scaler = source.feature_names, source.scaler
        self.class_names, self.weighted = class_names, weights is not None
        self.encoding = source.encoding
        self.size = int(source.n_rows * source.bytes_per_row)
        self.is_sparse = source.is_sparse

    @classmethod
    def of(cls, source: RowSource, y: Any, sample_weight: Any) -> SourceBatches:
        """Check labels and weights of a source; see `label_numbers` and `weight_array`."""
        labels, class_names = label_numbers(y, source.n_rows)
        weights = None if sample_weight is None else weight_array(sample_weight, source.n_rows)
        return cls(source, labels, class_names, weights)

    def batches(self, memory: int) -> Iterator[Batch]:
        """Yield blocks of rows."""
        for block in self.source.blocks(memory):
            row = slice(block.start, block.start + block.values.shape[0])
            yield self.batch(block.values, row)

    def batch(self, values: Any, row: Any) -> Batch:
        """Return rows with what belongs to them; `row` has their numbers."""
        weights = None if self._weights is None else self._weights[row]
        return Batch(values, self._labels[row], weights)

    def write(
        self,
        work: Workspace | FarWorkspace,
        *,
        dtype: DType | None = None,
        layout: Layout = "auto",
        seed: int | None = 0,
        budget: int,
        report: OnProgress = lambda _: None,
    ) -> None:
        """Write them as a store; rows in memory are taken in their final order."""
        if not isinstance(self.source, ArrayRows):
            super().write(work, dtype=dtype, layout=layout, seed=seed, budget=budget, report=report)
            return
        source, kind, n_entries = self.source, np.dtype(dtype or self.dtype), 0
        step = max(1, source.rows_per_block(budget // 8))
        for start in range(0, source.n_rows, step):
            rows: Any = converted(source.read(start, min(start + step, source.n_rows)), kind, start)
            # As they will be stored: conversion turns the smallest numbers into zeros.
            n_entries += rows.nnz if source.is_sparse else int(np.count_nonzero(rows))
        form = self.layout(layout, n_entries, source.n_rows)
        check_columns(source.n_columns, form, budget)
        writer = StoreWriter(
            work, n_rows=source.n_rows, n_columns=source.n_columns, n_entries=n_entries, dtype=kind,
            layout=form, weights=self.weighted, scaler=source.scaler, memory_bytes=budget // 2,
            statistics_bytes=budget // 4,
        )  # fmt: skip
        order = np.arange(source.n_rows)
        if seed is not None:
            order = np.argsort(shuffle_keys(seed, order))
        for start in range(0, source.n_rows, step):
            row = order[start : start + step]
            values: Any = source.take(row)
            values, labels, weights = self.batch(values.astype(kind, copy=False), row)
            writer.append(RowBatch(values, labels, row, weights))
            report(ConversionProgress("write", start + len(row), source.n_rows))
        writer.finish(
            shuffled=seed is not None, seed=seed, sources=(), feature_names=source.feature_names,
            class_names=self.class_names, encoding=self.encoding,
        )  # fmt: skip
