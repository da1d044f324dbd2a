"""What the benchmarks share: child processes and their memory, the objective, tables, checks.

Everything measured runs in a child process. The parent stays small on purpose, hence the imports
inside functions: Linux counts the pages a child shares with its parent before it becomes another
program towards the child's ru_maxrss, which says nothing of the child below the parent's own peak.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import scipy.sparse as sp
    from numpy.typing import NDArray

REPOSITORY = Path(__file__).resolve().parents[2]

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)

FIT_BEGAN = "fit began at "
"""Before the `time.time` of that moment, on a line of `fit_once.py`."""

SAMPLE_SECONDS = 0.05
"""Between two looks at a child's memory. Linux keeps the peak between them (VmHWM)."""
COUNTED_ROUGHLY = 1.01
"""A child's ru_maxrss must be so many times that of this process to be its own."""


def dual_objective(
    x: NDArray[np.floating] | sp.csr_matrix, beta: NDArray[np.float64], gamma: float
) -> float:
    """Compute sum |beta| - beta' K beta / 2 with the rbf kernel, in float64.

    Parameters
    ----------
    x : (n_support, d)
        Support vectors, dense or CSR.
    beta : (n_support,) float64
        Label times alpha: scikit-learn's ``dual_coef_``.
    """
    import numpy as np
    from sklearn.metrics.pairwise import rbf_kernel

    beta = np.asarray(beta, dtype=np.float64).ravel()
    x = x.astype(np.float64)
    quadratic = 0.0
    for start in range(0, len(beta), 1024):
        part = slice(start, start + 1024)
        quadratic += float(beta[part] @ (rbf_kernel(x[part], x, gamma=gamma) @ beta))
    return float(np.abs(beta).sum()) - quadratic / 2


def environment(threads: int, checkout: Path = REPOSITORY) -> dict[str, str]:
    """Copy this process's environment; bigsvm of the checkout comes first, threads are set."""
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
    }


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
    """

    returncode: int
    seconds: float
    peak_rss: int
    answer: dict[str, Any]
    stdout: str
    stderr: str
    gave_up: bool = False
    ended: float = 0.0


def run_child(
    command: Sequence[str],
    *,
    threads: int,
    give_up_after: float | None = None,
    while_running: Callable[[subprocess.Popen[bytes]], None] | None = None,
    checkout: Path = REPOSITORY,
) -> Finished:
    """Run a command to its end and watch its memory from outside.

    Parameters
    ----------
    give_up_after : float, optional
        Seconds after which it is killed.
    while_running : callable, optional
        Called once with the running child, in this thread; may kill it.
    checkout : Path
        Whose bigsvm the child imports.
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
        sampler = _MemorySampler(child.pid)
        gave_up = threading.Event()

        def give_up() -> None:
            gave_up.set()
            child.kill()

        patience = threading.Timer(give_up_after or threading.TIMEOUT_MAX, give_up)
        patience.daemon = True
        patience.start()
        if while_running is not None:
            while_running(child)
        _, status, usage = os.wait4(child.pid, 0)
        seconds, ended = time.perf_counter() - started, time.time()
        patience.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        sampled = sampler.stop()
        out.seek(0)
        err.seek(0)
        stdout, stderr = (f.read().decode(errors="replace") for f in (out, err))
    # What it had of this process may have grown after a look before, and pages are counted roughly.
    own_peak = COUNTED_ROUGHLY * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kibibytes = 1 if sys.platform == "darwin" else 1024
    return Finished(
        returncode=child.returncode,
        seconds=seconds,
        peak_rss=max(sampled, usage.ru_maxrss * kibibytes if usage.ru_maxrss > own_peak else 0),
        answer=last_json(stdout),
        stdout=stdout,
        stderr=stderr,
        gave_up=gave_up.is_set(),
        ended=ended,
    )


def run_checked(
    command: Sequence[str],
    *,
    threads: int,
    give_up_after: float | None = None,
    while_running: Callable[[subprocess.Popen[bytes]], None] | None = None,
    checkout: Path = REPOSITORY,
) -> Finished:
    """`run_child`, and end the benchmark with the child's own words where it fails."""
    finished = run_child(
        command,
        threads=threads,
        give_up_after=give_up_after,
        while_running=while_running,
        checkout=checkout,
    )
    if finished.returncode != 0 and not finished.gave_up:
        words = "\n".join((finished.stdout + finished.stderr).splitlines()[-30:])
        raise SystemExit(f"{' '.join(command)}\nended with {finished.returncode}:\n{words}")
    return finished


class _MemorySampler:
    """The peak of a process's resident set, looked at every `SAMPLE_SECONDS`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import psutil

        try:
            while not self._done.wait(SAMPLE_SECONDS):
                self._peak = max(self._peak, peak_so_far(self._pid))
        except (psutil.Error, FileNotFoundError, ProcessLookupError):
            return  # the child has ended

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._peak


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


def median_range(values: Sequence[float], *, digits: int = 2) -> str:
    """'median [min-max]', or the value alone where there is one, or '-' where there is none."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def round_ratios(rounds: Sequence[Mapping[str, float]], over: str, under: str) -> list[float]:
    """Per round in which both ran, the seconds of `over` ÷ the seconds of `under`."""
    return [r[over] / r[under] for r in rounds if over in r and under in r]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out a Markdown table, its columns padded to be read as text."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def noise(gemm_seconds: Sequence[float]) -> str:
    """Say how steady the machine was, by what a fixed GEMM took before each run."""
    milliseconds = [1e3 * seconds for seconds in gemm_seconds]
    return (
        f"noise: a fixed GEMM before each run took {median_range(milliseconds, digits=0)} ms, "
        f"spread {max(gemm_seconds) / statistics.median(gemm_seconds) - 1:.0%} over the median"
    )


class Check(NamedTuple):
    """One thing that must hold: what was found, and the limit it was held against."""

    name: str
    found: str
    limit: str
    holds: bool


def verdicts(checks: Sequence[Check]) -> str:
    """Lay out what was checked."""
    rows = [[c.name, c.found, c.limit, HOLDS if c.holds else FAILS] for c in checks]
    return table(["check", "found", "limit", ""], rows)


HOLDS, FAILS = "holds", "does not hold"


def megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.0f}"


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
