"""Print what a first run on a machine compiles, and for how long, by formulation.

    python -m tools.compilation [FORMULATION …] [--functions] [--output FILE]

Each run is a process of its own with an empty folder for compiled code, and one thread. Seconds are
CPU time of the process, so that other programs on the machine hardly change them. A second process
with the same folder shows what is left when the code is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = {
    "c-svc": "bigsvm.SVC()",
    "c-svc, sparse": "bigsvm.SVC()",
    "c-svc, 3 classes": "bigsvm.SVC()",
    "c-svc, 3 classes, ovr": "bigsvm.SVC(multiclass='ovr')",
    "squared hinge": "bigsvm.SVC(loss='squared_hinge')",
    "nu-svc": "bigsvm.NuSVC(nu=0.3)",
    "l2-svc": "bigsvm.L2SVC()",
    "crammer-singer": "bigsvm.CrammerSingerSVC()",
    "one-class": "bigsvm.OneClassSVM(nu=0.2)",
    "l2-one-class": "bigsvm.L2OneClassSVM()",
    "eps-svr": "bigsvm.SVR()",
    "nu-svr": "bigsvm.NuSVR()",
}
"""Names of the runs, and their estimators."""

CHILD = """
import json, sys, time
import numpy as np
import scipy.sparse as sp
import bigsvm
from numba.core import event
from tools.compilation import ROWS

name, estimator = sys.argv[1:]
machine = eval(estimator)
X = np.random.default_rng(0).normal(size=(ROWS, 8))
y = np.digitize(X[:, 0], [-0.5, 0.5]) if "3 classes" in name or "crammer" in name else X[:, 0] > 0
y = X[:, 0] if "svr" in name else y
X = sp.csr_matrix(X) if "sparse" in name else X

class Watch(event.Listener):
    def __init__(self):
        self.stack, self.functions = [], []

    def on_start(self, event):
        self.stack.append([time.process_time(), 0.0])

    def on_end(self, event):
        began, inside = self.stack.pop()
        spent = time.process_time() - began
        if self.stack:
            self.stack[-1][1] += spent
        function = event.data["dispatcher"].py_func
        self.functions.append((
            f"{function.__module__.removeprefix('bigsvm.core.')}.{function.__qualname__}",
            str(event.data["args"]), spent - inside,
        ))

watch = Watch()
began = time.process_time()
with event.install_listener("numba:compile", watch):
    machine.set_params(n_jobs=1).fit(X, y)
print(json.dumps({"seconds": time.process_time() - began, "functions": watch.functions}))
"""
ROWS = 2000
"""Rows of a run: few, as training itself is not what is measured."""


def measured(name: str, estimator: str, folder: str) -> dict:
    """Train in a process of its own that keeps its compiled code in a folder."""
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1", "BIGSVM_SMALL": "never",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, name, estimator],
        capture_output=True, text=True, check=True, env=environment,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return json.loads(ended.stdout)


def table(names: list[str], *, functions: bool) -> str:
    """Measure the runs, and return a table with a line for each."""
    lines = [
        "CPU seconds of the first fit on a machine, and of one that loads the compiled code.",
        "",
        f"{'':22} {'functions':>9} {'compiling':>9} {'first fit':>9} {'later fit':>9}",
    ]
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            first = measured(name, RUNS[name], folder)
            later = measured(name, RUNS[name], folder)
        compiling = sum(seconds for *_, seconds in first["functions"])
        lines.append(
            f"{name:22} {len(first['functions']):9} {compiling:9.1f} {first['seconds']:9.1f} "
            f"{later['seconds']:9.1f}"
        )
        if functions:
            ordered = sorted(first["functions"], key=lambda function: -function[2])
            lines += [f"    {s:6.2f}  {function}  {args}" for function, args, s in ordered]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("formulations", nargs="*", default=list(RUNS), help=f"of {', '.join(RUNS)}")
    parser.add_argument("--functions", action="store_true", help="list each compiled function")
    parser.add_argument("--output", type=Path, help="append the table to this file")
    given = parser.parse_args()
    text = table(given.formulations, functions=given.functions)
    print(text, end="")
    if given.output:
        with given.output.open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
