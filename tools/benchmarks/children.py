"""Child processes of the benchmarks: their environment, time limit, memory and answer.

Everything measured runs in a child process. The parent stays small and imports NumPy nowhere: Linux
counts the pages that a child shares with its parent towards the child's ru_maxrss, which therefore
says nothing about a child that is smaller than the parent's own peak.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPOSITORY = Path(__file__).resolve().parents[2]

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

FIT_BEGAN = "fit began at "
"""A child that is given up begins a line with this, followed by the `time.time` of that moment."""
FIT_ENDED = "fit ended"
"""A line of such a child, after which it may take as long as it needs, to test what it fitted."""
STARTING = 120.0
"""Seconds in which such a child must have imported, compiled and read its rows."""

SAMPLE_SECONDS = 0.05
"""Between two looks at a child's memory. Linux keeps the peak between them (VmHWM)."""
COUNTED_ROUGHLY = 1.01
"""A child's ru_maxrss is its own if it is at least this many times that of this process."""


def environment(threads: int, checkout: Path = REPOSITORY) -> dict[str, str]:
    """Copy this process's environment; bigsvm of the checkout comes first, threads are set.

    Children keep bytecode, as an installed package does.
    """
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    kept = {
        **os.environ,
        "PYTHONPATH": path,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
    }
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


class Finished(NamedTuple):
    """A child that has ended.

    Attributes
    ----------
    returncode : int
        Negative: the signal that ended it.
    seconds : float
        From its start to its end, interpreter and imports included.
    peak_rss : int
        Bytes: the samples, or the system's record (ru_maxrss) where that is larger than the peak of
        this process, which it includes.
    answer : dict
        The last line of its standard output, as JSON; empty where it is none.
    stdout, stderr : str
    gave_up : bool
        Whether it was killed for taking too long.
    ended : float
        Its end, as `time.time`.
    cpu_seconds : float
        Of all its threads, start-up included.
    """

    returncode: int
    seconds: float
    peak_rss: int
    answer: dict[str, Any]
    stdout: str
    stderr: str
    gave_up: bool = False
    ended: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def fit_began(self) -> float | None:
        """When its fit began, as `time.time`; None where it did not say so."""
        return fit_began(self.stdout)


def run_child(
    command: Sequence[str],
    *,
    threads: int,
    give_up_after: float | None = None,
    of_the_fit: bool = False,
    while_running: Callable[[subprocess.Popen[bytes]], None] | None = None,
    checkout: Path = REPOSITORY,
) -> Finished:
    """Run a command to its end and watch its memory from outside.

    Parameters
    ----------
    give_up_after : float, optional
        Seconds after which it is killed.
    of_the_fit : bool
        Whether these seconds begin with the line `FIT_BEGAN`, and not with the child's start.
    while_running : callable, optional
        Called once with the running child, in this thread; may kill it.
    checkout : Path
        Whose bigsvm the child imports, and where it runs.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        child = subprocess.Popen(
            list(command),
            stdout=out,
            stderr=err,
            env=environment(threads, checkout),
            cwd=checkout,
        )
        watch = _Watch(child, out.fileno() if of_the_fit else None, give_up_after)
        if while_running is not None:
            while_running(child)
        _, status, usage = os.wait4(child.pid, 0)
        seconds, ended = time.perf_counter() - started, time.time()
        watch.stop()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        stdout, stderr = (f.read().decode(errors="replace") for f in (out, err))
    # Pages shared with this process may have become more after a look at it, and are rounded.
    own_peak = COUNTED_ROUGHLY * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kibibytes = 1 if sys.platform == "darwin" else 1024
    return Finished(
        returncode=child.returncode,
        seconds=seconds,
        peak_rss=max(watch.peak, usage.ru_maxrss * kibibytes if usage.ru_maxrss > own_peak else 0),
        answer=last_json(stdout),
        stdout=stdout,
        stderr=stderr,
        gave_up=watch.gave_up,
        ended=ended,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
    )


class ChildFailed(SystemExit):
    """A child ended with an error: ends the benchmark with the child's own words.

    Attributes
    ----------
    finished : Finished
    """

    def __init__(self, command: Sequence[str], finished: Finished) -> None:
        words = "\n".join((finished.stdout + finished.stderr).splitlines()[-30:])
        super().__init__(f"{' '.join(command)}\nended with {finished.returncode}:\n{words}")
        self.finished = finished


def run_checked(command: Sequence[str], **options: Any) -> Finished:  # noqa: ANN401
    """`run_child`, and raise `ChildFailed` where it fails."""
    finished = run_child(command, **options)
    if finished.returncode != 0 and not finished.gave_up:
        raise ChildFailed(command, finished)
    return finished


def fit_began(text: str) -> float | None:
    """Find the moment after the first `FIT_BEGAN`; the last line of an output may be cut."""
    for line in text.rpartition("\n")[0].splitlines():
        if line.startswith(FIT_BEGAN):
            return float(line.removeprefix(FIT_BEGAN))
    return None


class _Watch:
    """Looks at a child's memory, and kills a child that takes longer than it is given.

    Parameters
    ----------
    child : Popen
    output : int or None
        Descriptor of the file in which the child says when its fit begins; None: it began already.
    seconds : float or None
        None: it has all the time it needs.

    Attributes
    ----------
    peak : int
        Most bytes of its resident set.
    gave_up : bool
        Whether it was killed.
    """

    def __init__(
        self, child: subprocess.Popen[bytes], output: int | None, seconds: float | None
    ) -> None:
        self._child, self._output, self._seconds = child, output, seconds
        self.peak, self.gave_up = 0, False
        self._started = time.time()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _is_late(self) -> bool:
        if self._seconds is None:
            return False
        began, seconds = self._started, self._seconds
        if self._output is not None:
            text = os.pread(self._output, 1 << 16, 0).decode(errors="replace")
            if FIT_ENDED in text.splitlines():
                return False
            if (of_fit := fit_began(text)) is None:
                seconds = STARTING
            else:
                began = of_fit
        return time.time() > began + seconds

    def _run(self) -> None:
        import psutil

        while not self._done.wait(SAMPLE_SECONDS):
            try:
                self.peak = max(self.peak, peak_so_far(self._child.pid))
            except (psutil.Error, FileNotFoundError, ProcessLookupError):
                return  # the child has ended
            if self._is_late():
                self.gave_up = True
                self._child.kill()
                return

    def stop(self) -> None:
        """End the watch."""
        self._done.set()
        self._thread.join()


def peak_so_far(pid: int) -> int:
    """Bytes; VmHWM counts from the moment the process became its program, unlike ru_maxrss."""
    status = Path(f"/proc/{pid}/status")
    if status.parent.parent.joinpath("self").exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


def last_json(text: str) -> dict[str, Any]:
    """Read the object that the last line holds, or the whole text; {} where neither does."""
    lines = text.strip().splitlines()
    for candidate in (lines[-1] if lines else "", text):
        try:
            value = json.loads(candidate)
        except json.JSONDecodeError:
            continue
        if isinstance(value, dict):
            return value
    return {}


def bigsvm_command(*arguments: object) -> list[str]:
    """Give the command line of bigsvm of this checkout."""
    return [sys.executable, "-m", "bigsvm", *map(str, arguments)]


def machine(threads: int) -> str:
    """Processor, cores and threads used, for the line above a table."""
    name = "unknown processor"
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {os.cpu_count()} cores, {threads} threads, Python {sys.version.split()[0]}"
