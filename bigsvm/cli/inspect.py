"""``bigsvm inspect``: rows of the training data whose labels look wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigsvm.cli.inputs import TextOptions, check_order, check_text_options, load_model, opened
from bigsvm.cli.options import Json, Quiet, Threads, local, local_or_url
from bigsvm.cli.outputs import Overwrite, check_apart, check_image_path, say
from bigsvm.cli.signals import Interruption
from bigsvm.errors import ModelError
from bigsvm.processors import default_threads
from bigsvm.report.progress import Display
from bigsvm.report.text import as_json, count

if TYPE_CHECKING:
    from bigsvm.models import KernelExpansion


def command(
    context: typer.Context,
    *,
    model: Annotated[
        str,
        typer.Argument(
            callback=local_or_url,
            metavar="MODEL",
            help="A model of `bigsvm train --formulation crammer-singer`, or its URL.",
        ),
    ],
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="The store, or LIBSVM text, it was trained on.")
    ],
    doubtful: Annotated[
        int, typer.Option("--doubtful", min=1, metavar="ROWS", help="How many rows to list.")
    ] = 20,
    side: Annotated[
        int | None,
        typer.Option(
            "--side",
            min=1,
            show_default="the root of the number of columns",
            help="Of rows that are square images: pixels on a side.",
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            "--image",
            callback=local,
            metavar="FILE",
            help="Draw the rows as images into a PNG file, not in the terminal.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    text: TextOptions,
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the training rows whose labels look wrong, the most doubtful first.

    Crammer and Singer's machine has, of each row that is a support vector, shares of the classes it
    could be taken for. Doubt is their distance from the label, from 0 to 1.414; of rows with equal
    doubt those come first whose label has the smallest margin, the value of its function less the
    largest other. Row numbers, from 0, are those of the original input.

    Rows with a square number of columns are drawn. --memory bounds the conversion of LIBSVM text
    only.

    \b
    Examples:
      bigsvm inspect model.safetensors train.zarr --doubtful 20
      bigsvm inspect model.safetensors train.zarr --image doubtful.png
      bigsvm inspect model.safetensors train.zarr --doubtful 100 --json
    """
    check_order(store, model, "bigsvm inspect MODEL STORE")
    check_text_options(context, store, "memory", "cache_dir")
    if side is not None and json and image is None:
        raise typer.BadParameter("--side is for drawing; --json without --image draws nothing")
    check_apart((store, model), {"--image": image})
    check_image_path(image, "--image", overwrite=overwrite)
    with Interruption() as interruption, Display(quiet=quiet) as display:
        trained = load_model(model)
        if trained.bounds is None:
            raise ModelError(
                f"{model} is a {trained.formulation} model, which tells nothing of single labels; "
                "train one with --formulation crammer-singer"
            )
        with (
            opened(store, text, display, interruption, model=trained) as rows,
            interruption.raising(),
        ):
            from bigsvm.models.doubt import most_doubtful
            from bigsvm.report import doubt

            if image is not None:
                doubt.check_number(min(doubtful, len(trained.support)))
            shape = doubt.image_side(trained, side, wanted=image is not None)
            listed = most_doubtful(
                trained,
                rows.rows,
                doubtful,
                threads=threads or default_threads(),
                on_progress=lambda done, total: display.move(
                    "comparing rows", f"{count(done)} of {count(total)} rows", done, total
                ),
            )
            # One by one, as the column may be long.
            originals = [int(rows.original_rows(row, row + 1)[0]) for row in listed.rows.tolist()]
            records = doubt.records(trained, listed, originals)
            images = None
            if shape is not None and (image is not None or not json):
                images = doubt.images(trained, listed, shape)
    _show(trained, records, images, image, json=json)


def _show(
    model: "KernelExpansion",
    records: list[dict[str, Any]],
    images: Any,  # noqa: ANN401 (an array, or None where there are none)
    image: Path | None,
    *,
    json: bool,
) -> None:
    from bigsvm.report import doubt

    if image is not None:
        doubt.write_png(image, records, images)
    if json:
        record = {"doubtful": records, "n_support": len(model.support)}
        say(as_json({**record, "image": None if image is None else str(image)}))
        return
    say(doubt.table(records))
    if images is not None and image is None:
        say(doubt.drawing(records, images))
