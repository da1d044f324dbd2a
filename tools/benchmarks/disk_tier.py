"""What the disk tier of the kernel row cache saves, and what it costs where it saves nothing.

    python tools/benchmarks/disk_tier.py [--rows 12000] [--repeats 3] [--share 0.1] [--folder DIR]

Pair steps over all rows at once, with memory for a tenth of the kernel rows that the run touches:
as many as a run computes that holds all of them. Runs with and without the tier take turns, the
tier in a fresh folder each round.

wide     the first --rows rows of mnist, 784 columns: reading a row back is cheaper than computing
         it, so the tier has to save time. A second run with another C, 8 times smaller, finds the
         rows of the first in the same folder.
narrow   as many rows of ``few`` of `synthetic.py` with 20 columns: computing is cheaper, so the
         tier has to switch itself off, leave no file, and cost less than 5 %

The folder should be on the disk that is meant: what is written may be read back from the system's
memory, which is what a second run on a machine with memory to spare gets too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import synthetic
from common import Check, machine, median_range, megabytes, noise, table, verdicts
from data_sets import DATA_SETS, FAMILIES, is_skipped
from threadpoolctl import threadpool_limits
from whole_runs import Disk, Problem, Run, dense, train, warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

MNIST = DATA_SETS["mnist"]
NARROW_COLUMNS = 20
ANOTHER_C = 1 / 8
"""Times C, in the second run on the same folder."""
MOST_COST = 0.05


class Turn(NamedTuple):
    """The runs of a round, without and with the tier; `again` are those of the second C.

    Attributes
    ----------
    n_files : int
        Left in the folder by the run with the tier.
    """

    without: Run
    with_tier: Run
    again_without: Run
    again: Run
    n_files: int


class Measured(NamedTuple):
    """A problem's runs, and what they were given."""

    name: str
    n_rows: int
    n_columns: int
    n_touched: int
    kernel_rows: int
    capacity: int
    turns: list[Turn]


def narrow(n_rows: int) -> Problem:
    """Make rows of few columns."""
    x, y = synthetic.make("few", n_rows, NARROW_COLUMNS)
    _, C, gamma = FAMILIES["few"]
    return Problem(x, y, C, gamma)


def measure(name: str, problem: Problem, folder: Path, options: argparse.Namespace) -> Measured:
    """Find out how many kernel rows are touched, then take turns with a share of them."""
    n_rows, n_columns = problem.x.shape
    warm_up(n_columns, threads=options.threads)
    touched = train(problem, kernel_rows=n_rows, threads=options.threads).n_computed
    kernel_rows = max(int(options.share * touched), 8)
    # Another C touches other rows as well; a file as large as the kernel matrix has room for all.
    capacity = 4 * n_rows * (n_rows + 1) + (1 << 20)
    turns = []
    for turn in range(options.repeats):
        turns.append(take_turn(problem, kernel_rows, capacity, folder, options))
        without, with_tier = turns[-1].without, turns[-1].with_tier
        print(
            f"  round {turn + 1} {name}: {without.seconds:.2f} s without, "
            f"{with_tier.seconds:.2f} s with",
            file=sys.stderr,
            flush=True,
        )
    return Measured(name, n_rows, n_columns, touched, kernel_rows, capacity, turns)


def take_turn(
    problem: Problem, kernel_rows: int, capacity: int, folder: Path, options: argparse.Namespace
) -> Turn:
    """Run without and with the tier in a fresh folder; then both with another C."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        disk = Disk(Path(fresh), capacity)
        runs = [
            train(problem, C=C, kernel_rows=kernel_rows, disk=tier, threads=options.threads)
            for C in (problem.C, ANOTHER_C * problem.C)
            for tier in (None, disk)
        ]
        without, with_tier, again_without, again = runs
        n_files = len(list(disk.folder.iterdir()))
        return Turn(without, with_tier, again_without, again, n_files)


def ratios(turns: Sequence[Turn]) -> list[float]:
    """Seconds without the tier ÷ seconds with it, per round."""
    return [turn.without.seconds / turn.with_tier.seconds for turn in turns]


def report(m: Measured) -> str:
    """Lay out the runs of a problem."""
    kinds = {
        "without": [turn.without for turn in m.turns],
        "with": [turn.with_tier for turn in m.turns],
        "another C, without": [turn.again_without for turn in m.turns],
        "another C, same folder": [turn.again for turn in m.turns],
    }
    lines = [
        [
            kind,
            median_range([run.seconds for run in runs]),
            runs[-1].n_iter,
            runs[-1].n_computed,
            runs[-1].n_read,
        ]
        for kind, runs in kinds.items()
    ]
    gemm = [run.calibration for runs in kinds.values() for run in runs]
    return (
        f"{m.name}: {m.n_rows} rows x {m.n_columns}, {m.n_touched} kernel rows touched, "
        f"memory for {m.kernel_rows}, "
        f"{megabytes(4 * m.n_rows * m.kernel_rows)} MB; on disk at most "
        f"{megabytes(m.capacity)} MB\n\n"
        f"{table(['disk tier', 'seconds', 'iterations', 'rows computed', 'rows read'], lines)}\n\n"
        f"decided: {m.turns[-1].with_tier.certificate['disk_tier']}\n"
        f"seconds without ÷ with: {median_range(ratios(m.turns))}\n"
        f"{noise(gemm)}"
    )


def check_wide(m: Measured) -> list[Check]:
    """Check that the tier saves rows and time, and that rows survive the run."""
    last, gain = m.turns[-1], statistics.median(ratios(m.turns))
    needed = last.again.certificate["n_support"]
    return [
        Check(
            f"{m.name}: rows computed with the tier",
            str(last.with_tier.n_computed),
            f"< {last.without.n_computed}, without",
            last.with_tier.n_computed < last.without.n_computed,
        ),
        Check(f"{m.name}: seconds without ÷ with", f"{gain:.2f}", "> 1", gain > 1),
        Check(
            # A run needs the row of each of its support vectors at least once.
            f"{m.name}: rows that the second run computes, with another C",
            str(last.again.n_computed),
            f"< {needed}, its support vectors",
            last.again.n_computed < needed,
        ),
        check_same_answer(m),
    ]


def check_narrow(m: Measured) -> list[Check]:
    """Check that the tier switches itself off, and at what cost."""
    reads = sum(turn.with_tier.n_read + turn.again.n_read for turn in m.turns)
    files = sum(turn.n_files for turn in m.turns)
    cost = 1 / statistics.median(ratios(m.turns)) - 1
    return [
        Check(f"{m.name}: rows read, files left", f"{reads}, {files}", "0, 0", reads + files == 0),
        Check(f"{m.name}: cost", f"{cost:+.1%}", f"< {MOST_COST:.0%}", cost < MOST_COST),
        check_same_answer(m),
    ]


def check_same_answer(m: Measured) -> Check:
    """Check that rows from disk are those that are computed: the steps are the same, bit by bit."""
    pairs = [(t.without, t.with_tier) for t in m.turns] + [
        (t.again_without, t.again) for t in m.turns
    ]
    found = {run.certificate["objective"] - other.certificate["objective"] for run, other in pairs}
    return Check(
        f"{m.name}: objective with and without differ by",
        f"{max(found, key=abs):g}",
        "0",
        found == {0.0},
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--share", type=float, default=0.1, help="of rows touched, in memory")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="on the disk that is meant")
    options = parser.parse_args(arguments)
    if min(options.repeats, options.threads) < 1 or options.rows < 2:
        parser.error("--repeats and --threads must be at least 1, --rows at least 2")
    if not 0 < options.share <= 1:
        parser.error("--share must be above 0 and at most 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    print(machine(options.threads))
    checks: list[Check] = []
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        threadpool_limits(options.threads, user_api="blas"),
    ):
        if not is_skipped(MNIST):
            found = measure("wide", dense(MNIST, options.rows), Path(folder), options)
            print(f"\n{report(found)}", flush=True)
            checks += check_wide(found)
        found = measure("narrow", narrow(options.rows), Path(folder), options)
        print(f"\n{report(found)}", flush=True)
        checks += check_narrow(found)
    print(f"\n{verdicts(checks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
