"""``bigsvm drop``: a store without some rows of another one."""

import re
import time
from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.inputs import watched
from bigsvm.cli.options import Json, Memory, Quiet
from bigsvm.cli.outputs import check_apart, say_store
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError
from bigsvm.report.progress import Display


def command(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A store.")],
    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="Numbers of rows in the input of the store, from 0, as 3,17,100-199, or a file of "
            "such words.",
        ),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The store to be made.")],
    memory: Memory = "1GB",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a store without some rows of another one.

    The other rows keep their order. A model of the old store can start the next fit: train --start.

    \b
    Examples:
      bigsvm drop train.zarr 3,17,100-199 clean.zarr
      bigsvm drop train.zarr wrong.txt clean.zarr
    """
    started = time.monotonic()
    check_apart((store,), {"NEW": new})
    with Interruption() as interruption, Display(quiet=quiet) as display:
        from bigsvm.changes.drop import drop
        from bigsvm.data.store import open_store

        with interruption.raising():
            opened = open_store(store)
            made = drop(
                opened, _numbers(rows, len(opened)), new, memory=memory,
                on_progress=watched(display, interruption),
            )  # fmt: skip
    say_store(made, "dropped", time.monotonic() - started, json=json)


def _numbers(words: str, n_rows: int) -> list[int]:
    """Read numbers below `n_rows` and ranges, from a file if there is one of this name."""
    path, where = Path(words), "ROWS"
    if path.is_file():
        words, where = path.read_text(errors="replace"), str(path)
    numbers: list[int] = []
    for word in re.split(r"[\s,]+", words.strip(" \n,")):
        ends = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", word)
        if ends is None or int(last := ends[2] or ends[1]) >= n_rows or int(ends[1]) > int(last):
            raise DataError(
                f"{where}: {word[:40]!r} is no row from 0 to {n_rows - 1}, nor a range as 100-199"
            )
        numbers += range(int(ends[1]), int(last) + 1)
    return numbers
