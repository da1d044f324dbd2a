"""Very many columns with few entries: conversion, training and prediction within the budget.

    python tools/benchmarks/many_columns.py [--rows 100000] [--columns 10000000] [--memory 1GB]

The text resembles documents and is made from a seed: each row has 50 entries, 30 in common columns
and 20 in any column. The label depends on the common columns. The text is converted, a linear and
an rbf machine are trained, and each predicts the rows. Every step is a separate process, whose peak
memory is measured from outside.

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
    common = np.sort(rng.choice(n_columns, COMMON_WORDS, replace=False))
    weight = rng.standard_normal(COMMON_WORDS)
    chance = 1 / np.arange(1.0, COMMON_WORDS + 1) ** 0.7
    chance /= chance.sum()
    with path.open("w") as file:
        for _ in range(n_rows):
            words = rng.choice(COMMON_WORDS, COMMON_ENTRIES, p=chance)
            label = 1 if weight[np.unique(words)].sum() > 0 else -1
            rare = rng.integers(0, n_columns, ENTRIES - COMMON_ENTRIES)
            columns = np.unique(np.concatenate([common[words], rare])) + 1
            file.write(f"{label} " + " ".join(f"{column}:1" for column in columns) + "\n")
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
            str(a.get("n_support", "")), str(a.get("accuracy") or ""),
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
    print(table(["step", "seconds", "peak RSS MB", "SVs", "accuracy"], lines))
    print()
    print(verdicts(checks))
    return 0 if all(check.holds for check in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
