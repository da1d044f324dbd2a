"""Signals: SIGINT, SIGTERM and SIGHUP stop a command in order; SIGUSR1 asks where it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from bigsvm.interruption import checked_by

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal ended a command before it had a result; not an `Exception`, which others catch."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}; nothing was written")
        self.exit_code = 128 + signum


class Interruption:
    """Whether this process was asked to stop; use it as a context manager around a command.

    `signum` is the signal that asked, or None.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._raises = False
        self._n_asked = 0
        self._previous: dict[int, Any] = {}
        self._looking = ExitStack()

    def __enter__(self) -> Self:
        # Only the main thread may; a command that runs in another leaves the signals alone.
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._handle)
                for number in _SIGNALS
                # `nohup` has it ignored, and it stays so.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            }
            self._previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._note)
        # Where a run has something to save, it looks first, and saves.
        self._looking.enter_context(checked_by(self.check))
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._looking.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if kind is KeyboardInterrupt:
            # From work with nothing to save, which knows of a signal but not which it was.
            self.check()

    def requested(self) -> bool:
        """Whether a signal has come."""
        return self.signum is not None

    def times_asked(self) -> int:
        """Count the SIGUSR1 that have come: requests to save, and to say where the run is."""
        return self._n_asked

    def check(self) -> None:
        """Raise `Interrupted` if a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise `Interrupted` wherever the signal finds the program, reading a pipe for example."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def stop_raising(self) -> None:
        """From here on a signal is only noted, because what follows must not be cut in two."""
        self._raises = False

    @property
    def exit_code(self) -> int:
        """Exit code by convention: 128 + the signal, or 0 if there was none."""
        return 0 if self.signum is None else 128 + self.signum

    def _handle(self, signum: int, frame: object) -> None:
        if self.signum is not None:
            if signum == signal.SIGHUP:
                return  # a terminal that closes sends several
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a progress bar has hidden the cursor
            os._exit(128 + signum)
        self.signum = signum
        if self._raises:
            raise Interrupted(signum)

    def _note(self, signum: int, frame: object) -> None:
        self._n_asked += 1
