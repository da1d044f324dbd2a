"""Very many columns with few entries: conversion, training and prediction within the budget.

    python tools/benchmarks/many_columns.py [--rows 100000] [--columns 10000000] [--memory 1GB]

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

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common import (
    Check,
    bigsvm_command,
    machine,
    megabytes,
    run_checked,
    run_child,
    table,
    verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common import Finished

ENTRIES, COMMON_ENTRIES, COMMON_WORDS = 50, 30, 2000
OWN_SHARE = 0.8
"""Share of a row's common words that are words of its class."""
ROWS_AT_ONCE = 1000
BYTES_PER_ROW = 40
"""Bytes that a run may keep per row besides its budget."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=10_000_000)
    parser.add_argument("--memory", default="1GB", help="budget of each step")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    print(machine(options.threads))
    interpreter = run_child(
        [sys.executable, "-c", "import bigsvm.cli, bigsvm.estimators.fitting, zarr, dask.array"],
        threads=options.threads,
    ).peak_rss
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "rows.libsvm"
        write_text(text, n_rows=options.rows, n_columns=options.columns)
        steps = run_all(folder, text, options.memory, options.threads)
    from bigsvm.budget import parse_bytes

    limit = parse_bytes(options.memory) + BYTES_PER_ROW * options.rows + interpreter
    lines, checks = [], []
    for name, child in steps:
        a, peak = child.answer, megabytes(child.peak_rss)
        lines.append([
            name, f"{child.seconds:.1f}", peak,
            str(a.get("n_support", "")), _millions(a.get("n_kernel_evaluations")),
            str(a.get("accuracy") or ""),
        ])  # fmt: skip
        within = child.peak_rss <= limit
        checks.append(Check(f"{name}: peak RSS, MB", peak, f"≤ {megabytes(limit)}", within))
        if name.startswith("train"):
            converged = bool(a["converged"])
            checks.append(Check(f"{name}: converged", str(converged), "True", converged))
        if name.startswith("predict"):
            right = float(a["accuracy"])
            checks.append(Check(
                f"{name}: accuracy", f"{right:.4f}", f"> {LEAST_ACCURACY}", right > LEAST_ACCURACY
            ))  # fmt: skip
    print(f"{options.rows} rows, {options.columns} columns, {ENTRIES} entries a row")
    names = ["step", "seconds", "peak RSS MB", "SVs", "million evaluations", "accuracy"]
    print(table(names, lines))
    print()
    print(verdicts(checks))
    return 0 if all(check.holds for check in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
