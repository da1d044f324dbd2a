"""From LIBSVM text to a store, in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from bigsvm.conversion.libsvm import CHUNK_BYTES, MAX_LINE_BYTES, LibsvmReader
from bigsvm.conversion.parts import files_of
from bigsvm.conversion.streams import Source, is_compressed, source_name, source_size
from bigsvm.conversion.writing import (
    ConversionProgress,
    DType,
    Layout,
    OnProgress,
    check_seed,
    choose_layout,
    memory_bytes,
    write_spool,
)
from bigsvm.data.place import Place
from bigsvm.data.rows import make_csr
from bigsvm.data.shuffle import Spool, bits_for
from bigsvm.data.store import Store, open_place
from bigsvm.data.store_writer import RowBatch
from bigsvm.data.workspace import workspace_at
from bigsvm.errors import DataError, ParameterError
from bigsvm.processors import default_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bigsvm.conversion.text_rows import TextCounts

ZeroBased: TypeAlias = Literal["auto", "yes", "no"]


def convert(
    sources: Source | Sequence[Source],
    store_path: str | os.PathLike[str],
    *,
    memory: str | int = "1GB",
    shuffle: bool = True,
    seed: int = 0,
    zero_based: ZeroBased = "auto",
    layout: Layout = "auto",
    n_features: int | None = None,
    min_features: int | None = None,
    dtype: DType = "float32",
    strict: bool = False,
    overwrite: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    on_parsed: Callable[[TextCounts], None] | None = None,
) -> Store:
    """Convert LIBSVM text to a store.

    Labels are numbers, or all of them are words that begin with a letter; the store keeps these as
    `class_names`.

    The text is read once. Its rows are scattered over files beside the store by a random key, and
    each file is sorted, so that the order depends on `seed` alone.

    Parameters
    ----------
    sources : path or sequence of paths
        Files of one data set, folders of them, or patterns such as ``"parts/*.txt"``. "-" is
        standard input. Files compressed with gzip, bzip2, xz or zstd are recognised by their
        content.
    store_path : path or URL
        Directory to be made, or the place on object storage, such as ``s3://bucket/name.zarr``;
        see `open_store`.
    memory : str or int
        Bytes to stay below, besides the interpreter and its libraries.
    shuffle : bool
        Put the rows in random order, so that any run of them is a random sample.
    seed : int
        Seed of that order, 0 … 2**64 - 1.
    zero_based : {"auto", "yes", "no"}
        Whether column 0 is index 0. "auto": if index 0 occurs anywhere in the input.
    layout : {"auto", "dense", "sparse"}
        "auto": dense if at least a quarter of the values is not zero.
    n_features : int, optional
        Number of columns; by default the number that occurs.
    min_features : int, optional
        Smallest number of columns, where `n_features` is not given.
    dtype : {"float32", "float64"}
    strict : bool
        Refuse comments, empty lines, qid and a missing last newline.
    overwrite : bool
        Replace a store that is there, once the new one is whole; not at a URL.
    cache_dir : path, optional
        Folder for temporary files of a store at a URL, which take as much space as its rows;
        without it, the system's.
    storage_options : mapping, optional
        Arguments of the file system of fsspec, only for a URL; see `open_store`.
    threads : int, optional
        Threads that parse; without it, two, or one if there is only one core.
    on_progress : callable, optional
        Called with a `ConversionProgress` now and then.
    on_parsed : callable, optional
        Called once, with the `TextCounts` of the whole input: rows and entries, and the empty
        lines, comments and qids that were skipped.

    Raises
    ------
    ParameterError
        If a parameter has no meaning.
    ParseError
        At a line that cannot be read, with file, line and column.
    DataError
        If a source cannot be read, there are no rows, or more columns than `n_features`.
    MemoryBudgetError
        If the columns are too many for `memory`.
    StoreError
        If the store exists, is being made by another process, or cannot be written.
    UnreachableError
        If its URL cannot be reached for a while; see `open_store`.

    See Also
    --------
    write_store : A store of arrays, tables and other files.
    open_store : Read a store.

    Examples
    --------
    >>> from sklearn.datasets import dump_svmlight_file, load_iris
    >>> import bigsvm
    >>> dump_svmlight_file(*load_iris(return_X_y=True), "iris.libsvm", zero_based=False)
    >>> store = bigsvm.convert("iris.libsvm", "iris.zarr")
    >>> store.rows.n_rows, store.rows.n_columns
    (150, 4)
    """
    place = Place.of(store_path, storage_options, name="store_path")
    inputs = files_of([sources] if isinstance(sources, (str, os.PathLike)) else sources)
    budget = memory_bytes(memory)
    _check_parameters(inputs, seed, zero_based, layout, n_features, min_features, dtype, threads)
    report = on_progress or (lambda _: None)
    reader = _reader(inputs, budget, threads, dtype=dtype, zero_based=zero_based, strict=strict)
    # Before the workspace, which takes an OSError inside it for one of the disk it is on.
    sizes = [source_size(source) for source in inputs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    bits = _bucket_bits(inputs, sizes, budget)
    with (
        workspace_at(place, overwrite=overwrite, cache_dir=cache_dir) as work,
        Spool(
            work.path / "spool",
            seed=seed if shuffle else None,
            bits=bits,
            memory_bytes=budget // 2,
        ) as spool,
    ):
        for text in reader:
            n = len(text.labels)
            values = make_csr(text.values, text.indices, text.indptr, np.iinfo(np.int32).max)
            first = spool.n_rows
            spool.append(RowBatch(values, text.labels, np.arange(first, first + n), None))
            report(ConversionProgress("read", reader.counts.bytes_read, total))
        if on_parsed is not None:
            on_parsed(reader.counts)
        class_names, places = reader.class_names.sorted()
        n_columns, first_index = _columns(reader.counts, zero_based, n_features, min_features)
        write_spool(
            spool,
            work,
            n_columns=n_columns,
            first_index=first_index,
            layout=choose_layout(
                layout, n_entries=spool.n_entries, n_rows=spool.n_rows, n_columns=n_columns
            ),
            dtype=np.dtype(dtype),
            weights=False,
            seed=seed if shuffle else None,
            sources=tuple(source_name(source) for source in inputs),
            budget=budget,
            report=report,
            class_names=class_names,
            places=places,
        )
        work.commit()
    return open_place(place)


def check_text(
    sources: Source | Sequence[Source],
    *,
    memory: str | int = "1GB",
    zero_based: ZeroBased = "auto",
    n_features: int | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> TextCounts:
    """Read LIBSVM text strictly, and write nothing; parameters and errors are as in `convert`."""
    inputs = files_of([sources] if isinstance(sources, (str, os.PathLike)) else sources)
    _check_parameters(inputs, 0, zero_based, "auto", n_features, None, "float64", threads)
    budget, report = memory_bytes(memory), on_progress or (lambda _: None)
    sizes = [source_size(source) for source in inputs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    reader = _reader(inputs, budget, threads, dtype="float64", zero_based=zero_based, strict=True)
    for _ in reader:
        report(ConversionProgress("read", reader.counts.bytes_read, total))
    _columns(reader.counts, zero_based, n_features, None)
    return reader.counts


def _reader(
    inputs: list[Source],
    budget: int,
    threads: int | None,
    *,
    dtype: DType,
    zero_based: ZeroBased,
    strict: bool,
) -> LibsvmReader:
    threads = threads or min(2, default_threads())
    share = budget // (8 * (threads + 2))
    return LibsvmReader(
        inputs,
        dtype=np.dtype(dtype),
        smallest_index=int(zero_based == "no"),
        strict=strict,
        threads=threads,
        # Chunks with their arrays, ten times as much, take a third of the budget at most. Lines are
        # nearly all shorter than a chunk; four chunks' worth is for the odd one.
        chunk_bytes=max(1, min(CHUNK_BYTES, share // 4)),
        max_line_bytes=max(1, min(MAX_LINE_BYTES, share)),
        decompression_bytes=budget // 2,
    )


def _check_parameters(
    inputs: list[Source],
    seed: int,
    zero_based: str,
    layout: str,
    n_features: int | None,
    min_features: int | None,
    dtype: str,
    threads: int | None,
) -> None:
    if not inputs:
        raise ParameterError("sources is empty; give at least one file, or '-' for standard input")
    for name, value, allowed in (
        ("zero_based", zero_based, ("auto", "yes", "no")),
        ("layout", layout, ("auto", "dense", "sparse")),
        ("dtype", dtype, ("float32", "float64")),
    ):
        if value not in allowed:
            raise ParameterError(f"{name}={value!r}; it must be one of {', '.join(allowed)}")
    check_seed(seed)
    for name, number in (
        ("n_features", n_features),
        ("min_features", min_features),
        ("threads", threads),
    ):
        if number is not None and number < 1:
            raise ParameterError(f"{name}={number}; it must be at least 1")


def _bucket_bits(inputs: list[Source], sizes: list[int | None], budget: int) -> int:
    """Files to scatter over, as a power of two."""
    size = 0
    for source, stored in zip(inputs, sizes, strict=True):
        # Standard input: as if 16 times the budget. Compressed text: about a fifth of its size.
        unpacked = 1 if stored is None or not is_compressed(Path(source)) else 5
        size += 16 * budget if stored is None else stored * unpacked
    return bits_for(size, budget)


def _columns(
    counts: TextCounts, zero_based: ZeroBased, n_features: int | None, min_features: int | None
) -> tuple[int, int]:
    """Return the number of columns, and the index of the first."""
    if counts.rows == 0:
        raise DataError("the input has no rows; every source is empty, or has comments only")
    low, high = counts.smallest_index, counts.largest_index
    first = int(zero_based == "no" or (zero_based == "auto" and low != 0))
    seen = 0 if high is None else high + 1 - first
    if n_features is not None and seen > n_features:
        raise DataError(
            f"index {high} occurs, which makes {seen} columns, but n_features={n_features}; use "
            f"n_features={seen}"
        )
    if not (n_features or seen or min_features):
        raise DataError("no row has an entry, so the number of columns is unknown; give n_features")
    return n_features or max(seen, min_features or 0), first
