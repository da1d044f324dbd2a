"""The processors a run may use, as a guest of whoever has others beside it."""

from __future__ import annotations

import functools
import math
import os
import sys
from numbers import Integral
from pathlib import Path
from typing import Any

from bigsvm.errors import ParameterError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_CONTROL_GROUPS = Path("/proc/self/cgroup")
"""Linux's, where control groups and those of this process stand."""


def available_processors() -> int:
    """Processors this process may use: those of its affinity, its quota and LOKY_MAX_CPU_COUNT.

    All there are where the system does not tell.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(), _limit_of("LOKY_MAX_CPU_COUNT"))))


def default_threads() -> int:
    """Threads where no number of them is asked for.

    One in a worker of joblib or multiprocessing, which has others beside it. Else as many as there
    are available processors, unless OMP_NUM_THREADS or threadpoolctl limit those of OpenMP.
    """
    if _is_worker():
        return 1
    limits = (_limit_of("OMP_NUM_THREADS"), *(one.num_threads for one in _openmp()))
    return int(max(1, min(available_processors(), *limits)))


def count_threads(n_jobs: object, name: str = "n_jobs") -> int:
    """Count the threads that `n_jobs` stands for.

    Parameters
    ----------
    n_jobs : int or None
        As joblib has it: -1 is all available processors, -2 all but one, and so on. None is
        `default_threads`.
    name : str
        Of the parameter, for the message.

    Raises
    ------
    ParameterError
        It is 0, or not a whole number.
    """
    if n_jobs is None:
        return default_threads()
    if not isinstance(n_jobs, Integral) or not int(n_jobs):
        raise ParameterError(
            f"{name} is {n_jobs!r}; it must be a whole number other than 0, or None: -1 is all "
            "processors"
        )
    count = int(n_jobs)
    return count if count > 0 else max(1, available_processors() + 1 + count)


def _limit_of(variable: str) -> float:
    """Read a number of threads from the environment; infinite where it has none."""
    # OpenMP's may be a list, of which the first is that of the outermost level.
    text = os.environ.get(variable, "").split(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else math.inf


def _is_worker() -> bool:
    """Whether this process, or this thread, is one of several that somebody shares work among."""
    # Workers have loaded these modules, and importing joblib takes a tenth of a second.
    process, parallel = map(sys.modules.get, ("multiprocessing.process", "joblib.parallel"))
    if process is not None and process.parent_process() is not None:
        return True
    return parallel is not None and bool(parallel.get_active_backend()[0].nesting_level)


@functools.cache
def _controllers() -> tuple[Any, ...]:
    """Give what tells the number of threads of each OpenMP library; to find them takes 40 ms."""
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="openmp").lib_controllers)


def _openmp() -> tuple[Any, ...]:
    # Without scikit-learn, as in the commands, nothing has loaded one.
    return _controllers() if "sklearn" in sys.modules else ()


@functools.cache
def _quota() -> float:
    """Processors that the control groups of this process permit; infinite without a quota.

    Read once: it takes a tenth of the time of a small prediction, and seldom changes.
    """
    try:
        own = OWN_CONTROL_GROUPS.read_text().splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in own:
        _, controllers, path = line.split(":", 2)
        # Version 2 has no controllers there; in version 1 processors have a hierarchy.
        root = CONTROL_GROUPS / "cpu" if controllers else CONTROL_GROUPS
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                least = min(least, _quota_of(folder))
    return least


def _quota_of(group: Path) -> float:
    """Processors that one control group permits."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return math.inf
    is_limited = quota.isdecimal() and period.isdecimal() and int(period) > 0
    return int(quota) / int(period) if is_limited else math.inf
