"""Training time and peak memory against the number of rows, beside scikit-learn-intelex.

    python tools/benchmarks/growth.py [--sizes 12500 25000 … 400000] [--give-up 900] [--repeats 1]

One family of problems, ``many`` of `synthetic.py`: 50 columns, every fifth row a support vector,
each size the first rows of the next. ``store`` is ``bigsvm train`` of a store, out of core under
--memory; ``sklearnex`` has float32 arrays and a cache of 200 MB, its best setting. Each fit is a
process of its own; at each size they take turns. Who takes longer than --give-up seconds, start-up
included, is not asked for larger sizes.

Exponents are those of the line through the logarithms by least squares: time ~ n^exponent. The
floor, one sweep with the final support vectors, grows as n · n_SV: its exponent is 1 plus that of
the support vectors. Memory per row is the slope of the peak from one size to the next. Checked is
what a run promises:

memory   its peak is at most the budget + 40 bytes a row + what the interpreter takes for a tiny
         store under the same budget, at every size
flat     the peak grows by at most 40 bytes a row, between the first size whose kernel matrix takes
         a hundred times the budget and the last: smaller problems need less than they may have
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from common import Check, machine, median_range, megabytes, noise, table, verdicts
from data_sets import made
from out_of_core import BYTES_PER_ROW, TINY_ROWS, memory_limit
from peers import Setting, fit_once, installed, measure, train_store
from peers_report import Outcome

from bigsvm.budget import parse_bytes
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data_sets import DataSet

FAMILY = "many"
PEERS = ("store", "sklearnex")
TIMES_THE_BUDGET = 100
"""Bytes of the kernel matrix from which on a run uses all that it may: those among the support
vectors, every fifth row, are then four times the budget. With ten times it used 60 % of it."""


def measure_sizes(options: argparse.Namespace, setting: Setting) -> list[Outcome]:
    """Fit every size in turns; the smallest first."""
    outcomes = []
    asked = installed(options.peers)
    for n_rows in options.sizes:
        data = made(FAMILY, n_rows)
        prepared = fit_once("prepare", data.name, setting.folder, threads=setting.threads).answer
        print(f"{n_rows} rows", file=sys.stderr)
        measured = [
            measure(peer, "dense", data, turn, setting, options.give_up)
            for turn in range(options.repeats)
            for peer in asked
        ]
        gave_up = {m.peer for m in measured if m.child.gave_up}
        for peer in sorted(gave_up):
            print(f"{peer} was given up at {n_rows} rows after {options.give_up:g} s", flush=True)
        asked = [peer for peer in asked if peer not in gave_up]
        finished = [m for m in measured if m.peer not in gave_up]
        outcomes.append(Outcome(data.name, prepared, finished))
        remove(data, setting.folder)
        if not asked:
            break
    return outcomes


def remove(data: DataSet, folder: Path) -> None:
    """Make room: of the largest size arrays and store take a tenth of a gigabyte each."""
    for path in folder.glob(f"{data.name}.*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Slope of the line through (log n, log value) by least squares; None of fewer than two."""
    if len(points) < 2:
        return None
    logs = [(math.log(n), math.log(value)) for n, value in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def slopes(peaks: Sequence[tuple[int, int]]) -> list[float]:
    """Bytes per row between neighbours of (n, bytes)."""
    return [(b - a) / (m - n) for (n, a), (m, b) in itertools.pairwise(peaks)]


def peaks_of(outcomes: Sequence[Outcome], peer: str) -> list[tuple[int, int]]:
    """(n, peak bytes), the largest over the repeats."""
    return [(o.n_rows, max(m.peak_rss for m in o.of(peer))) for o in outcomes if o.of(peer)]


def report(outcomes: Sequence[Outcome]) -> str:
    """Lay out times and memory, then what they grow with."""
    rows = []
    for peer in PEERS:
        per_row = ["-", *(f"{slope:.0f}" for slope in slopes(peaks_of(outcomes, peer)))]
        ran = [o for o in outcomes if o.of(peer)]
        for outcome, slope in zip(ran, per_row[: len(ran)], strict=True):
            runs = outcome.of(peer)
            n_support = runs[-1].child.answer["n_support"]
            evaluations, seconds = (
                outcome.median(peer, value) for value in (outcome.evaluations, outcome.floors)
            )
            rows.append(
                [
                    peer,
                    outcome.n_rows,
                    median_range([m.seconds for m in runs]),
                    n_support,
                    f"{n_support / outcome.n_rows:.1%}",
                    "-" if evaluations is None else f"{evaluations:.2f}",
                    "-" if seconds is None else f"{seconds:.2f}",
                    megabytes(max(m.peak_rss for m in runs)),
                    slope,
                ]
            )
    header = [
        "who",
        "rows",
        "seconds",
        "SVs",
        "of rows",
        "evaluations in floors",
        "seconds in floors",
        "peak RSS MB",
        "bytes a row more",
    ]
    return f"{table(header, rows)}\n\n{exponents(outcomes)}"


def exponents(outcomes: Sequence[Outcome]) -> str:
    """Lay out what grows as which power of n, over the sizes that each has done."""
    rows = []
    for peer in PEERS:
        ran = [(o, o.of(peer)) for o in outcomes if o.of(peer)]
        if len(ran) < 2:
            continue
        seconds = [
            (float(o.n_rows), statistics.median([m.seconds for m in runs])) for o, runs in ran
        ]
        support = [(float(o.n_rows), float(runs[-1].child.answer["n_support"])) for o, runs in ran]
        sizes = f"{ran[0][0].n_rows} to {ran[-1][0].n_rows}"
        rows.append([peer, sizes, f"{exponent(seconds):.2f}", f"{exponent(support):.2f}"])
    return table(["who", "rows", "time ~ n^", "SVs ~ n^"], rows)


def check(outcomes: Sequence[Outcome], *, budget: int, baseline: int) -> list[Check]:
    """Hold the peaks of `store` against what a run promises."""
    peaks = peaks_of(outcomes, "store")
    if not peaks:
        return []
    worst, peak = max(peaks, key=lambda p: p[1] - memory_limit(budget, n_rows=p[0], baseline=0))
    limit = memory_limit(budget, n_rows=worst, baseline=baseline)
    checks = [
        Check(
            f"peak RSS, MB, at {worst} rows",
            megabytes(peak),
            megabytes(limit),
            peak <= limit,
        )
    ]
    bound = [(n, peak) for n, peak in peaks if 4 * n**2 >= TIMES_THE_BUDGET * budget]
    if len(bound) >= 2:
        grown = (bound[-1][1] - bound[0][1]) / (bound[-1][0] - bound[0][0])
        checks.append(
            Check(
                f"bytes a row more, {bound[0][0]} to {bound[-1][0]} rows",
                f"{grown:.1f}",
                str(BYTES_PER_ROW),
                grown <= BYTES_PER_ROW,
            )
        )
    return checks


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    doubling = [12_500 << k for k in range(6)]
    parser.add_argument("--sizes", type=int, nargs="+", default=doubling)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--give-up", type=float, default=900.0, metavar="SECONDS")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--memory", default="128MB", help="budget of a run of store")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="for the data; default: a temporary one")
    options = parser.parse_args(arguments)
    options.sizes = sorted(set(options.sizes))
    if min(*options.sizes, options.repeats, options.threads) < 1:
        parser.error("--sizes, --repeats and --threads must be at least 1")
    try:
        parse_bytes(options.memory)
    except ParameterError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    print(machine(options.threads), flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        setting = Setting(Path(folder), options.threads, options.memory, options.give_up)
        tiny = made(FAMILY, TINY_ROWS)
        fit_once("prepare", tiny.name, folder, threads=options.threads)
        train_store(tiny, "dense", setting)  # compiles, which takes memory of its own
        baseline = train_store(tiny, "dense", setting).peak_rss
        outcomes = measure_sizes(options, setting)
    budget = parse_bytes(options.memory)
    print(
        f"budget of store {megabytes(budget)} MB, interpreter {megabytes(baseline)} MB\n\n"
        f"{report(outcomes)}\n\n"
        f"{verdicts(check(outcomes, budget=budget, baseline=baseline))}\n\n"
        f"{noise([m.calibration for o in outcomes for m in o.measured])}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
