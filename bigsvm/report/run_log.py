"""A log of a run for programs: one JSON object a line, with the time."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from bigsvm.errors import ParameterError
from bigsvm.report.text import as_json
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


class RunLog:
    """Appends events of a run to a file; use it as a context manager.

    Parameters
    ----------
    path : Path
        A file that is not there, or another log, which goes on.
    warn : callable
        Told once if the log cannot be written; the run goes on without.

    Raises
    ------
    ParameterError
        The file is not a log, or cannot be opened.
    """

    def __init__(self, path: Path, *, warn: Callable[[str], None]) -> None:
        self._path, self._warn = path, warn
        self._last: dict[type, float] = {}
        try:
            with suppress(FileNotFoundError), path.open("rb") as file:
                start = file.read(len(_START))
                if start and start != _START:
                    raise ParameterError(
                        f"--log is {path}, which is not a log of a run; give another file"
                    )
            self._file: Any = path.open("a", encoding="utf-8", buffering=1)
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
        now = time.monotonic()
        if isinstance(event, FREQUENT):
            if now - self._last.get(type(event), -EVERY) < EVERY:
                return
            self._last[type(event)] = now
        record = event._asdict()
        record.pop("of_functions", None)  # of a thousand classes it would be long
        self.write(type(event).__name__, record)

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
