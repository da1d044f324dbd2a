"""What is called while a thread waits for a store on another machine, so that the wait can end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")

LOOK_SECONDS = 0.25
"""Time between two looks: a person who presses Ctrl-C does not notice it."""


def _nothing() -> None:
    pass


_LOOK: ContextVar[Callable[[], None]] = ContextVar("look", default=_nothing)


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` several times a second in waits of this thread, and of threads it starts.

    These are the threads whose work is wrapped by `in_this_context`.

    Parameters
    ----------
    look : callable
        May raise, which ends the wait. It is called besides those set around this block.
    """
    outer = _LOOK.get()

    def both() -> None:
        outer()
        look()

    token = _LOOK.set(both)
    try:
        yield
    finally:
        _LOOK.reset(token)


def in_this_context(work: Callable[P, T]) -> Callable[P, T]:
    """Give `work` for one call in another thread, which looks as this thread does."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.run(work, *args, **kwargs)

    return run


def look_now() -> None:
    """Call what is to be called in waits."""
    _LOOK.get()()


def wait(seconds: float) -> None:
    """Sleep, and look several times a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        look_now()
        time.sleep(min(left, LOOK_SECONDS))
    look_now()
