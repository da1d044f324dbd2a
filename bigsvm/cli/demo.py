"""``bigsvm demo``: the main job on bundled data, with a kill in the middle."""

import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bigsvm.budget import parse_bytes, show_bytes
from bigsvm.cli.options import Json, Quiet, local
from bigsvm.cli.outputs import say
from bigsvm.cli.signals import Interruption
from bigsvm.errors import BigsvmError, DataError
from bigsvm.report.progress import Display, duration
from bigsvm.report.text import as_json, count, number

if TYPE_CHECKING:
    from bigsvm.cli.digits import Digits

MEMORY = "40MB"
C, GAMMA = 100, 0.1
ROWS = 180_000
"""The values take 46 MB, more than the budget."""
FEWEST_ROWS = 2_000
SEED = 0
CHECKPOINT_EVERY = "0.5s"
CHECKPOINTS_BEFORE_KILL = 2
PAUSE_BEFORE_KILL = 0.3
"""Seconds, so that the kill does not come just after a checkpoint and costs something."""
_POLL = 0.02


class Demo(NamedTuple):
    """Where the demo works, and what tells its story line by line; silent with ``--json``."""

    folder: Path
    tell: Any
    quiet: bool


class Killed(NamedTuple):
    """What the kill hit: seconds since the start; age, number, steps of the newest checkpoint."""

    after: float
    lost: float
    generation: int
    n_iter: int


def command(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            callback=local,
            metavar="DIR",
            show_default="a temporary one",
            help="New or empty folder to work in, which is kept.",
        ),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=FEWEST_ROWS, help="Rows to train on.")] = ROWS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train out of core on bundled data, be killed half way, resume, predict.

    The data are the digits that scikit-learn ships, even against odd, made many by small shifts,
    rotations and noise. Training runs as a process of its own with a memory budget smaller than
    the data; it is killed (SIGKILL), started again with the same command, and its model predicts
    digits that were held out before any copies were made. Takes about a minute.

    \b
    Examples:
      bigsvm demo
      bigsvm demo --directory demo --rows 1000000
    """
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        if directory is None:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="bigsvm-demo-"))
            directory = Path(name)
        else:
            _check_empty(directory)
        stack.enter_context(interruption.raising())
        tell = (lambda _: None) if json else say
        record = _run(Demo(directory.absolute(), tell, quiet), rows)
    if json:
        say(as_json(record))


def _check_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise DataError(f"{folder} is not empty; name a new folder for the demo")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror})") from error


def _run(demo: Demo, n_rows: int) -> dict[str, Any]:
    """Tell and do everything in order; returns what `--json` prints."""
    from bigsvm.cli.digits import load_digits_split

    digits = load_digits_split(SEED)
    m, held_out = len(digits.train_images), len(digits.test_images)
    demo.tell(
        f"Data: the {m + held_out} digits of 8 x 8 pixels that scikit-learn ships; even or odd?\n"
        f"  {held_out} are held out. The other {m} are made {count(n_rows)} by shifts of less\n"
        "  than a pixel, small rotations and a little noise: more rows, not more knowledge."
    )
    bytes_of_rows = _make_stores(demo, digits, n_rows)
    budget = parse_bytes(MEMORY)
    demo.tell(
        f"Store: train.zarr in {demo.folder}, {show_bytes(bytes_of_rows)} of values\n"
        f"Memory budget: {MEMORY}, "
        + ("less than the data" if budget < bytes_of_rows else "which would hold these data")
    )
    _tell_command(demo, _train_arguments(demo))
    killed = _train_and_kill(demo)
    if killed is None:
        demo.tell("  It ended before it could be killed; ask for more --rows to see that.")
    else:
        demo.tell(
            f"  Killed (SIGKILL) after {killed.after:.1f} s, {count(killed.n_iter)} steps saved. "
            f"Checkpoint {killed.generation}\n  was {killed.lost:.1f} s old: so much is lost.\n"
            "The same command again:"
        )
    trained = _finish(_start(demo, _train_arguments(demo)), "training")
    demo.tell(
        f"  {'Resumed; it' if killed else 'It'} {trained['stop_reason']} after "
        f"{trained['n_sweeps']} sweeps over all rows and {duration(trained['seconds'])} of training"
        f"{' in all' if killed else ''}.\n"
        f"  Certificate: KKT gap {number(trained['gap'], 3)} (tol {trained['tol']:g}), dual "
        f"objective {number(trained['objective'], 9)}, duality gap "
        f"{number(trained['duality_gap'], 3)},\n"
        f"  {count(trained['n_support'])} support vectors, {count(trained['n_bounded'])} of them "
        f"bounded. Peak memory {show_bytes(trained['peak_rss_bytes'])}."
    )
    arguments = ["predict", str(demo.folder / "test.zarr"), _model(demo)]
    _tell_command(demo, arguments)
    predicted = _finish(_start(demo, arguments), "prediction")
    demo.tell(
        f"  Accuracy on the held-out digits: {predicted['accuracy']:.2%} "
        f"({predicted['n_correct']} of {predicted['n_rows']}).\n"
        f"  Peak memory {show_bytes(predicted['peak_rss_bytes'])}: that is the interpreter and its "
        "libraries."
    )
    return {
        "n_rows": n_rows,
        "bytes_of_rows": bytes_of_rows,
        "memory": budget,
        "killed": None if killed is None else killed._asdict(),
        "train": trained,
        "predict": predicted,
    }


def _tell_command(demo: Demo, arguments: list[str]) -> None:
    shown = shlex.join(["bigsvm", *arguments]).replace(f"{demo.folder}/", "")
    demo.tell(f"\n$ {shown}")


def _make_stores(demo: Demo, digits: "Digits", n_rows: int) -> int:
    """Write the stores ``train`` and ``test``; returns the bytes of the first one's X."""
    from bigsvm.cli.digits import enlarged
    from bigsvm.conversion.from_arrays import write_store
    from bigsvm.report.progress import ConvertingProgress

    X, y = enlarged(digits, n_rows, SEED)
    # Closed before any command is started: each has a bar of its own on the same terminal.
    with Display(quiet=demo.quiet) as display:
        show = ConvertingProgress(display)
        write_store(demo.folder / "train.zarr", X, y, seed=SEED, memory=MEMORY, on_progress=show)
    write_store(demo.folder / "test.zarr", digits.test_images, digits.test_labels)
    return n_rows * int(digits.train_images[0].nbytes)


def _model(demo: Demo) -> str:
    return str(demo.folder / "train.safetensors")


def _train_arguments(demo: Demo) -> list[str]:
    return [
        *("train", str(demo.folder / "train.zarr"), _model(demo)),
        *("--C", str(C), "--gamma", str(GAMMA), "--memory", MEMORY),
        *("--checkpoint", str(demo.folder / "train.run")),
        *("--checkpoint-every", CHECKPOINT_EVERY),
    ]


def _start(demo: Demo, arguments: list[str]) -> "subprocess.Popen[str]":
    """Start this bigsvm as another process, which shares standard error."""
    command_line = [sys.executable, "-m", "bigsvm", *arguments, "--json"]
    if demo.quiet:
        command_line.append("--quiet")
    return subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True)


def _finish(child: "subprocess.Popen[str]", what: str) -> dict[str, Any]:
    """Wait for a command and read its answer."""
    import json

    try:
        out, _ = child.communicate()
    finally:
        child.kill()
        child.wait()
    _check_done(child, what)
    answer: dict[str, Any] = json.loads(out)
    return answer


def _check_done(child: "subprocess.Popen[str]", what: str) -> None:
    if child.returncode:
        raise BigsvmError(f"the demo's {what} ended with exit code {child.returncode}")


def _train_and_kill(demo: Demo) -> Killed | None:
    """Start training and kill it after some checkpoints; None if it ended before."""
    from bigsvm.training.generations import newest_manifest

    run = demo.folder / "train.run"
    started = time.time()
    with _start(demo, _train_arguments(demo)) as child:
        try:
            while child.poll() is None:
                manifest = newest_manifest(run)
                if manifest and manifest["generation"] >= CHECKPOINTS_BEFORE_KILL:
                    time.sleep(PAUSE_BEFORE_KILL)
                    break
                time.sleep(_POLL)
        finally:
            child.send_signal(signal.SIGKILL)
            now = time.time()
        child.wait()
    if child.returncode != -signal.SIGKILL:
        _check_done(child, "training")
        return None
    manifest = newest_manifest(run)
    if manifest is None:
        return None
    return Killed(
        after=now - started,
        lost=max(0.0, now - manifest["snapshot_time"]),
        generation=manifest["generation"],
        n_iter=manifest["values"]["n_iter"],
    )
