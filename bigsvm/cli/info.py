"""``bigsvm info``: what a store, a model or a run is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bigsvm.cli.inputs import is_far_store, load_model
from bigsvm.cli.options import Json
from bigsvm.cli.outputs import say
from bigsvm.cli.runs import NAME as RUN_FILE
from bigsvm.errors import DataError
from bigsvm.files import is_url, local_path
from bigsvm.report.text import as_columns, as_json

if TYPE_CHECKING:
    from bigsvm.data.store import Store

_PLACE = "STORE|MODEL|RUN"


def command(
    place: Annotated[
        str,
        typer.Argument(metavar=_PLACE, help="A store or a model, or its URL; a checkpoint."),
    ],
    json: Json = False,
) -> None:
    """Tell what a store, a model or the checkpoint folder of a run holds.

    \b
    Examples:
      bigsvm info train.zarr
      bigsvm info model.safetensors --json
      bigsvm info run
      bigsvm info s3://bucket/train.zarr
    """
    from bigsvm.data.store import open_store
    from bigsvm.data.workspace import put_back

    if is_url(place) and is_far_store(place):
        _say_store(open_store(place), json=json)
        return
    if is_url(place):
        _say_model(place, json=json)
        return
    path = local_path(place, _PLACE)
    put_back(path)
    if path.is_file():
        _say_model(path, json=json)
        return
    elif (path / RUN_FILE).exists() or any(path.glob("generation-*")):
        from bigsvm.cli.runs import run_lines, run_record

        record, lines = run_record(path), run_lines(path)
    elif path.is_dir():
        _say_store(open_store(path), json=json)
        return
    else:
        raise DataError(f"{path}: no such store, model or run; check the path")
    say(as_json(record) if json else as_columns(lines))


def _say_model(path: str | Path, *, json: bool) -> None:
    from bigsvm.report import describe

    model = load_model(path)
    record, lines = describe.model_record(model, path), describe.model_lines(model, path)
    say(as_json(record) if json else as_columns(lines))


def _say_store(store: "Store", *, json: bool) -> None:
    from bigsvm.report import describe

    record, lines = describe.store_record(store), describe.store_lines(store)
    say(as_json(record) if json else as_columns(lines))
