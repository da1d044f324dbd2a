"""Have the C library's allocator return freed memory to the system; only glibc's is asked to.

NumPy's arrays come from this allocator. By default it keeps freed memory, separately for each
thread.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of malloc.h."""


@functools.cache
def _c_library() -> Any:  # noqa: ANN401 (ctypes finds its functions by name)
    return ctypes.CDLL(None) if os.name == "posix" else None


def give_back_freed_memory() -> None:
    """Return freed memory to the system, also from holes between arrays in use.

    Called between the phases of a run, as the next phase needs arrays of other sizes.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_freed_memory() -> None:
    """Have all threads share one pool of freed memory; called by programs at their start.

    Otherwise each thread that decodes chunks keeps the most memory that it ever needed.
    """
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, 1)
