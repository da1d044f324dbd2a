"""Ctrl-C during a `fit`: the run ends in order, and the estimator has its model so far."""

from __future__ import annotations

import signal
import threading
from typing import Any, Self


class StoppedByCtrlC:
    """Delays the first Ctrl-C until the run has stopped; a context manager around training.

    The first Ctrl-C asks the run to stop, which it does within about a second, and saves it where
    there is a checkpoint; at the end of the block it is a KeyboardInterrupt. A second one raises
    KeyboardInterrupt at once. Outside the main thread, or if another handler is installed for
    SIGINT, nothing changes.
    """

    def __init__(self) -> None:
        self._applies = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        self._asked = False

    def requested(self) -> bool:
        """Whether the run should stop."""
        return self._asked

    def __enter__(self) -> Self:
        if self._applies:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._applies:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._asked and kind is None:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
