"""The check that ends long work: for Ctrl-C, a time limit, a signal, or an error of another thread.

A run or a command sets a check with `checked_by`. Long passes and waits for other machines call
`check_interrupt` several times a second, which calls the check. The check raises an exception to
end the work.
"""

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

CHECK_SECONDS = 0.25
"""Time between two checks in a wait: a person who presses Ctrl-C does not notice it."""


def _nothing() -> None:
    pass


_CHECK: ContextVar[Callable[[], None]] = ContextVar("check", default=_nothing)


@contextmanager
def checked_by(check: Callable[[], None]) -> Iterator[None]:
    """Let `check_interrupt` call `check`, in this thread and in threads that it starts.

    These are the threads whose work is wrapped by `in_this_context`. `check` may raise, which ends
    the work. It is called besides those set around this block.
    """
    outer = _CHECK.get()

    def both() -> None:
        # The innermost knows best how to end: it may save first.
        check()
        outer()

    token = _CHECK.set(check if outer is _nothing else both)
    try:
        yield
    finally:
        _CHECK.reset(token)


@contextmanager
def unchecked() -> Iterator[None]:
    """Let no check end the work of this block, such as a model of what a run has come to."""
    token = _CHECK.set(_nothing)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_interrupt() -> None:
    """Raise if the work of this thread is to end."""
    _CHECK.get()()


def in_this_context(
    work: Callable[P, T], and_check: Callable[[], None] | None = None
) -> Callable[P, T]:
    """Give `work` for one call in another thread, with the checks of this thread.

    `and_check` is called besides. It may raise, which ends `work`.
    """
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        def checked() -> T:
            with checked_by(and_check or _nothing):
                return work(*args, **kwargs)

        return context.run(checked)

    return run


class GivenUpError(Exception):
    """The result of this thread is not needed any more."""


class GivingUp:
    """A check for other threads, whose waits end once this is `set`."""

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


def checked_between(blocks: Iterable[T]) -> Iterator[T]:
    """Yield the blocks of a pass, and check before each but the first one."""
    for number, block in enumerate(blocks):
        if number:
            check_interrupt()
        yield block


def checked(results: Iterable[T], check: Callable[[], None]) -> Iterator[T]:
    """Yield results, and let `check` be called while the next one is made.

    A generator cannot use `checked_by` around its own `yield`: the block would hold for its caller.
    """
    iterator = iter(results)
    while True:
        with checked_by(check):
            try:
                result = next(iterator)
            except StopIteration:
                return
        yield result


def wait(seconds: float) -> None:
    """Sleep, and check several times a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check_interrupt()
        time.sleep(min(left, CHECK_SECONDS))
    check_interrupt()
