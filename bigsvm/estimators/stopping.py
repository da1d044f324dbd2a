"""Ctrl-C during a `fit` with a checkpoint: the run is saved before it ends."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from bigsvm.parameters import TrainingParameters


class SavedOnInterrupt:
    """Delays the first Ctrl-C until the run is saved; use it as a context manager around training.

    The first Ctrl-C asks the run to stop, which saves it within about a second; at the end of the
    block it is a KeyboardInterrupt. A second one raises KeyboardInterrupt at once. Without a
    checkpoint, outside the main thread, or if another handler is installed for SIGINT, nothing
    changes.

    Parameters
    ----------
    parameters : TrainingParameters
    """

    def __init__(self, parameters: TrainingParameters) -> None:
        self._applies = (
            parameters.checkpoint is not None
            and threading.current_thread() is threading.main_thread()
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
