"""``bigsvm convert``: LIBSVM text to a store."""

import os
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import CacheDirOfUrl, Json, Memory, Quiet, ZeroBased, is_given
from bigsvm.cli.outputs import check_apart, say
from bigsvm.cli.signals import Interruption
from bigsvm.report.progress import Display
from bigsvm.report.text import as_columns, as_json

if TYPE_CHECKING:
    from bigsvm.data.libsvm import TextCounts


class Layout(StrEnum):
    """How X is stored."""

    AUTO = "auto"
    DENSE = "dense"
    SPARSE = "sparse"


class DType(StrEnum):
    """Type of the values of X."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


def command(
    context: typer.Context,
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
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Put the rows in random order: training then starts from random samples that are "
            "cheap to read.",
        ),
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="Of that order.")] = 0,
    zero_based: Annotated[
        ZeroBased,
        typer.Option(
            "--zero-based",
            help="Whether the first column has index 0; auto: if index 0 occurs anywhere.",
        ),
    ] = ZeroBased.AUTO,
    layout: Annotated[
        Layout,
        typer.Option(
            "--layout", help="How X is stored; auto: dense if a quarter of it is not zero."
        ),
    ] = Layout.AUTO,
    dense: Annotated[bool, typer.Option("--dense", help="The same as --layout dense.")] = False,
    sparse: Annotated[bool, typer.Option("--sparse", help="The same as --layout sparse.")] = False,
    features: Annotated[
        int | None,
        typer.Option(
            "--features", min=1, show_default="as many as occur", help="Number of columns."
        ),
    ] = None,
    dtype: Annotated[DType, typer.Option("--dtype", help="Type of the values.")] = DType.FLOAT32,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse comments, empty lines, qid and a missing last newline."
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace a store once the new one is whole; not at a URL."
        ),
    ] = False,
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
    if dense + sparse + (layout is not Layout.AUTO) > 1:
        raise typer.BadParameter("give one of --dense, --sparse and --layout")
    if is_given(context, "seed") and not shuffle:
        raise typer.BadParameter("--seed is of the random order, which --no-shuffle does without")
    wanted = Layout.DENSE if dense else Layout.SPARSE if sparse else layout
    started = time.monotonic()
    counts: list[TextCounts] = []
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.data.from_text import convert
        from bigsvm.data.parts import files_of

        read = [os.fspath(source) for source in files_of(sources)]
        check_apart(read, {"STORE": store}, {"--cache-dir": cache_dir})
        with interruption.raising():
            made = convert(
                sources,
                store,
                memory=memory,
                shuffle=shuffle,
                seed=seed,
                zero_based=zero_based.value,
                layout=wanted.value,
                n_features=features,
                dtype=dtype.value,
                strict=strict,
                overwrite=overwrite,
                cache_dir=cache_dir,
                threads=threads,
                on_progress=watched(display, interruption),
                on_parsed=counts.append,
            )
    from bigsvm.report.describe import store_lines, store_record
    from bigsvm.report.text import peak_rss_bytes

    seconds = time.monotonic() - started
    skipped = {
        "empty_lines": counts[0].empty_lines,
        "comments": counts[0].comments,
        "qids": counts[0].qids,
    }
    if json:
        record = {**store_record(made), "skipped": skipped}
        say(as_json({**record, "seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}))
        return
    lines = store_lines(made)
    if any(skipped.values()):
        named = (f"{what.replace('_', ' ')}: {n}" for what, n in skipped.items() if n)
        lines.append(("skipped", ", ".join(named)))
    say(as_columns([*lines, ("converted in", f"{seconds:.1f} s")]))
