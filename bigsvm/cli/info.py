"""``bigsvm info``: what a store, a model or a run is."""

from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.inputs import load_model
from bigsvm.cli.options import Json, local
from bigsvm.cli.outputs import say
from bigsvm.cli.runs import NAME as RUN_FILE
from bigsvm.errors import DataError
from bigsvm.report.text import as_columns, as_json


def command(
    path: Annotated[
        Path,
        typer.Argument(
            callback=local, metavar="STORE|MODEL|RUN", help="A store, a model file, a checkpoint."
        ),
    ],
    json: Json = False,
) -> None:
    """Tell what a store, a model or the checkpoint folder of a run holds.

    \b
    Examples:
      bigsvm info train.zarr
      bigsvm info model.safetensors --json
      bigsvm info run
    """
    from bigsvm.data.workspace import put_back
    from bigsvm.report import describe

    put_back(path)
    if path.is_file():
        model = load_model(path)
        record, lines = describe.model_record(model, path), describe.model_lines(model, path)
    elif (path / RUN_FILE).exists() or any(path.glob("generation-*")):
        from bigsvm.cli.runs import run_lines, run_record

        record, lines = run_record(path), run_lines(path)
    elif path.is_dir():
        from bigsvm.data.store import open_store

        store = open_store(path)
        record, lines = describe.store_record(store), describe.store_lines(store)
    else:
        raise DataError(f"{path}: no such store, model or run; check the path")
    say(as_json(record) if json else as_columns(lines))
