"""Runs whose time is that of their pair steps: steps, CPU seconds, and what a step takes.

    python -m tools.benchmarks pair_steps [--sizes 40000] [--base CHECKOUT]

eps-svr  ``arm`` of `synthetic.py`, 40 000 rows, 8 columns: C 10, gamma 0.125, epsilon 0.1. Its
         target is smooth and has little noise, so that thousands of variables stay between their
         bounds, and few kernel values are needed for many steps
nu-svc   a9a, nu 0.3, gamma 0.008, from the data folder

Rows are in memory. Steps are counts and repeat exactly. The seconds of pair steps are those of the
certificate, and their microseconds are divided by all steps. With --base another checkout takes
turns; its objectives must be the same to within both duality gaps.

Limits:

converged  in every run
base       pair steps take 85 % of the seconds of its eps-svr at least, and it takes 1.25 times the
           CPU seconds at least
objective  that of the base, to within the duality gaps of both
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import BASE, Suite
from tools.benchmarks.data import DATA_SETS, is_skipped, made
from tools.benchmarks.results import Case, Limit, Results, Row, at_least, at_most, must

if TYPE_CHECKING:
    import argparse

FAMILY, OURS = "arm", "memory"
REGRESSION = {"formulation": "SVR", "C": 10.0, "gamma": 0.125, "epsilon": 0.1}
CLASSES = {"formulation": "NuSVC", "nu": 0.3, "gamma": 0.008}
LEAST_SHARE, LEAST_CPU = 85.0, 1.25
FIRST_ROWS, FIRST_STEPS = 2500, 100
"""Rows and steps of a fit that loads compiled code: smaller problems do not need it."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List all runs."""
    found = [Case(f"eps-svr {n}", made(FAMILY, n), REGRESSION) for n in options.sizes]
    if not is_skipped(DATA_SETS["a9a"]):
        found.append(Case("nu-svc a9a", DATA_SETS["a9a"], CLASSES))
    return found


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once."""
    import numpy as np

    from tools.benchmarks.contestants import estimator, few_of_each, read_rows, timed

    warnings.simplefilter("ignore")  # the first fit says that it was stopped
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    few = few_of_each(y, FIRST_ROWS)
    estimator(job, max_iter=FIRST_STEPS).fit(x[few], y[few])
    model = estimator(job)
    return timed(model, x, y) | {"objective": model.certificate_["objective"]}


def step_share(row: Row) -> float:
    """Share of the seconds that pair steps take, in %."""
    phases = row.last("seconds_by_phase")
    return float(100 * phases["steps"] / sum(phases.values()))


def step_microseconds(row: Row) -> str:
    return f"{1e6 * row.last('seconds_by_phase')['steps'] / row.last('n_iter'):.2f}"


def limits(results: Results) -> list[Limit]:
    """Hold this checkout's runs against those of the other one."""
    found = []
    for row in results.rows(OURS):
        name, base = row.case.name, row.of(BASE)
        converged = all(row.values("converged"))
        found.append(must(f"{name}: converged", converged, True, converged))
        if not base.runs:
            continue
        apart = abs(row.last("objective") - base.last("objective"))
        allowed = row.last("duality_gap") + base.last("duality_gap")
        found.append(
            at_most(f"{name}: objectives apart", apart, limit=allowed, digits=4, shown="≤ {:.4f}")
        )
        if row.case.parameters["formulation"] == "SVR":
            found += [
                at_least(
                    f"{name}: pair steps of the base, %", step_share(base), limit=LEAST_SHARE,
                    digits=1,
                ),
                at_least(
                    f"{name}: base ÷ CPU seconds", base.ratio(OURS, "cpu_seconds"), limit=LEAST_CPU,
                ),
            ]  # fmt: skip
    return found


SUITE = Suite(
    cases=cases,
    sizes=(40_000,),
    contestants=(OURS,),
    columns=(
        ("run", lambda row: row.case.name),
        *("who", "SVs", "steps", "CPU seconds"),
        ("pair steps %", lambda row: f"{step_share(row):.0f}"),
        ("µs a step", step_microseconds),
        ("sets", "n_working_sets"),
        *("sweeps", "evaluations in floors"),
        ("objective", "objective:.9g"),
        ("duality gap", "duality_gap:.2e"),
    ),
    limits=limits,
    do="tools.benchmarks.suites.pair_steps:fit",
    threads=1,
    layout="last",
    base=True,
)
