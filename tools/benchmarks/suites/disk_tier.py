"""What the disk tier of the kernel row cache saves, and what it costs where it saves nothing.

    python -m tools.benchmarks disk_tier [--rows 12000] [--repeats 3] [--share 0.1] [--folder DIR]

Pair steps over all rows at once, with memory for a tenth of the kernel rows that the run touches:
as many as a run computes that holds all of them. Runs with and without the tier take turns, the
tier in a fresh folder each turn; runs with another C, 8 times smaller, follow.

wide     the first --rows rows of mnist, 784 columns: reading a row back is cheaper than computing
         it, so the tier has to save time, and the run with the other C finds the rows of the first
         in the same folder
narrow   as many rows of ``few`` of `synthetic.py` with 20 columns: computing is cheaper, so the
         tier has to switch itself off, leave no file, and cost less than 5 %

--folder should be on the disk that is meant: what is written may be read back from the system's
memory, which is what a second run on a machine with memory to spare gets too.
"""

from __future__ import annotations

import functools
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DATA_SETS, DataSet
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    median_range,
    megabytes,
    must,
    noise,
    who,
)

if TYPE_CHECKING:
    import argparse

WITHOUT, WITH = "without", "with"
AGAIN_WITHOUT, AGAIN = "another C, without", "another C, same folder"
ANOTHER_C = 1 / 8
"""Times C, in the later runs."""
MOST_COST = 0.05


def cases(options: argparse.Namespace) -> list[Case]:
    """List the problems."""
    if not 0 < options.share <= 1:
        raise ValueError("--share must be above 0 and at most 1")
    if options.rows < 2:
        raise ValueError("--rows must be at least 2")
    given = {"rows": options.rows, "share": options.share}
    return [
        Case("wide", DATA_SETS["mnist"]._replace(layouts=()), given),
        Case("narrow", DataSet("narrow", n_made=options.rows, layouts=()), given),
    ]


@functools.lru_cache(maxsize=1)
def touched(name: str, n_rows: int) -> int:
    """Count the kernel rows that a run computes which holds all of them."""
    from tools.benchmarks.whole_runs import problem_of, train

    return int(train(problem_of(name, n_rows, dense=True), kernel_rows=n_rows)["n_computed"])


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once; runs with the tier share a folder within a turn."""
    from tools.benchmarks.whole_runs import FEWEST_ROWS, problem_of, train

    name, given = job["name"], job["parameters"]
    n_touched = touched(name, given["rows"])
    problem = problem_of(name, given["rows"], dense=True)
    n_rows = len(problem.y)
    # Another C touches other rows as well; a file as large as the kernel matrix has room for all.
    capacity = 4 * n_rows * (n_rows + 1) + (1 << 20)
    kernel_rows = max(int(given["share"] * n_touched), FEWEST_ROWS)
    folder = Path(job["folder"]) / f"{name}-{job['turn']}"
    folder.mkdir(exist_ok=True)
    answer = train(
        problem,
        kernel_rows=kernel_rows,
        C=problem.C * (ANOTHER_C if job["who"] in (AGAIN_WITHOUT, AGAIN) else 1),
        disk=(folder, capacity) if job["who"] in (WITH, AGAIN) else None,
    )
    return answer | {
        "n_touched": n_touched, "kernel_rows": kernel_rows, "capacity": capacity,
        "n_files": len(list(folder.iterdir())),
    }  # fmt: skip


def heading(row: Row) -> str:
    n_rows, n_columns, n_touched, kernel_rows, capacity = (
        row.last(name) for name in ("n_rows", "n_columns", "n_touched", "kernel_rows", "capacity")
    )
    return (
        f"{row.case.name}: {n_rows} rows x {n_columns}, {n_touched} kernel rows touched, memory "
        f"for {kernel_rows}, {megabytes(4 * n_rows * kernel_rows)} MB; on disk at most "
        f"{megabytes(capacity)} MB"
    )


def below(row: Row) -> str:
    ratios = row.of(WITHOUT).ratios(WITH)
    return (
        f"decided: {row.of(WITH).last('disk_tier')}\n"
        f"seconds without ÷ with: {median_range(ratios)}\n{noise(row.values('gemm'))}"
    )


def limits(results: Results) -> list[Limit]:
    """Hold a tier that serves against its gain, and one that does not against its cost."""
    found = []
    for case in results.cases:
        without, with_tier, again_without, again = (
            results.row(case, name) for name in (WITHOUT, WITH, AGAIN_WITHOUT, AGAIN)
        )
        if not all(row.runs for row in (without, with_tier, again_without, again)):
            continue
        gain = statistics.median(without.ratios(WITH))
        if case.name == "wide":
            computed, most = with_tier.last("n_computed"), without.last("n_computed")
            # A run needs the row of each of its support vectors at least once.
            n_again, needed = again.last("n_computed"), again.last("n_support")
            found += [
                must("wide: rows computed with the tier", computed, f"< {most}, without",
                     computed < most),
                must("wide: seconds without ÷ with", f"{gain:.2f}", "> 1", gain > 1),
                must("wide: rows that the second run computes, with another C", n_again,
                     f"< {needed}, its support vectors", n_again < needed),
            ]  # fmt: skip
        else:
            reads = sum(with_tier.values("row_reads") + again.values("row_reads"))
            files, cost = sum(again.values("n_files")), 1 / gain - 1
            found += [
                must("narrow: rows read, files left", f"{reads}, {files}", "0, 0",
                     reads + files == 0),
                must("narrow: cost", f"{cost:+.1%}", f"< {MOST_COST:.0%}", cost < MOST_COST),
            ]  # fmt: skip
        # Rows from disk are those that are computed: the steps are the same, bit by bit.
        pairs = [
            pair
            for one, other in ((without, with_tier), (again_without, again))
            for pair in zip(one.values("objective"), other.values("objective"), strict=True)
        ]
        apart = max((a - b for a, b in pairs), key=abs)
        name = f"{case.name}: objective with and without differ by"
        found.append(must(name, f"{apart:g}", "0", apart == 0))
    return found


SUITE = Suite(
    cases=cases,
    contestants=(WITHOUT, WITH, AGAIN_WITHOUT, AGAIN),
    columns=(
        ("disk tier", who),
        "seconds",
        ("iterations", "n_iter"),
        ("rows computed", "n_computed"),
        ("rows read", "row_reads"),
    ),
    heading=heading,
    below=below,
    limits=limits,
    table_of_each_case=True,
    do="tools.benchmarks.suites.disk_tier:fit",
    one_process=True,
    uncounted=False,
    more=(
        ("--rows", {"type": int, "default": 12_000}),
        ("--share", {"type": float, "default": 0.1, "help": "of rows touched, in memory"}),
    ),
)
