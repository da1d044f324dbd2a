"""Team: threads that share the parts of one piece of work, each with scratch memory of its own."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba.core.compiler_lock import global_compiler_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Part = TypeVar("Part")


# A child forked while another thread loads compiled code would wait for that thread for ever, as
# the child does not have it. So a fork waits until no thread loads compiled code.
os.register_at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


class Team:
    """The thread that asks, and helpers from a pool.

    Parameters
    ----------
    threads : int
        Most helpers.
    name : str
        Of their threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def share_out(
        self,
        one: Callable[[Part], None],
        parts: Sequence[Part],
        n_helpers: int,
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Do all parts, in this thread and in `n_helpers` of the pool; raise what one raises.

        This thread works too, because another one takes 0.1 to 0.3 ms to wake up: as long as a
        batch of kernel rows. When it returns or raises, no other is at work any more; `abandon` is
        called where it is interrupted while it waits for them, so that long parts can end.
        """
        if n_helpers <= 0:
            for part in parts:
                one(part)
            return
        waiting = deque(parts)

        def work() -> None:
            while waiting:
                try:
                    part = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                one(part)

        helpers = [self._pool.submit(work) for _ in range(n_helpers)]
        try:
            work()
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
        """Give this thread an array: fresh pages would cost as much as the product."""
        size = math.prod(shape)
        held: NDArray[Any] | None = self._local.__dict__.get(name)
        if held is None or held.size < size:
            held = np.empty(size, dtype)
            self._local.__dict__[name] = held
        return held[:size].reshape(shape)

    def places(self, n_features: int) -> NDArray[np.int32]:
        """Give this thread an array of −1 for every feature, to be left as it was."""
        held: NDArray[np.int32] | None = self._local.__dict__.get("places")
        if held is None or held.size < n_features:
            held = np.full(n_features, -1, np.int32)
            self._local.__dict__["places"] = held
        return held
