"""``bigsvm split``: a store to several stores, such as one to train on and one to test."""

import time
from typing import Annotated

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import Json, Memory, Quiet
from bigsvm.cli.outputs import check_apart, say_result
from bigsvm.cli.signals import Interruption
from bigsvm.errors import ParameterError
from bigsvm.report.progress import Display
from bigsvm.report.text import count


def command(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A store.")],
    outputs: Annotated[
        list[str],
        typer.Argument(metavar="OUT OUT...", help="Folders to be made, at least two."),
    ],
    shares: Annotated[
        str | None,
        typer.Option(
            "--shares",
            metavar="SHARE,SHARE,...",
            show_default="equal ones",
            help="Share of the rows of each part.",
        ),
    ] = None,
    stratify: Annotated[
        bool,
        typer.Option(
            "--stratify/--no-stratify",
            help="Give each part these shares of the rows of each label.",
        ),
    ] = True,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the choice of rows.")] = 0,
    memory: Memory = "1GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Part the rows of a store into several stores, at random.

    Labels that are not whole numbers are not stratified.

    \b
    Examples:
      bigsvm split all.zarr train.zarr test.zarr --shares 0.8,0.2
      bigsvm split all.zarr fold-1.zarr fold-2.zarr fold-3.zarr
    """
    started = time.monotonic()
    if len(outputs) < 2:
        raise typer.BadParameter("give at least two stores to be made")
    try:
        parts = None if shares is None else [float(word) for word in shares.split(",")]
    except ValueError:
        raise ParameterError(
            f"--shares {shares!r} is not understood; write one number for each store, as in 0.8,0.2"
        ) from None
    check_apart((store,), {f"OUT {number}": path for number, path in enumerate(outputs, 1)})
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.data.store import open_store
        from bigsvm.selection.split import split_store

        with interruption.raising():
            made = split_store(
                open_store(store), outputs, shares=parts, stratified=stratify, seed=seed,
                memory=memory, on_progress=watched(display, interruption),
            )  # fmt: skip
    seconds = time.monotonic() - started
    rows = {path: part.rows.n_rows for path, part in zip(outputs, made, strict=True)}
    lines = [(path, f"{count(n)} rows") for path, n in rows.items()]
    lines.append(("took", f"{seconds:.1f} s"))
    say_result({"n_rows": rows, "seconds": seconds}, lines, json=json)
