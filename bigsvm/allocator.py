"""The C library's allocator, which keeps what has been freed; only glibc's is told otherwise.

NumPy's arrays come from it. Peaks of `bigsvm train`, 400 000 rows in 128 MB: 349 MB with what glibc
has in holes and in memory of its own for every thread, 299 MB without.
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
    """Give memory that has been freed back to the system, holes between what is in use included.

    Asked for between the phases of a run, as the next one wants arrays of other sizes.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_freed_memory() -> None:
    """Have all threads take from what any of them has freed; for programs, at their start.

    A thread that decodes chunks otherwise keeps, for itself, as much as it once needed.
    """
    set_option = getattr(_c_library(), "mallopt", None)
    if set_option is not None:
        set_option(_ARENA_MAX, 1)
