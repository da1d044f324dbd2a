"""What more threads can gain: the serial share of training, and the speed-up of simulated threads.

    python -m tools.benchmarks serial_share [--data a9a w8a few-100000 mnist crowded-50000]

Every fit is a process of its own, with rows in memory, on one thread. The parts of work that bigsvm
shares out among threads are done there one after the other, and the CPU seconds of each are
measured. Everything else can only be done by one thread: the serial share of the CPU seconds. By
Amdahl's law it bounds the speed-up of any number of threads.

To simulate threads, the work is divided as it is divided among that many (calls with too little
work are not divided, and stay with one thread), and each part goes to the first thread that is
free, as in `bigsvm.gram.spans.Team`. A call takes as long as its busiest thread. What threads take
to wake up, and what they take from one another in caches and memory, is not simulated.

Limits are what is aimed at: a serial share of 20 % at most, and 8 simulated threads 5 times as fast
as one.
"""

from __future__ import annotations

import heapq
import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import (
    Limit,
    Results,
    Row,
    at_least,
    at_most,
    data_cases,
    median_range,
    must,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALONE, SIMULATED = "alone", "simulated"
THREADS = {ALONE: 1, SIMULATED: 8}
LIMITS = (8, 64)
"""Threads whose limit by Amdahl's law is printed."""
MOST_SERIAL, LEAST_SPEED_UP = 20.0, 5.0


class Call(NamedTuple):
    """One piece of work that was shared out: CPU seconds of its parts, and threads it had."""

    seconds: list[float]
    n_threads: int

    @property
    def longest(self) -> float:
        """Seconds of the busiest thread, if each part goes to the first one that is free."""
        busy = [0.0] * self.n_threads
        for seconds in self.seconds:
            heapq.heapreplace(busy, busy[0] + seconds)
        return max(busy)


class Ledger:
    """Does what a `Team` shares out in this thread, and notes what each part takes."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.step_seconds = 0.0
        self._is_inside = False

    def share_out(
        self,
        team: object,
        one: Callable[[Any], None],
        parts: Sequence[Any],
        n_helpers: int,
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Stand in for `Team.share_out`; parts within a part belong to that one."""
        if self._is_inside:
            for part in parts:
                one(part)
            return
        seconds = []
        self._is_inside = True
        try:
            for part in parts:
                began = time.thread_time()
                one(part)
                seconds.append(time.thread_time() - began)
        finally:
            self._is_inside = False
        self.calls.append(Call(seconds, 1 + max(n_helpers, 0)))

    def timed_steps(self, advance: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what takes pair steps."""

        def timed(*arguments: object) -> Any:  # noqa: ANN401 (what it wraps gives)
            began = time.thread_time()
            found = advance(*arguments)
            self.step_seconds += time.thread_time() - began
            return found

        return timed


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once with the work of one or of simulated threads; the CPU seconds of its parts."""
    import numpy as np

    from bigsvm import SVC, AdviceWarning
    from bigsvm.core import smo
    from bigsvm.gram.spans import Team
    from tools.benchmarks.contestants import TOL, own_solver, read_rows, tiny

    x = read_rows(job)
    y = np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    model = SVC(**job["parameters"], tol=TOL, n_jobs=THREADS[job["who"]])
    with warnings.catch_warnings(), own_solver():
        warnings.simplefilter("ignore", AdviceWarning)  # its labels are noise
        model.fit(*tiny(job["layout"], x.shape[1], np.float32))
    ledger = Ledger()

    def share_out(*given: Any, **named: Any) -> None:  # noqa: ANN401 (as `Ledger.share_out`)
        ledger.share_out(*given, **named)

    with (
        mock.patch.object(Team, "share_out", share_out),
        mock.patch.object(smo, "run", ledger.timed_steps(smo.run)),
    ):
        began = time.thread_time()
        model.fit(x, y)
        total = time.thread_time() - began
    shared = sum(sum(call.seconds) for call in ledger.calls)
    longest = sum(call.longest for call in ledger.calls)
    return {
        "seconds": total,
        "elapsed": total - shared + longest,
        "serial": 100 * (total - shared) / total,
        "steps": 100 * ledger.step_seconds / total,
        "busy": shared / longest,
        "n_kernel_evaluations": model.certificate_["n_kernel_evaluations"],
    }


def speed_up(row: Row) -> list[float]:
    """Divide the seconds of one thread by those of simulated threads, turn by turn."""
    elapsed = row.of(SIMULATED).values("elapsed")
    return [a / b for a, b in zip(row.of(ALONE).values("seconds"), elapsed, strict=True)]


def amdahl(serial: float, threads: int) -> float:
    """Bound the speed-up by the serial share, in %."""
    return 1 / (serial / 100 + (1 - serial / 100) / threads)


def limit_of(threads: int) -> tuple[str, Callable[[Row], str]]:
    """Make the column of a number of threads."""
    return (
        f"limit of {threads}",
        lambda row: f"{amdahl(row.of(ALONE).median('serial') or 0.0, threads):.1f}",
    )


def limits(results: Results) -> list[Limit]:
    """Hold everything against the aims."""
    found = []
    for row in results.rows():
        name, evaluations = row.case.name, sorted(set(row.values("n_kernel_evaluations")))
        serial = row.of(ALONE).median("serial")
        found += [
            at_most(f"{name}: serial share, %", serial, limit=MOST_SERIAL, digits=1),
            at_least(
                f"{name}: {THREADS[SIMULATED]} threads", statistics.median(speed_up(row)),
                limit=LEAST_SPEED_UP, digits=1,
            ),
            must(f"{name}: kernel values", evaluations, "the same", len(evaluations) == 1),
        ]  # fmt: skip
    return found


SUITE = Suite(
    cases=data_cases,
    data=("a9a", "w8a", "few-100000", "mnist", "crowded-50000"),
    contestants=(ALONE, SIMULATED),
    columns=(
        "data",
        ("CPU s", lambda row: median_range(row.of(ALONE).values("seconds"))),
        ("serial %", lambda row: median_range(row.of(ALONE).values("serial"), digits=1)),
        ("pair steps %", lambda row: f"{row.of(ALONE).median('steps'):.1f}"),
        *(limit_of(threads) for threads in LIMITS),
        (
            "busy in shared calls",
            lambda row: median_range(row.of(SIMULATED).values("busy"), digits=1),
        ),
        (f"speed-up of {THREADS[SIMULATED]}", lambda row: median_range(speed_up(row), digits=1)),
    ),
    limits=limits,
    do="tools.benchmarks.suites.serial_share:fit",
    wide=True,
    layout="last",
    threads=1,
)
