"""Preparation of the standard streams: closed, full or non-UTF-8 ones do not end a command."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

from bigsvm.errors import shown


class _Tolerant:
    """Standard error that may be full or closed: text that cannot be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (any attribute of the stream)
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def secure_streams() -> None:
    """Prepare the standard streams of this process for a command.

    Closed descriptors are opened on the null device: otherwise the next file would get the number,
    and messages would be written into a model. Characters that standard output cannot encode are
    escaped. Standard error drops text that it cannot write.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)
    sys.stderr = cast("TextIO", _Tolerant(sys.stderr))
    sys.unraisablehook = _show_unraisable


def _show_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """Show on one line an error in the finalizer of an object, as in fsspec's file systems."""
    what = shown(f"{type(ignored.exc_value).__name__}: {ignored.exc_value}")
    print(f"bigsvm: warning: ignored at the removal of an object: {what}", file=sys.stderr)


def discard_output() -> None:
    """Keep the buffer of standard output from failing again when the process ends."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
