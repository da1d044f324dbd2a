"""Very many columns with few entries: conversion, training and prediction within the budget.

    python -m tools.benchmarks many_columns [--rows 100000] [--columns 10000000] [--memory 1GB]

The text resembles documents and is made from a seed: each row has 50 words, 30 of them common and
20 from any column. The common words are divided between the two classes, and most common words of a
row are words of its class. The classes are therefore far apart, and a small part of the rows are
support vectors: the test is of the number of columns, not of data that are hard to learn. The text
is converted, a linear and an rbf machine are trained, and each predicts the rows. Every step is a
separate process, whose peak memory is measured from outside.

The checks: every step succeeds, training converges, predictions are right on more than 9 of 10
rows, and no process takes more than the budget, 40 bytes a row and the interpreter.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import bigsvm_command, machine, run_checked, run_child
from tools.benchmarks.results import (
    at_least,
    at_most,
    memory_limit,
    must,
    table,
    verdicts,
)

if TYPE_CHECKING:
    import argparse

    from tools.benchmarks.children import Finished

ENTRIES, COMMON_ENTRIES, COMMON_WORDS = 50, 30, 2000
OWN_SHARE = 0.8
"""Share of a row's common words that are words of its class."""
ROWS_AT_ONCE = 1000
LEAST_ACCURACY = 0.9
KERNELS = {"linear": ("--C", 0.1), "rbf": ("--C", 2, "--gamma", 0.02)}


class Step(NamedTuple):
    """One command, and how it ended."""

    name: str
    child: Finished


def write_text(path: Path, *, n_rows: int, n_columns: int) -> None:
    """Write the text, some thousand rows at a time."""
    import numpy as np

    rng = np.random.default_rng(0)
    common = rng.choice(n_columns, COMMON_WORDS, replace=False).reshape(2, -1)
    chance = 1 / np.arange(1.0, COMMON_WORDS // 2 + 1) ** 0.7
    chance /= chance.sum()
    with path.open("w") as file:
        for start in range(0, n_rows, ROWS_AT_ONCE):
            n = min(ROWS_AT_ONCE, n_rows - start)
            label = rng.integers(0, 2, n)
            is_own = rng.random((n, COMMON_ENTRIES)) < OWN_SHARE
            class_of_word = np.where(is_own, label[:, None], 1 - label[:, None])
            words = rng.choice(len(chance), is_own.shape, p=chance)
            rare = rng.integers(0, n_columns, (n, ENTRIES - COMMON_ENTRIES))
            columns = np.hstack([common[class_of_word, words], rare]) + 1
            for i in range(n):
                entries = " ".join(f"{column}:1" for column in np.unique(columns[i]))
                file.write(f"{2 * label[i] - 1} {entries}\n")
        file.write(f"1 {n_columns}:1\n")


def run_all(folder: Path, text: Path, memory: str, threads: int) -> list[Step]:
    """Convert, train and predict."""
    store = folder / "rows.zarr"
    steps = [("convert", bigsvm_command("convert", text, store, "--memory", memory, "--json"))]
    for kernel, options in KERNELS.items():
        model = folder / f"{kernel}.safetensors"
        shared = ("--memory", memory, "--threads", threads, "--json")
        steps += [
            (f"train {kernel}", bigsvm_command(
                "train", store, model, "--kernel", kernel, *options, *shared)),
            (f"predict {kernel}", bigsvm_command("predict", store, model, *shared)),
        ]  # fmt: skip
    found = []
    for name, command in steps:
        found.append(Step(name, run_checked(command, threads=threads)))
        print(f"{name}: {found[-1].child.seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def _millions(n: int | None) -> str:
    return "" if n is None else f"{n / 1e6:.0f}"


def run(options: argparse.Namespace) -> int:
    """Run every step; 1 where something does not hold."""
    from bigsvm.budget import parse_bytes

    print(machine(options.threads))
    interpreter = run_child(
        [sys.executable, "-c", "import bigsvm.cli, bigsvm.fit.train, zarr, dask.array"],
        threads=options.threads,
    ).peak_rss
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        text = folder / "rows.libsvm"
        write_text(text, n_rows=options.rows, n_columns=options.columns)
        steps = run_all(folder, text, options.memory, options.threads)
    budget = parse_bytes(options.memory)
    limit = memory_limit(budget, n_rows=options.rows, baseline=interpreter) / 1e6
    lines, checks = [], []
    for name, child in steps:
        a, peak = child.answer, child.peak_rss / 1e6
        lines.append(
            [
                name, f"{child.seconds:.1f}", f"{peak:.0f}", str(a.get("n_support", "")),
                _millions(a.get("n_kernel_evaluations")), str(a.get("accuracy") or ""),
            ]
        )  # fmt: skip
        checks.append(
            at_most(f"{name}: peak RSS, MB", peak, limit=limit, digits=0, shown="≤ {:.0f}")
        )
        if name.startswith("train"):
            checks.append(must(f"{name}: converged", a["converged"], True, bool(a["converged"])))
        if name.startswith("predict"):
            right = float(a["accuracy"])
            checks.append(at_least(f"{name}: accuracy", right, limit=LEAST_ACCURACY, digits=4))
    print(f"{options.rows} rows, {options.columns} columns, {ENTRIES} entries a row")
    names = ["step", "seconds", "peak RSS MB", "SVs", "million evaluations", "accuracy"]
    print(table(names, lines))
    print(f"\n{verdicts(checks)}")
    return 0 if all(all(check.holds) for check in checks) else 1


SUITE = Suite(
    program=run,
    memory="1GB",
    more=(
        ("--rows", {"type": int, "default": 100_000}),
        ("--columns", {"type": int, "default": 10_000_000}),
    ),
)
