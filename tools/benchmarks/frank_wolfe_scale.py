"""``frank_wolfe.py scale``: balls of millions of rows that look like KDD99's, out of core.

The store is made by `kdd_like.py` unless --folder has it. What one pass over its rows takes is
measured first, with whatever the system keeps of them in its cache; then every run, in a process of
its own, under the budget --memory. Sampled runs (certify=False) are to take no longer than reading
the rows twice; a run is stopped after --give-up seconds. Accuracy is that of 100 000
fresh rows. ``floors`` are kernel evaluations ÷ (rows × support vectors). Gamma is 1 / the average
squared distance of two rows.

memory   the peak of every run is at most the budget + 40 bytes a row + what the interpreter takes
         for a tiny store under the same budget; and under 1 GB

With --steps instead: what a step of sampled mfw takes in stores of 10^4, 10^5, 10^6 and --rows
rows, in turns. All take the same steps, --most-steps, as a step costs what the core set is large;
and samples have 590 rows, as with 59 they end at about 2000 steps, each store elsewhere. What is
done once, before the end of the first round, is not in it. A step should not depend on the rows:
held is that the slowest takes at most twice as long as the fastest.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import (
    TINY_ROWS,
    Check,
    Finished,
    machine,
    median_range,
    megabytes,
    memory_limit,
    run_checked,
    table,
    verdicts,
)
from timed_fits import SAMPLING, UNHALVED, say

from bigsvm.budget import parse_bytes

if TYPE_CHECKING:
    import argparse

SAMPLED = ("fw", "mfw", "pairwise")
READS = 2.0
MOST_MEMORY = 10**9
STEPS_SAMPLING = 590
SIZES = (10_000, 100_000, 1_000_000)
MOST_TIMES = 2.0


def once(*arguments: object, threads: int) -> Finished:
    script = Path(__file__).with_name("frank_wolfe_once.py")
    return run_checked([sys.executable, str(script), *map(str, arguments)], threads=threads)


def store_of(n_rows: int, folder: Path, options: argparse.Namespace) -> Path:
    """Make a store unless it is there."""
    path = folder / f"kdd-like-{n_rows}.zarr"
    if not path.exists():
        started = time.perf_counter()
        made = once("make", path, n_rows, threads=options.threads)
        say(
            f"made {path.name} in {time.perf_counter() - started:.0f} s, "
            f"peak {megabytes(made.peak_rss)} MB"
        )
    return path


def train(
    store: Path, options: argparse.Namespace, *, solver: str, certify: bool, **others: int
) -> dict[str, Any]:
    """Train once; `others` are parameters too."""
    parameters = {
        "formulation": "l2-svc",
        "solver": solver,
        "certify": certify,
        "C": options.C,
        "gamma": UNHALVED,
        "sampling": SAMPLING,
        "memory": options.memory,
        "max_seconds": options.give_up,
        **others,
    }
    answer = once("fit", store, json.dumps(parameters), threads=options.threads).answer
    kind = "certified" if certify else "sampled"
    say(f"  {kind} {solver}: {answer['seconds']:.2f} s, {answer['accuracy']:.2f} %")
    return answer


def line(name: str, run: dict[str, Any], read: float) -> list[str]:
    """Lay out one run."""
    sampled = name.startswith("sampled")
    floors = run["n_kernel_evaluations"] / max(run["n_rows"] * run["n_support"], 1)
    return [
        name,
        f"{run['seconds']:.2f}",
        f"{run['seconds'] / (READS * read):.2f}",
        str(run["core"]),
        str(run["n_support"]),
        str(run["n_iter"]),
        str(run["rows_drawn"]),
        megabytes(run["bytes_read"]),
        "-" if sampled else str(run["n_sweeps"]),
        "-" if sampled else f"{floors:.2f}",
        f"{run['accuracy']:.2f}",
        megabytes(run["peak_rss"]),
        run["stop_reason"],
    ]


HEADER = (
    *("run", "seconds", "÷ two reads", "core set", "SVs", "steps", "rows drawn", "read MB"),
    *("sweeps", "floors", "accuracy %", "peak RSS MB", "stopped"),
)


def checks(runs: dict[str, dict[str, Any]], *, read: float, limit: int) -> list[Check]:
    """Hold the runs against what they promise; `limit` is bytes of a resident set."""
    found = []
    for name, run in runs.items():
        if name.startswith("sampled"):
            seconds = run["seconds"]
            most = READS * read
            found.append(
                Check(f"{name}: seconds", f"{seconds:.2f}", f"≤ {most:.2f}", seconds <= most)
            )
        else:
            converged = run["converged"]
            found.append(Check(f"{name}: converged", str(converged), "True", converged))
        peak = run["peak_rss"]
        found.append(
            Check(f"{name}: peak RSS, MB", megabytes(peak), megabytes(limit), peak <= limit)
        )
    return found


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Read, run and report."""
    tiny, store = (store_of(n, folder, options) for n in (TINY_ROWS, options.rows))
    train(tiny, options, solver="pairwise", certify=True)  # compiles, which takes memory
    baseline = train(tiny, options, solver="pairwise", certify=True)["peak_rss"]
    read = float(once("read", store, threads=options.threads).answer["seconds"])
    runs = {
        f"sampled {solver}": train(store, options, solver=solver, certify=False)
        for solver in SAMPLED
    }
    runs["certified pairwise"] = train(store, options, solver="pairwise", certify=True)
    budget = parse_bytes(options.memory)
    limit = min(memory_limit(budget, n_rows=options.rows, baseline=baseline), MOST_MEMORY)
    print(
        f"{options.rows} rows x 127 float32, {megabytes(options.rows * 127 * 4)} MB, budget "
        f"{megabytes(budget)} MB, interpreter {megabytes(baseline)} MB; C {options.C:g}\n"
        f"reading them once: {read:.2f} s\n\n"
        f"{table(HEADER, [line(name, run, read) for name, run in runs.items()])}\n\n"
        f"{verdicts(checks(runs, read=read, limit=limit))}"
    )


def measure_steps(folder: Path, options: argparse.Namespace) -> None:
    """Report what a step takes against the number of rows."""
    stores = {
        n: store_of(n, folder, options)
        for n in (*(n for n in SIZES if n < options.rows), options.rows)
    }
    limits = {"max_iter": options.most_steps, "sampling": STEPS_SAMPLING}
    rounds: dict[int, list[dict[str, Any]]] = {n_rows: [] for n_rows in stores}
    for _ in range(options.repeats):
        for n_rows, store in stores.items():
            found = train(store, options, solver="mfw", certify=False, **limits)
            if found["seconds_per_step"] is None:
                raise SystemExit(f"{n_rows} rows: no steps after the first round; give more")
            rounds[n_rows].append(found)
    taken = {
        n_rows: [1e6 * found["seconds_per_step"] for found in runs]
        for n_rows, runs in rounds.items()
    }
    lines = [
        [
            *(n_rows, runs[-1]["n_iter"], runs[-1]["core"], median_range(taken[n_rows], digits=1)),
            *(median_range([found["seconds"] for found in runs]), runs[-1]["stop_reason"]),
        ]
        for n_rows, runs in rounds.items()
    ]
    print(f"sampled mfw; C {options.C:g}", end="\n\n")
    print(table(["rows", "steps", "core set", "µs per step", "seconds of all", "stopped"], lines))
    medians = [statistics.median(values) for values in taken.values()]
    times = max(medians) / min(medians)
    check = Check(
        "slowest ÷ fastest step", f"{times:.2f}", f"≤ {MOST_TIMES:g}", times <= MOST_TIMES
    )
    print(f"\n{verdicts([check])}")


def run(options: argparse.Namespace) -> int:
    """Measure one or the other."""
    print(machine(options.threads), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (measure_steps if options.steps else measure)(folder, options)
    return 0
