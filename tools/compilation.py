"""Print what a first fit on a machine compiles, and for how long, by estimator and kind of rows.

    python -m tools.compilation [ESTIMATOR …] [--rows KIND …] [--functions] [--output FILE]

Each fit is a process of its own with an empty folder for compiled code, and one thread. Seconds are
CPU time of the process; on a busy machine they are more, as processors share caches.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUNS = {
    "c-svc": "bigsvm.SVC()",
    "c-svc, 3 classes": "bigsvm.SVC()",
    "c-svc, 3 classes, ovr": "bigsvm.SVC(multiclass='ovr')",
    "squared hinge": "bigsvm.SVC(loss='squared_hinge')",
    "nu-svc": "bigsvm.NuSVC(nu=0.3)",
    "nu-svc, 3 classes": "bigsvm.NuSVC(nu=0.1)",
    "l2-svc": "bigsvm.L2SVC()",
    "l2-svc, cvm": "bigsvm.L2SVC(solver='cvm')",
    "l2-svc, fw": "bigsvm.L2SVC(solver='fw', ball_tol=0.01)",
    "crammer-singer": "bigsvm.CrammerSingerSVC()",
    "one-class": "bigsvm.OneClassSVM(nu=0.2)",
    "l2-one-class": "bigsvm.L2OneClassSVM()",
    "eps-svr": "bigsvm.SVR()",
    "nu-svr": "bigsvm.NuSVR()",
}
"""Names of the estimators of the table, and how they are made."""
KINDS = ("dense", "csr", "whole", "0/1")
"""Kinds of rows: float64; CSR; CSR of whole numbers up to 255; CSR of zeros and ones."""
BIG = 20_000
"""Rows of the fit that `MOST_OF_FIRST` is about: two classes, dense."""
MOST_OF_FIRST, MOST_OF_ANY = 7.0, 14.0
"""Limits in CPU seconds of compiling: of the first big fit, and of any estimator."""

CHILD = """
import json, sys, time
import numpy as np
import bigsvm
from numba.core import event
from tools.compilation import rows_of

name, kind, n_rows, estimator = sys.argv[1:]
machine = eval(estimator)
X, y = rows_of(name, kind, int(n_rows))

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
"""Rows of a fit: few, as training itself is not what is measured."""


def rows_of(name: str, kind: str, n_rows: int) -> tuple[Any, Any]:
    """Make rows of a kind, and labels or targets for an estimator of the table."""
    import numpy as np
    import scipy.sparse as sp

    drawn = np.random.default_rng(0).normal(size=(n_rows, 8))
    signal = drawn[:, 0]
    X: Any = drawn
    if kind == "csr":
        X = sp.csr_matrix(np.where(drawn > -1.0, drawn, 0.0))
    elif kind == "whole":
        X = sp.csr_matrix(np.clip((10 * drawn).round(), 0, 255))
    elif kind == "0/1":
        X = sp.csr_matrix((drawn > 0.0).astype(np.float64))
    if "svr" in name:
        return X, signal
    is_many = "3 classes" in name or "crammer" in name
    return X, np.digitize(signal, [-0.5, 0.5]) if is_many else signal > 0


def measured(name: str, folder: str, *, kind: str = "dense", n_rows: int = ROWS) -> dict[str, Any]:
    """Train in a process of its own that keeps its compiled code in a folder."""
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1", "BIGSVM_SMALL": "never",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, name, kind, str(n_rows), RUNS[name]],
        capture_output=True, text=True, check=True, env=environment,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def first_fit(name: str, kind: str, n_rows: int = ROWS) -> list[tuple[str, str, float]]:
    """Return the functions that a first fit compiles: name, arguments and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        functions = measured(name, folder, kind=kind, n_rows=n_rows)["functions"]
    return [(function, given, seconds) for function, given, seconds in functions]


def seconds_of(functions: list[tuple[str, str, float]]) -> float:
    """Add the seconds of functions up."""
    return sum(seconds for *_, seconds in functions)


def listed(functions: list[tuple[str, str, float]]) -> list[str]:
    """Return a line for each function, the slowest first."""
    ordered = sorted(functions, key=lambda function: -function[2])
    return [f"    {seconds:6.2f}  {name}  {given}" for name, given, seconds in ordered]


def judged(seconds: float, limit: float) -> str:
    """Say whether seconds are within a limit."""
    return f"{seconds:.1f} s, at most {limit:g}: {'holds' if seconds <= limit else 'does not'}"


def table(names: list[str], kinds: list[str], *, functions: bool) -> str:
    """Measure first fits, and return a table with a line for each estimator, and the limits."""
    lines = [
        "What a first fit on a machine compiles: functions, and CPU seconds of compiling them.",
        "",
        " " * 22 + "".join(f"{kind:>14}" for kind in kinds),
    ]
    most = (0.0, "")
    for name in names:
        cells, detail = [], []
        for kind in kinds:
            compiled = first_fit(name, kind)
            seconds = seconds_of(compiled)
            cells.append(f"{len(compiled):8}{seconds:6.1f}")
            most = max(most, (seconds, f"{name}, {kind}"))
            detail += [f"  {kind}", *listed(compiled)] if functions else []
        lines += [f"{name:22}" + "".join(cells), *detail]
    compiled = first_fit("c-svc", "dense", BIG)
    first = judged(seconds_of(compiled), MOST_OF_FIRST)
    lines += ["", f"c-svc, {BIG} dense rows, {len(compiled)} functions: {first}"]
    lines += listed(compiled) if functions else []
    lines.append(f"the most of the table, {most[1]}: {judged(most[0], MOST_OF_ANY)}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("estimators", nargs="*", default=list(RUNS), help=f"of {', '.join(RUNS)}")
    parser.add_argument("--rows", nargs="+", choices=KINDS, default=list(KINDS), help="their kind")
    parser.add_argument("--functions", action="store_true", help="list each compiled function")
    parser.add_argument("--output", type=Path, help="write the table to this file as well")
    given = parser.parse_args()
    text = table(given.estimators, given.rows, functions=given.functions)
    print(text, end="")
    if given.output:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
