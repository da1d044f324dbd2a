"""``bigsvm append``: rows to a store, all of them or none."""

import time
from typing import Annotated

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import ColumnOptions, Json, Memory, Quiet
from bigsvm.cli.outputs import say_store
from bigsvm.cli.signals import Interruption
from bigsvm.report.progress import Display


def command(
    *,
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store, a folder.")],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Another store, LIBSVM text, or with --label the files that convert takes.",
        ),
    ],
    memory: Memory = "1GB",
    read: ColumnOptions,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order of the new rows.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Append rows to a store, all of them or none, in bounded memory.

    The rows are checked as convert checks them, and come behind all others. Their columns and
    labels must be those of the store. Killed at any moment, the store is the old one or the new
    one.

    \b
    Examples:
      bigsvm append train.zarr today.libsvm
      bigsvm append houses.zarr houses-2026.csv --label price
      bigsvm append all.zarr more.zarr
    """
    started = time.monotonic()
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.changes.append import append

        with interruption.raising():
            made = append(
                store, sources[0] if len(sources) == 1 else sources, read.label,
                read.weight, columns=read.features, rows=read.rows, seed=seed, memory=memory,
                on_progress=watched(display, interruption),
            )  # fmt: skip
    say_store(made, "appended", time.monotonic() - started, json=json)
