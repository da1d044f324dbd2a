"""Cases of the random check: a dictionary of plain values each, which says all of a fit.

A case holds all that it needs, so that a corpus of them stays as it is when the drawing changes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import scipy.sparse as sp
from attacks import oracle

import bigsvm
from bigsvm.callbacks import Callback
from bigsvm.errors import MemoryBudgetError
from bigsvm.training.result import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    F8 = NDArray[np.float64]

ESTIMATORS = {
    "c-svc": "SVC", "nu-svc": "NuSVC", "one-class": "OneClassSVM", "eps-svr": "SVR",
    "nu-svr": "NuSVR", "l2-svc": "L2SVC", "l2-one-class": "L2OneClassSVM",
    "crammer-singer": "CrammerSingerSVC",
}  # fmt: skip
REGRESSIONS, ONE_CLASS = ("eps-svr", "nu-svr"), ("one-class", "l2-one-class")
HELD_OUT_ROWS = 40
COSTS = frozenset({
    *MEASURED, "bytes_read", "row_misses", "row_reads", "n_kernel_evaluations", "rows_swept",
    "pairs",
})  # fmt: skip
"""Fields of a certificate that depend on memory, threads, workers and interruptions."""


@dataclass(frozen=True, kw_only=True)
class Cauchy(bigsvm.Kernel):
    """A kernel of a user's own: ``1 / (1 + |a - b|² / width²)``."""

    name = "cauchy of attacks"
    width: float = 1.0

    def from_products(self, dots: F8, norms_rows: F8, norms_columns: F8) -> F8:
        """Return the kernel values, by the formula."""
        squared = np.add.outer(norms_rows, norms_columns) - 2 * np.asarray(dots, np.float64)
        return 1 / (1 + np.maximum(squared, 0) / self.width**2)


class Rows(NamedTuple):
    """Data of a case: rows to train on and to predict, labels, weights; in the order of input."""

    X: NDArray[Any]
    y: NDArray[Any]
    weights: F8 | None
    held_out: NDArray[Any]


def rows_of(case: dict[str, Any]) -> Rows:
    """Make the data of a case."""
    made = case["data"]
    n, d, k = made["n"], made["d"], made.get("classes", 2)
    rng = np.random.default_rng(made["seed"])
    total = n + HELD_OUT_ROWS
    codes = rng.integers(k, size=total)
    if made.get("singleton"):
        codes[codes == k - 1] = 0
    codes[rng.permutation(n)[:k]] = np.arange(k)[:n]
    X = rng.standard_normal((total, d)) * made.get("noise", 1.0)
    X += rng.standard_normal((k, d))[codes] * 1.5
    if made.get("zeros"):
        X[rng.random(X.shape) < made["zeros"]] = 0.0
    X = X * np.logspace(0, made.get("decades", 0), d) * made.get("scale", 1.0)
    X += made.get("offset", 0.0)
    if made.get("constant"):
        X[:, 0] = 1.0
    if made.get("repeats"):
        again = rng.random(n) < made["repeats"]
        source = rng.integers(n, size=n)
        X[:n][again], codes[:n][again] = X[source[again]], codes[source[again]]
    if made.get("nonnegative"):
        X = np.abs(X)
    if made.get("whole"):
        X = np.rint(X)
    X = X.astype(made.get("dtype", "float64"))
    y: NDArray[Any]
    if case["formulation"] in REGRESSIONS:
        y = np.sin(X[:, 0].astype(np.float64)) + 0.3 * rng.standard_normal(total)
        y = y * made.get("target", 1.0) + made.get("target_offset", 0.0)
    else:
        y = _labels(codes, k, made.get("labels", "int"))
    weights: F8 | None = None
    kind = case.get("weights")
    if kind:
        weights = rng.uniform(0.1, 3.0, n)
        if kind == "zeros":
            weights[rng.random(n) < 0.3] = 0.0
        elif kind == "whole":
            weights = rng.integers(0, 4, n).astype(np.float64)
        elif kind == "extreme":
            weights = 10.0 ** rng.uniform(-3, 3, n)
        elif kind == "class":
            weights[codes[:n] == 0] = 0.0
    if case["params"].get("kernel") == "precomputed":
        K = oracle.gram(*[X.astype(np.float64)] * 2, {"name": "rbf", "gamma": 1.0 / d}).values
        K = K.astype(X.dtype)
        return Rows(K[:n, :n], y[:n], weights, K[n:, :n])
    return Rows(X[:n], y[:n], weights, X[n:])


def _labels(codes: NDArray[np.int64], k: int, kind: str) -> NDArray[Any]:
    if kind == "text":
        return np.array([f"class-{c}" for c in range(k)])[codes]
    if kind == "bool" and k == 2:
        return codes > 0
    if kind == "float":
        return codes * 2.0 - 1.0
    return codes * 3 - 4


# -- containers ----------------------------------------------------------------------------------


def contained(kind: str, X: NDArray[Any], folder: Path) -> Any:
    """Put rows into a container; stores are made by `stored`."""
    n, d = X.shape
    if kind == "fortran":
        return np.asfortranarray(X)
    if kind == "list":
        return X.tolist()
    if kind == "memmap":
        np.save(folder / "x.npy", X)
        return np.load(folder / "x.npy", mmap_mode="r")
    if kind in ("csr", "csc", "coo"):
        return getattr(sp, f"{kind}_array")(X)
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(X, columns=[f"c{i}" for i in range(d)])
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(X, schema=[f"c{i}" for i in range(d)])
    if kind == "dask":
        import dask.array as da

        return da.from_array(X, chunks=(max(n // 3, 1), d))
    if kind == "zarr":
        import zarr

        array = zarr.create_array(
            folder / "x.zarr", shape=X.shape, chunks=(max(n // 2, 1), d), dtype=X.dtype,
            config={"write_empty_chunks": True},
        )  # fmt: skip
        array[...] = X
        return array
    return X


def stored(case: dict[str, Any], rows: Rows, path: Path) -> bigsvm.Store:
    """Write a store of the rows, as they are, in another order, or through LIBSVM text."""
    kind = case["container"]
    if kind != "text":
        return bigsvm.write_store(
            path, rows.X, rows.y, rows.weights, shuffle=kind == "shuffled", memory="64MB"
        )
    words = [str(label) for label in rows.y.tolist()]
    if rows.y.dtype == bool:
        words = [str(int(label)) for label in rows.y]
    lines = [
        " ".join([word, *(f"{i}:{v!r}" for i, v in enumerate(row, 1) if v != 0)])
        for word, row in zip(words, rows.X.tolist(), strict=True)
    ]
    text = path.with_suffix(".txt")
    text.write_text("\n".join(lines) + "\n")
    dtype = "float32" if rows.X.dtype == np.float32 else "float64"
    return bigsvm.convert(text, path, n_features=rows.X.shape[1], dtype=dtype, memory="64MB")


# -- the fit -------------------------------------------------------------------------------------


class StopAt(Callback):
    """Ends a fit, or the process, at its n-th event."""

    def __init__(self, moment: int, *, kill: bool = False) -> None:
        self.moment, self.kill = moment, kill

    def listener(self, estimator: Any) -> Any:
        """Return what counts the events."""
        seen = [0]

        def listen(event: object) -> str | None:
            seen[0] += 1
            if seen[0] >= self.moment and self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            return "that was asked for" if seen[0] >= self.moment else None

        return listen


def estimator_of(case: dict[str, Any], **more: Any) -> Any:
    """Make the estimator of a case."""
    parameters = {**case["params"], **more}
    if parameters.get("kernel") == "own":
        parameters["kernel"] = Cauchy(width=float(case["data"]["d"]))
    if isinstance(parameters.get("gamma"), list):
        parameters["gamma"] = np.array(parameters["gamma"])
    if isinstance(parameters.get("class_weight"), list):  # pairs, as JSON has no keys but text
        parameters["class_weight"] = {label: w for label, w in parameters["class_weight"]}
    return getattr(bigsvm, ESTIMATORS[case["formulation"]])(**parameters)


_clusters: dict[int, Any] = {}


def client_of(n_workers: int) -> Any:
    """Return a client of a cluster on this machine, the same for all cases of a process."""
    if not n_workers:
        return None
    if n_workers not in _clusters:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        _clusters[n_workers] = Client(cluster, set_as_default=False)
    return _clusters[n_workers]


@contextmanager
def as_of_many_rows(case: dict[str, Any]) -> Iterator[None]:
    """Treat few rows as a run of many: parts are chosen, and equal rows merged."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()) if case.get("as_many") else ():
            for constant, value in (("DIRECT_ROWS", 16), ("FIRST_SCOPE", 12)):
                if name.startswith("bigsvm.") and hasattr(module, constant):
                    stack.enter_context(mock.patch.object(module, constant, value))
        yield


class Fitted(NamedTuple):
    """An estimator, its rows in the order of training, their places in the input, its warnings."""

    estimator: Any
    X: F8
    y: NDArray[Any]
    weights: F8
    order: NDArray[np.int64]
    is_sparse: bool
    warned: list[tuple[type[Warning], str]]


def fitted(case: dict[str, Any], rows: Rows, folder: Path, *, kill_at: int | None = None) -> Fitted:
    """Fit, perhaps in the least memory that is not refused."""
    X, y, weights, order = rows.X, rows.y, rows.weights, np.arange(len(rows.y))
    if case.get("spoil"):
        X, y, weights = spoilt(case["spoil"], rows)
    given: tuple[Any, ...]
    if case["container"] in ("shuffled", "stored", "text"):
        store = stored(case, Rows(X, y, weights, rows.held_out), folder / "store")
        given, order = (str(folder / "store"), None), store.original_rows()
        is_sparse = sp.issparse(store.rows.read(0, 1))
        beside = {"y_order": "input"} if case["container"] == "text" and weights is not None else {}
        fit = {"sample_weight": weights, **beside} if beside else {}
    else:
        given = contained(case["container"], X, folder), y
        is_sparse = sp.issparse(given[0])
        fit = {"sample_weight": weights}
    if case["formulation"] in ONE_CLASS:
        given = given[:1]
    if case.get("workers"):
        fit["client"] = client_of(case["workers"])
    more: dict[str, Any] = {}
    if case["params"].get("disk_cache"):
        more["cache_dir"] = folder
    if case["params"].get("memory") == "least":
        more["memory"] = least_memory(case, given, fit, more)
    with as_of_many_rows(case), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = estimator_of(case, **more)
        if kill_at is not None:
            model.set_callbacks(StopAt(kill_at, kill=True))
        model.fit(*given, **fit)
        texts = [(each.category, str(each.message)) for each in warned]
        if case.get("interrupt"):
            same_after(case, model, given, fit, more, folder / "run")
    X = np.asarray(rows.X, np.float64)[order]
    if case["params"].get("kernel") == "precomputed":
        X = X[:, order]
    weights = np.ones(len(rows.y)) if rows.weights is None else rows.weights
    return Fitted(model, X, rows.y[order], weights[order], order, is_sparse, texts)


def least_memory(case: dict[str, Any], given: Any, fit: Any, more: Any) -> int:
    """Find the least of some budgets that a fit is not refused with."""
    memory = 1 << 17
    while True:
        try:
            with as_of_many_rows(case), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator_of(case, **more, memory=memory, max_iter=0).fit(*given, **fit)
        except MemoryBudgetError:
            if memory > 1 << 30:
                raise
            memory = memory * 5 // 4
        else:
            return memory


def same_after(
    case: dict[str, Any], whole: Any, given: Any, fit: Any, more: Any, checkpoint: Path
) -> None:
    """Interrupt the fit, or kill it, and go on: the same bits, or an AssertionError."""
    more = {**more, "checkpoint": str(checkpoint)}
    often = {**more, "checkpoint_every": 1e-9}
    if case["interrupt"] < 0:
        child = {**case, "params": {**case["params"], **often}, "interrupt": 0}
        script = Path(__file__).parents[1] / "reliability.py"
        command = [sys.executable, str(script), "random", "--kill-at", str(-case["interrupt"])]
        command += ["--case", json.dumps(child, default=str)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode in (-signal.SIGKILL, 0), f"{ended.stdout}{ended.stderr}"
    else:
        stopped = estimator_of(case, **often).set_callbacks(StopAt(case["interrupt"]))
        stopped.fit(*given, **fit)
    resumed = estimator_of(case, **more).fit(*given, **fit)
    if "time_limit" in (whole.stop_reason_, resumed.stop_reason_):
        return  # where that was depends on the load of the machine
    differing = [name for name, one, other in parts_of(whole, resumed) if one != other]
    assert not differing, f"resumed: other bits of {', '.join(differing)}"


def parts_of(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what two fits must share to the bit."""
    for name in ("support", "intercept", "coefficients"):
        yield name, *(dense(getattr(each.model_, name)).tobytes() for each in (one, other))
    for name in sorted(set(one.certificate_) - COSTS):
        yield name, *(json.dumps(each.certificate_.get(name), default=str) for each in (one, other))


def dense(values: Any) -> Any:
    """Return an array, of a sparse one too."""
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def spoilt(kind: str, rows: Rows) -> tuple[Any, Any, Any]:
    """Return data that must be refused."""
    X, y, weights = rows.X.copy(), rows.y.copy(), rows.weights
    if kind in ("nan", "inf"):
        X = X.astype(np.result_type(X, np.float32))
        X[len(X) // 2, 0] = float(kind)
    elif kind == "short y":
        y = y[:-1]
    elif kind == "one class":
        y[:] = y[0]
    elif kind == "negative weight":
        weights = np.ones(len(y))
        weights[0] = -1.0
    elif kind == "mask":
        X = np.ma.masked_where(np.arange(X.size).reshape(X.shape) == 0, X)
    return X, y, weights
