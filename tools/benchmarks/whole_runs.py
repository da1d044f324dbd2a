"""Training over all rows at once, measured: what `working_sets.py` and `disk_tier.py` share.

A run is in the benchmark's own process, as memory is not what is looked at, and nobody else takes
turns with it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from data_sets import DataSet, data_folder, load
from fit_once import TINY_ROWS, TOL, calibrate

from bigsvm.data.sources import as_row_source
from bigsvm.estimators.fitting import train_model
from bigsvm.parameters import TrainingParameters

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RULES = ("mvp", "second-order", "hmg")
MEMORY = "8GB"
"""Not what is measured: `kernel_rows` says how many of them are held."""


class Problem(NamedTuple):
    """Rows (n, d) float32, dense or CSR, labels (n,) of ±1, and what they are trained with."""

    x: NDArray[np.float32] | sp.csr_matrix
    y: NDArray[np.float64]
    C: float
    gamma: float


def dense(data: DataSet, n_rows: int | None = None) -> Problem:
    """Read a data set, or its first rows, into a float32 array."""
    x, y = load(data, data_folder(), n_rows=n_rows)
    return Problem(x.toarray().astype(np.float32), y, data.C, data.gamma)


def sparse(data: DataSet, n_rows: int | None = None) -> Problem:
    """Read a data set, or its first rows, as CSR of float32."""
    x, y = load(data, data_folder(), n_rows=n_rows)
    return Problem(sp.csr_matrix(x, dtype=np.float32), y, data.C, data.gamma)


class Run(NamedTuple):
    """One training.

    Attributes
    ----------
    seconds : float
        Of all of it, the disk tier's opening and closing included.
    certificate : dict
    calibration : float
        Seconds of a fixed GEMM just before.
    """

    seconds: float
    certificate: dict[str, Any]
    calibration: float

    @property
    def n_computed(self) -> int:
        """Kernel rows computed."""
        return int(self.certificate["row_misses"] - self.certificate["row_reads"])

    @property
    def n_read(self) -> int:
        """Kernel rows read back from disk."""
        return int(self.certificate["row_reads"])

    @property
    def n_iter(self) -> int:
        """Pair steps."""
        return int(self.certificate["n_iter"])


class Disk(NamedTuple):
    """The disk tier's folder and the bytes it may take."""

    folder: Path
    n_bytes: int


def train(
    problem: Problem,
    *,
    kernel_rows: int,
    threads: int,
    selection: str = "auto",
    C: float | None = None,
    disk: Disk | None = None,
    shrinking: bool = False,
) -> Run:
    """Train over all rows at once with memory for `kernel_rows` kernel rows."""
    calibration = calibrate()["seconds"]
    parameters = TrainingParameters(
        C=problem.C if C is None else C,
        gamma=problem.gamma,
        tol=TOL,
        selection=selection,
        working_set="all",
        shrinking=shrinking,
        memory=MEMORY,
        kernel_rows=kernel_rows,
        disk_cache=disk.n_bytes if disk else 0,
        cache_dir=str(disk.folder) if disk else None,
        threads=threads,
    )
    started = time.perf_counter()
    model = train_model(as_row_source(problem.x), problem.y, None, parameters)
    return Run(time.perf_counter() - started, model.certificate, calibration)


def warm_up(n_columns: int, *, threads: int, sparse: bool = False) -> None:
    """Have everything compiled that a run needs of such rows."""
    random = np.random.default_rng(0)
    x = random.standard_normal((TINY_ROWS, n_columns)).astype(np.float32)
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    tiny = Problem(sp.csr_matrix(x) if sparse else x, y, C=1.0, gamma=1 / n_columns)
    for rule in RULES:
        train(tiny, selection=rule, kernel_rows=TINY_ROWS // 4, threads=threads)
