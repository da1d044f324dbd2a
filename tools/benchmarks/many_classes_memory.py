"""``many_classes.py memory``: 26 and 1000 classes, trained and predicted in a budget.

letter is its training part, 15 000 rows of 26 classes; the synthetic set is made from a seed:
--classes classes of --rows-per-class rows x 32, each about a random point of a cube. Every
``bigsvm train`` of a store and every ``bigsvm predict`` of the same rows is a process of its own,
whose resident set is watched from outside. Gamma is 1 / (columns · variance).

memory   the peak of every training is at most the budget + 40 bytes a row + what the interpreter
         takes for a store of a few rows of three classes, trained by the same method under the
         same budget
predict  the peak of every prediction is at most the same, its interpreter that of a prediction by
         the model of the few rows. ``predict`` is given no budget: the model and some blocks are
         in memory, and never the values of all functions of all rows
whole    every training converges
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from common import (
    Check,
    Finished,
    bigsvm_command,
    machine,
    megabytes,
    memory_limit,
    run_checked,
    table,
    verdicts,
)
from many_classes_common import is_there
from timed_fits import say

from bigsvm.budget import parse_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

BUDGETS = {"letter": "100MB", "synthetic": "1GB"}
"""Less than a tenth of the kernel matrix of letter. Alone the variables and outputs of 20 000 rows
and 1000 functions that are trained together are a third of a gigabyte."""
TINY_CLASSES, TINY_ROWS = 3, 100
"""Of the store that tells what the interpreter takes; rows of each class."""


class Runs(NamedTuple):
    """A training and a prediction by its model."""

    trained: Finished
    predicted: Finished


class Measured(NamedTuple):
    """What a method took of a data set, and what it took of the few rows.

    Attributes
    ----------
    name, method : str
    n_rows, n_classes, budget : int
    runs, tiny : Runs
    """

    name: str
    method: str
    n_rows: int
    n_classes: int
    budget: int
    runs: Runs
    tiny: Runs

    @property
    def limits(self) -> Runs:
        """Bytes that training and prediction may take, in their places."""
        return Runs(
            *(
                memory_limit(self.budget, n_rows=self.n_rows, baseline=run.peak_rss)
                for run in self.tiny
            )
        )


def store_of(path: Path, what: Sequence[object], threads: int) -> Path:
    """Make a store unless it is there."""
    if not path.exists():
        script = Path(__file__).with_name("many_classes_once.py")
        name, *shape = what
        run_checked(
            [sys.executable, str(script), "store", str(name), str(path), *map(str, shape)],
            threads=threads,
        )
    return path


def train_command(
    store: Path, model: Path, method: str, budget: str, options: argparse.Namespace
) -> list[str]:
    """Give the command that trains by a method."""
    kind = ("--formulation", method) if method == "crammer-singer" else ("--multiclass", method)
    return bigsvm_command(
        *("train", store, model, *kind, "--C", options.C, "--gamma", "scale", "--tol", 1e-3),
        *("--memory", budget, "--threads", options.threads, "--json"),
    )


def train_and_predict(
    store: Path, method: str, budget: str, options: argparse.Namespace, work: Path
) -> Runs:
    """Train in a fresh folder, then predict the rows of the store."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model = work / "model.safetensors"
    trained = run_checked(
        train_command(store, model, method, budget, options), threads=options.threads
    )
    predicted = run_checked(
        bigsvm_command(
            *("predict", store, model, "--output", work / "labels.txt"),
            *("--threads", options.threads, "--json"),
        ),
        threads=options.threads,
    )
    return Runs(trained, predicted)


def measure(folder: Path, name: str, options: argparse.Namespace) -> list[Measured]:
    """Run each method on a data set."""
    tiny = store_of(folder / "few.zarr", ("synthetic", TINY_CLASSES, TINY_ROWS), options.threads)
    what: tuple[object, ...] = ("letter",)
    if name == "synthetic":
        what = ("synthetic", options.classes, options.rows_per_class)
    store = store_of(folder / f"{'-'.join(map(str, what))}.zarr", what, options.threads)
    budget = options.memory or BUDGETS[name]
    n_rows, n_classes = shape_of(store)
    found = []
    for method in options.methods:
        # The first one compiles, which takes memory of its own.
        few = [train_and_predict(tiny, method, budget, options, folder / "few") for _ in range(2)]
        runs = train_and_predict(store, method, budget, options, folder / f"{name}-{method}")
        found.append(Measured(name, method, n_rows, n_classes, parse_bytes(budget), runs, few[-1]))
        say(
            f"  {name}, {method}: peak {megabytes(runs.trained.peak_rss)} MB training in "
            f"{runs.trained.seconds:.1f} s, {megabytes(runs.predicted.peak_rss)} MB predicting"
        )
    return found


def shape_of(store: Path) -> tuple[int, int]:
    """Rows and classes of a store."""
    from bigsvm import open_store

    labels = open_store(store).labels()
    return len(labels), len(set(labels.tolist()))


HEADER = (
    *("data", "rows", "classes", "method", "budget MB", "training MB", "interpreter MB"),
    *("predicting MB", "interpreter MB", "SVs", "seconds", "accuracy %"),
)


def line(m: Measured) -> list[str]:
    """Lay out a method on a data set; the accuracy is that of the rows it was trained on."""
    answer: dict[str, Any] = m.runs.trained.answer
    accuracy = m.runs.predicted.answer.get("accuracy")
    return [
        *(m.name, str(m.n_rows), str(m.n_classes), m.method, megabytes(m.budget)),
        *(megabytes(m.runs.trained.peak_rss), megabytes(m.tiny.trained.peak_rss)),
        *(megabytes(m.runs.predicted.peak_rss), megabytes(m.tiny.predicted.peak_rss)),
        *(str(answer["n_support"]), f"{answer['seconds']:.1f}"),
        "-" if accuracy is None else f"{100 * accuracy:.2f}",
    ]


def checks(m: Measured) -> list[Check]:
    """Hold peaks against budget and interpreter."""
    found = []
    for what, run, limit in (
        ("training", m.runs.trained, m.limits.trained),
        ("predicting", m.runs.predicted, m.limits.predicted),
    ):
        peak = run.peak_rss
        found.append(
            Check(
                f"{m.name}, {m.method}, {what}: peak RSS, MB",
                megabytes(peak),
                megabytes(limit),
                peak <= limit,
            )
        )
    converged = m.runs.trained.answer["converged"] is True
    found.append(Check(f"{m.name}, {m.method}: converged", str(converged), "True", converged))
    return found


def run(options: argparse.Namespace) -> int:
    """Measure the data sets that are there."""
    names = [name for name in options.data if name == "synthetic" or is_there(name)]
    if not names:
        return 0
    print(machine(options.threads), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measured = [m for name in names for m in measure(folder, name, options)]
    found = [check for m in measured for check in checks(m)]
    print(f"C {options.C:g}\n\n{table(HEADER, [line(m) for m in measured])}\n\n{verdicts(found)}")
    return 0
