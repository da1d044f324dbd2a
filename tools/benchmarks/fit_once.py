"""One measurement of `peers.py`, in a process of its own: prints one JSON object.

    fit_once.py prepare DATA FOLDER           LIBSVM text → FOLDER/DATA.npz and stores, both layouts
    fit_once.py fit PEER LAYOUT DATA FOLDER   train once; PEER is bigsvm, sklearn or sklearnex
    fit_once.py calibrate                     seconds of a fixed matrix product: the machine's mood

A fit is timed after a tiny one of the same type and layout, so that imports, compilation and thread
pools are not in it; reading the data and bringing it into the layout is not in it either. When it
starts, a line says so, for a parent that gives it up.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from common import DATA_SETS, FIT_BEGAN, DataSet, data_folder, dual_objective, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TOL = 1e-3
CACHE_MEGABYTES = 200
"""scikit-learn's default, and the best for scikit-learn-intelex: a larger one slows it down."""

TINY_ROWS = 300
GEMM_SIZE = 2000


def prepare(data: DataSet, folder: Path) -> dict[str, Any]:
    """Write what the fits read: the arrays once, a store per layout."""
    from bigsvm.data.write import write_store

    source = data_folder()
    if source is None:
        raise SystemExit("no folder of data sets")
    x, y = load(data, source)
    x = sp.csr_matrix(x, dtype=np.float32)
    np.save(folder / f"{data.name}.y.npy", y)
    sp.save_npz(folder / f"{data.name}.npz", x, compressed=False)
    write_store(folder / f"{data.name}.csr.zarr", x, y, layout="sparse")
    write_store(folder / f"{data.name}.dense.zarr", x.toarray(), y, layout="dense")
    density = x.nnz / (x.shape[0] * x.shape[1])
    return {"n_rows": x.shape[0], "n_columns": x.shape[1], "density": density}


def estimator(peer: str, data: DataSet) -> Any:  # noqa: ANN401
    """Make the competitor's SVC with the parameters of the data set."""
    parameters: dict[str, Any] = {"C": data.C, "gamma": data.gamma, "tol": TOL}
    if peer == "bigsvm":
        from bigsvm import SVC

        return SVC(**parameters, n_jobs=int(os.environ["OMP_NUM_THREADS"]))
    parameters["cache_size"] = CACHE_MEGABYTES
    if peer == "sklearn":
        from sklearn.svm import SVC
    elif peer == "sklearnex":
        from sklearnex.svm import SVC
    else:
        raise SystemExit(f"unknown peer {peer}: bigsvm, sklearn or sklearnex")
    return SVC(**parameters)


def tiny(layout: str, n_columns: int, dtype: np.dtype) -> tuple[Any, NDArray[np.float64]]:
    """Make a problem that compiles and loads what the real one needs."""
    random = np.random.default_rng(0)
    x = random.random((TINY_ROWS, n_columns)).astype(dtype)
    y = np.where(random.random(TINY_ROWS) < 0.5, -1.0, 1.0)
    if layout == "csr":
        x[x < 0.75] = 0
        return sp.csr_matrix(x), y
    return x, y


def fit(peer: str, layout: str, data: DataSet, folder: Path) -> dict[str, Any]:
    """Train once; the seconds of ``fit`` alone."""
    # scikit-learn converts to float64 whatever it is given: do that for it, outside the clock.
    dtype = np.dtype(np.float64 if peer == "sklearn" else np.float32)
    estimator(peer, data).fit(*tiny(layout, data.n_columns, dtype))

    x: Any = sp.load_npz(folder / f"{data.name}.npz").astype(dtype)
    y = np.load(folder / f"{data.name}.y.npy")
    if layout == "dense":
        x = x.toarray()
    model = estimator(peer, data)
    print(f"{FIT_BEGAN}{time.time()!r}", flush=True)
    started = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - started

    beta = model.dual_coef_
    beta = beta.toarray() if sp.issparse(beta) else beta
    answer = {
        "seconds": seconds,
        "n_support": len(model.support_),
        "objective": dual_objective(x[model.support_], beta, data.gamma),
    }
    if peer == "bigsvm":
        started = time.perf_counter()
        model.decision_function(x)
        answer["floor_seconds"] = time.perf_counter() - started
        for name in ("converged", "gap", "duality_gap", "n_sweeps", "n_kernel_evaluations"):
            answer[name] = model.certificate_[name]
    return answer


def calibrate() -> dict[str, Any]:
    """Time a fixed product of two float32 matrices, the best of three."""
    a = np.random.default_rng(0).random((GEMM_SIZE, GEMM_SIZE), dtype=np.float32)
    a @ a
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds)}


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["prepare", name, folder]:
            answer = prepare(DATA_SETS[name], Path(folder))
        case ["fit", peer, layout, name, folder]:
            answer = fit(peer, layout, DATA_SETS[name], Path(folder))
        case ["calibrate"]:
            answer = calibrate()
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
