"""``bigsvm convert``: LIBSVM text to a store."""

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import (
    CacheDirOfUrl,
    Json,
    Memory,
    OptionGroup,
    Quiet,
    ZeroBased,
    given,
    is_given,
)
from bigsvm.cli.outputs import OverwriteStore, check_apart, say_store
from bigsvm.cli.signals import Interruption
from bigsvm.report.progress import Display

if TYPE_CHECKING:
    from bigsvm.conversion.libsvm import TextCounts


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
class StoreOptions(OptionGroup):
    """What a store is made of text like."""

    shuffle: bool = given(
        True,
        "Put the rows in random order: training then starts from random samples that are cheap to "
        "read.",
        "--shuffle/--no-shuffle",
    )
    seed: int = given(0, "Of that order.")
    zero_based: ZeroBased = given(
        ZeroBased.AUTO, "Whether the first column has index 0; auto: if index 0 occurs anywhere."
    )
    layout: Layout = given(
        Layout.AUTO, "How X is stored; auto: dense if a quarter of it is not zero."
    )
    dense: bool = given(False, "The same as --layout dense.")
    sparse: bool = given(False, "The same as --layout sparse.")
    features: int | None = given(None, "Number of columns.", min=1, show_default="as many as occur")
    dtype: DType = given(DType.FLOAT32, "Type of the values.")
    strict: bool = given(False, "Refuse comments, empty lines, qid and a missing last newline.")


def command(
    context: typer.Context,
    *,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="LIBSVM text, together one data set: files, folders of them, or patterns in "
            "quotes; gzip, bzip2, xz and zstd are decompressed, - is standard input.",
        ),
    ],
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="Folder to be made, or URL such as s3://bucket/name."),
    ],
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
    """Convert LIBSVM text of any size to a store, in bounded memory.

    The text is read once, checked, and written as a Zarr store with checksums, its rows in random
    order. An interrupted conversion leaves nothing that could be taken for a store.

    \b
    Examples:
      bigsvm convert train.libsvm train.zarr
      bigsvm convert day1.txt.gz day2.txt.gz both.zarr --memory 4GB
      zcat train.gz | bigsvm convert - train.zarr --features 780
      bigsvm convert train.libsvm s3://bucket/train.zarr
    """
    if wanted.dense + wanted.sparse + (wanted.layout is not Layout.AUTO) > 1:
        raise typer.BadParameter("give one of --dense, --sparse and --layout")
    if is_given(context, "seed") and not wanted.shuffle:
        raise typer.BadParameter("--seed is of the random order, which --no-shuffle does without")
    layout = Layout.DENSE if wanted.dense else Layout.SPARSE if wanted.sparse else wanted.layout
    started = time.monotonic()
    counts: list[TextCounts] = []
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.conversion.from_text import convert
        from bigsvm.conversion.parts import files_of

        read = [os.fspath(source) for source in files_of(sources)]
        check_apart(read, {"STORE": store}, {"--cache-dir": cache_dir})
        with interruption.raising():
            made = convert(
                sources,
                store,
                memory=memory,
                shuffle=wanted.shuffle,
                seed=wanted.seed,
                zero_based=wanted.zero_based.value,
                layout=layout.value,
                n_features=wanted.features,
                dtype=wanted.dtype.value,
                strict=wanted.strict,
                overwrite=overwrite,
                cache_dir=cache_dir,
                threads=threads,
                on_progress=watched(display, interruption),
                on_parsed=counts.append,
            )
    skipped = {name: getattr(counts[0], name) for name in ("empty_lines", "comments", "qids")}
    say_store(made, "converted", time.monotonic() - started, json=json, skipped=skipped)
