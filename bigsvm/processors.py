"""Number of threads of a run, within the limits of the system and of other libraries."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from contextlib import AbstractContextManager, contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.errors import ParameterError, brief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from threadpoolctl import ThreadpoolController

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_CONTROL_GROUPS = Path("/proc/self/cgroup")
"""Linux's folder of control groups, and its list of those of this process."""
IS_LIMITED = "OMP_NUM_THREADS" in os.environ
"""Whether the environment limited threads when bigsvm was imported. A local cluster of Dask sets
the variable later, in this process, for the workers it starts."""


def available_processors() -> int:
    """Processors this process may use, limited by affinity, quota and LOKY_MAX_CPU_COUNT.

    All processors if the system reports no limit.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        count = os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(), _limit_of("LOKY_MAX_CPU_COUNT"))))


def default_threads() -> int:
    """Return the number of threads to use if none was given.

    One in a worker of joblib or multiprocessing, as other workers run beside it. Otherwise the
    available processors, limited by OMP_NUM_THREADS and by OpenMP limits of threadpoolctl.
    """
    if _is_worker():
        return 1
    limits = (_limit_of_openmp(), *(library.num_threads for library in _openmp()))
    return int(max(1, min(available_processors(), *limits)))


def count_threads(n_jobs: object, name: str = "n_jobs") -> int:
    """Return the number of threads for a value of `n_jobs`; `name` is for messages.

    As in joblib, -1 is all available processors, -2 all but one, and so on. None is
    `default_threads`.
    """
    if n_jobs is None:
        return default_threads()
    if not isinstance(n_jobs, Integral) or not int(n_jobs):
        raise ParameterError(
            f"{name} is {brief(n_jobs)}; it must be a whole number other than 0, or None: -1 is "
            "all processors"
        )
    count = int(n_jobs)
    return count if count > 0 else max(1, available_processors() + 1 + count)


def _limit_of(variable: str) -> float:
    """Read a number of threads from the environment; infinite if it is not set."""
    # OMP_NUM_THREADS may be a list with one number per nesting level, the outermost first.
    text = os.environ.get(variable, "").split(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else math.inf


def _limit_of_openmp() -> float:
    """Read OMP_NUM_THREADS, unless it is there for the workers of Dask only."""
    is_for_workers = not IS_LIMITED and "distributed.nanny" in sys.modules
    return math.inf if is_for_workers else _limit_of("OMP_NUM_THREADS")


def _is_worker() -> bool:
    """Whether this process or thread is a worker of joblib or multiprocessing."""
    # Workers have loaded these modules, and importing joblib is slow.
    process, parallel = map(sys.modules.get, ("multiprocessing.process", "joblib.parallel"))
    if process is not None and process.parent_process() is not None:
        return True
    return parallel is not None and bool(parallel.get_active_backend()[0].nesting_level)


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit matrix products of NumPy and SciPy to the thread that asks for them, for a while.

    Where several threads ask for it at the same time, the limit ends with the last of them.
    """
    return _ONE_BLAS_THREAD


@contextmanager
def one_thread() -> Iterator[None]:
    """Let this thread work without helpers for a while, however many threads a run asks for.

    Plans of the memory count the threads that are asked for. So a worker of a cluster that has one
    thread for a task can have the plan, and with it the bits, of another machine.
    """
    before, _OF_THREAD.is_alone = works_alone(), True
    try:
        yield
    finally:
        _OF_THREAD.is_alone = before


def works_alone() -> bool:
    """Whether this thread is to work without helpers."""
    return getattr(_OF_THREAD, "is_alone", False)


class _OneBlasThread(AbstractContextManager[None]):
    """One limit of the process for all threads that ask for it."""

    def __init__(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0
        self._limited: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        import scipy.linalg  # noqa: F401 (so that its library is found)

        with self._lock:
            if not self._n_inside:
                # What `ThreadpoolController.limit` does, but for libraries that have one thread.
                self._limited = []
                for each in _libraries("blas").lib_controllers:
                    n_threads = each.num_threads
                    if n_threads != 1:
                        self._limited.append((each, n_threads))
                        each.set_num_threads(1)
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                for each, n_threads in self._limited:
                    each.set_num_threads(n_threads)


_OF_THREAD = threading.local()
_ONE_BLAS_THREAD = _OneBlasThread()


@functools.cache
def _libraries(api: str) -> ThreadpoolController:
    """Find the loaded libraries of an interface, "openmp" or "blas", once: the search is slow."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api=api)


def _openmp() -> list[Any]:
    # Without scikit-learn, as in commands, no OpenMP library is loaded.
    return _libraries("openmp").lib_controllers if "sklearn" in sys.modules else []


@functools.cache
def _quota() -> float:
    """Processors that the control groups of this process permit; infinite without a quota.

    Read only once, as reading is slow compared with a small prediction.
    """
    return min(map(_quota_of, control_groups("cpu")), default=math.inf)


def control_groups(controller: str) -> list[Path]:
    """Folders of the control groups of this process, and of those around them.

    The controller is ``"cpu"`` or ``"memory"``. A system without control groups has none.
    """
    try:
        lines = OWN_CONTROL_GROUPS.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 lists no controllers here; version 1 has a hierarchy for each controller.
        root = CONTROL_GROUPS / controller if controllers else CONTROL_GROUPS
        if controllers and controller not in controllers.split(","):
            continue
        group = root / path.lstrip("/")
        found += [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return found


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
