"""A log of a run for programs: one JSON object a line, with the time; written and read.

The writer keeps the file locked, so that a reader can tell a run under way from a killed one.
"""

from __future__ import annotations

import fcntl
import math
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from bigsvm.declared import FINITE, is_kind
from bigsvm.errors import ParameterError
from bigsvm.files import open_regular, parse_json
from bigsvm.report.text import as_json
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME = "log.jsonl"
"""Name of the log in the folder of a checkpoint."""

EVERY = 1.0
"""Least seconds between two lines of an event that comes many times a second."""
FREQUENT = (
    events.Searching,
    events.Solving,
    events.Sweeping,
    events.PairsUnderWay,
    events.TasksUnderWay,
    events.Calibrating,
)
_START = b'{"time": "'
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("address", "reason"), str),
    **dict.fromkeys(
        ("gap", "best_gap", "objective", "n_violating", "radius", "cpu_idle"), (FINITE, None)
    ),
    "projected": {str: int},
}
"""Kinds of the fields of events that are read; others are finite numbers."""


class RunLog:
    """Appends events of a run to a file; use it as a context manager.

    Parameters
    ----------
    path : Path or None
        A file that is not there, or another log, which goes on.
    folder : Path or None
        Folder of the checkpoint, which has the log if `path` is None. It is opened when the run is
        planned, as the folder is then known to be that of this run.
    warn : callable
        Told once if the log cannot be written; the run goes on without.

    Raises
    ------
    ParameterError
        The file is not a log, or cannot be opened.
    """

    def __init__(
        self, path: Path | None, folder: Path | None = None, *, warn: Callable[[str], None]
    ) -> None:
        self._path, self._folder, self._warn = path, folder, warn
        self._last: dict[type, float] = {}
        self._file: Any = None
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        self._path = path
        try:
            with suppress(FileNotFoundError), path.open("rb") as file:
                start = file.read(len(_START))
                if start and start != _START:
                    raise ParameterError(
                        f"--log is {path}, which is not a log of a run; give another file"
                    )
            self._file = path.open("a", encoding="utf-8", buffering=1)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._file, fcntl.LOCK_SH)
        except OSError as error:
            raise ParameterError(f"--log {path} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self.write("failed", {"error": f"{kind.__name__}: {error}"})
        if self._file is not None:
            self._file.close()

    def __call__(self, event: events.Event) -> None:
        """Write an event; of those that come many times a second, one a second."""
        if self._path is None and self._folder is not None and isinstance(event, events.Planned):
            try:
                if (path := self._folder / NAME).is_symlink():
                    raise ParameterError(f"{path} is a link, which is not followed; remove it")
                self._open(path)
            except ParameterError as error:
                self._warn(f"the run goes on without a log: {error}")
        now, pair = time.monotonic(), {}
        if isinstance(event, events.OfPair):
            pair, event = {"pair": event.pair}, event.event
        is_last = isinstance(event, events.PairsUnderWay) and event.done == event.n_pairs
        if isinstance(event, FREQUENT) and not is_last:
            if now - self._last.get(type(event), -EVERY) < EVERY:
                return
            self._last[type(event)] = now
        record = event._asdict()
        record.pop("of_functions", None)  # of a thousand classes it would be long
        self.write(type(event).__name__, {**pair, **record})

    def write(self, event: str, record: dict[str, Any]) -> None:
        """Write a line: the time in UTC, the name of an event, and what is known of it."""
        if self._file is None:
            return
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            self._file.write(f"{as_json({'time': moment, 'event': event, **record})}\n")
        except OSError as error:
            self._file = None
            self._warn(f"{self._path} cannot be written ({error.strerror}); the log ends here")


class Noted(NamedTuple):
    """A line of a log that is no event of training, such as `Fitted`, `Ended` and `failed`."""

    name: str
    record: dict[str, Any]


def is_log(path: Path) -> bool:
    """Whether this is a file that begins as a log does."""
    with suppress(OSError), open_regular(path, follow_links=True) as file:
        return file.read(len(_START)) == _START
    return False


def read_log(path: Path) -> Iterator[events.Event | Noted]:
    """Read a log, without a last line that is cut and lines that `RunLog` does not write.

    Raises
    ------
    ParameterError
        The file is no log, or cannot be read.
    """
    return (line for line in follow_log(path, wait=False) if line is not None)


def follow_log(path: Path, *, wait: bool = True) -> Iterator[events.Event | Noted | None]:
    """Read a log, and what is added as long as a process writes it; None is that there is no more.

    Raises
    ------
    ParameterError
        The file is no log, or cannot be read.
    """
    if not is_log(path):
        raise ParameterError(f"{path} is not there, or is not the log of a run; check the path")
    with open_regular(path, follow_links=True) as file:
        while True:
            is_written = wait and _is_written(file)
            while (text := file.readline()).endswith(b"\n"):
                if (line := _line(text)) is not None:
                    yield line
            if not is_written:  # before these lines were read
                return
            file.seek(-len(text), 1)
            yield None
            time.sleep(EVERY / 2)


def _is_written(file: BinaryIO) -> bool:
    """Whether a process writes this log; False on a file system without locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _line(text: bytes) -> events.Event | Noted | None:
    """Read a line; None where it is not one of `RunLog`."""
    try:
        record: Any = parse_json(text)
        name, _ = record.pop("event"), record.pop("time")
        kind = getattr(events, name, None)
        if not isinstance(kind, type) or not issubclass(kind, tuple):
            return Noted(name, record)
        pair = record.pop("pair", None)
        if not all(is_kind(record[field], _KINDS.get(field, FINITE)) for field in record):
            return None
        # JSON has no NaN, which was written as null.
        lost = [field for field in record if record[field] is None and field != "cpu_idle"]
        event: Any = kind(**{**record, **dict.fromkeys(lost, math.nan)})
        found: events.Event = event if pair is None else events.OfPair(pair, event)
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
