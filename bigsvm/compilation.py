"""Compilation: Numba compiles a function when it is first called, and keeps the code on disk.

The first call on a machine therefore takes seconds, and later ones do not. The code is kept in the
folder that the environment variable ``NUMBA_CACHE_DIR`` names, or beside the modules.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPILING = "compiling for this processor; this happens once, later runs load the code"
"""What is shown and logged when a function is compiled."""


@dataclass
class Compilations:
    """What has been compiled in a block, by any thread; code that is loaded does not count.

    Attributes
    ----------
    n_functions : int
        Functions, each type of arguments counted.
    seconds : float
    cpu_seconds : float
        CPU time of the process in these seconds.
    """

    n_functions: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def compilations(tell: Callable[[], None] = lambda: None) -> Iterator[Compilations]:
    """Count what is compiled in a block.

    Parameters
    ----------
    tell : callable
        Called when the first function is about to be compiled, by the thread that calls it.

    Yields
    ------
    Compilations
        Up to date when the block ends.
    """
    # Takes a second to import, which commands that compile nothing do not need.
    from numba.core import event

    counted = Compilations()

    class Counting(event.Listener):  # type: ignore[misc] # Numba has no types
        """One function at a time is compiled, with those that it calls inside it."""

        depth = 0
        began = (0.0, 0.0)

        def on_start(self, event: object) -> None:
            if not counted.n_functions:
                tell()
            if not self.depth:
                self.began = time.monotonic(), time.process_time()
            self.depth += 1
            counted.n_functions += 1

        def on_end(self, event: object) -> None:
            self.depth -= 1
            if not self.depth:
                counted.seconds += time.monotonic() - self.began[0]
                counted.cpu_seconds += time.process_time() - self.began[1]

    with event.install_listener("numba:compile", Counting()):
        yield counted
