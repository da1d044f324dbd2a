"""Training over all rows as one working set: what `suites.hmg` and `suites.disk_tier` measure."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from bigsvm import SVC
from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from tools.benchmarks import synthetic
from tools.benchmarks.contestants import TOL, coefficients, dual_objective, threads
from tools.benchmarks.data import FAMILIES, data_folder, load
from tools.benchmarks.plain_hmg import solve
from tools.benchmarks.suites.hmg import CACHE, DATA, STRATEGIES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NARROW_COLUMNS = 20
MEMORY = "8GB"
"""Not what is measured: `kernel_rows` says how many of them are held."""
TINY_ROWS, TIGHT_TOL = 300, 1e-5
FEWEST_ROWS = 8
"""Kernel rows of a cache, at least."""


class Problem(NamedTuple):
    """Rows (n, d) float32, dense or CSR, labels (n,) of ±1, and what they are trained with."""

    x: NDArray[np.float32] | sp.csr_matrix
    y: NDArray[np.float64]
    C: float
    gamma: float


@functools.lru_cache(maxsize=1)
def problem_of(name: str, n_rows: int | None = None, *, dense: bool = False) -> Problem:
    """Read or make a problem.

    ``spambase`` has columns of mean 0 and variance 1; ``mnist`` is CSR, or dense where it is to be;
    ``narrow`` has few columns.
    """
    if name == "narrow":
        _, C, gamma = FAMILIES["few"]
        return Problem(*synthetic.make("few", n_rows or 0, NARROW_COLUMNS), C, gamma)
    data = DATA[name]
    x, y = load(data, data_folder(), n_rows=n_rows)
    if name == "spambase":
        x = x.toarray().astype(np.float32).astype(np.float64)  # as a store would have them
        x = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    else:
        x = x.toarray().astype(np.float32) if dense else sp.csr_matrix(x, dtype=np.float32)
    return Problem(x, y, data.C, data.gamma)


def train(
    problem: Problem,
    *,
    kernel_rows: int,
    selection: str = "auto",
    shrinking: bool = False,
    C: float | None = None,
    gamma: float | None = None,
    disk: tuple[Path, int] | None = None,
) -> dict[str, Any]:
    """Train with memory for `kernel_rows` kernel rows; `disk` is a folder and bytes of the tier."""
    _compile(problem.x.shape[1], sp.issparse(problem.x), selection)
    C, gamma = C or problem.C, gamma or problem.gamma
    return _train(problem._replace(C=C, gamma=gamma), kernel_rows, selection, shrinking, disk)


@functools.lru_cache(maxsize=8)
def _compile(n_columns: int, sparse: bool, selection: str) -> None:
    """Have everything compiled that a run needs of such rows."""
    random = np.random.default_rng(0)
    x = random.standard_normal((TINY_ROWS, n_columns)).astype(np.float32)
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    tiny = Problem(sp.csr_matrix(x) if sparse else x, y, C=1.0, gamma=1 / n_columns)
    for shrinking in (False, True):
        _train(tiny, TINY_ROWS // 4, selection, shrinking, None)


def _train(
    problem: Problem,
    kernel_rows: int,
    selection: str,
    shrinking: bool,
    disk: tuple[Path, int] | None,
) -> dict[str, Any]:
    parameters = TrainingParameters(
        C=problem.C, gamma=problem.gamma, tol=TOL, selection=selection, working_set="all",
        shrinking=shrinking, memory=MEMORY, kernel_rows=kernel_rows,
        disk_cache=disk[1] if disk else 0, cache_dir=str(disk[0]) if disk else None,
        threads=threads(),
    )  # fmt: skip
    started, cpu_started = time.perf_counter(), time.process_time()
    found = train_model(as_row_source(problem.x), problem.y, None, parameters).certificate
    names = (
        "n_iter", "row_misses", "row_reads", "n_kernel_evaluations", "objective", "n_support",
        "n_bounded", "converged", "disk_tier", "stop_reason",
    )  # fmt: skip
    return {
        **{name: found[name] for name in names},
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "n_computed": found["row_misses"] - found["row_reads"],
        "n_rows": len(problem.y),
        "n_columns": problem.x.shape[1],
    }


# Jobs of the suite hmg.


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train over all rows once: the contestant is a rule, or says whether to shrink."""
    given = job["parameters"]
    problem = problem_of(job["name"], given.get("rows"))
    answer = train(
        problem,
        kernel_rows=max(round(given["share"] * len(problem.y)), FEWEST_ROWS),
        selection=given.get("rule", job["who"]),
        shrinking=given.get("shrinking", job["who"] == "with"),
        C=given.get("C"),
        gamma=given.get("gamma"),
    )
    if not answer["converged"]:
        raise SystemExit(f"{job['who']}, {given}: ended with {answer['stop_reason']}")
    return answer


def take_steps(job: dict[str, Any]) -> dict[str, Any]:
    """Solve spambase by a rule of `STRATEGIES`, from an initial pair of the turn's own."""
    problem = problem_of("spambase")
    x, y = problem.x.astype(np.float64), problem.y
    squares = (x * x).sum(axis=1)
    gram = np.exp(-problem.gamma * np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0))
    np.fill_diagonal(gram, 1.0)
    rng, ends = np.random.default_rng(0), [np.flatnonzero(y > 0), np.flatnonzero(y < 0)]
    for _ in range(job["turn"] + 1):
        pair = (int(rng.choice(ends[0])), int(rng.choice(ends[1])))
    started = time.perf_counter()
    steps, objective = solve(
        gram, y, problem.C, TOL, STRATEGIES[job["who"]], round(CACHE * len(y)), pair
    )
    if steps < 0:
        raise SystemExit(f"{job['who']} has not converged")
    return {"seconds": time.perf_counter() - started, "steps": steps, "objective": objective}


def whole_mnist(job: dict[str, Any]) -> dict[str, Any]:
    """Train on all of mnist, compute the objective again, and bound the optimum."""
    problem = problem_of(job["name"])
    y = problem.y
    started = time.perf_counter()
    model = SVC(C=problem.C, gamma=problem.gamma, tol=TOL, n_jobs=threads()).fit(problem.x, y)
    seconds = time.perf_counter() - started
    beta, of_support = coefficients(model), y[model.support_]
    alpha = of_support * beta
    violation = max(-alpha.min(), alpha.max() - problem.C, abs(of_support @ alpha)) / problem.C
    lowest, highest = optimum(problem)
    found = model.certificate_
    return {
        "seconds": seconds, "n_sweeps": found["n_sweeps"], "n_iter": found["n_iter"],
        "n_rows": len(y), "n_support": found["n_support"], "n_bounded": found["n_bounded"],
        "objective": dual_objective(problem.x[model.support_], beta, problem.gamma),
        "violation": float(np.float64(violation)), "lowest": lowest, "highest": highest,
    }  # fmt: skip


def optimum(problem: Problem) -> tuple[float, float]:
    """Bound the optimum by the dual and the primal objective of a tight solution, in float64."""
    x, y = problem.x, problem.y
    model = SVC(C=problem.C, gamma=problem.gamma, tol=TIGHT_TOL, n_jobs=threads()).fit(x, y)
    support, beta = x[model.support_].astype(np.float64), coefficients(model)
    outputs = np.concatenate(
        [
            rbf_kernel(x[a : a + 2000].astype(np.float64), support, gamma=problem.gamma) @ beta
            for a in range(0, len(y), 2000)
        ]
    )
    quadratic = float(beta @ outputs[model.support_])
    hinge = np.maximum(0.0, 1.0 - y * (outputs + model.intercept_[0]))
    return (
        float(np.abs(beta).sum()) - quadratic / 2,
        quadratic / 2 + problem.C * float(hinge.sum()),
    )
