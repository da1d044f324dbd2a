"""What more threads can gain: the serial share of training, and the speed-up of simulated threads.

    python tools/benchmarks/serial_share.py [--data a9a w8a few-100000 mnist crowded-50000]

Every fit is a process of its own, with rows in memory, one after the other on one thread. The parts
of work that bigsvm shares out among threads are done there in turn, and the CPU seconds of each are
measured. Everything else can only be done by one thread: the serial share of the CPU seconds. By
Amdahl's law it bounds the speed-up of any number of threads.

To simulate threads, the work is divided as it is divided among so many (calls with too little work
are not divided, and stay with one thread), and each part goes to the first thread that is free, as
in `bigsvm.team.Team`. A call takes as long as its busiest thread. What threads take to wake up, and
what they take from one another in caches and memory, is not simulated.

Shares and speed-ups are medians over --repeats, in which the data sets take turns. Checked is what
is aimed at: a serial share of 20 % at most, and 8 simulated threads 5 times as fast as one.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from common import Check, fit_once, machine, median_range, run_checked, table, verdicts
from data_sets import data_set, is_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from data_sets import DataSet

DATA = ("a9a", "w8a", "few-100000", "mnist", "crowded-50000")
SIMULATED = 8
LIMITS = (8, 64)
"""Threads whose limit by Amdahl's law is printed."""
MOST_SERIAL, LEAST_SPEED_UP = 0.20, 5.0


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


def fit(layout: str, data: DataSet, folder: Path, threads: int) -> dict[str, Any]:
    """Train once with the work of so many threads; the CPU seconds of its parts."""
    import numpy as np
    from fit_once import TOL, read_rows, tiny

    from bigsvm import SVC
    from bigsvm.duals.box import BoxDual
    from bigsvm.team import Team

    x = read_rows(layout, data, folder).astype(np.float32, copy=False)
    y = np.load(folder / f"{data.name}.y.npy")
    model = SVC(C=data.C, gamma=data.gamma, tol=TOL, n_jobs=threads)
    model.fit(*tiny(layout, data.n_columns, np.dtype(np.float32)))
    ledger = Ledger()

    def share_out(*given: Any, **named: Any) -> None:  # noqa: ANN401 (as `Ledger.share_out`)
        ledger.share_out(*given, **named)

    with (
        mock.patch.object(Team, "share_out", share_out),
        mock.patch.object(BoxDual, "advance", ledger.timed_steps(BoxDual.advance)),
    ):
        began = time.thread_time()
        model.fit(x, y)
        total = time.thread_time() - began
    shared = sum(sum(call.seconds) for call in ledger.calls)
    return {
        "total": total,
        "serial": total - shared,
        "steps": ledger.step_seconds,
        "elapsed": total - shared + sum(call.longest for call in ledger.calls),
        "shared": shared,
        "longest": sum(call.longest for call in ledger.calls),
        "n_kernel_evaluations": model.certificate_["n_kernel_evaluations"],
    }


class Measured(NamedTuple):
    """The fits of one data set: with one thread, and with simulated ones."""

    name: str
    alone: list[dict[str, Any]]
    simulated: list[dict[str, Any]]

    @property
    def serial(self) -> list[float]:
        """The serial share, of each fit."""
        return [one["serial"] / one["total"] for one in self.alone]

    @property
    def speed_up(self) -> list[float]:
        """The speed-up by simulated threads, one value for each turn."""
        pairs = zip(self.alone, self.simulated, strict=True)
        return [one["total"] / many["elapsed"] for one, many in pairs]


def amdahl(serial: float, threads: int) -> float:
    """Bound the speed-up by the serial share."""
    return 1 / (serial + (1 - serial) / threads)


def report(measured: Sequence[Measured]) -> str:
    """Lay out everything."""
    rows = []
    for m in measured:
        serial = statistics.median(m.serial)
        steps = statistics.median(one["steps"] / one["total"] for one in m.alone)
        busy = [many["shared"] / many["longest"] for many in m.simulated]
        rows.append(
            [
                m.name,
                median_range([one["total"] for one in m.alone]),
                median_range([100 * share for share in m.serial], digits=1),
                f"{100 * steps:.1f}",
                *(f"{amdahl(serial, threads):.1f}" for threads in LIMITS),
                median_range(busy, digits=1),
                median_range(m.speed_up, digits=1),
            ]
        )
    header = [
        "data", "CPU s", "serial %", "pair steps %", *(f"limit of {t}" for t in LIMITS),
        "busy in shared calls", f"speed-up of {SIMULATED}",
    ]  # fmt: skip
    return table(header, rows)


def checks(measured: Sequence[Measured]) -> list[Check]:
    """Hold everything against the aims."""
    found = []
    for m in measured:
        serial, speed_up = statistics.median(m.serial), statistics.median(m.speed_up)
        evaluations = {one["n_kernel_evaluations"] for one in (*m.alone, *m.simulated)}
        found += [
            Check(
                f"{m.name}: serial share", f"{serial:.1%}", f"≤ {MOST_SERIAL:.0%}",
                serial <= MOST_SERIAL,
            ),
            Check(
                f"{m.name}: {SIMULATED} threads", f"{speed_up:.1f}", f"≥ {LEAST_SPEED_UP:g}",
                speed_up >= LEAST_SPEED_UP,
            ),
            Check(
                f"{m.name}: kernel values", f"{sorted(evaluations)}", "the same",
                len(evaluations) == 1,
            ),
        ]  # fmt: skip
    return found


def fit_in_child(data: DataSet, folder: Path, threads: int) -> dict[str, Any]:
    """Run `fit` in a process of its own."""
    layout = data.layouts[-1]
    command = [sys.executable, __file__, "--once", layout, data.name, str(folder), str(threads)]
    answer = run_checked(command, threads=1).answer
    print(f"  {data.name}, {threads}: {answer['total']:.2f} s", file=sys.stderr, flush=True)
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=DATA, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--once", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.once:
        layout, name, folder, threads = options.once
        print(json.dumps(fit(layout, data_set(name), Path(folder), int(threads))))
        return 0
    wanted = [data for data in map(data_set, options.data) if not is_skipped(data)]
    measured = {data.name: Measured(data.name, [], []) for data in wanted}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for data in wanted:
            fit_once("prepare", data.name, folder, threads=1)
        for _ in range(options.repeats):
            for data in wanted:
                measured[data.name].alone.append(fit_in_child(data, folder, 1))
                measured[data.name].simulated.append(fit_in_child(data, folder, SIMULATED))
    print(f"{machine(1)}; medians of {options.repeats}\n")
    print(report(list(measured.values())))
    print(f"\n{verdicts(checks(list(measured.values())))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
