"""All ten digits of mnist, beside scikit-learn-intelex and beside ten separate runs.

    python -m tools.benchmarks many_classes [--repeats 3] [--C 8] [--times 1]

All train the same rows with the same C and gamma, which is --times 1 / the average squared distance
of two rows; each in a process of its own, in turns. Ours have CSR rows, the others dense ones,
which is their best.

ovo             one-vs-one
sklearnex       scikit-learn-intelex's SVC, which is one-vs-one too, with a cache of 200 MB
ovr             one-vs-rest, all classes together
separate        as many runs of the binary `SVC`, each class against the rest, one after the other
crammer-singer  Crammer and Singer's

Limits: ovo is twice as fast as sklearnex, its labels as good but for 0.05 points; ovr takes at most
0.4 of the seconds of the separate runs and of their kernel evaluations; and crammer-singer takes at
most twice as long as ovr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_least,
    at_most,
    must,
    ratio_to,
    spread,
)

if TYPE_CHECKING:
    import argparse

    import numpy as np
    from numpy.typing import NDArray

FASTER, POINTS, JOINT, TIMES_OVR = 2.0, 0.05, 0.4, 2.0
TOL = 1e-3
COUNTED = ("n_kernel_evaluations", "n_iter")


def cases(options: argparse.Namespace) -> list[Case]:
    """Give the one problem."""
    given = {"C": options.C, "times": options.times, "tol": TOL}
    return [Case("mnist", DataSet("mnist", 784), given)]


class Separate:
    """As many runs of the binary SVC as there are classes; support vectors are those of any."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 (of SVC)
        self._given, self.max_iter = given, -1

    def set_params(self, *, max_iter: int) -> Separate:
        """Set the most pair steps of a run."""
        self.max_iter = max_iter
        return self

    def fit(self, x: Any, y: NDArray[np.float64]) -> Separate:  # noqa: ANN401 (an array or CSR)
        """Train each class against the rest; x (n, d), y (n,)."""
        import numpy as np

        import bigsvm

        self._classes = np.unique(y)
        self._models = [
            bigsvm.SVC(**self._given, max_iter=self.max_iter).fit(x, np.where(y == c, 1.0, -1.0))
            for c in self._classes
        ]
        self.support_ = np.unique(np.concatenate([model.support_ for model in self._models]))
        certificates = [model.certificate_ for model in self._models]
        self.certificate_ = {name: sum(one[name] for one in certificates) for name in COUNTED}
        self.certificate_["converged"] = all(one["converged"] for one in certificates)
        self.stop_reason_ = ", ".join(sorted({str(model.stop_reason_) for model in self._models}))
        return self

    def score(self, x: Any, y: NDArray[np.float64]) -> float:  # noqa: ANN401
        """Give the share of rows whose class has the largest value."""
        import numpy as np

        values = np.stack([model.decision_function(x) for model in self._models])
        return float((self._classes[values.argmax(axis=0)] == y).mean())


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, and test on the test part."""
    import bigsvm
    from tools.benchmarks.contestants import CACHE_MEGABYTES, threads, train_and_test

    name, given = job["who"], dict(job["parameters"])
    if name == "sklearnex":
        from sklearnex.svm import SVC

        return train_and_test(job, SVC(**given, cache_size=CACHE_MEGABYTES), dense=True)
    given["n_jobs"] = threads()
    if name == "separate":
        return train_and_test(job, Separate(**given))
    if name == "crammer-singer":
        return train_and_test(job, bigsvm.CrammerSingerSVC(**given))
    return train_and_test(job, bigsvm.SVC(**given, multiclass=name))


def heading(row: Row) -> str:
    facts, given = row.case.facts, row.case.parameters
    return (
        f"mnist: {facts['n_rows']} rows x {facts['n_columns']}, {facts['n_classes']} classes; "
        f"C {given['C']:g}, gamma {given['gamma']:.4g}, tol {given['tol']:g}; ours csr"
    )


def limits(results: Results) -> list[Limit]:
    """Hold the medians against what is promised, of those that ran."""
    (case,) = results.cases
    rows = {name: results.row(case, name) for name in results.contestants}
    found = []
    if {"ovo", "sklearnex"} <= rows.keys():
        times = rows["sklearnex"].ratio("ovo")
        found.append(at_least("sklearnex ÷ ovo, seconds", times, limit=FASTER))
        points = (rows["ovo"].median("accuracy") or 0) - (rows["sklearnex"].median("accuracy") or 0)
        name = "ovo - sklearnex, points of accuracy"
        found.append(at_least(name, round(points, 9), limit=-POINTS, digits=3))
    for over, under, what, limit in (
        ("ovr", "separate", "seconds", JOINT),
        ("ovr", "separate", "n_kernel_evaluations", JOINT),
        ("crammer-singer", "ovr", "seconds", TIMES_OVR),
    ):
        if {over, under} <= rows.keys():
            shown = what.removeprefix("n_").replace("_", " ")
            times = rows[over].ratio(under, what)
            found.append(at_most(f"{over} ÷ {under}, {shown}", times, limit=limit))
    for name, row in rows.items():
        if name != "sklearnex":
            converged = all(row.values("converged"))
            found.append(must(f"{name} converged", converged, True, converged))
    return found


SUITE = Suite(
    cases=cases,
    contestants=("ovo", "sklearnex", "ovr", "separate", "crammer-singer"),
    columns=(
        *("who", "seconds"),
        ("÷ ovo", ratio_to("ovo")),
        *("test accuracy %", "SVs"),
        ("10^9 evaluations", spread("n_kernel_evaluations", scale=1e-9)),
        *("steps", "peak RSS MB", "converged"),
    ),
    heading=heading,
    limits=limits,
    table_of_each_case=True,
    do="tools.benchmarks.suites.many_classes:fit",
    layout="csr",
    distances=True,
    more=(
        ("--C", {"type": float, "default": 8.0}),
        ("--times", {"type": float, "default": 1.0, "help": "see above"}),
    ),
)
