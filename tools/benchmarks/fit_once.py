"""One measurement of a benchmark, in a process of its own: prints one JSON object.

    fit_once.py prepare DATA FOLDER           DATA → FOLDER: arrays and a store in each layout
    fit_once.py fit PEER LAYOUT DATA FOLDER   train once; PEER is bigsvm, sklearn or sklearnex
    fit_once.py rows LAYOUT DATA FOLDER       bytes that the rows of the store take in memory
    fit_once.py store ROWS MEMORY LAYOUT DATA FOLDER
                                              train the store in the budget MEMORY; ROWS is
                                              streamed, or memory: read before the clock starts
    fit_once.py floor LAYOUT DATA FOLDER      one sweep with FOLDER/model.safetensors
    fit_once.py calibrate                     seconds of a fixed matrix product: the machine's mood

A fit is timed after a tiny one of the same type and layout, so that imports, compilation and thread
pools are not in it; reading the data and bringing it into the layout is not in it either. Its peak
of memory is that of the process when it ends: what is computed about the model comes after it. When
it starts, a line says so, for a parent that gives it up.
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
from common import FIT_BEGAN, dual_objective, peak_so_far
from data_sets import DataSet, data_folder, data_set, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TOL = 1e-3
CACHE_MEGABYTES = 200
"""scikit-learn's default, and the best for scikit-learn-intelex: a larger one slows it down."""

CERTIFIED = ("converged", "gap", "duality_gap", "n_sweeps", "n_kernel_evaluations")
COUNTED = ("objective", "n_support", "cpu_idle", "n_working_sets", "n_iter")
TINY_ROWS = 300
GEMM_SIZE = 2000


def prepare(data: DataSet, folder: Path) -> dict[str, Any]:
    """Write what the fits read: arrays and a store per layout."""
    from bigsvm.data.write import write_store

    x, y = load(data, data_folder())
    np.save(folder / f"{data.name}.y.npy", y)
    density = x.nnz / (x.shape[0] * x.shape[1]) if sp.issparse(x) else 1.0
    if "csr" in data.layouts:
        x = sp.csr_matrix(x, dtype=np.float32)
        sp.save_npz(folder / f"{data.name}.npz", x, compressed=False)
        write_store(folder / f"{data.name}.csr.zarr", x, y, layout="sparse")
    if "dense" in data.layouts:
        x = x.toarray() if sp.issparse(x) else x
        np.save(folder / f"{data.name}.npy", x)
        write_store(folder / f"{data.name}.dense.zarr", x, y, layout="dense")
    return {"n_rows": x.shape[0], "n_columns": x.shape[1], "density": density}


def read_rows(layout: str, data: DataSet, folder: Path) -> Any:  # noqa: ANN401 (an array or CSR)
    """Read what `prepare` wrote: (n, d) float32, an array or CSR."""
    if layout == "dense":
        return np.load(folder / f"{data.name}.npy")
    return sp.load_npz(folder / f"{data.name}.npz")


def estimator(peer: str, data: DataSet) -> Any:  # noqa: ANN401 (of any of the peers)
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

    x = read_rows(layout, data, folder).astype(dtype, copy=False)
    y = np.load(folder / f"{data.name}.y.npy")
    model = estimator(peer, data)
    print(f"{FIT_BEGAN}{time.time()!r}", flush=True)
    started = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - started
    peak_rss = peak_so_far(os.getpid())

    beta = model.dual_coef_
    beta = beta.toarray() if sp.issparse(beta) else beta
    answer = {
        "seconds": seconds,
        "peak_rss": peak_rss,
        "n_support": len(model.support_),
        "objective": dual_objective(x[model.support_], beta, data.gamma),
    }
    if peer == "bigsvm":
        model.decision_function(x[:TINY_ROWS])
        started = time.perf_counter()
        model.decision_function(x)
        answer["floor_seconds"] = time.perf_counter() - started
        answer |= {name: model.certificate_[name] for name in CERTIFIED}
    return answer


def rows(layout: str, data: DataSet, folder: Path) -> dict[str, Any]:
    """Say what the rows of a store would take in memory."""
    from bigsvm import open_store

    source = open_store(folder / f"{data.name}.{layout}.zarr").rows
    return {"row_bytes": round(source.n_rows * source.bytes_per_row)}


def store(kind: str, memory: str, layout: str, data: DataSet, folder: Path) -> dict[str, Any]:
    """Train a store once, its rows read from disk at every pass, or once before the clock starts.

    `from_disk` are the bytes that the system fetched from the disk meanwhile, None where it does
    not say.
    """
    from bigsvm import open_store
    from bigsvm.data.sources import as_row_source
    from bigsvm.estimators.fitting import train_model
    from bigsvm.estimators.parameters import TrainingParameters

    if kind not in ("streamed", "memory"):
        raise SystemExit(f"unknown rows {kind}: streamed or memory")
    estimator("bigsvm", data).fit(*tiny(layout, data.n_columns, np.dtype(np.float32)))
    opened = open_store(folder / f"{data.name}.{layout}.zarr")
    labels = opened.labels()
    source = opened.rows
    source.read(0, min(TINY_ROWS, source.n_rows))
    if kind == "memory":
        source = as_row_source(source.read(0, source.n_rows))
    parameters = TrainingParameters(
        C=data.C,
        gamma=data.gamma,
        tol=TOL,
        memory=int(memory) if memory.isdecimal() else memory,
        threads=int(os.environ["OMP_NUM_THREADS"]),
    )
    fetched, read = fetched_bytes(), source.bytes_read
    started, cpu_started = time.perf_counter(), time.process_time()
    certificate = train_model(source, labels, None, parameters).certificate
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss": peak_so_far(os.getpid()),
        "from_disk": None if fetched is None else (fetched_bytes() or 0) - fetched,
        **{name: certificate[name] for name in (*CERTIFIED, *COUNTED)},
        "seconds_by_phase": certificate.get("seconds_by_phase"),  # not told by older code
        "bytes_read": source.bytes_read - read,
    }


def fetched_bytes() -> int | None:
    """Bytes that the system has fetched from disks for this process, where it counts them."""
    counted = Path("/proc/self/io")
    if not counted.exists():
        return None
    return int(dict(line.split(": ") for line in counted.read_text().splitlines())["read_bytes"])


def floor(layout: str, data: DataSet, folder: Path) -> dict[str, Any]:
    """Time one sweep of the store with the support vectors of the model trained on it last."""
    from bigsvm.data.sources import as_row_source
    from bigsvm.models import KernelExpansion

    model = KernelExpansion.load(folder / "model.safetensors")
    source = as_row_source(folder / f"{data.name}.{layout}.zarr")
    threads = int(os.environ["OMP_NUM_THREADS"])
    few = as_row_source(source.read(0, min(TINY_ROWS, source.n_rows)))
    model.decision_function(few, threads=threads)
    started = time.perf_counter()
    model.decision_function(source, threads=threads)
    return {"seconds": time.perf_counter() - started}


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
            answer = prepare(data_set(name), Path(folder))
        case ["fit", peer, layout, name, folder]:
            answer = fit(peer, layout, data_set(name), Path(folder))
        case ["rows", layout, name, folder]:
            answer = rows(layout, data_set(name), Path(folder))
        case ["store", kind, memory, layout, name, folder]:
            answer = store(kind, memory, layout, data_set(name), Path(folder))
        case ["floor", layout, name, folder]:
            answer = floor(layout, data_set(name), Path(folder))
        case ["calibrate"]:
            answer = calibrate()
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
