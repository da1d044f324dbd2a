"""``bigsvm scale``: a store to the same store with its columns scaled."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from bigsvm.cli.inputs import (
    TextOptions,
    check_text_options,
    is_far_store,
    load_model,
    opened,
    watched,
)
from bigsvm.cli.options import Json, Quiet, Rows, local_or_url
from bigsvm.cli.outputs import OverwriteStore, check_apart, say_store
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError
from bigsvm.files import is_url
from bigsvm.report.progress import Display

if TYPE_CHECKING:
    from bigsvm.conversion.scaling import HasScaler
    from bigsvm.data.scaler import Scaler
    from bigsvm.interchange.range_file import Range


class Method(StrEnum):
    """What the columns are scaled to."""

    MINMAX = "minmax"
    STANDARD = "standard"
    MAXABS = "maxabs"


def command(
    context: typer.Context,
    *,
    store: Rows,
    output: Annotated[
        str,
        typer.Argument(metavar="OUT", help="Folder to be made, or URL such as s3://bucket/name."),
    ],
    method: Annotated[
        Method | None,
        typer.Option(
            "--method",
            case_sensitive=False,
            show_default="minmax",
            help="minmax: each column from --lower to --upper; standard: mean 0, variance 1; "
            "maxabs: largest absolute value 1, zeros stay.",
        ),
    ] = None,
    lower: Annotated[
        float | None, typer.Option("--lower", show_default="-1", help="Of minmax.")
    ] = None,
    upper: Annotated[
        float | None, typer.Option("--upper", show_default="1", help="Of minmax.")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            callback=local_or_url,
            metavar="STORE|MODEL|RANGE",
            help="Scale by the very parameters of this scaled store or model instead, which may be "
            "a URL, or by those that `svm-scale -s` wrote into this file.",
        ),
    ] = None,
    overwrite: OverwriteStore = False,
    text: TextOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Scale the columns of a store, as svm-scale does LIBSVM text, into a new store.

    Models trained on it keep the parameters, and scale the rows that they predict by themselves: a
    test set need not be scaled. Constant columns become 0. An interrupted run leaves nothing that
    could be taken for a store.

    \b
    Examples:
      bigsvm scale train.zarr scaled.zarr
      bigsvm scale train.zarr scaled.zarr --method standard
      bigsvm scale test.zarr test-scaled.zarr --like scaled.zarr
      bigsvm scale test.zarr test-scaled.zarr --like svmguide1.range
    """
    started = time.monotonic()
    check_text_options(context, store, *(() if is_url(output) else ("cache_dir",)))
    check_apart((store, like), {"OUT": output}, {"--cache-dir": text.cache_dir})
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.conversion.scaling import scale_store

        ranges = None if like is None else _range_in(like)
        other = None if like is None or ranges is not None else _scaled(like)
        scaler = None if other is None else other.scaler
        with (
            opened(
                store,
                text,
                display,
                interruption,
                first_index=None if other is None else other.first_index,
                min_features=scaler.n_columns if scaler else ranges and ranges.n_columns(1),
            ) as source_store,
            interruption.raising(),
        ):
            if ranges is not None:
                first = 1 if source_store.first_index is None else source_store.first_index
                other = _Scaled(ranges.scaler(source_store.rows.n_columns, first), first)
            elif scaler is not None and source_store.first_index is not None:
                more = source_store.rows.n_columns - scaler.n_columns
                if more > 0:
                    display.warn(f"{store} has columns past those of {like}; they become 0")
                    other = _Scaled(scaler.widened(more), source_store.first_index)
            made = scale_store(
                source_store,
                output,
                method=None if method is None else method.value,
                lower=lower,
                upper=upper,
                like=other,
                memory=text.memory,
                overwrite=overwrite,
                cache_dir=text.cache_dir if is_url(output) else None,
                on_progress=watched(display, interruption),
            )
    say_store(made, "scaled", time.monotonic() - started, json=json)


class _Scaled(NamedTuple):
    """A scaler read from a file of svm-scale, or one for more columns, as svm-scale has it."""

    scaler: "Scaler"
    first_index: int


def _range_in(like: str) -> "Range | None":
    """Read a file of svm-scale; None if it is another file, or at a URL."""
    from bigsvm.interchange.range_file import is_range_file, read_range

    if is_url(like):
        return None
    path = Path(like)
    return read_range(path) if path.is_file() and is_range_file(path) else None


def _scaled(like: str) -> "HasScaler":
    """Open a model, a file, or a store, a folder; refuses one without a scaler."""
    source: HasScaler
    if (not is_far_store(like)) if is_url(like) else Path(like).is_file():
        source = load_model(like)
    else:
        from bigsvm.data.store import open_store

        source = open_store(like)
    if source.scaler is None:
        raise DataError(f"{like}: is not scaled; give --like a scaled store, or a model of one")
    return source
