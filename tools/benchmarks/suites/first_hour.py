"""What a newcomer waits for: small fits beside scikit-learn's, and the first processes.

    python -m tools.benchmarks first_hour [--repeats 9]

fits       Two classes of 20 columns (``sklearn.datasets.make_classification``), and iris. bigsvm
           and scikit-learn take turns in one process of one thread; the least CPU time of each is
           shown, and theirs ÷ ours.
processes  CPU seconds of a process that imports, fits and predicts iris, and of ``bigsvm
           svm-train -q`` of 270 rows: once with an empty folder for compiled code, and again with
           what that left. scikit-learn's process does the same with its own class.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import environment, machine, run_checked
from tools.benchmarks.results import Limit, at_least, at_most, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

LEAST: dict[Any, float] = {
    "iris": 0.5,
    100: 0.5,
    500: 0.6,
    750: 0.75,
    1000: 0.75,
    1500: 0.85,
    2000: 0.85,
    5000: 2.0,
}
"""Least of scikit-learn's time ÷ ours, for iris and by rows."""
MOST_OF_A_ROW = 0.25e-3
"""Most seconds of predicting one row of iris."""
IRIS = """
from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
from {package} import SVC
SVC().fit(X, y).predict(X)
"""
FIRST, LATER, TRAINING, TRAINING_LATER = 2.5, 0.3, 3.0, 1.7
"""Most CPU seconds: of a first process, of a later one beyond scikit-learn's, and of svm-train."""


def least_of(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Least CPU seconds of each call; they take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - began)
    return least


def fits(repeats: int) -> dict[str, Any]:
    """Time fits of some sizes, and the prediction of one row of iris."""
    from sklearn import svm
    from sklearn.datasets import load_iris, make_classification

    import bigsvm

    warnings.simplefilter("ignore")
    found = []
    iris = load_iris(return_X_y=True)
    for what in LEAST:
        X, y = iris if what == "iris" else make_classification(what, 20, random_state=0)
        for C in (1.0, 100.0):
            ours, theirs = bigsvm.SVC(C=C, n_jobs=1), svm.SVC(C=C)
            calls = {"ours": partial(ours.fit, X, y), "theirs": partial(theirs.fit, X, y)}
            least = least_of(calls, repeats)
            found.append([what, C, least["ours"], least["theirs"], ours.certificate_["solver"]])
    predict = partial(bigsvm.SVC().fit(*iris).predict, iris[0][:1])
    return {"fits": found, "row": least_of({"ours": predict}, 100 * repeats)["ours"]}


def process_seconds(words: list[str], folder: str) -> float:
    """CPU seconds of a process that keeps its compiled code in a folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    kept = {**environment(1), "NUMBA_CACHE_DIR": folder}
    subprocess.run(words, check=True, env=kept, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def processes(repeats: int) -> list[Limit]:
    """Time the first processes of a machine, and later ones."""
    from sklearn.datasets import dump_svmlight_file, make_classification

    with tempfile.TemporaryDirectory() as name:
        rows = str(Path(name) / "rows")
        dump_svmlight_file(*make_classification(270, 13, random_state=0), rows, zero_based=False)
        python = [sys.executable, "-c"]
        ours, theirs = ([*python, IRIS.format(package=p)] for p in ("bigsvm", "sklearn.svm"))
        train = [sys.executable, "-m", "bigsvm", "svm-train", "-q", rows, str(Path(name) / "model")]
        process_seconds(theirs, name)  # so that files are in the system's cache
        first = [process_seconds(words, str(Path(name) / "c")) for words in (ours, train)]
        later, trained, peer = (
            min(process_seconds(words, str(Path(name) / "c")) for _ in range(repeats))
            for words in (ours, train, theirs)
        )
    return [
        at_most("iris, first process, s", first[0], limit=FIRST),
        at_most("iris, later process beyond scikit-learn's, s", later - peer, limit=LATER),
        at_most("svm-train, first process, s", first[1], limit=TRAINING),
        at_most("svm-train, later process, s", trained, limit=TRAINING_LATER),
    ]


def program(options: argparse.Namespace) -> int:
    """Print the table and the limits."""
    call = f"import json; from {__name__} import fits; print(json.dumps(fits({options.repeats})))"
    answer = run_checked([sys.executable, "-c", call], threads=1).answer
    lines, limits = [], []
    for what, C, ours, theirs, solver in answer["fits"]:
        ratio = theirs / ours
        lines.append([what, C, f"{1e3 * ours:.2f}", f"{1e3 * theirs:.2f}", f"{ratio:.2f}", solver])
        limits.append(at_least(f"{what}, C {C:g}: theirs ÷ ours", ratio, limit=LEAST[what]))
    limits.append(at_most("ms of one row of iris", 1e3 * answer["row"], limit=1e3 * MOST_OF_A_ROW))
    limits += processes(min(options.repeats, 5))
    header = ["rows", "C", "bigsvm, ms", "scikit-learn, ms", "theirs ÷ ours", "solver"]
    print(f"{machine(1)}\n\n{table(header, lines)}\n\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1


SUITE = Suite(
    program=program,
    memory=None,
    threads=1,
    folder=False,
    more=(("--repeats", {"type": int, "default": 9}),),
)
