"""``bigsvm watch``: the progress of a run in another process, from its log."""

from pathlib import Path
from typing import Annotated

import typer

from bigsvm.cli.options import local
from bigsvm.cli.outputs import say
from bigsvm.declared import is_kind
from bigsvm.errors import DataError
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.report.run_log import FREQUENT, NAME, Noted, follow_log
from bigsvm.report.text import number
from bigsvm.training.result import StopReason


def command(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|LOG", callback=local, help="The checkpoint folder of a run, or a log."
        ),
    ],
) -> None:
    """Watch a run that another process makes: what has happened, and its progress, until it ends.

    The log of --checkpoint or --log is read, on the machine of the run. Ctrl-C ends watching; the
    run goes on.

    \b
    Examples:
      bigsvm watch run
      bigsvm watch search.jsonl
    """
    path = place / NAME if place.is_dir() else place
    if not path.exists():
        raise DataError(f"{path}: no such log; a run with --checkpoint or --log has one")
    last, is_past, moved = None, True, None
    with Display(quiet=False) as display:
        show = TrainingProgress(display)
        for line in follow_log(path):
            last = last if line is None else line
            if is_past and isinstance(line, FREQUENT):
                moved = line  # the pace of what is past cannot be told
            elif line is None:
                if is_past and moved is not None:
                    show(moved)
                is_past = False
            elif not isinstance(line, Noted):
                show(line)
            elif line.name == "Fitted" and is_kind(line.record.get("scores"), {str: float}):
                scores = line.record["scores"].items()
                words = ", ".join(f"{name} {number(score)}" for name, score in scores)
                display.line(f"fit of a fold: {words}")
    say(_end(last))


def _end(last: object) -> str:
    """Say in a sentence how a run ended whose log has this last line."""
    if not isinstance(last, Noted) or last.name not in ("Ended", "Forecast", "failed"):
        return "the run was killed: no process writes its log any more, and the log has no end"
    if last.name == "failed":
        return f"the run failed: {last.record.get('error')}"
    reason = last.record.get("stop_reason")
    if reason not in set(StopReason):
        return "the run has ended"
    return f"the run has ended: {StopReason(reason).sentence}"
