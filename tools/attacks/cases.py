"""Cases of the random check: a dictionary of plain values each, which says all of a fit.

``judge(case)`` makes the data, fits, saves, predicts, and returns how that ended. A case holds all
that it needs, so that a corpus of them stays as it is when the drawing changes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
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
from bigsvm.errors import BigsvmError, MemoryBudgetError

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
LONGEST_REFUSAL = 400
COSTS = frozenset({
    "seconds", "seconds_by_phase", "cpu_idle", "disk_tier", "bytes_read", "row_misses", "row_reads",
    "n_kernel_evaluations", "rows_swept", "n_workers", "tasks", "tasks_again", "bytes_sent",
    "bytes_returned", "pairs",
})  # fmt: skip
"""Fields of a certificate that depend on memory, threads, workers and interruptions."""
KNOWN_WARNINGS = re.compile(
    "training did not converge|is not small beside rho|raise nu|may still be outside|"
    "number of unique classes|classes, which is more than half|the margin is 0|no row of class|"
    "(?i:advice)"
)


@dataclass(frozen=True, kw_only=True)
class Cauchy(bigsvm.Kernel):
    """A kernel of a user's own: ``1 / (1 + |a - b|² / width²)``."""

    name = "cauchy"
    width: float = 1.0

    def from_products(self, dots: F8, norms_rows: F8, norms_columns: F8) -> F8:
        """Return the kernel values, by the formula."""
        squared = np.add.outer(norms_rows, norms_columns) - 2 * np.asarray(dots, np.float64)
        return 1 / (1 + np.maximum(squared, 0) / self.width**2)


class Ended(NamedTuple):
    """How a case ended: "right", "refused", "wrong" or "raw", and why in words."""

    how: str
    why: str = ""


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
    warned: list[str]


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
        texts = [f"{each.category.__name__}: {each.message}" for each in warned]
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
    more = {**more, "checkpoint": str(checkpoint), "checkpoint_every": 1e-9}
    if case["interrupt"] < 0:
        child = {**case, "params": {**case["params"], **more}, "interrupt": 0}
        script = Path(__file__).parents[1] / "reliability.py"
        command = [sys.executable, str(script), "random", "--kill-at", str(-case["interrupt"])]
        subprocess.run([*command, "--case", json.dumps(child, default=str)], capture_output=True)
    else:
        stopped = estimator_of(case, **more).set_callbacks(StopAt(case["interrupt"]))
        stopped.fit(*given, **fit)
    resumed = estimator_of(case, **more).fit(*given, **fit)
    if "time_limit" in (whole.stop_reason_, resumed.stop_reason_):
        return  # where that was depends on the load of the machine
    differing = [name for name, one, other in parts_of(whole, resumed) if one != other]
    assert not differing, f"resumed: other bits of {', '.join(differing)}"


def parts_of(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what two fits must share to the bit."""
    for name in ("support", "intercept", "coefficients"):
        yield name, *(_dense(getattr(each.model_, name)).tobytes() for each in (one, other))
    for name in sorted(set(one.certificate_) - COSTS):
        yield name, *(json.dumps(each.certificate_.get(name), default=str) for each in (one, other))


def _dense(values: Any) -> Any:
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


# -- the verdict ---------------------------------------------------------------------------------


def judge(case: dict[str, Any], *, kill_at: int | None = None) -> Ended:
    """Run a case and hold its result to the oracle; or end this process at an event of the fit."""
    try:
        with tempfile.TemporaryDirectory() as name:
            rows, folder = rows_of(case), Path(name)
            try:
                found = fitted(case, rows, folder, kill_at=kill_at)
            except (BigsvmError, ValueError, TypeError) as error:
                return refusal(error)
            if case.get("spoil"):
                return Ended("wrong", f"{case['spoil']} was not refused")
            faults = list(checked(case, found, rows, folder))
    except AssertionError as error:
        return Ended("wrong", str(error))
    except Exception:
        return Ended("raw", traceback.format_exc(limit=-4))
    return Ended("wrong", "; ".join(faults)) if faults else Ended("right")


def refusal(error: Exception) -> Ended:
    """Judge a refusal: one sentence, and not an error of Python's own."""
    text = str(error)
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    if not (isinstance(error, BigsvmError) or "sklearn" in innermost):
        return Ended("raw", "".join(traceback.format_exception(error, limit=-4)))
    is_own = isinstance(error, BigsvmError)
    if is_own and ("\n" in text or not 0 < len(text) <= LONGEST_REFUSAL):
        return Ended("wrong", f"refused in {len(text)} characters: {text[:600]!r}")
    return Ended("refused", f"{type(error).__name__}: {text}")


def checked(case: dict[str, Any], found: Fitted, rows: Rows, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a fitted estimator."""
    model, reason = found.estimator, found.estimator.stop_reason_
    yield from (f"warning {text[:300]}" for text in found.warned if not KNOWN_WARNINGS.search(text))
    if model.converged_ != (reason == "converged"):
        yield f"converged_ is {model.converged_} with {reason}"
    said = any("did not converge" in text for text in found.warned)
    if reason != "sampled" and said == model.converged_:
        yield f"converged_ is {model.converged_}, and that it did not converge was said: {said}"
    kernel = dict(model.model_.kernel.describe())
    centre = None if found.is_sparse or kernel["name"] == "cauchy" else found.X.mean(axis=0)
    yield from _gamma(case, found, kernel)
    others = np.arange(len(found.X)) if kernel["name"] == "precomputed" else found.X
    K = oracle.gram(found.X, others, kernel, centre=centre)
    if case["formulation"] == "l2-svc" or case["params"].get("fit_intercept"):
        K = oracle.Gram(K.values + 1.0, K.terms + 1.0)
    if case["params"].get("calibration") is None:
        yield from _point(case, found, K)
    yield from _values(case, found, rows, kernel, centre, folder)


def _gamma(case: dict[str, Any], found: Fitted, kernel: dict[str, Any]) -> Iterator[str]:
    asked, d = case["params"].get("gamma", "scale"), found.X.shape[1]
    if "gamma" not in kernel or case["params"].get("calibration"):
        return
    if asked == "scale":
        mean = np.average(found.X.mean(axis=1), weights=found.weights)
        variance = np.average(((found.X - mean) ** 2).mean(axis=1), weights=found.weights)
        # Columns that are alike in all rows leave rounding.
        asked = 1.0 if variance <= 1e-28 * mean**2 else 1.0 / (d * variance)
    elif asked == "auto":
        asked = 1.0 / d
    elif isinstance(asked, str):
        return
    if not abs(kernel["gamma"] - asked) <= 1e-6 * asked:
        yield f"gamma is {kernel['gamma']!r}, not {asked!r}"


class Function(NamedTuple):
    """The problem of one function: its rows, their signs or targets, and their bounds."""

    rows: NDArray[np.int64]
    target: F8
    bound: F8


def _class_weights(case: dict[str, Any], found: Fitted, codes: NDArray[np.int64], k: int) -> F8:
    given = case["params"].get("class_weight")
    if given is None:
        return np.ones(k)
    if given == "balanced":
        counts = np.bincount(codes[found.weights > 0], minlength=k)
        return counts.sum() / (k * np.maximum(counts, 1))
    of = dict(map(tuple, given))
    return np.array([of.get(label, 1.0) for label in found.estimator.classes_.tolist()])


def functions_of(case: dict[str, Any], found: Fitted, codes: NDArray[np.int64]) -> list[Function]:
    """State the problem of each function."""
    model, formulation, n = found.estimator, case["formulation"], len(found.y)
    every = np.arange(n)
    bound = getattr(model, "C", 1.0) * found.weights
    if formulation in REGRESSIONS:
        return [Function(every, found.y.astype(np.float64), bound)]
    if formulation in ONE_CLASS:
        return [Function(every, np.ones(n), bound)]
    k = len(model.classes_)
    weight = _class_weights(case, found, codes, k)
    if model.model_.rule is None:
        return [Function(every, np.where(codes == 1, 1.0, -1.0), bound * weight[codes])]
    if model.model_.rule != "ovr":
        of_pairs = []
        for first, second in oracle.pairs(k):
            rows = np.flatnonzero((codes == first) | (codes == second))
            sign = np.where(codes[rows] == second, 1.0, -1.0)
            of_pairs.append(Function(rows, sign, (bound * weight[codes])[rows]))
        return of_pairs
    if case["params"].get("class_weight") != "balanced":
        return [Function(every, np.where(codes == r, 1.0, -1.0), bound * weight[codes])
                for r in range(k)]  # fmt: skip
    counts = np.bincount(codes[found.weights > 0], minlength=k)
    return [
        Function(
            every,
            np.where(codes == r, 1.0, -1.0),
            bound * counts.sum() / np.where(codes == r, 2 * counts[r], 2 * (n_all - counts[r])),
        )
        for n_all in [counts.sum()]
        for r in range(k)
    ]


def _point(case: dict[str, Any], found: Fitted, K: oracle.Gram) -> Iterator[str]:
    """Hold box, sums, gaps and objective to the certificate."""
    model, formulation = found.estimator, case["formulation"]
    expansion, certificate = model.model_, model.certificate_
    if case["params"].get("loss") == "squared_hinge":
        formulation += " squared hinge"
    beta = np.zeros((len(found.y), np.size(expansion.intercept)))
    beta[expansion.support] = _dense(expansion.coefficients).reshape(-1, beta.shape[1])
    if not (np.isfinite(beta).all() and np.isfinite(expansion.intercept).all()):
        yield "a coefficient or an intercept is not finite"
        return
    codes = np.zeros(len(beta), np.int64)
    if hasattr(model, "classes_"):
        codes = np.searchsorted(model.classes_, found.y)
    if formulation == "crammer-singer":
        weight = _class_weights(case, found, codes, beta.shape[1])
        bound = model.C * found.weights * weight[codes]
        standings = [oracle.standing_of_classes(K, beta, codes, bound)]
    else:
        standings = []
        for column, function in enumerate(functions_of(case, found, codes)):
            intercept = float(np.ravel(expansion.intercept)[column])
            of_rows = beta[function.rows, column]
            if np.count_nonzero(beta[:, column]) != np.count_nonzero(of_rows):
                yield f"function {column} has coefficients of rows that are not its own"
            if not (of_rows.any() or model.converged_):
                continue  # it was never begun
            extra = {"epsilon": certificate.get("epsilon")}
            if formulation == "nu-svc":
                extra["rho"], fault = _rho(model, function, of_rows)
                if fault:
                    yield fault
            part = oracle.Gram(*(M[np.ix_(function.rows, function.rows)] for M in K))
            made = oracle.variables(
                formulation, of_rows, intercept, function.target, function.bound,
                model.get_params(deep=False), extra,
            )  # fmt: skip
            one = oracle.standing(part, made)
            if formulation == "nu-svc" and extra["rho"] == 0:
                # The thresholds may have crossed, and only their middle is known.
                one = one._replace(duality_error=np.inf)
            if formulation == "nu-svr":
                size, most = np.abs(of_rows).sum(), model.nu * function.bound.sum()
                one = one._replace(objective=one.objective + extra["epsilon"] * size)
                is_full = size >= most * (1 - 1e-9)
                if size > most * (1 + 1e-9) or not (
                    is_full or not model.converged_ or extra["epsilon"] <= 2 * model.tol
                ):
                    yield f"sums: |beta| adds up to {size:.9g}, and nu asks for {most:.9g}"
                if not is_full:
                    one = one._replace(objective_error=np.inf, duality_error=np.inf)
            standings.append(one)
    for one in standings:
        yield from one.faults
    yield from _certificate(case, model, standings)


def _rho(model: Any, function: Function, beta: F8) -> tuple[float, str]:
    """Rho of a function of nu-svc, by which its coefficients were divided."""
    totals = [function.bound[function.target * side > 0].sum() for side in (-1, 1)]
    rho = min(0.5 * model.nu * sum(totals), *totals) / max(beta[function.target > 0].sum(), 1e-300)
    said = model.certificate_.get("rho")
    if said is None:  # of many functions: 0 where nothing was divided
        return (0.0 if abs(rho - 1) <= 1e-9 else rho), ""
    fault = "" if abs(rho - (said or 1.0)) <= 1e-9 * rho else f"rho is {said}, not {rho}"
    return said, fault


def _certificate(
    case: dict[str, Any], model: Any, standings: list[oracle.Standing]
) -> Iterator[str]:
    """Hold the gaps and the objective that the certificate says to those of the point."""
    said, formulation = model.certificate_, case["formulation"]
    is_ball = formulation.startswith("l2-")
    tol = getattr(model, "tol", None)
    if model.converged_ and tol is not None:
        times = 2.0 if formulation == "nu-svr" else 1.0  # two groups, each within tol of its own
        for one in standings:
            if not one.gap <= times * tol + one.gap_error:
                yield f"KKT gap {one.gap:.6g} of a converged run, tol {tol:g}, {one.gap_error=:.2g}"
    if said["stop_reason"] in ("interrupted", "callback", "time_limit", "sampled", "core_full"):
        return
    if not standings or said["gap"] is None:
        return
    gap, gap_error = max((one.gap, one.gap_error) for one in standings)
    if not (is_ball or formulation == "nu-svr") and not abs(gap - said["gap"]) <= gap_error:
        yield f"gap_ is {said['gap']:.9g}, but {gap:.9g} by the oracle, {gap_error=:.2g}"
    for name in ("objective", "duality_gap"):
        found = sum(getattr(one, name) for one in standings)
        error = sum(getattr(one, "duality_error" if "y" in name else "objective_error")
                    for one in standings)  # fmt: skip
        if not abs(found - said[name]) <= error:
            yield f"{name}_ is {said[name]:.12g}, but {found:.12g} by the oracle, {error=:.2g}"


def _values(
    case: dict[str, Any],
    found: Fitted,
    rows: Rows,
    kernel: dict[str, Any],
    centre: F8 | None,
    folder: Path,
) -> Iterator[str]:
    """Hold decision values, predictions, probabilities and the saved model to the oracle."""
    model, expansion = found.estimator, found.estimator.model_
    kind = case["predict_in"]
    held_out = np.asarray(rows.held_out, np.float64)
    if kernel["name"] == "precomputed":
        held_out, vectors = held_out[:, found.order], expansion.support
    else:
        vectors = found.X[expansion.support]
    if kind in ("csr", "csc", "coo"):
        centre = None
    K = oracle.gram(held_out, vectors, kernel, centre=centre)
    F, error = oracle.outputs(
        K, _dense(expansion.coefficients), expansion.intercept,
        single=np.can_cast(rows.X.dtype, np.float32),
    )  # fmt: skip
    where, order = folder / "held out", {}
    where.mkdir()
    given: Any
    if kind == "shuffled":
        given, order = str(where / "store"), {"order": "input"}
        bigsvm.write_store(given, rows.held_out, np.zeros(len(held_out)), memory="64MB")
    else:
        given = contained(kind, rows.held_out, where)
    values = np.asarray(expansion.decision_function(given))
    if kind == "shuffled":
        values = bigsvm.open_store(given).in_input_order(values)
    off = np.abs(values - F) - error
    if not (off <= 0).all():
        i = np.unravel_index(int(np.argmax(off)), off.shape)
        by = f"{values[i] - F[i]:.3g}, not {error[i]:.3g}"
        yield f"decision value of row {i[0]} is off by {by}, from {F[i]:.9g}"
        return
    predicted = np.asarray(model.predict(given, **order))
    yield from _predicted(case, model, values, predicted)
    model.save(folder / "model")
    again = bigsvm.load(folder / "model")
    if np.asarray(again.predict(given, **order)).tolist() != predicted.tolist():
        yield "the model that was saved predicts something else"
    if hasattr(model, "predict_proba"):
        shares = np.asarray(model.predict_proba(given, **order))
        if not ((shares >= 0).all() and np.allclose(shares.sum(axis=1), 1.0, rtol=0, atol=1e-12)):
            yield f"probabilities are from {shares.min()}, their sums {shares.sum(axis=1)[:5]}"


def _predicted(
    case: dict[str, Any], model: Any, values: F8, predicted: NDArray[Any]
) -> Iterator[str]:
    """Hold predictions, and the attributes of scikit-learn, to the values of the functions."""
    formulation, expansion = case["formulation"], model.model_
    if formulation in REGRESSIONS:
        expected: Any = values
    elif formulation in ONE_CLASS:
        expected = np.where(values >= 0, 1, -1)
    elif expansion.rule is None:
        expected = model.classes_[(values > 0).astype(int)]
    else:
        rule = "ovo-break-ties" if case["params"].get("break_ties") else expansion.rule
        expected = model.classes_[oracle.decide(values, rule, len(model.classes_))]
    if predicted.tolist() != np.asarray(expected).tolist():
        row = int(np.argmax(predicted != expected))
        yield f"row {row} is predicted as {predicted[row]!r}, not {expected[row]!r}"
    if expansion.rule is None:
        if not np.array_equal(np.ravel(_dense(model.dual_coef_)), expansion.coefficients):
            yield "dual_coef_ is not that of the model"
    elif expansion.rule.startswith("ovo"):
        yield from _of_pairs(model)


def _of_pairs(model: Any) -> Iterator[str]:
    """Read the functions of pairs as scikit-learn's documentation says."""
    expansion, k = model.model_, len(model.classes_)
    of = _dense(expansion.coefficients)
    dual, starts = _dense(model.dual_coef_), np.concatenate([[0], np.cumsum(model.n_support_)])
    for number, (first, second) in enumerate(oracle.pairs(k)):
        beta = np.zeros(int(expansion.support.max(initial=-1)) + 1)
        for own, other in ((first, second), (second, first)):
            part = slice(starts[own], starts[own + 1])
            beta[model.support_[part]] = dual[other - (other > own), part]
        if not np.array_equal(beta[expansion.support], -of[:, number]):
            yield f"dual_coef_ of the pair {first}, {second} is not that of its function"
    if not np.array_equal(model.intercept_, -np.ravel(expansion.intercept)):
        yield "intercept_ is not that of the functions"
