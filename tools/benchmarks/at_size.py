"""Regression and one class on many rows, out of core: sweeps, floors and memory.

    python tools/benchmarks/at_size.py [--rows 1000000] [--memory 500MB]

A store of --rows rows of 20 columns is made from a seed: targets are a smooth function of some
columns and noise, and a hundredth of the rows are far from the others. ``eps-svr`` learns the
targets (the tube leaves about a tenth of the rows outside), ``one-class`` finds the far rows
(ν = 0.01). With the data folder, cpusmall is trained on too. Every run is ``bigsvm train`` in a
process of its own; the million rows are read from disk at every pass.

Checked: it converges, within 6 sweeps, and the process never takes 1 GB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from common import Check, bigsvm_command, machine, megabytes, run_checked, table, verdicts
from data_sets import data_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

N_COLUMNS = 20
MOST_SWEEPS, MOST_BYTES = 6, 10**9
RUNS = {
    "eps-svr": ("--epsilon", 0.33, "--C", 1.0, "--gamma", 0.05),
    "one-class": ("--nu", 0.01, "--gamma", 0.05),
}
CPUSMALL = {
    "eps-svr": ("--epsilon", 2.0, "--C", 20.0, "--gamma", 1.0),
    "one-class": ("--nu", 0.05, "--gamma", 1.0),
}


def rows_and_targets(n_rows: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Make rows (n, 20) and targets (n,)."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_rows, N_COLUMNS), dtype=np.float32)
    rows[:, 5:] *= 0.3
    far = rng.random(n_rows) < 0.01
    rows[far] *= 4
    targets = np.sin(rows[:, 0]) + 0.5 * rows[:, 1] * rows[:, 2]
    return rows, targets + 0.2 * rng.standard_normal(n_rows)


def cpusmall() -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Read cpusmall, if it is there."""
    from sklearn.datasets import load_svmlight_file

    folder = data_folder()
    path = None if folder is None else folder / "cpusmall.scale.libsvm.gz"
    if path is None or not path.exists():
        print("skipped cpusmall: no file of it; name its folder in BIGSVM_DATA", file=sys.stderr)
        return None
    rows, targets = load_svmlight_file(str(path))
    return rows.toarray(), targets


def train(
    store: Path, formulation: str, options: Sequence[object], memory: str, threads: int
) -> tuple[list[str], list[Check]]:
    """Train once; a line of the table and its checks."""
    command = bigsvm_command(
        "train", store, store.with_suffix(".model"), "--formulation", formulation, *options,
        "--memory", memory, "--threads", threads, "--json",
    )  # fmt: skip
    child = run_checked(command, threads=threads)
    a = child.answer
    floors = a["n_kernel_evaluations"] / max(a["n_rows"] * a["n_support"], 1)
    name = f"{store.stem} {formulation}"
    line = [
        name, str(a["n_rows"]), f"{a['seconds']:.1f}", str(a["n_sweeps"]), f"{floors:.2f}",
        str(a["n_support"]), str(a["n_bounded"]), f"{a['gap']:.2e}",
        f"{a['duality_gap'] / max(abs(a['objective']), 1e-300):.1e}", megabytes(child.peak_rss),
    ]  # fmt: skip
    return [str(cell) for cell in line], [
        Check(f"{name}: converged", str(a["converged"]), "True", a["converged"]),
        Check(
            f"{name}: sweeps", str(a["n_sweeps"]), f"≤ {MOST_SWEEPS}", a["n_sweeps"] <= MOST_SWEEPS
        ),
        Check(
            f"{name}: peak RSS, MB",
            megabytes(child.peak_rss),
            "< 1000",
            child.peak_rss < MOST_BYTES,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", default="500MB", help="budget of the runs")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    print(machine(options.threads))
    lines, checks = [], []
    with tempfile.TemporaryDirectory() as folder:
        from bigsvm import write_store

        made = {f"made-{options.rows}": (rows_and_targets(options.rows), RUNS)}
        found = cpusmall()
        if found is not None:
            made["cpusmall"] = (found, CPUSMALL)
        for name, ((rows, targets), runs) in made.items():
            store = Path(folder) / f"{name}.zarr"
            write_store(store, rows, targets)
            for formulation, parameters in runs.items():
                line, checked = train(
                    store, formulation, parameters, options.memory, options.threads
                )
                lines.append(line)
                checks += checked
    head = ["run", "rows", "seconds", "sweeps", "evaluations in floors", "SVs", "bounded"]
    print(table([*head, "KKT gap", "duality gap ÷ objective", "peak RSS MB"], lines))
    print()
    print(verdicts(checks))
    return 0 if all(check.holds for check in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
