"""Training over all rows as one working set: what `suites.hmg` and `suites.disk_tier` measure."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.data.sources import as_row_source
from bigsvm.estimators.fitting import train_model
from bigsvm.parameters import TrainingParameters
from tools.benchmarks import synthetic
from tools.benchmarks.contestants import TOL, threads
from tools.benchmarks.data import DATA_SETS, FAMILIES, DataSet, data_folder, load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SPAMBASE = DataSet("spambase", 57, 50.0, 1 / (2 * 10**2), (1.0,), layouts=())
MNIST = DATA_SETS["mnist"]._replace(layouts=())
NARROW_COLUMNS = 20
MEMORY = "8GB"
"""Not what is measured: `kernel_rows` says how many of them are held."""
TINY_ROWS = 300


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
    data = {"spambase": SPAMBASE, "mnist": MNIST}[name]
    x, y = load(data, data_folder(), n_rows=n_rows)
    if name == "spambase":
        x = x.toarray().astype(np.float64)
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
