"""``bigsvm info``: what a store, a model or a run is."""

from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.inputs import is_far_store, load_model
from bigsvm.cli.options import Json
from bigsvm.cli.outputs import say_result
from bigsvm.cli.runs import NAME as RUN_FILE
from bigsvm.cli.runs import run_lines, run_record
from bigsvm.errors import DataError
from bigsvm.files import is_url, local_path

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
    from bigsvm.report import describe
    from bigsvm.report.different import n_different_rows

    path = place if is_url(place) else local_path(place, _PLACE)
    if isinstance(path, Path):
        put_back(path)
    kind = kind_of(path)
    if kind == "run":
        record, lines = run_record(Path(path)), run_lines(Path(path))
    elif kind == "store":
        store = open_store(path)
        different = n_different_rows(store)
        record = {**describe.store_record(store), "n_different": different}
        lines = describe.store_lines(store, n_different=different)
    else:
        model = load_model(path)
        record, lines = describe.model_record(model, path), describe.model_lines(model, path)
    say_result(record, lines, json=json)


def kind_of(path: str | Path) -> str:
    """Say what is at a path or URL: a store, a model or a run."""
    if isinstance(path, str):
        return "store" if is_far_store(path) else "model"
    if path.is_file():
        return "model"
    if (path / RUN_FILE).exists() or any(path.glob("generation-*")):
        return "run"
    if path.is_dir():
        return "store"
    raise DataError(f"{path}: no such store, model or run; check the path")
