"""Every formulation beside scikit-learn's (LIBSVM's), on small real data sets.

    python -m tools.benchmarks parity [--data heart_scale … housing_scale] [--tol 1e-5]

Each formulation and kernel (--contestants chooses) is trained on the same rows by both, ours as a
dense array and as CSR. A line of the table is the worse of both layouts:

objective   relative difference of the dual objectives, recomputed in float64 from the models
values      largest difference of decision values or predictions over the rows, in units of what
            they tell apart: 1 for classes, ρ for one class, the targets' standard deviation
labels      rows with another label although their decision value is farther than that from 0
nu          whether ν means what it should: errors ≤ ν ≤ support vectors, in shares of the rows
gaps        KKT gap of our model and of theirs in units of tol, recomputed in float64 from the
            coefficients: the arbiter where two models differ, as LIBSVM rounds kernel rows to
            float32, and cannot come nearer to the optimum than that whatever tol says

Limits are 1e-4, 1e-3 and 0. Where they are passed, but the gap of their model is more than a
hundred times tol and ours is not, the line says that theirs is not at tol; it does not count as
held. Rows are trained on as the files have them, scaled.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet, data_folder, load
from tools.benchmarks.results import FAILS, HOLDS, Limit, Results, Row, must
from tools.benchmarks.results import Case as BenchCase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CLASSES = (
    "heart_scale", "breast-cancer_scale", "australian_scale", "german.numer_scale",
    "ionosphere_scale", "svmguide1.scale",
)  # fmt: skip
TARGETS = (
    "housing_scale", "mpg.scale", "abalone_scale", "space_ga.scale", "cpusmall.scale",
    "vowel.scale", "segment.scale",
)  # fmt: skip
"""Those of the last two are the numbers of their classes."""
ESTIMATORS = {
    "c-svc": "SVC", "nu-svc": "NuSVC", "one-class": "OneClassSVM", "eps-svr": "SVR",
    "nu-svr": "NuSVR",
}  # fmt: skip
KERNELS: dict[str, dict[str, Any]] = {
    "rbf": {"gamma": "scale"},
    "linear": {},
    "poly": {"gamma": "scale", "coef0": 1.0, "degree": 2},
    "sigmoid": {"gamma": 0.01, "coef0": 0.0},
}
OBJECTIVE, VALUES = 1e-4, 1e-3
ARBITER = 100
"""How many times tol the gap of a model is that did not reach it."""
NOT_AT_TOL = "theirs is not at tol"


class Task(NamedTuple):
    """A formulation with its parameters; both libraries call them the same."""

    name: str
    parameters: dict[str, Any]

    @property
    def regression(self) -> bool:
        """Whether it learns targets."""
        return self.name.endswith("svr")


def task_of(name: str, y: NDArray[np.float64]) -> Task:
    """Give a formulation parameters that suit labels or targets y, (n,)."""
    import numpy as np

    if name == "eps-svr":
        return Task(name, {"C": float(y.std()), "epsilon": 0.1 * float(y.std())})
    if name == "nu-svr":
        return Task(name, {"C": float(y.std()), "nu": 0.4})
    if name == "nu-svc":
        smaller = min(np.mean(y == label) for label in np.unique(y))
        return Task(name, {"nu": round(1.79 * float(smaller), 3) + 1e-4})
    return Task(name, {"nu": 0.2} if name == "one-class" else {"C": 1.0})


def standing(
    task: Task,
    model: Any,  # noqa: ANN401 (ours or theirs)
    K: NDArray[np.float64],
    y: NDArray[np.float64],
) -> tuple[float, float]:
    """KKT gap and dual objective of a model, in float64; K (n, n)."""
    import numpy as np

    from tools.attacks import oracle
    from tools.benchmarks.contestants import coefficients

    beta, n = np.zeros(len(y)), len(y)
    beta[model.support_] = coefficients(model)
    target = y if task.regression else np.where(y == np.max(y), 1.0, -1.0)
    if task.name == "one-class":
        target = np.ones(n)
    # Coefficients of nu-svc are divided by rho; those at their bound of 1 are then 1 / rho.
    rho = 1 / np.abs(beta).max() if task.name == "nu-svc" else 1.0
    bound = np.full(n, task.parameters.get("C", 1.0))
    name = "eps-svr" if task.regression else task.name
    given = {"epsilon": 0.0, **task.parameters}
    v = oracle.variables(name, beta, 0.0, target, bound, given, {"rho": rho})
    if task.name == "nu-svr":  # each side of the tube has a bias of its own
        v = v._replace(group=np.repeat([0, 1], n), thresholds=(0.0, 0.0))
    found = oracle.standing(oracle.Gram(K, np.abs(K)), v)
    return max(found.gap, 0.0) / rho, found.objective / rho**2


def values_of(model: Any, rows: Any) -> NDArray[np.float64]:  # noqa: ANN401
    """Decision values, or predictions of a regression."""
    import numpy as np

    function = getattr(model, "decision_function", None) or model.predict
    return np.asarray(function(rows))


def compare(job: dict[str, Any]) -> dict[str, Any]:
    """Train by both and measure; the worse of the layouts."""
    import numpy as np
    from sklearn import svm
    from sklearn.metrics.pairwise import pairwise_kernels

    import bigsvm

    warnings.simplefilter("error", RuntimeWarning)
    formulation, kernel = job["who"].split()
    tol = job["parameters"]["tol"]
    X, y = load(DataSet(job["name"]), data_folder())
    task, dense = task_of(formulation, y), X.toarray()
    options = {**task.parameters, "kernel": kernel, **KERNELS[kernel], "tol": tol}
    if options.get("gamma") == "scale":
        options["gamma"] = 1.0 / (X.shape[1] * dense.var())
    named = {k: options[k] for k in ("gamma", "coef0", "degree") if k in options}
    K = pairwise_kernels(dense, metric=kernel, **named)
    target = None if task.name == "one-class" else y
    started = time.perf_counter()
    theirs = getattr(svm, ESTIMATORS[task.name])(cache_size=1000, **options).fit(dense, target)
    peer_seconds = time.perf_counter() - started
    expected, (peer_gap, best) = values_of(theirs, dense), standing(task, theirs, K, y)
    scale = abs(float(theirs.intercept_[0])) if task.name == "one-class" else 1.0
    scale = float(y.std()) if task.regression else scale
    found: list[dict[str, Any]] = []
    for rows in (dense, X):
        started = time.perf_counter()
        ours = getattr(bigsvm, ESTIMATORS[task.name])(**options).fit(rows, target)
        seconds, values = time.perf_counter() - started, values_of(ours, rows)
        gap, objective = standing(task, ours, K, y)
        other = ((values > 0) != (expected > 0)) & (np.abs(expected) > VALUES * scale)
        found.append(
            {
                "seconds": seconds,
                "objective": abs(objective - best) / max(abs(best), 1e-12),
                "values": float(np.abs(values - expected).max()) / scale,
                "labels": 0 if task.regression else int(other.sum()),
                "nu_fails": not nu_holds(task, ours, values, y),
                "gap": gap / tol,
            }
        )
    worst = {name: max(one[name] for one in found) for name in found[0]}
    worst |= {"peer_gap": peer_gap / tol, "peer_seconds": peer_seconds}
    return {**worst, "has_nu": "nu" in task.parameters, "verdict": verdict(worst)}


def verdict(line: dict[str, Any]) -> str:
    """Whether both models are the same; if not, whether theirs is one at tol at all."""
    far = line["objective"] > OBJECTIVE or line["values"] > VALUES or line["labels"] > 0
    if not far and not line["nu_fails"]:
        return HOLDS
    if not line["nu_fails"] and line["peer_gap"] > ARBITER >= line["gap"]:
        return NOT_AT_TOL
    return FAILS


def nu_holds(task: Task, model: Any, values: NDArray[np.float64], y: NDArray[np.float64]) -> bool:  # noqa: ANN401
    """Whether at most ν of the rows are wrong and at least ν support vectors."""
    import numpy as np

    if "nu" not in task.parameters:
        return True
    nu, slack = task.parameters["nu"], 1e-3
    if task.name == "nu-svr":
        wrong = np.abs(values - y) > model.epsilon_ + slack * y.std()
    elif task.name == "nu-svc":
        wrong = np.where(y == model.classes_[1], values, -values) < -slack
    else:
        wrong = values < -slack * abs(float(model.offset_[0]))
    return bool(wrong.mean() <= nu + 1e-9 and len(model.support_) / len(y) >= nu - 1e-9)


def nu_shown(row: Row) -> str:
    return str(not row.last("nu_fails")) if row.last("has_nu") else "-"


def counts(results: Results) -> str:
    """Count the verdicts."""
    found = Counter(run.answer["verdict"] for run in results.runs)
    return f"of {len(results.runs)}: " + ", ".join(f"{n} {words}" for words, n in found.items())


def limits(results: Results) -> list[Limit]:
    """Demand that no model is another one while theirs is at tol."""
    fails = sum(run.answer["verdict"] == FAILS for run in results.runs)
    return [must("models that differ while theirs is at tol", fails, 0, not fails)]


SUITE = Suite(
    cases=lambda options: [
        BenchCase(name, DataSet(name, layouts=()), {"tol": options.tol}) for name in options.data
    ],
    data=(*CLASSES, *TARGETS),
    contestants=tuple(f"{name} {kernel}" for name in ESTIMATORS for kernel in KERNELS),
    takes_part=lambda who, case, options: (
        (who.split()[0].endswith("svr")) == (case.name in TARGETS)
    ),
    columns=(
        "data",
        ("formulation", lambda row: str(row.who).split()[0]),
        ("kernel", lambda row: str(row.who).split()[1]),
        ("objective", "objective:.1e"),
        ("values", "values:.1e"),
        ("labels", "labels"),
        ("nu", nu_shown),
        ("our gap ÷ tol", "gap:.2f"),
        ("their gap ÷ tol", "peer_gap:.2f"),
        ("ours s", "seconds:.2f"),
        ("theirs s", "peer_seconds:.2f"),
        ("", "verdict"),
    ),
    after=counts,
    limits=limits,
    do="tools.benchmarks.suites.parity:compare",
    one_process=True,
    uncounted=False,
    repeats=1,
    folder=False,
    more=(("--tol", {"type": float, "default": 1e-5}),),
)
