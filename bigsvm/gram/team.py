"""Team: threads that share tasks. Each thread has scratch memory of its own."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from bigsvm.processors import works_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Task = TypeVar("Task")


# A process forked while a thread loads compiled code would wait for ever for the lock of that
# thread, which the new process does not have. So a fork waits until no thread holds the lock.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


class Team:
    """The calling thread and a pool of helpers.

    Parameters
    ----------
    threads : int
        Most helpers.
    name : str
        Prefix of the names of their threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def share_out(
        self,
        work: Callable[[Task], None],
        tasks: Sequence[Task],
        n_helpers: int,
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `work` for each task, in this thread and in `n_helpers` of the pool.

        This thread works too, as another one may take as long to wake up as a batch of kernel rows
        takes. The others have its context, and so its checks for an interruption. When the call
        returns or raises, no thread is at work any more. If it is interrupted while it waits for
        the others, it calls `abandon`, so that they can end long tasks early. An exception of
        `work` is raised.
        """
        if n_helpers <= 0 or works_alone():
            for task in tasks:
                work(task)
            return
        waiting = deque(tasks)

        def take_tasks() -> None:
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                work(task)

        helpers = [self._pool.submit(copy_context().run, take_tasks) for _ in range(n_helpers)]
        try:
            take_tasks()
        finally:
            waiting.clear()
            awake = [helper for helper in helpers if not helper.cancel()]
            try:
                wait(awake)
            except BaseException:
                abandon()
                wait(awake)
                raise
        for helper in awake:
            helper.result()

    def scratch(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of this thread, reused from call to call; fresh pages are expensive."""
        size = math.prod(shape)
        held: NDArray[Any] | None = self._local.__dict__.get(name)
        if held is None or held.size < size:
            held = np.empty(size, dtype)
            self._local.__dict__[name] = held
        return held[:size].reshape(shape)

    def places(self, n_features: int) -> NDArray[np.int32]:
        """Return an array of this thread with −1 for each feature, to be restored after use."""
        held: NDArray[np.int32] | None = self._local.__dict__.get("places")
        if held is None or held.size < n_features:
            held = np.full(n_features, -1, np.int32)
            self._local.__dict__["places"] = held
        return held
