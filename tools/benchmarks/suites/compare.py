"""Other ways to the same job, side by side: time and memory by rows, accuracy by time.

    python -m tools.benchmarks compare [--write] [--sizes 2000 …] [--data a9a …] [--give-up 60]

bigsvm           ``SVC`` on arrays in memory
bigsvm store     ``SVC`` on a store on disk, in --memory
bigsvm sampled   ``SVC(certify=False)``: training on a growing part of the rows; from 9000 rows on,
                 as fewer are all trained on
scikit-learn, scikit-learn-intelex
                 ``SVC``, cache 200 MB: float64 and CSR as it copies rows to them, and float32
LIBSVM           its own Python interface, where it is installed
ThunderSVM       ``SVC`` of its package for processors, thundersvm-cpu, where it is installed
LIBLINEAR        ``LinearSVC`` on columns divided by their largest value: no kernel, C 1
Nystroem 300, Nystroem 1000
                 ``LinearSVC`` on so many features of scikit-learn's ``Nystroem``, which
                 approximate the kernel

All but LIBLINEAR have the same kernel, C and gamma; the SVC have the same tolerance. Made rows are
those of the family `few` of `synthetic`, 22 columns. What takes longer than --give-up seconds is
stopped, and asked for no larger size. So is a library that fails, and a line has its message.
Accuracy is that of the first --tested rows of the test part. Peak memory is that of the process
when its fit ends, interpreter and rows included; where nothing else is said, rows are in memory. A
contestant that is not installed is skipped, and a line says so.

With --write, what is printed becomes ``tools/benchmarks/compare.txt``, and `tools.comparison`
writes the tables and pictures of docs/comparison.md.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks import bench
from tools.benchmarks.bench import Suite
from tools.benchmarks.children import FIT_ENDED, ChildFailed, machine
from tools.benchmarks.data import data_set, made
from tools.benchmarks.results import case_of, noise

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tools.benchmarks.children import Finished
    from tools.benchmarks.results import Case, Column, Results

LIBRARIES = {
    "scikit-learn": "sklearn.svm", "scikit-learn-intelex": "sklearnex.svm",
    "LIBSVM": "libsvm.svmutil", "ThunderSVM": "thundersvm",
}  # fmt: skip
"""Modules, by what the tables call them."""
NYSTROEM = "Nystroem"
CONTESTANTS = (
    "bigsvm", "bigsvm store", "bigsvm sampled", *LIBRARIES,
    "LIBLINEAR", f"{NYSTROEM} 300", f"{NYSTROEM} 1000",
)  # fmt: skip
SIZES, FAMILY = (2000, 10_000, 50_000, 200_000), "few"
WARM_ROWS = 9000
"""With fewer rows no part of them can be tried first, which `certify=False` is refused for."""
WRITTEN = Path(__file__).resolve().parents[1] / "compare.txt"


def contestant(job: dict[str, Any]) -> Any:  # noqa: ANN401 (an estimator of any library)
    """Make the estimator of a job."""
    from tools.benchmarks.contestants import CACHE_MEGABYTES, TOL, Libsvm, threads

    who, given = job["who"], job["parameters"]
    if who.startswith("bigsvm"):
        import bigsvm

        more = {"memory": job["memory"]} if who == "bigsvm store" else {}
        certify = who != "bigsvm sampled"
        return bigsvm.SVC(**given, tol=TOL, n_jobs=threads(), certify=certify, **more)
    if who in LIBRARIES:
        svc = {**given, "tol": TOL, "cache_size": CACHE_MEGABYTES}
        if who == "LIBSVM":
            return Libsvm(**svc)
        from importlib import import_module

        return import_module(LIBRARIES[who]).SVC(**svc)
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler
    from sklearn.svm import LinearSVC

    if who == "LIBLINEAR":
        return make_pipeline(MaxAbsScaler(), LinearSVC(C=1.0))
    n = int(who.removeprefix(f"{NYSTROEM} "))
    features = Nystroem(gamma=given["gamma"], n_components=n, random_state=0)
    return make_pipeline(features, LinearSVC(C=given["C"]))


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, after a small fit that loads and compiles; then test."""
    import warnings

    import numpy as np
    import scipy.sparse as sp

    from tools.benchmarks.contestants import own_solver, read_rows, timed
    from tools.benchmarks.data import DataSet, data_folder, load

    warnings.simplefilter("ignore")  # who is stopped says so in the table
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    dtype = np.float64 if job["who"] in ("scikit-learn", "LIBSVM") else np.float32
    x = x.astype(dtype, copy=False)
    few = slice(WARM_ROWS if job["who"].startswith("bigsvm") else 1000)
    with own_solver():
        contestant(job).fit(x[few], y[few])
    model, rows = contestant(job), (x, y)
    if job["who"] == "bigsvm store":
        from bigsvm import open_store

        del x
        rows = (open_store(Path(job["folder"]) / f"{job['name']}.{job['layout']}.zarr"),)
    answer = timed(_Counted(model), *rows)
    print(FIT_ENDED, flush=True)  # LIBSVM's interface takes long to predict
    data = DataSet(job["name"], job["n_columns"], positive=tuple(job["positive"]),
                   n_made=job["n_made"])  # fmt: skip
    test_x, test_y = load(data, data_folder(), test=True)
    test_x, test_y = test_x[: job["tested"]].astype(dtype), test_y[: job["tested"]]
    if sp.issparse(test_x) and job["layout"] == "dense":
        test_x = test_x.toarray()
    return answer | {"accuracy": 100 * float(model.score(test_x, test_y))}


class _Counted:
    """An estimator with `support_`, as `timed` reads: linear ones have none."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model

    def fit(self, *rows: Any) -> None:  # noqa: ANN401
        self._model.fit(*rows)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "support_" and not hasattr(self._model, name):
            return ()
        return getattr(self._model, name)


COLUMNS: tuple[Column, ...] = (
    "data", "rows", "who", "seconds", "peak RSS MB", "test accuracy %",
    ("SVs", lambda row: row.last("n_support") or "-"),
)  # fmt: skip


def size_cases(options: argparse.Namespace) -> list[Case]:
    return [case_of(made(FAMILY, n)) for n in options.sizes]


def set_cases(options: argparse.Namespace) -> list[Case]:
    return [case_of(data_set(name)) for name in options.data]


def takes_part(name: str, case: Case, options: argparse.Namespace) -> bool:
    return name != "bigsvm sampled" or case.facts["n_rows"] >= WARM_ROWS


def inner(cases: Any, *, growing: bool) -> Suite:  # noqa: ANN401 (as Suite has it)
    """Describe one of the two halves."""
    return Suite(
        cases=cases, contestants=CONTESTANTS, columns=COLUMNS, growing=growing, stores=True,
        takes_part=takes_part, layout="suitable", repeats=1,
        do="tools.benchmarks.suites.compare:fit",
    )  # fmt: skip


def half(suite: Suite, options: argparse.Namespace) -> Results:
    """Measure one half."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        turns = Turns(suite, options, Path(folder))
        results = turns.measure()
    return results._replace(notes=(*results.notes, *turns.failed))


class Turns(bench.Bench):
    """Tells contestants how many rows are tested, and goes on where another library fails.

    Attributes
    ----------
    failed : list of str
        A sentence on each failure. The run is told as one that was stopped then.
    """

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 (of the base class)
        super().__init__(*given)
        self.failed: list[str] = []

    def _job(self, job: Mapping[str, Any], **options: Any) -> Finished:  # noqa: ANN401 (as its original)
        try:
            return super()._job(job, **options)
        except ChildFailed as failure:
            if job.get("who") not in LIBRARIES:
                raise
            said = failure.finished.stderr.strip().splitlines() or ["no message"]
            self.failed.append(f"{job['who']} failed on {job['name']}: {said[-1].strip()}")
            return failure.finished._replace(gave_up=True)

    def _described(self, case: Case, name: str, layout: str, turn: int = 0) -> dict[str, Any]:
        return super()._described(case, name, layout, turn) | {"tested": self.options.tested}


def missing(names: Sequence[str]) -> list[str]:
    """Name the contestants that cannot be imported here."""
    from importlib.util import find_spec

    modules = {name: LIBRARIES[name].partition(".")[0] for name in names if name in LIBRARIES}
    return [name for name, module in modules.items() if find_spec(module) is None]


def run(options: argparse.Namespace) -> int:
    """Measure both halves, and print them; write page and pictures where that is asked for."""
    absent = missing(options.contestants)
    options.contestants = [name for name in options.contestants if name not in absent]
    texts = [machine(options.threads), *(f"skipped {name}: it is not installed" for name in absent)]
    for title, suite in (
        (f"made rows, {FAMILY}", inner(size_cases, growing=True)),
        ("data sets", inner(set_cases, growing=False)),
    ):
        results = half(suite, options)
        if results.runs:
            texts += [title, *results.notes, bench.report(suite, results)]
            texts.append(noise([each.gemm for each in results.runs]))
    text = "\n\n".join(texts)
    print(text)
    if options.write:
        from tools import comparison

        command = f"$ python -m tools.benchmarks {shlex.join(sys.argv[1:])}"
        WRITTEN.write_text(f"{command}\n{text}\n", encoding="utf-8")
        comparison.main()
    return 0


SUITE = Suite(
    program=run,
    contestants=CONTESTANTS,
    data=("a9a", "w8a", "mnist"),
    sizes=SIZES,
    memory="200MB",
    give_up=60.0,
    more=(
        ("--tested", {"type": int, "default": 10_000, "help": "rows of the test part"}),
        ("--repeats", {"type": int, "default": 1, "help": "turns"}),
        ("--write", {"action": "store_true", "default": False, "help": "see above"}),
    ),
)
