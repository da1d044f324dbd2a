"""26 and 1000 classes, trained and predicted in a budget.

    python -m tools.benchmarks class_memory [--data letter synthetic] [--memory SIZE]

letter is 16 000 rows of 26 classes; the synthetic set has --classes classes of --rows-per-class
rows x 32, each about a random point of a cube. Every ``bigsvm train`` of a store and every ``bigsvm
predict`` of the same rows is a process of its own, whose resident set is watched from outside. The
budget is 100 MB for letter and 1 GB for the synthetic set, of which the variables and outputs of
20 000 rows and 1000 functions that are trained together are a third. Gamma is 1 / (columns ·
variance).

Limits: the peak of a training is at most the budget + 40 bytes a row + what the interpreter takes
for a store of a few rows of three classes, trained by the same method under the same budget. The
peak of a prediction is at most the same, its interpreter that of a prediction by the model of the
few rows: it is given no budget, but holds the model and some blocks, and never the values of all
functions of all rows. Every training converges.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_most,
    megabytes,
    memory_limit,
    must,
    who,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

METHODS = ("crammer-singer", "ovr", "ovo")
BUDGETS = {"letter": "100MB", "synthetic": "1GB"}
FEW = {"classes": 3, "rows_per_class": 100, "n_columns": 512}
"""The store that tells what the interpreter takes; with fewer columns it would need no Numba."""
N_COLUMNS, SPREAD = 32, 0.05
"""Columns of made rows, and their standard deviation about their class in a cube of side 1."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List the data sets."""
    found = []
    for name in options.data:
        if name not in BUDGETS:
            raise ValueError(f"--data {name} is none of {', '.join(BUDGETS)}")
        given = {"C": options.C, "memory": options.memory or BUDGETS[name]}
        if name == "synthetic":
            given |= {"classes": options.classes, "rows_per_class": options.rows_per_class}
        found.append(Case(name, DataSet(name, n_made=int(name == "synthetic"), layouts=()), given))
    return found


def made_classes(
    n_classes: int, rows_per_class: int, n_columns: int = N_COLUMNS
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Make rows about a random centre each class, class by class: (n, n_columns), (n,)."""
    import numpy as np

    random = np.random.default_rng(0)
    centres = random.random((n_classes, n_columns))
    y = np.repeat(np.arange(n_classes), rows_per_class)
    x = centres[y] + SPREAD * random.standard_normal((len(y), n_columns))
    return x.astype(np.float32), y.astype(np.float64)


def make(job: dict[str, Any]) -> dict[str, Any]:
    """Write a store: of the synthetic set where classes are given, else of letter."""
    from bigsvm import write_store

    if "classes" in job:
        more = {"n_columns": job["n_columns"]} if "n_columns" in job else {}
        x, y = made_classes(job["classes"], job["rows_per_class"], **more)
    else:
        from tools.benchmarks.crammer_singer import read

        (parts,) = read("letter")
        x, y = parts.x, parts.y
    write_store(job["path"], x, y)
    return {"n_rows": len(y), "n_classes": len(set(y.tolist()))}


def train_command(store: Path, model: Path, method: str, given: dict[str, Any]) -> list[str]:
    """Give the command that trains by a method."""
    from tools.benchmarks.children import bigsvm_command
    from tools.benchmarks.contestants import threads

    kind = ("--formulation", method) if method == "crammer-singer" else ("--multiclass", method)
    return bigsvm_command(
        "train", store, model, *kind, "--C", given["C"], "--gamma", "scale", "--tol", 1e-3,
        "--memory", given["memory"], "--threads", threads(), "--json",
    )  # fmt: skip


def train_and_predict(
    store: Path, method: str, given: dict[str, Any], work: Path
) -> dict[str, Any]:
    """Train in a fresh folder, then predict the rows of the store."""
    from tools.benchmarks.children import bigsvm_command, run_checked
    from tools.benchmarks.contestants import threads

    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model = work / "model.safetensors"
    trained = run_checked(train_command(store, model, method, given), threads=threads())
    command = bigsvm_command(
        "predict", store, model, "--output", work / "labels.txt", "--threads", threads(), "--json"
    )
    predicted = run_checked(command, threads=threads())
    return {
        "training": trained.peak_rss,
        "predicting": predicted.peak_rss,
        "seconds": trained.answer["seconds"],
        "n_support": trained.answer["n_support"],
        "converged": trained.answer["converged"] is True,
        "accuracy": 100 * predicted.answer["accuracy"],
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train and predict by a method, after the few rows; stores are made where they are not."""
    given, folder = job["parameters"], Path(job["folder"])
    shape = {name: given[name] for name in FEW if name in given}
    facts = {}
    for name, of in (("few", FEW), (job["name"], shape)):
        facts = store_of(folder / name, of)
    # The first one compiles, which takes memory of its own.
    few = [
        train_and_predict(folder / "few.zarr", job["who"], given, folder / "work") for _ in range(2)
    ]
    store = folder / f"{job['name']}.zarr"
    answer = train_and_predict(store, job["who"], given, folder / "work")
    of_few = {f"interpreter {name}": few[-1][name] for name in ("training", "predicting")}
    return answer | of_few | facts


def store_of(path: Path, shape: dict[str, int]) -> dict[str, int]:
    """Make a store unless it is there, in a process of its own; its rows and classes."""
    from tools.benchmarks.children import run_checked
    from tools.benchmarks.contestants import threads

    facts = path.with_suffix(".json")
    if not facts.exists():
        store = str(path.with_suffix(".zarr"))
        job = {"do": f"{__name__}:make", "path": store, **shape}
        command = [sys.executable, "-m", "tools.benchmarks.contestants", json.dumps([job])]
        facts.write_text(json.dumps(run_checked(command, threads=threads()).answer))
    found: dict[str, int] = json.loads(facts.read_text())
    return found


def budget(row: Row) -> int:
    """Give the bytes of the budget."""
    from bigsvm.budget import parse_bytes

    return parse_bytes(row.case.parameters["memory"])


def megabytes_of(name: str) -> Callable[[Row], str]:
    """Make a column of a peak."""
    return lambda row: megabytes(row.last(name))


def limits(results: Results) -> list[Limit]:
    """Hold peaks against budget and interpreter."""
    found = []
    for case in results.cases:
        for method in results.contestants:
            row = results.row(case, method)
            for what in ("training", "predicting"):
                base = row.last(f"interpreter {what}")
                most = memory_limit(budget(row), n_rows=row.last("n_rows"), baseline=base) / 1e6
                name = f"{case.name}, {method}, {what}: peak RSS, MB"
                peak = row.last(what) / 1e6
                found.append(at_most(name, peak, limit=most, digits=0, shown="{:.0f}"))
            converged = bool(row.last("converged"))
            found.append(must(f"{case.name}, {method}: converged", converged, True, converged))
    return found


SUITE = Suite(
    cases=cases,
    data=tuple(BUDGETS),
    contestants=METHODS,
    columns=(
        "data",
        ("rows", "n_rows"),
        ("classes", "n_classes"),
        ("method", who),
        ("budget MB", lambda row: megabytes(budget(row))),
        ("training MB", megabytes_of("training")),
        ("interpreter MB", megabytes_of("interpreter training")),
        ("predicting MB", megabytes_of("predicting")),
        ("interpreter MB", megabytes_of("interpreter predicting")),
        "SVs",
        ("seconds", "seconds:.1f"),
        ("accuracy %", "accuracy:.2f"),
    ),
    before=lambda results: f"C {results.options.C:g}",
    limits=limits,
    do="tools.benchmarks.suites.class_memory:measure",
    repeats=1,
    more=(
        ("--memory", {"default": None, "help": "budget of all; default: see above"}),
        ("--C", {"type": float, "default": 8.0}),
        ("--classes", {"type": int, "default": 1000, "help": "of the synthetic set"}),
        ("--rows-per-class", {"type": int, "default": 20}),
    ),
)
