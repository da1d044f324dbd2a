"""What more threads can gain: the serial share of training, and the speed-up of simulated threads.

    python -m tools.benchmarks serial_share [--runs a9a w8a ...] [--base CHECKOUT] [--repeats 3]

Every fit is a process of its own, with rows in memory. The parts of work that bigsvm shares out
among threads are done one after the other by one thread, and the CPU seconds of each are measured.
Everything else can only be done by one thread: the serial share of the CPU seconds. By Amdahl's law
it bounds the speed-up of any number of threads. With --base another checkout takes turns.

To simulate threads, the work is divided as it is divided among that many (calls with too little
work are not divided, and stay with one thread), and each part goes to the first thread that is
free, as in `bigsvm.gram.spans.Team`. A call takes as long as its busiest thread. Where pairs of
classes are trained at once, each pair is a part. What threads take to wake up, and what they take
from one another in caches and memory, is not simulated.

The second table says on paper what a graphics processor would do. The CPU seconds are divided by
phases: "far" are sums over kernel values, "rows" kernel values of working sets, "steps" compiled
steps, "certificate" float64. If far and rows are done by a device, they take the tenth or the
fiftieth part of their seconds. What it is sent and what it returns is counted in each call: rows,
partners once, and sums or kernel values. The bytes take their time on the bus, and each call waits
once for the device.

Limits are what is aimed at: a serial share of 20 % at most, and 8 simulated threads 5 times as fast
as one.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tools.benchmarks.bench import BASE, Suite
from tools.benchmarks.data import DATA_SETS, FAMILIES, DataSet, made
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_least,
    at_most,
    case_of,
    median_range,
    megabytes,
    table,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

OURS = "memory"
THREADS = 8
"""Threads that are simulated."""
LIMITS = (2, 8, 64)
"""Threads whose limit by Amdahl's law is printed."""
MOST_SERIAL, LEAST_SPEED_UP = 20.0, 5.0
WARM_ROWS, WARM_STEPS = 8000, 2000
"""Rows and steps of a fit that loads compiled code: fewer need less of it."""
FAR, ROWS, STEPS, CERTIFICATE, OTHER = PHASES = ("far", "rows", "steps", "certificate", "other")
FASTER = (10, 50)
"""By how many times a device does far and rows faster, on paper."""
BUS, WAIT = 12e9, 30e-6
"""Bytes a second of PCIe 3.0 with 16 lanes, and seconds to start a device and to wait for it."""


def _runs() -> dict[str, Case]:
    """Name the runs; those of the same rows come one after the other."""
    a9a, few, mnist = DATA_SETS["a9a"], DATA_SETS["few-100000"], DATA_SETS["mnist"]
    letter = DataSet("letter.scale", 16)
    others = {
        "nu-svc a9a": (a9a, {"formulation": "NuSVC", "nu": 0.3, "gamma": a9a.gamma}),
        "one-class few": (few, {"formulation": "OneClassSVM", "nu": 0.1, "gamma": few.gamma}),
        "pairs mnist": (mnist._replace(positive=()), {"C": mnist.C, "gamma": mnist.gamma}),
        "eps-svr arm": (
            made("arm", 40_000),
            {"formulation": "SVR", "C": 10.0, "gamma": FAMILIES["arm"][2], "epsilon": 0.1},
        ),
        "crammer-singer letter": (
            letter, {"formulation": "CrammerSingerSVC", "C": 8.0, "gamma": 0.5},
        ),
    }  # fmt: skip
    found = [case_of(data) for data in (a9a, DATA_SETS["w8a"], few, mnist, made("crowded", 50_000))]
    found += [Case(name, *rest) for name, rest in others.items()]
    order = [case.data.name for case in found]
    return {case.name: case for case in sorted(found, key=lambda case: order.index(case.data.name))}


RUNS = _runs()


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
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.sent = self.returned = self.n_products = 0
        self._is_inside, self._is_timed = False, False
        self._marks: list[float] = []
        self._partners: dict[int, object] = {}

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
        # The pairs of one lane are trained one after the other, each with all threads.
        is_only_lane = len(parts) == 1 and hasattr(parts[0], "slot")
        if self._is_inside or is_only_lane:
            for part in parts:
                one(part)
            return
        self._marks = [time.thread_time()]
        self._is_inside = True
        try:
            for part in parts:
                one(part)
                self.mark()
        finally:
            self._is_inside = False
        seconds = [b - a for a, b in itertools.pairwise(self._marks)]
        self.calls.append(Call(seconds, 1 + max(n_helpers, 0)))

    def mark(self, *_: object) -> None:
        """Begin another part: the first of several lanes does the pairs of all."""
        if self._is_inside:
            self._marks.append(time.thread_time())

    @contextlib.contextmanager
    def timing(self, phase: str) -> Iterator[bool]:
        """Add the seconds of the block to a phase, unless they belong to one already."""
        if self._is_timed:
            yield False
            return
        began, self._is_timed = time.thread_time(), True
        try:
            yield True
        finally:
            self.phases[phase] += time.thread_time() - began
            self._is_timed = False

    def timed(self, take_steps: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what takes steps."""

        def timed(*given: object, **named: object) -> Any:  # noqa: ANN401 (what it wraps gives)
            with self.timing(STEPS):
                return take_steps(*given, **named)

        return timed

    def product(self, multiply: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """Wrap a method of `KernelTiles`; its out has sums, or kernel values of all partners."""

        @functools.wraps(multiply)
        def timed(tiles: Any, rows: Any, partners: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 (as its original)
            is_exact = tiles.dtype.itemsize == 8
            with self.timing(CERTIFICATE if is_exact else phase) as is_first:
                returned = multiply(tiles, rows, partners, *given, **named)
            if is_first and not is_exact:
                self._count(rows, partners, given[-1] if phase == FAR else None)
            return returned

        return timed

    def _count(self, rows: Any, partners: Any, sums: Any) -> None:  # noqa: ANN401
        """Count what a device is sent and returns."""
        from bigsvm.gram.partners import rows_at

        base, places = rows_at(rows)
        # A value and, of sparse rows, its column.
        row_bytes = (8 if hasattr(base, "indptr") else 4) * base.size / max(base.shape[0], 1)
        n_sent = len(places)
        if id(partners) not in self._partners:
            self._partners[id(partners)] = partners  # held, so that no other one has its id
            n_sent += partners.n
        self.sent += int(n_sent * row_bytes)
        self.returned += 4 * len(places) * partners.n if sums is None else sums.nbytes
        self.n_products += 1

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Stand in for what shares out work, and time the phases."""
        from bigsvm.core import crammer_singer, smo
        from bigsvm.gram.tiles import KernelTiles, Team
        from bigsvm.one_vs_one.log import Slot
        from bigsvm.working_sets.lanes import FunctionLane, FunctionProblems

        begin, open_lane = Slot.begin, FunctionProblems._open

        def share_out(*given: Any, **named: Any) -> None:  # noqa: ANN401 (as `Ledger.share_out`)
            self.share_out(*given, **named)

        def begin_pair(slot: Slot, number: int) -> None:
            self.mark()
            begin(slot, number)

        def opened(problems: FunctionProblems, lane: FunctionLane) -> Any:  # noqa: ANN401 (as its original)
            if lane.problem is None:
                self.mark()
            return open_lane(problems, lane)

        replaced: list[tuple[Any, str, Any]] = [
            (Team, "share_out", share_out), (Slot, "begin", begin_pair),
            (FunctionProblems, "_open", opened),
            *((module, "run", self.timed(module.run)) for module in (smo, crammer_singer)),
            (smo, "run_each", self.timed(smo.run_each)),
            *((KernelTiles, name, self.product(getattr(KernelTiles, name), phase))
              for name, phase in (("multiply", FAR), ("multiply_half", FAR), ("evaluate", ROWS))),
        ]  # fmt: skip
        with contextlib.ExitStack() as stack:
            for given in replaced:
                stack.enter_context(mock.patch.object(*given))
            yield


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once with the work of simulated threads; the CPU seconds of its parts."""
    import numpy as np

    from tools.benchmarks.contestants import estimator, few_of_each, own_solver, read_rows, tiny

    x = read_rows(job)
    y = np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    model, few = estimator(job).set_params(n_jobs=THREADS), few_of_each(y, WARM_ROWS)
    with warnings.catch_warnings(), own_solver():
        warnings.simplefilter("ignore")  # labels are noise, and the second fit is stopped
        model.fit(*tiny(job["layout"], x.shape[1], np.float32))
        model.set_params(max_iter=WARM_STEPS).fit(x[few], y[few])
    model.set_params(max_iter=-1)
    ledger = Ledger()
    with ledger.watching():
        began = time.thread_time()
        model.fit(x, y)
        total = time.thread_time() - began
    shared = sum(sum(call.seconds) for call in ledger.calls)
    longest = sum(call.longest for call in ledger.calls)
    ledger.phases[OTHER] = total - sum(ledger.phases.values())
    return {
        "seconds": total,
        "cpu_seconds": total,
        "elapsed": total - shared + longest,
        "serial": 100 * (total - shared) / total,
        "busy": shared / longest,
        "phases": ledger.phases,
        "sent": ledger.sent,
        "returned": ledger.returned,
        "n_products": ledger.n_products,
        "n_kernel_evaluations": model.certificate_["n_kernel_evaluations"],
    }


def speed_up(row: Row) -> list[float]:
    """Divide the seconds of one thread by those of simulated threads, turn by turn."""
    pairs = zip(row.values("seconds"), row.values("elapsed"), strict=True)
    return [a / b for a, b in pairs]


def amdahl(serial: float, threads: int) -> float:
    """Bound the speed-up by the serial share, in %."""
    return 1 / (serial / 100 + (1 - serial / 100) / threads)


def limit_of(threads: int) -> tuple[str, Callable[[Row], str]]:
    """Make the column of a number of threads."""
    return f"limit of {threads}", lambda row: f"{amdahl(row.median('serial') or 0.0, threads):.1f}"


def with_device(answer: dict[str, Any], faster: int) -> float:
    """Seconds of a run whose far sums and rows are done by a device, on paper."""
    phases = answer["phases"]
    moved = phases[FAR] + phases[ROWS]
    bus = (answer["sent"] + answer["returned"]) / BUS + WAIT * answer["n_products"]
    return float(sum(phases.values()) - moved + moved / faster + bus)


def on_paper(results: Results) -> str:
    """Lay out shares of phases, what a device is sent and returns, and what it would gain."""
    cells = []
    for row in results.rows(OURS):
        answer = dict(row.runs[-1].answer)
        total = sum(answer["phases"].values())
        cells.append([
            row.case.name, *(f"{100 * answer['phases'][name] / total:.0f}" for name in PHASES),
            megabytes(answer["sent"]), megabytes(answer["returned"]), answer["n_products"],
            *(f"{total / with_device(answer, faster):.1f}" for faster in FASTER),
        ])  # fmt: skip
    header = [
        "on paper", *(f"{name} %" for name in PHASES), "sent, MB", "returned, MB", "calls",
        *(f"{faster} times as fast" for faster in FASTER),
    ]  # fmt: skip
    return table(header, cells)


def limits(results: Results) -> list[Limit]:
    """Hold everything against the aims."""
    found = []
    for row in results.rows(OURS):
        serial = row.median("serial")
        found += [
            at_most(f"{row.case.name}: serial share, %", serial, limit=MOST_SERIAL, digits=1),
            at_least(
                f"{row.case.name}: {THREADS} threads", statistics.median(speed_up(row)),
                limit=LEAST_SPEED_UP, digits=1,
            ),
        ]  # fmt: skip
    return found


def cases(options: argparse.Namespace) -> list[Case]:
    """List the runs that are asked for."""
    return [case for name, case in RUNS.items() if name in options.runs]


SUITE = Suite(
    cases=cases,
    contestants=(OURS,),
    columns=(
        ("run", lambda row: row.case.name),
        ("of", lambda row: "base" if row.who == BASE else "this"),
        ("CPU s", lambda row: median_range(row.values("seconds"))),
        ("serial %", lambda row: median_range(row.values("serial"), digits=1)),
        *(limit_of(threads) for threads in LIMITS),
        ("busy in shared calls", lambda row: median_range(row.values("busy"), digits=1)),
        (f"speed-up of {THREADS}", lambda row: median_range(speed_up(row), digits=1)),
    ),
    after=on_paper,
    limits=limits,
    do="tools.benchmarks.suites.serial_share:fit",
    layout="last",
    threads=1,
    base=True,
    more=(("--runs", {"nargs": "+", "choices": list(RUNS), "default": list(RUNS)}),),
)
