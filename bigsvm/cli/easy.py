"""``bigsvm easy``: from text to a chosen, certified model, as LIBSVM's easy.py does."""

import json as json_module
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bigsvm.cli.inputs import is_text
from bigsvm.cli.options import Formulation, Json, Memory, OptionGroup, Quiet, given, local
from bigsvm.cli.outputs import check_apart, say
from bigsvm.cli.runs import absolute, check_is_read_again
from bigsvm.cli.search import SearchOptions
from bigsvm.cli.session import Log
from bigsvm.cli.signals import Interruption
from bigsvm.errors import DataError
from bigsvm.files import parse_json, replace_synced
from bigsvm.parameters.formulations import FORMULATIONS
from bigsvm.report.run_log import RunLog
from bigsvm.report.text import as_json

RECORD = "easy.json"
"""What the files in the folder were made of."""
MADE = (RECORD, "train.zarr", "scaled.zarr", "search", "model.safetensors", "predictions.txt")
"""Names in the folder."""
_POLL = 0.1


@dataclass(frozen=True)
class TriedOptions(OptionGroup):
    """What the search tries."""

    panel = SearchOptions.panel
    folds: int = given(5, "Folds of the search.", min=2)
    log2_C: str | None = given(None, "As for search.", metavar="BEGIN,END,STEP")
    log2_gamma: str | None = given(None, "As for search.", metavar="BEGIN,END,STEP")


def command(
    *,
    train: Annotated[
        str,
        typer.Argument(metavar="TRAIN", help="LIBSVM text, or a store."),
    ],
    test: Annotated[
        str | None,
        typer.Argument(metavar="[TEST]", help="Text or a store to predict."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            callback=local,
            metavar="DIR",
            show_default="TRAIN.easy in the current folder",
            help="Folder for the stores, the search, the model and the predictions.",
        ),
    ] = None,
    formulation: Formulation = FORMULATIONS[0],
    tried: TriedOptions,
    memory: Memory = "1GB",
    log: Log = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert, scale, search, train and predict, and show the commands that do so.

    The search tries all points on few rows first. Each step is a command of its own, which is shown
    before it runs. The same command again goes on where a signal or a kill has ended it, and takes
    no step twice.

    \b
    Examples:
      bigsvm easy train.libsvm test.libsvm
      bigsvm easy houses.libsvm --formulation eps-svr --directory houses
    """
    if is_text(train):
        check_is_read_again(train)
    if directory is None:
        directory = Path(f"{Path(train).name}.easy")
    made = {f"its {name}": directory / name for name in MADE}
    check_apart((train, test), {"--log": log, **made}, {"--directory": directory})
    searched = ["--folds", str(tried.folds), "--formulation", formulation]
    for name, text in (("--log2-C", tried.log2_C), ("--log2-gamma", tried.log2_gamma)):
        searched += [] if text is None else [name, text]
    if log is not None:
        with RunLog(log, warn=say):
            pass  # refused now, not by a later step
    _check_same(directory, {"train": absolute(train), "search": searched})
    tell = (lambda _: None) if json else say
    record: dict[str, Any] = {"directory": str(directory), "commands": []}
    with Interruption() as interruption:
        for words, made_by_it in _steps(train, test, directory, searched, memory, log):
            shown = shlex.join(["bigsvm", *words])
            record["commands"].append(shown)
            if made_by_it is not None and made_by_it.exists():
                tell(f"$ {shown}\n{made_by_it} is there already")
                continue
            tell(f"$ {shown}")
            record[words[0]] = _run(words, interruption, json=json, quiet=quiet)
    if json:
        say(as_json(record))


def _steps(
    train: str, test: str | None, folder: Path, searched: list[str], memory: str, log: Path | None
) -> Iterator[tuple[list[str], Path | None]]:
    """Yield the words of each step, in their order, and what it makes.

    Each may need what the one before has made. A step is done where what it makes exists; one that
    makes None is always taken.
    """
    store, scaled, model = folder / "train.zarr", folder / "scaled.zarr", folder / "model"
    model = model.with_suffix(".safetensors")
    budget = ["--memory", memory]
    source = train
    if is_text(train):
        yield ["convert", train, str(store), *budget], store
        source = str(store)
    from bigsvm.data.store import open_store

    opened = open_store(source)
    if opened.scaler is None:
        method = "maxabs" if opened.rows.is_sparse else "minmax"
        yield ["scale", source, str(scaled), "--method", method, *budget], scaled
        source = str(scaled)
    words = [
        "search", source, str(model), *searched, "--halving", "3", "--checkpoint",
        str(folder / "search"), *budget, *([] if log is None else ["--log", str(log)]),
    ]  # fmt: skip
    yield words, model
    if test is not None:
        output = ["--output", str(folder / "predictions.txt"), "--overwrite"]
        yield ["predict", test, str(model), *output, *budget], None


def _check_same(folder: Path, made_of: dict[str, Any]) -> None:
    """Refuse a folder in which something else was made."""
    path = folder / RECORD
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with suppress(ValueError):
                if parse_json(path.read_bytes()) == made_of:
                    return
            raise DataError(
                f"{folder} has the results of other data or options; give another --directory"
            )
        if any(folder.iterdir()):
            raise DataError(f"{folder} is not empty; give another --directory")
        replace_synced(path, json_module.dumps(made_of).encode())
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror})") from error


def _ignore_questions() -> None:
    """Let SIGUSR1 have no effect in a process that has just begun, until it handles it."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _run(words: list[str], interruption: Interruption, *, json: bool, quiet: bool) -> Any:  # noqa: ANN401 (JSON)
    """Run a command as a process; a signal ends it in order, and this one with its exit code."""
    others = [*(["--json"] if json else []), *(["--quiet"] if quiet else [])]
    child = subprocess.Popen(
        [sys.executable, "-m", "bigsvm", *words, *others],
        stdout=subprocess.PIPE if json else None,
        text=True,
        preexec_fn=_ignore_questions,
    )
    try:
        asked, n_asked = False, interruption.times_asked()
        while True:
            try:
                out, _ = child.communicate(timeout=_POLL)
                break
            except subprocess.TimeoutExpired:
                # A terminal sends Ctrl-C to both processes, and a second one would kill the child.
                if interruption.signum not in (None, signal.SIGINT) and not asked:
                    child.send_signal(interruption.signum)
                    asked = True
                if interruption.times_asked() != n_asked:
                    n_asked = interruption.times_asked()
                    child.send_signal(signal.SIGUSR1)
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise typer.Exit(child.returncode)
    return parse_json(out) if json else None
