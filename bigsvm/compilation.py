"""Compilation: Numba compiles a function when it is first called, and keeps the code on disk.

The first call on a machine therefore takes seconds, and later ones do not. The code is kept in the
folder that the environment variable ``NUMBA_CACHE_DIR`` names, or beside the modules.

Every function of `bigsvm.core` is decorated by one of `compiled`, `inner` and `inlined`. Their
options are the same as far as possible, because Numba compiles functions of its own, such as
``max``, again for each set of options.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Decorated = Any
"""A function that Numba compiles; Numba has no types."""

COMPILING = "compiling for this processor; this happens once, later runs load the code"
"""What is shown and logged when a function is compiled."""


def compiled(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function when it is first called, and keep its code.

    It does not hold the interpreter's lock. A division by zero gives what it gives in NumPy.

    Parameters
    ----------
    function : callable
        Or none, and it decorates by the options.
    **options
        Options of ``numba.njit``, instead of or besides those of bigsvm.
    """
    return _decorated(function, options)


def inner(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function that only compiled functions call, as `compiled` does.

    Numba does not write the code that takes arguments from Python, which is large. So a call from
    Python ends the process: `tests/core/test_inner_functions.py` looks that there is none.
    """
    return _decorated(function, {"no_cpython_wrapper": True, **options})


def inlined(function: Decorated = None, /, **options: object) -> Decorated:
    """Compile a function as a part of each compiled function that calls it.

    Each copy is compiled anew, which takes long. LLVM moves small functions into their callers by
    itself, so few need this.
    """
    return _decorated(function, {"inline": "always", **options})


def _decorated(function: Decorated, options: dict[str, object]) -> Decorated:
    from numba import njit

    _collect_no_garbage()
    # The code that C would call is left out.
    decorator = njit(
        **{"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True} | options
    )
    return decorator if function is None else decorator(function)


@cache
def _collect_no_garbage() -> None:
    """Pause Python's garbage collector while Numba compiles.

    The compiler makes many objects that stay: looking through them again and again takes a sixth
    of its time.
    """
    from numba.core import event

    class Pausing(event.Listener):  # type: ignore[misc] # Numba has no types
        """One function at a time is compiled, with those that it calls inside it."""

        depth = 0
        pauses = False

        def on_start(self, event: object) -> None:
            if not self.depth and gc.isenabled():
                gc.disable()
                self.pauses = True
            self.depth += 1

        def on_end(self, event: object) -> None:
            self.depth -= 1
            if not self.depth and self.pauses:
                self.pauses = False
                gc.enable()

    event.register("numba:compile", Pausing())


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
