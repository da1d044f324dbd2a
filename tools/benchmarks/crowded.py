"""Overlapping classes: evaluations, steps and memory where a third of the rows are support vectors.

    python tools/benchmarks/crowded.py [--sizes 50000 100000 200000 400000] [--base CHECKOUT]

The family is ``crowded`` of `synthetic.py`, each size the first rows of the next. A scope of it has
many times as many violating rows as a working set holds. Every fit is a process of its own, with
CSR rows in memory or, with --rows streamed, read from the store at every pass. With --base the fits
of this checkout and of another one take turns; scikit-learn-intelex, where it is installed, joins
in at sizes up to --peer-rows. Floors, sets and steps are counts and repeat exactly; CPU seconds are
medians over --repeats.

Checked, of this checkout:

converged  at every size
floors     at most 3.0 at every size, and the most no more than 15 % above the least
memory     the peak is at most the budget, 40 bytes a row, the interpreter with a tiny problem, and
           the rows where they are in memory
base       at most 0.6 of its evaluations from 200 000 rows on; it takes 1.4 times the CPU seconds
           at least, and twice from 200 000 rows on
sklearnex  takes five times the seconds at least
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common import REPOSITORY, Check, machine, median_range, megabytes, noise, table, verdicts
from data_sets import made
from growth import remove
from out_of_core import TINY_ROWS, memory_limit
from peers import fit_once, installed

from bigsvm.budget import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data_sets import DataSet

FAMILY, LAYOUT = "crowded", "csr"
OURS, BASE, PEER = "this", "base", "sklearnex"
MOST_FLOORS, MOST_GROWTH = 3.0, 1.15
LARGE = 200_000
"""Rows from which on the stricter limits against the base hold."""
MOST_OF_EVALUATIONS, LEAST_CPU, LEAST_CPU_LARGE, LEAST_OF_PEER = 0.6, 1.4, 2.0, 5.0


class Measured(NamedTuple):
    """The fits of one size by one competitor.

    Attributes
    ----------
    who : str
    n_rows : int
    answers : list of dict
        Of `fit_once.py`, one of each round.
    """

    who: str
    n_rows: int
    answers: list[dict[str, Any]]

    def median(self, name: str) -> float:
        """Over the rounds."""
        return statistics.median(answer[name] for answer in self.answers)

    @property
    def evaluations(self) -> int:
        """Kernel values that were computed."""
        return int(self.answers[0]["n_kernel_evaluations"])

    @property
    def floors(self) -> float:
        """Evaluations in units of rows times support vectors."""
        return self.evaluations / (self.n_rows * self.answers[0]["n_support"])

    @property
    def peak(self) -> int:
        """Bytes of the resident set, the most over the rounds."""
        return int(max(answer["peak_rss"] for answer in self.answers))

    @property
    def certificate_share(self) -> str:
        """Share of the run's seconds; '-' of code that does not tell its phases apart."""
        phases = self.answers[0].get("seconds_by_phase")
        return f"{phases['certificate'] / sum(phases.values()):.1%}" if phases else "-"


def fit(who: str, data: DataSet, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train once."""
    arguments: tuple[object, ...] = ("store", options.rows, options.memory, LAYOUT)
    if who == PEER:
        arguments = ("fit", PEER, "dense")
    checkout = options.base if who == BASE else REPOSITORY
    child = fit_once(*arguments, data.name, folder, threads=options.threads, checkout=checkout)
    answer = child.answer
    print(f"  {who}: {answer['seconds']:.1f} s", file=sys.stderr, flush=True)
    return answer


def measure(
    n_rows: int, options: argparse.Namespace, folder: Path, moods: list[float]
) -> list[Measured]:
    """Fit one size in turns."""
    data = made(FAMILY, n_rows)
    fit_once("prepare", data.name, folder, threads=options.threads)
    asked = [OURS] + [BASE] * (options.base is not None)
    if n_rows <= options.peer_rows:
        asked += installed([PEER])
    answers: dict[str, list[dict[str, Any]]] = {who: [] for who in asked}
    print(f"{n_rows} rows", file=sys.stderr)
    for _ in range(options.repeats):
        for who in asked:
            moods.append(fit_once("calibrate", threads=options.threads).answer["seconds"])
            answers[who].append(fit(who, data, options, folder))
    in_memory = fit_once("rows", LAYOUT, data.name, folder, threads=options.threads)
    for answer in answers[OURS]:
        answer |= in_memory.answer
    remove(data, folder)
    return [Measured(who, n_rows, found) for who, found in answers.items()]


def report(measured: Sequence[Measured]) -> str:
    """Lay out what each took at each size."""
    rows = []
    for m in measured:
        seconds = median_range([answer["seconds"] for answer in m.answers])
        first = m.answers[0]
        if m.who == PEER:
            counts: list[object] = ["-"] * 6
        else:
            counts = [
                f"{m.floors:.2f}", f"{m.evaluations / 1e6:.0f}", first["n_working_sets"],
                first["n_iter"], median_range([answer["cpu_seconds"] for answer in m.answers]),
                m.certificate_share,
            ]  # fmt: skip
        support = f"{first['n_support'] / m.n_rows:.1%}"
        objective, converged = f"{first['objective']:.9g}", first.get("converged", "-")
        ending = [seconds, megabytes(m.peak), objective, converged]
        rows.append([m.n_rows, m.who, support, *counts, *ending])
    header = [
        "rows", "who", "SVs", "floors", "evaluations, million", "sets", "steps", "CPU seconds",
        "certificate", "seconds", "peak RSS MB", "objective", "converged",
    ]  # fmt: skip
    return table(header, rows)


def check(measured: Sequence[Measured], *, budget: int, baseline: int, held: bool) -> list[Check]:
    """Hold this checkout's runs against the limits."""
    ours = [m for m in measured if m.who == OURS]
    others = {(m.who, m.n_rows): m for m in measured if m.who != OURS}
    checks = []

    def at_most(name: str, value: float, limit: float, unit: str = "") -> None:
        checks.append(Check(name, f"{value:.2f}{unit}", f"≤ {limit:.2f}{unit}", value <= limit))

    def at_least(name: str, value: float, limit: float) -> None:
        checks.append(Check(name, f"{value:.2f}", f"≥ {limit:.2f}", value >= limit))

    for m in ours:
        n = m.n_rows
        converged = all(answer["converged"] for answer in m.answers)
        checks.append(Check(f"converged, {n} rows", str(converged), "True", converged))
        at_most(f"floors, {n} rows", m.floors, MOST_FLOORS)
        limit = memory_limit(budget, n_rows=n, baseline=baseline)
        limit += m.answers[0]["row_bytes"] if held else 0
        at_most(f"peak RSS, MB, {n} rows", m.peak / 1e6, limit / 1e6)
        base, peer = others.get((BASE, n)), others.get((PEER, n))
        if base is not None:
            if n >= LARGE:
                share = m.evaluations / base.evaluations
                at_most(f"evaluations ÷ base, {n} rows", share, MOST_OF_EVALUATIONS)
            ratio = base.median("cpu_seconds") / m.median("cpu_seconds")
            at_least(
                f"base ÷ CPU seconds, {n} rows", ratio, LEAST_CPU_LARGE if n >= LARGE else LEAST_CPU
            )
        if peer is not None:
            ratio = peer.median("seconds") / m.median("seconds")
            at_least(f"sklearnex ÷ seconds, {n} rows", ratio, LEAST_OF_PEER)
    floors = [m.floors for m in ours]
    at_most("most floors ÷ least", max(floors) / min(floors), MOST_GROWTH)
    return checks


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[50_000 << k for k in range(4)])
    parser.add_argument("--base", type=Path, metavar="CHECKOUT", help="to compare with")
    parser.add_argument("--peer-rows", type=int, default=50_000, metavar="ROWS")
    parser.add_argument("--rows", choices=("memory", "streamed"), default="memory")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--memory", default="1GB", help="budget of a run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for the data; default: a temporary one")
    options = parser.parse_args(arguments)
    options.sizes = sorted(set(options.sizes))
    if min(*options.sizes, options.repeats, options.threads) < 1:
        parser.error("--sizes, --repeats and --threads must be at least 1")
    if options.base is not None and not (options.base / "bigsvm").is_dir():
        parser.error(f"--base {options.base} has no folder bigsvm")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    print(machine(options.threads), flush=True)
    measured: list[Measured] = []
    moods: list[float] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        tiny = made(FAMILY, TINY_ROWS)
        fit_once("prepare", tiny.name, folder, threads=options.threads)
        fit(OURS, tiny, options, folder)  # compiles, which takes memory of its own
        baseline = int(fit(OURS, tiny, options, folder)["peak_rss"])
        for n_rows in options.sizes:
            measured += measure(n_rows, options, folder, moods)
            print(f"\n{report(measured)}\n", flush=True)
    held = options.rows == "memory"
    checks = check(measured, budget=parse_bytes(options.memory), baseline=baseline, held=held)
    print(f"{verdicts(checks)}\n\n{noise(moods)}")
    return 0 if all(c.holds for c in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
