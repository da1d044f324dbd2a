"""Regression and one class on many rows, out of core: sweeps, floors and memory.

    python -m tools.benchmarks at_size [--sizes 1000000] [--memory 500MB]

Rows are those of ``smooth`` of `synthetic.py`. ``eps-svr`` learns the targets (the tube leaves
about a tenth of the rows outside), ``one-class`` finds the rows that are far from the others (ν =
0.01). With the data folder, cpusmall is trained on too. Every run is ``bigsvm train`` in a process
of its own; a million rows are read from disk at every pass.

Limits: it converges, within 6 sweeps, and the process never takes 1 GB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet, made
from tools.benchmarks.results import Case, Limit, Results, Row, at_most, must, spread

if TYPE_CHECKING:
    import argparse

MOST_SWEEPS, MOST_MEGABYTES = 6, 1000
RUNS = (
    {"formulation": "eps-svr", "epsilon": 0.33, "C": 1.0, "gamma": 0.05},
    {"formulation": "one-class", "nu": 0.01, "gamma": 0.05},
)
CPUSMALL = (
    {"formulation": "eps-svr", "epsilon": 2.0, "C": 20.0, "gamma": 1.0},
    {"formulation": "one-class", "nu": 0.05, "gamma": 1.0},
)


def cases(options: argparse.Namespace) -> list[Case]:
    """List all runs."""
    data = [(f"made-{n}", made("smooth", n), RUNS) for n in options.sizes]
    data.append(("cpusmall", DataSet("cpusmall.scale"), CPUSMALL))
    return [
        Case(f"{name} {given['formulation']}", of, given)
        for name, of, runs in data
        for given in runs
    ]


def gap_share(row: Row) -> str:
    return f"{row.last('duality_gap') / max(abs(row.last('objective')), 1e-300):.1e}"


def limits(results: Results) -> list[Limit]:
    """Hold every run against the limits."""
    found = []
    for row in results.rows("store"):
        name, peak = row.case.name, max(row.values("peak_rss")) / 1e6
        found += [
            must(
                f"{name}: converged",
                all(row.values("converged")),
                True,
                all(row.values("converged")),
            ),
            at_most(f"{name}: sweeps", row.last("n_sweeps"), limit=MOST_SWEEPS, digits=0),
            at_most(f"{name}: peak RSS, MB", peak, limit=MOST_MEGABYTES, digits=0, shown="< {}"),
        ]
    return found


SUITE = Suite(
    cases=cases,
    sizes=(1_000_000,),
    contestants=("store",),
    columns=(
        ("run", lambda row: row.case.name),
        "rows",
        ("seconds", spread("seconds", digits=1)),
        *("sweeps", "evaluations in floors", "SVs"),
        ("bounded", "n_bounded"),
        ("KKT gap", "gap:.2e"),
        ("duality gap ÷ objective", gap_share),
        "peak RSS MB",
    ),
    limits=limits,
    repeats=1,
    memory="500MB",
)  # fmt: skip
