"""What it costs to train out of core: the same store streamed from disk, and held in memory.

    python tools/benchmarks/streaming.py [--data few-100000 mnist] [--repeats 3] [--share 0.2]

A store is trained in turns, each run in a process of its own and timed after a tiny one:

streamed  its rows are read from disk at every pass, under a budget of which they would take
          --share: more than the share up to which a run keeps them
held      its rows are in memory before the clock starts, the budget is the same: the difference is
          what reading and decoding cost
memory    so too, with the budget --memory: what somebody gets who has memory to spare

Every pass of ``streamed`` has to come from the disk: this process drops the store's pages from the
system's cache before the run and twenty times a second while it is under way. How much the disk did
deliver to the run is what the system counts; where it counts nothing, what was dropped came back
from a cache that nobody here has a say in. What the disk can deliver is measured each round by one
sequential read of the store's files, dropped from the cache before. ``read`` are bytes of rows, as
decoded; ``idle`` is the share of their time in which the threads of a sweep waited.

Checked is the promise that out of core takes at most 1.3 times as long as in memory where the disk
delivers at least 0.5 GB/s. `out_of_core.py` has data that are larger than the budget.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import (
    Check,
    Finished,
    fit_once,
    machine,
    median_range,
    megabytes,
    noise,
    round_ratios,
    run_checked,
    table,
    verdicts,
)
from data_sets import DATA_SETS, data_set, is_skipped

from bigsvm.budget import HELD_SHARE, parse_bytes
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from data_sets import DataSet

KINDS = ("streamed", "held", "memory")
SHARE = 0.2
"""So that few-100000 has room for a working set of its 1 537 free support vectors. In 35 MB, a
share of 0.25, there was none, and a run took twenty times as long: for want of memory, not of disk
speed."""
MOST_TIMES = 1.3
LEAST_DISK = 0.5e9
"""Bytes a second from which on the promise is made."""
SAME_OBJECTIVE = 1e-5
"""Both end within a KKT gap of 1e-3, at objectives that agree to some 1e-7 of their size."""
DROP_EVERY = 0.05
READ_BYTES = 1 << 20


class Round(NamedTuple):
    """One run of each kind.

    Attributes
    ----------
    runs : dict
        Kind → child.
    disk : float
        Bytes a second of a cold sequential read.
    calibrations : list of float
        Seconds of a fixed GEMM before each run.
    """

    runs: dict[str, Finished]
    disk: float
    calibrations: list[float]

    def seconds(self) -> dict[str, float]:
        """Seconds of each kind."""
        return {kind: run.answer["seconds"] for kind, run in self.runs.items()}


class Measured(NamedTuple):
    """The rounds of a store, and the budget of its streamed runs."""

    name: str
    layout: str
    n_rows: int
    n_columns: int
    row_bytes: int
    stored_bytes: int
    budget: int
    rounds: list[Round]

    def of(self, kind: str) -> list[Finished]:
        """Give the runs of a kind, by round."""
        return [r.runs[kind] for r in self.rounds]

    def ratios(self, under: str) -> list[float]:
        """Seconds streamed ÷ seconds of another kind, per round."""
        return round_ratios([r.seconds() for r in self.rounds], "streamed", under)


def files_of(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


class PageCache:
    """The pages that the system has of some files; opened once, to be dropped often."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [os.open(path, os.O_RDONLY) for path in files]
        for file in self._files:
            os.fsync(file)  # what is not written yet cannot be dropped

    def __enter__(self) -> PageCache:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            os.close(file)

    def drop(self) -> None:
        """Have the system forget them."""
        for file in self._files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def drop_while(self, child: subprocess.Popen[bytes]) -> None:
        """Drop them again and again until the child has ended; it is left to be waited for."""
        ended = None
        while ended is None:
            self.drop()
            time.sleep(DROP_EVERY)
            ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def read_speed(files: Sequence[Path], cache: PageCache) -> float:
    """Bytes a second that reading the files one after the other gets from the disk."""
    cache.drop()
    n_bytes = 0
    started = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                n_bytes += len(piece)
    return n_bytes / (time.perf_counter() - started)


def measure(
    data: DataSet, layout: str, prepared: dict[str, int], folder: Path, options: argparse.Namespace
) -> Measured:
    """Train in turns."""
    files = files_of(folder / f"{data.name}.{layout}.zarr")
    row_bytes = int(fit_once("rows", layout, data.name, folder, threads=1).answer["row_bytes"])
    budget = int(row_bytes / options.share)
    rounds = []
    with PageCache(files) as cache:
        for turn in range(options.repeats):
            disk = read_speed(files, cache)
            runs, calibrations = {}, []
            for kind in KINDS:
                calibrations.append(
                    fit_once("calibrate", threads=options.threads).answer["seconds"]
                )
                memory = options.memory if kind == "memory" else budget
                runs[kind] = run(kind, memory, layout, data, folder, cache, options.threads)
            rounds.append(Round(runs, disk, calibrations))
            seconds = ", ".join(f"{kind} {s:.2f} s" for kind, s in rounds[-1].seconds().items())
            print(f"  round {turn + 1} {layout}: {seconds}", file=sys.stderr, flush=True)
    stored = sum(path.stat().st_size for path in files)
    shape = prepared["n_rows"], prepared["n_columns"]
    return Measured(data.name, layout, *shape, row_bytes, stored, budget, rounds)


def run(
    kind: str,
    memory: int | str,
    layout: str,
    data: DataSet,
    folder: Path,
    cache: PageCache,
    threads: int,
) -> Finished:
    """Train once, with a cold cache."""
    cache.drop()
    script = Path(__file__).with_name("fit_once.py")
    rows = "streamed" if kind == "streamed" else "memory"
    arguments = map(str, ("store", rows, memory, layout, data.name, folder))
    return run_checked(
        [sys.executable, str(script), *arguments],
        threads=threads,
        while_running=cache.drop_while if kind == "streamed" else None,
    )


def report(m: Measured) -> str:
    """Lay out the runs of a store."""
    lines = []
    for kind in KINDS:
        answers = [run.answer for run in m.of(kind)]
        last = answers[-1]
        idle = [100 * a["cpu_idle"] for a in answers if a["cpu_idle"] is not None]
        delivered = [a["from_disk"] for a in answers if a["from_disk"] is not None]
        lines.append(
            [
                kind,
                median_range([a["seconds"] for a in answers]),
                last["n_sweeps"],
                f"{last['n_kernel_evaluations'] / (m.n_rows * last['n_support']):.2f}",
                megabytes(last["bytes_read"]),
                megabytes(statistics.median(delivered)) if delivered else "-",
                median_range(idle, digits=0),
                megabytes(max(run.answer["peak_rss"] for run in m.of(kind))),
            ]
        )
    header = [
        *("rows", "seconds", "sweeps", "evaluations in floors", "read MB", "from disk MB"),
        *("idle %", "peak RSS MB"),
    ]
    disk = [r.disk / 1e9 for r in m.rounds]
    return (
        f"{m.name}, {m.layout}: {m.n_rows} rows x {m.n_columns}, {megabytes(m.row_bytes)} MB of "
        f"rows, {megabytes(m.stored_bytes)} MB stored; budget {megabytes(m.budget)} MB\n\n"
        f"{table(header, lines)}\n\n"
        f"seconds streamed ÷ held: {median_range(m.ratios('held'))}, "
        f"÷ memory: {median_range(m.ratios('memory'))}\n"
        f"disk: a cold sequential read got {median_range(disk)} GB/s\n"
        f"{noise([seconds for r in m.rounds for seconds in r.calibrations])}"
    )


def check(m: Measured) -> list[Check]:
    """Hold a store against what is promised of it."""
    name = f"{m.name}, {m.layout}"
    times = statistics.median(m.ratios("memory"))
    disk = statistics.median([r.disk for r in m.rounds])
    found = {kind: m.of(kind)[-1].answer["objective"] for kind in ("streamed", "memory")}
    apart = abs(found["streamed"] / found["memory"] - 1)
    passes = m.of("streamed")[-1].answer["bytes_read"] / m.row_bytes
    return [
        Check(
            f"{name}: disk, GB/s", f"{disk / 1e9:.2f}", f"≥ {LEAST_DISK / 1e9}", disk >= LEAST_DISK
        ),
        Check(f"{name}: streamed ÷ memory", f"{times:.2f}", f"≤ {MOST_TIMES}", times <= MOST_TIMES),
        Check(f"{name}: times that rows were read", f"{passes:.1f}", "> 1.5", passes > 1.5),
        Check(
            f"{name}: objectives differ by",
            f"{apart:.1e}",
            f"≤ {SAME_OBJECTIVE:g}",
            apart <= SAME_OBJECTIVE,
        ),
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="NAME",
        type=data_set,
        default=[data_set("few-100000"), data_set("mnist")],
        help=f"of {', '.join(DATA_SETS)}, or made: few-N, many-N, crowded-N",
    )
    parser.add_argument("--layouts", nargs="+", choices=("dense", "csr"), default=["dense", "csr"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=float, default=SHARE, help="of the budget that rows take")
    parser.add_argument("--memory", default="1GB", help="budget of the runs of memory")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="on the disk that is meant")
    options = parser.parse_args(arguments)
    if min(options.repeats, options.threads) < 1:
        parser.error("--repeats and --threads must be at least 1")
    if not options.share > HELD_SHARE:
        parser.error(f"--share must be above {HELD_SHARE}: up to there rows are kept in memory")
    try:
        parse_bytes(options.memory)
    except ParameterError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if not hasattr(os, "posix_fadvise"):
        print("skipped: this system does not let pages be dropped from its cache", file=sys.stderr)
        return 0
    chosen = [data for data in options.data if not is_skipped(data)]
    if not chosen:
        return 0
    print(machine(options.threads), flush=True)
    checks: list[Check] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for data in chosen:
            prepared = fit_once("prepare", data.name, folder, threads=options.threads).answer
            layouts = [layout for layout in data.layouts if layout in options.layouts]
            for layout in layouts or data.layouts:
                found = measure(data, layout, prepared, Path(folder), options)
                print(f"\n{report(found)}", flush=True)
                checks += check(found)
    print(f"\n{verdicts(checks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
