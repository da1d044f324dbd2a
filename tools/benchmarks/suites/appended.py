"""A fit that starts from the model of the store before rows were appended, beside a fresh fit.

    python -m tools.benchmarks appended [--rows 400000] [--added 40000] [--memory 500MB]

Rows are those of ``few`` of `synthetic.py`. The first rows are written as a store and trained on,
and the others are appended. ``from the old model`` then trains on all of them; ``fresh`` trains on
a store of the same rows that was written at once. Each is a process of its own, and counts the CPU
seconds of the fit alone, after a fit of a few rows that compiles.

limits   the fit from the old model takes at most SHARE of the CPU seconds of the fresh one, and
         their objectives are apart by at most TOL of them
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine, run_checked
from tools.benchmarks.data import FAMILIES
from tools.benchmarks.results import at_most, table, verdicts

if TYPE_CHECKING:
    import argparse

SHARE, TOL = 0.8, 1e-3
FAMILY = "few"
OLD, FRESH, STARTED = "the old rows", "fresh", "from the old model"


def fit(who: str, folder: str, rows: int, added: int, memory: str, threads: int) -> dict[str, Any]:
    """Make the store of one of the three fits, and fit it."""
    import bigsvm
    from tools.benchmarks import synthetic

    place = Path(folder)
    n_columns, C, gamma = FAMILIES[FAMILY]
    x, y = synthetic.make(FAMILY, rows + added, n_columns)
    given = {"C": C, "gamma": gamma, "tol": TOL, "memory": memory, "n_jobs": threads}
    bigsvm.SVC(**given).fit(x[:1000], y[:1000])
    if who == FRESH:
        store = bigsvm.write_store(place / "whole", x, y)
    elif who == OLD:
        store = bigsvm.write_store(place / "store", x[:rows], y[:rows])
    else:
        store = bigsvm.append(place / "store", x[rows:], y[rows:])
    del x, y
    model = bigsvm.SVC(**given, warm_start=True)
    if who == STARTED:
        model = bigsvm.load(place / "model").set_params(**given, warm_start=True)
    began = time.process_time()
    model.fit(store)
    seconds = time.process_time() - began
    if who == OLD:
        model.save(place / "model")
    return {
        "seconds": seconds, "objective": model.objective_, "gap": model.gap_,
        "converged": model.converged_, "n_support": len(model.support_), "n_rows": len(store),
        "evaluations": model.certificate_["n_kernel_evaluations"],
    }  # fmt: skip


def program(options: argparse.Namespace) -> int:
    """Make the three fits, one after the other."""
    answers, lines = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for who in (OLD, FRESH, STARTED):
            given = (who, folder, options.rows, options.added, options.memory, options.threads)
            call = f"import json; from {__name__} import fit; print(json.dumps(fit(*{given!r})))"
            answers[who] = run_checked([sys.executable, "-c", call], threads=options.threads).answer
    for who, answer in answers.items():
        if not answer["converged"]:
            raise SystemExit(f"the fit of {who} did not converge")
        shown = f"{answer['seconds']:.2f}", f"{answer['evaluations']:.3g}"
        lines.append(
            [who, answer["n_rows"], *shown, answer["n_support"], f"{answer['objective']:.6f}",
             f"{answer['gap']:.2g}"]
        )  # fmt: skip
    header = ["fit", "rows", "CPU seconds", "evaluations", "SVs", "objective", "gap"]
    fresh, started = answers[FRESH], answers[STARTED]
    apart = abs(fresh["objective"] - started["objective"]) / abs(fresh["objective"])
    limits = [
        at_most("CPU of the fresh fit", started["seconds"] / fresh["seconds"], limit=SHARE),
        at_most("objectives apart", apart, limit=TOL, digits=6, shown="{}"),
    ]
    print(f"{machine(options.threads)}\n\n{table(header, lines)}\n\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1


SUITE = Suite(
    program=program,
    memory="500MB",
    threads=2,
    folder=False,
    more=(
        ("--rows", {"type": int, "default": 400_000}),
        ("--added", {"type": int, "default": 40_000}),
    ),
)
