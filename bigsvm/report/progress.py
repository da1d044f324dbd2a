"""Progress on standard error: a bar where a person watches, plain lines where a file does."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self

from bigsvm.budget import show_bytes
from bigsvm.compilation import compilations
from bigsvm.errors import shown
from bigsvm.report.text import count, number, plural
from bigsvm.report.time_left import TimeLeft
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from bigsvm.conversion.writing import ConversionProgress

LINE_EVERY = 10.0
"""Seconds between two plain lines of something that reports all the time."""
MOVE_EVERY = 0.1
"""Seconds between two moves of a bar over what may take less than a millisecond each."""
LEAST_DONE = 0.05
"""Share of the work before which its pace says little, as code is loaded first."""
LEAST_LEFT = 1.0
"""Seconds left of a run that are worth a word."""
MOST_NAMED = 8
"""Workers that are named when they join a run: a line for each of hundreds tells nothing."""


def is_watched() -> bool:
    """Whether standard error is a terminal that can move its cursor."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def _warnings_to(warn: Callable[[str], None]) -> Iterator[None]:
    """Show Python warnings and the library's log as lines like all others."""
    import logging  # imported here, as help and errors do not need it

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    handler, logger = Lines(logging.WARNING), logging.getLogger("bigsvm")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: warn(" ".join(str(message).split()))
            yield
    finally:
        logger.removeHandler(handler)


class Display:
    """Lines that stay and one bar that moves; of the two, files and pipes get the lines.

    Parameters
    ----------
    quiet : bool
        Show warnings only.
    takes_warnings : bool
        Whether Python warnings and the log of the library are shown as lines.
    times_asked : callable
        How often a person has asked where the command is; the answer is a line, quiet or not.
    """

    def __init__(
        self,
        *,
        quiet: bool,
        takes_warnings: bool = True,
        times_asked: Callable[[], int] = lambda: 0,
    ) -> None:
        self._times_asked, self._answered = times_asked, 0
        self.is_asked = False  # a person waits for the checkpoint
        self._quiet, self._takes_warnings = quiet, takes_warnings
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._what = ""
        self._last_line = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._takes_warnings:
            self._stack.enter_context(_warnings_to(self.warn))
        if not self._quiet:
            self._stack.enter_context(compilations(self.line))
        if not self._quiet and is_watched():
            # Takes a tenth of a second to import, so only where it is used.
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[note]}"),
                console=Console(stderr=True, highlight=False, markup=False),
                transient=True,
                refresh_per_second=5,
            )
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._stack.close()

    def line(self, text: str) -> None:
        """Show a line that stays."""
        if not self._quiet:
            self._write(text)

    def checkpointed(self, text: str) -> bool:
        """Show that a checkpoint was written, if a person has asked; returns whether."""
        was_asked, self.is_asked = self.is_asked, False
        if was_asked:
            self._write(text)
        return was_asked

    def warn(self, text: str) -> None:
        """Show a warning, quiet or not."""
        self._write(f"bigsvm: warning: {text}")

    def _write(self, text: str) -> None:
        self._last_line = time.monotonic()
        # A terminal or pipe that was closed must not end the run.
        line = shown(text)
        with suppress(OSError, ValueError):  # ValueError: the stream was closed
            if self._bar is not None:
                self._bar.console.print(line)
            elif sys.stderr is not None:
                print(line, file=sys.stderr, flush=True)

    def move(
        self, what: str, note: str, done: float | None = None, total: float | None = None
    ) -> None:
        """Show how far something is; without a terminal, now and then as a line."""
        if self._times_asked() != self._answered:
            self._answered, self.is_asked = self._times_asked(), True
            self._write(f"{what}: {note}")
        if self._quiet:
            return
        if self._bar is not None:
            if self._task is None or what != self._what:
                # A new one each time: `update` cannot take the total of the last away again.
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(what, total=total, note=note)
                self._what = what
            self._bar.update(self._task, note=note, total=total, completed=done or 0)
        elif time.monotonic() - self._last_line >= LINE_EVERY:
            self.line(f"{what}: {note}")


class Pace:
    """How fast something goes, from the first report of it in this process."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def per_second(self, done: float) -> float | None:
        """Return how much is done each second, in any unit; None at the first report."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done, now)
        first, began = self._first
        return (done - first) / (now - began) if done > first and now > began else None

    def seconds_left(self, done: float, total: float) -> float | None:
        """Return how many seconds the rest takes at this pace; None if it is too early to say."""
        rate = self.per_second(done)
        if rate is None or self._first is None:
            return None
        first = self._first[0]
        return (total - done) / rate if done - first >= LEAST_DONE * (total - first) else None


class TrainingProgress:
    """Listens to a training run."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._sweep, self._pace, self._left = 0, Pace(), TimeLeft()
        self._gap: float | None = None
        self._is_planned = False
        self._merged: events.Merged | None = None
        self._last_checkpoint = -math.inf
        self._pace_of_pairs = Pace()
        self._last_pair = -math.inf
        self._threads_of: dict[str, int] = {}

    def __call__(self, event: events.Event) -> None:
        """Show an event."""
        self._left(event)
        match event:
            case events.ManyClasses() | events.ClassesLeftOut():
                self._display.warn(event.sentence)
            case events.Planned():
                self._planned(event)
            case events.Merged():
                self._merged = event
            case events.TakenAsRecorded():
                self._display.line(event.sentence)
            case events.TierChosen():
                self._display.line(event.reason)
            case events.Searching():
                self._display.move(
                    "searching samples",
                    f"{count(event.size)} points, {count(event.steps)} steps, radius "
                    f"{number(event.radius, 6)}, gap of the samples {number(event.gap, 3)} "
                    f"(tol {event.tol:g})",
                )
            case events.Solving():
                self._solving(event)
            case events.Sweeping():
                self._sweeping(event)
            case events.Swept():
                self._swept(event)
            case events.Tested():
                self._display.line(
                    f"trained on {count(event.trained)} rows: error {event.error:.2%} (standard "
                    f"error {event.deviation:.2%}) at {count(event.fresh)} others"
                )
            case events.PairsUnderWay():
                self._pairs(event)
            case events.OfPair():
                self(event.event)
            case events.Calibrating():
                self._display.move(
                    "calibrating",
                    f"{count(event.rows_done)} of {count(event.n_rows)} rows held out",
                    event.rows_done,
                    event.n_rows,
                )
            case events.TasksUnderWay():
                workers = plural(len(self._threads_of), "worker")
                self._display.move(
                    "fits of workers",
                    f"{event.done} of {plural(event.n_tasks, 'task')} done, {workers}",
                    event.done,
                    event.n_tasks,
                )
            case events.Sampled():
                self._display.line(
                    f"{count(event.n_rows)} rows took {duration(event.seconds)}: "
                    f"{count(event.n_support)} support vectors"
                )
            case events.Checkpointed():
                self._checkpointed(event)
            case events.Joined() | events.Left():
                self._workers_changed(event)

    def _planned(self, event: events.Planned) -> None:
        if self._is_planned:
            return  # a search before, with the same memory
        self._is_planned = True
        total = show_bytes(sum(event.projected.values()))
        rows = f"{count(event.n_rows)} rows"
        if self._merged is not None:
            rows = f"{count(self._merged.n_rows)} rows, {count(self._merged.n_different)} different"
        self._display.line(
            f"{rows}, {count(event.n_columns)} columns; working sets of up to "
            f"{count(event.working_set)} rows; {total} of arrays"
        )
        if event.resumed_sweeps:
            self._display.line(f"resumed after sweep {event.resumed_sweeps}")

    def _checkpointed(self, event: events.Checkpointed) -> None:
        """Show the first of several that follow each other closely."""
        now = time.monotonic()
        text = f"checkpoint {event.generation} written in {event.seconds:.2f} s"
        if self._display.checkpointed(text):
            return
        if now - self._last_checkpoint >= LINE_EVERY:
            self._last_checkpoint = now
            self._display.line(text)

    def _workers_changed(self, event: events.Joined | events.Left) -> None:
        """Name the first workers, and all that go; of many the number alone is of interest."""
        if isinstance(event, events.Joined):
            self._threads_of[event.address] = event.threads
            if len(self._threads_of) > MOST_NAMED:
                return
            what = "has joined"
        else:
            self._threads_of.pop(event.address, None)
            what = "has gone, and others do its tasks"
        workers = plural(len(self._threads_of), "worker")
        threads = plural(sum(self._threads_of.values()), "thread")
        self._display.line(f"worker {event.address} {what}: {workers}, {threads} now")

    def _solving(self, event: events.Solving) -> None:
        note = f"{count(event.steps)} steps, gap of these rows {number(event.gap, 3)}"
        if event.objective is not None and not math.isnan(event.objective):
            note += f", objective {number(event.objective, 6)}"
        if event.n_violating is not None:
            note += f", {plural(event.n_violating, 'violator')}"
        if event.best_gap is not None:
            note += f", best gap of all rows {number(event.best_gap, 3)}"
        self._display.move(f"solving {count(event.size)} rows", note + self._run_ends())

    def _sweeping(self, event: events.Sweeping) -> None:
        if self._sweep != event.sweep:
            self._sweep, self._pace = event.sweep, Pace()
        note = f"{count(event.rows_done)} of {count(event.n_rows)} rows"
        if (rate := self._pace.per_second(event.rows_done)) is not None:
            note += f", {count(round(rate))} rows/s"
        if (left := self._pace.seconds_left(event.rows_done, event.n_rows)) is not None:
            note += f", this sweep ends in {duration(left)}"
        if self._threads_of:
            note += f", {plural(len(self._threads_of), 'worker')}"
        if event.tasks:
            note += f", {plural(event.tasks, 'task')}, {show_bytes(event.bytes_sent)} sent"
            note += f", {show_bytes(event.bytes_returned)} returned"
        if self._gap is not None:
            note += f", gap {number(self._gap, 3)}"
        note += self._run_ends()
        self._display.move(f"sweep {event.sweep}", note, event.rows_done, event.n_rows)

    def _run_ends(self) -> str:
        """Say how long the whole run still takes; nothing while it has hardly begun."""
        left = self._left.seconds
        if left is None or left < LEAST_LEFT:
            return ""
        return f", training ends in about {duration(left)}"

    def _pairs(self, event: events.PairsUnderWay) -> None:
        now = time.monotonic()
        left = self._pace_of_pairs.seconds_left(event.work_done, event.work)
        if now - self._last_pair < MOVE_EVERY and event.done < event.n_pairs:
            return
        self._last_pair = now
        note = f"{count(event.done)} of {count(event.n_pairs)} done"
        if left is not None:
            note += f", all end in about {duration(left)}"
        self._display.move("pairs of classes", note, event.work_done, event.work)

    def _swept(self, event: events.Swept) -> None:
        self._gap = event.gap
        self._display.line(swept_text(event))


def swept_text(event: events.Swept) -> str:
    """One line about a sweep that is complete."""
    return (
        f"sweep {event.sweep}: gap {number(event.gap, 3)} (tol {event.tol:g}), objective "
        f"{number(event.objective, 9)}, {count(event.n_support)} support vectors, "
        f"{count(event.n_bounded)} bounded, {duration(event.seconds)}{_idle(event.cpu_idle)}"
    )


def _idle(share: float | None) -> str:
    return "" if share is None else f", threads waited for {share:.0%} of it"


class ConvertingProgress:
    """Listens to a conversion."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._began = time.monotonic()

    def __call__(self, progress: ConversionProgress) -> None:
        """Show how far it is."""
        done, total = progress.done, progress.total
        if progress.stage == "read":
            rate = done / max(time.monotonic() - self._began, 1e-9)
            note = show_bytes(done) + (f" of {show_bytes(total)}" if total else "")
            self._display.move("reading", f"{note}, {show_bytes(rate)}/s", done, total)
        else:
            note = count(done) + (f" of {count(total)}" if total else "") + " rows"
            self._display.move("writing", note, done, total)


class RowsProgress:
    """Shows how many rows of one pass are done."""

    def __init__(self, display: Display, what: str, n_rows: int) -> None:
        self._display = display
        self._what = what
        self._n_rows = n_rows
        self._began = time.monotonic()

    def __call__(self, done: int) -> None:
        """Show that `done` rows are done."""
        rate = done / max(time.monotonic() - self._began, 1e-9)
        note = (
            f"{count(done)} of {count(self._n_rows)} rows, {count(round(rate))} rows/s, ends in "
            f"{duration((self._n_rows - done) / max(rate, 1e-9))}"
        )
        self._display.move(self._what, note, done, self._n_rows)


def duration(seconds: float) -> str:
    """``12.3 s``, ``4 min 10 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
