"""What is called in long passes and in waits for other machines, so that they can end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Event
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future

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
        # The innermost knows best how to end: it may save first.
        look()
        outer()

    token = _LOOK.set(both)
    try:
        yield
    finally:
        _LOOK.reset(token)


def in_this_context(
    work: Callable[P, T], and_look: Callable[[], None] | None = None
) -> Callable[P, T]:
    """Give `work` for one call in another thread, which looks as this thread does.

    Parameters
    ----------
    work : callable
    and_look : callable, optional
        Is called besides. May raise, which ends a wait of `work`.
    """
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        def looked_after() -> T:
            with looking(and_look or _nothing):
                return work(*args, **kwargs)

        return context.run(looked_after)

    return run


class GivenUpError(Exception):
    """The result of this thread is not needed any more."""


class GivingUp:
    """A `look` for other threads, whose waits end once this is `set`."""

    def __init__(self) -> None:
        self._event = Event()

    def __call__(self) -> None:
        """Raise if the wait is to end."""
        if self._event.is_set():
            raise GivenUpError

    def set(self) -> None:
        """End the waits."""
        self._event.set()


def together(threads: Executor, jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Results of all jobs, done by other threads; if one raises, the others are given up."""
    # Takes 10 ms, which commands do not need to start.
    from concurrent.futures import wait as wait_for

    given_up = GivingUp()

    def ended(future: Future[T]) -> None:
        if not future.cancelled() and future.exception() is not None:
            given_up.set()

    futures = [threads.submit(in_this_context(job, given_up)) for job in jobs]
    for future in futures:
        future.add_done_callback(ended)
    try:
        wait_for(futures)
        for future in futures:
            error = future.exception()
            if error is not None and not isinstance(error, GivenUpError):
                raise error
        return [future.result() for future in futures]
    finally:
        given_up.set()
        for future in futures:
            future.cancel()


def look_now() -> None:
    """Call what is to be called in waits."""
    _LOOK.get()()


def looked_between(blocks: Iterable[T]) -> Iterator[T]:
    """Yield the blocks of a pass, and look before each but the first one."""
    for number, block in enumerate(blocks):
        if number:
            look_now()
        yield block


def wait(seconds: float) -> None:
    """Sleep, and look several times a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        look_now()
        time.sleep(min(left, LOOK_SECONDS))
    look_now()
