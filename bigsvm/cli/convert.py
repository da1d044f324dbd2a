"""``bigsvm convert``: LIBSVM text to a store."""

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import (
    CacheDirOfUrl,
    Json,
    Memory,
    Quiet,
    ReadOptions,
    given,
    is_given,
)
from bigsvm.cli.outputs import OverwriteStore, check_apart, say_result, say_store
from bigsvm.cli.signals import Interruption
from bigsvm.report.progress import Display
from bigsvm.report.text import count

if TYPE_CHECKING:
    from bigsvm.conversion.text_rows import TextCounts
    from bigsvm.data.store import Store


class Layout(StrEnum):
    """How X is stored."""

    AUTO = "auto"
    DENSE = "dense"
    SPARSE = "sparse"


class DType(StrEnum):
    """Type of the values of X."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


@dataclass(frozen=True)
class StoreOptions(ReadOptions):
    """How rows are read, and what a store is made of them like."""

    panel = None  # as it is what the command is for
    shuffle: bool = given(
        True,
        "Put the rows in random order: training then starts from random samples that are cheap to "
        "read.",
        "--shuffle/--no-shuffle",
    )
    seed: int = given(0, "Of that order.")
    layout: Layout = given(
        Layout.AUTO, "How X is stored; auto: dense if a quarter of it is not zero."
    )
    dense: bool = given(False, "The same as --layout dense.")
    sparse: bool = given(False, "The same as --layout sparse.")
    n_features: int | None = given(
        None,
        "Of LIBSVM text: number of columns.",
        "--features", min=1, show_default="as many as occur",
    )  # fmt: skip
    dtype: DType | None = given(
        None, "Type of the values.", show_default="float32 for text, else as the columns are"
    )
    strict: bool = given(
        False, "Of LIBSVM text: refuse comments, empty lines, qid and a missing last newline."
    )


def _of_table(
    sources: list[str],
    store: str,
    wanted: StoreOptions,
    *,
    memory: str,
    **options: Any,  # noqa: ANN401 (those of `written`)
) -> "Store":
    """Write the rows of files whose columns have names as a store."""
    from bigsvm.conversion.formats import Asked
    from bigsvm.conversion.from_arrays import batches_of, written
    from bigsvm.conversion.writing import check_seed
    from bigsvm.data.place import Place

    check_seed(wanted.seed)
    asked = Asked.of(
        wanted.label, wanted.weight, features=wanted.features, rows=wanted.rows, memory=memory,
        **wanted.encode,
    )  # fmt: skip
    source = sources[0] if len(sources) == 1 else sources
    return written(
        Place.of(store), batches_of(source, asked), budget=asked.memory,
        dtype=None if wanted.dtype is None else wanted.dtype.value,
        seed=wanted.seed if wanted.shuffle else None, **options,
    )  # fmt: skip


def _check(
    sources: list[str],
    wanted: StoreOptions,
    *,
    memory: str,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Read LIBSVM text strictly, and tell what it has."""
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.conversion.from_text import check_text

        with interruption.raising():
            counts = check_text(
                sources, memory=memory, zero_based=wanted.zero_based.value,
                n_features=wanted.n_features, threads=threads,
                on_progress=watched(display, interruption),
            )  # fmt: skip
    record = {
        "n_rows": counts.rows, "n_entries": counts.entries,
        "smallest_index": counts.smallest_index, "largest_index": counts.largest_index,
    }  # fmt: skip
    indices = f"{counts.smallest_index} to {counts.largest_index}"
    say_result(
        record,
        [("rows", count(counts.rows)), ("entries", count(counts.entries)), ("indices", indices)],
        json=json,
    )


def command(
    context: typer.Context,
    *,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="LIBSVM text, or with --label Parquet, Arrow, CSV, HDF5, h5ad, npy, npz or Zarr; "
            "together one data set: files, folders of them, or patterns in quotes; gzip, bzip2, xz "
            "and zstd are decompressed, - is standard input.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            help="Folder to be made, or URL such as s3://bucket/name. With --strict it may be left "
            "out: LIBSVM text is then checked, and nothing is written.",
        ),
    ] = None,
    memory: Memory = "1GB",
    wanted: StoreOptions,
    overwrite: OverwriteStore = False,
    cache_dir: CacheDirOfUrl = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, show_default="2", help="Threads that parse."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert LIBSVM text, or files of other programs, to a store, in bounded memory.

    The rows are read once, checked, and written as a Zarr store with checksums, in random order.
    Files of other programs need the name of their column of labels, --label. An interrupted
    conversion leaves nothing that could be taken for a store.

    \b
    Examples:
      bigsvm convert train.libsvm train.zarr
      bigsvm convert day1.txt.gz day2.txt.gz both.zarr --memory 4GB
      zcat train.gz | bigsvm convert - train.zarr --features 780
      bigsvm convert train.libsvm s3://bucket/train.zarr
      bigsvm convert train.libsvm --strict
      bigsvm convert houses.csv houses.zarr --label price
      bigsvm convert parts/*.parquet train.zarr --label target --weight weight
      bigsvm convert cells.h5ad cells.zarr --label kind --rows layers/counts
    """
    if wanted.strict and store is not None and (store == "-" or Path(store).is_file()):
        sources, store = [*(sources or []), store], None  # a file is no place of a store
    if not sources or (store is None and not wanted.strict):
        raise typer.BadParameter("give SOURCE and STORE, or SOURCE and --strict")
    if wanted.dense + wanted.sparse + (wanted.layout is not Layout.AUTO) > 1:
        raise typer.BadParameter("give one of --dense, --sparse and --layout")
    if is_given(context, "seed") and not wanted.shuffle:
        raise typer.BadParameter("--seed is of the random order, which --no-shuffle does without")
    if wanted.names_columns:
        for name in ("zero_based", "n_features", "strict", "threads"):
            if is_given(context, name):
                option = "features" if name == "n_features" else name.replace("_", "-")
                raise typer.BadParameter(f"--{option} is for LIBSVM text, which has no --label")
    if store is None:
        _check(sources, wanted, memory=memory, threads=threads, json=json, quiet=quiet)
        return
    layout = Layout.DENSE if wanted.dense else Layout.SPARSE if wanted.sparse else wanted.layout
    started = time.monotonic()
    counts: list[TextCounts] = []
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.conversion.from_text import convert
        from bigsvm.conversion.parts import files_of

        read = (
            sources if wanted.names_columns else [os.fspath(source) for source in files_of(sources)]
        )
        check_apart(read, {"STORE": store}, {"--cache-dir": cache_dir})
        with interruption.raising():
            if wanted.names_columns:
                made = _of_table(
                    sources, store, wanted, memory=memory, layout=layout.value,
                    overwrite=overwrite, cache_dir=cache_dir,
                    report=watched(display, interruption),
                )  # fmt: skip
                say_store(made, "converted", time.monotonic() - started, json=json)
                return
            made = convert(
                sources,
                store,
                memory=memory,
                shuffle=wanted.shuffle,
                seed=wanted.seed,
                zero_based=wanted.zero_based.value,
                layout=layout.value,
                n_features=wanted.n_features,
                dtype="float32" if wanted.dtype is None else wanted.dtype.value,
                strict=wanted.strict,
                overwrite=overwrite,
                cache_dir=cache_dir,
                threads=threads,
                on_progress=watched(display, interruption),
                on_parsed=counts.append,
            )
    skipped = {name: getattr(counts[0], name) for name in ("empty_lines", "comments", "qids")}
    say_store(made, "converted", time.monotonic() - started, json=json, skipped=skipped)
