"""What a process has used, and what files take."""

from __future__ import annotations

import os
import resource
import stat
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far.

    Linux's own high-water mark where there is one: the figure of `getrusage` starts at the memory
    of the process that started this one.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_on_disk(folder: Path) -> int:
    """Bytes of all files of a folder."""
    total = 0
    for parent, _, names in os.walk(folder):  # passes over folders that go away meanwhile
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue  # removed meanwhile by a run that is under way
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
