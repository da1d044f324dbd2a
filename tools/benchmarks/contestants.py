"""Who takes part in a benchmark, and what a child process measures of a fit.

    python -m tools.benchmarks.contestants JOBS

does the jobs of a JSON list, one after the other, and prints a JSON object for each:

prepare    write the rows of a case: arrays and, where they are asked for, stores, in each layout
fit        train once; the answer has seconds, cpu_seconds, peak_rss, n_support, objective and, as
           far as they are known or asked for, accuracy, floor_seconds and what the certificate has
           (n_kernel_evaluations, n_sweeps …)
floor      time one sweep over a store with the model that ``bigsvm train`` has left
calibrate  time a fixed matrix product, which shows how fast the machine is at the moment

or a function of a suite, ``module:function``. A fit is timed after a tiny one of the same type and
layout, so that imports, compilation and thread pools are not in it; nor is reading the rows. Its
peak of memory is that of the process when it ends. NumPy is imported inside functions only, as the
parent imports this module too.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tools.benchmarks.children import FIT_BEGAN, peak_so_far
from tools.benchmarks.data import DataSet, data_folder, even_and_odd, load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

Job = dict[str, Any]

OURS = ("store", "memory", "bigsvm", "this")
"""``store`` is the command line; ``memory`` and ``bigsvm`` are estimators on arrays, in the order
of the input; ``this`` is an estimator on the rows of a store, held or streamed."""
MODULES = {"sklearnex": "sklearnex", "sklearn": "sklearn.svm", "libsvm": "libsvm.svmutil"}
TOL = 1e-3
CACHE_MEGABYTES = 200
"""scikit-learn's default, and the best for scikit-learn-intelex: a larger one slows it down."""
CERTIFIED = (
    "converged", "gap", "duality_gap", "n_sweeps", "n_kernel_evaluations", "n_iter",
    "n_working_sets", "cpu_idle", "seconds_by_phase", "bytes_read", "n_bounded",
)  # fmt: skip
TINY_ROWS, TINY_STEPS = 300, 500
GEMM_SIZE = 2000
SPARSE = 1 / 3
"""With this share of values that are not 0, or less, rows are CSR where nothing else is asked."""


def is_installed(who: str) -> bool:
    """Whether a contestant can be imported here; says so where it cannot."""
    module = MODULES.get(who, "bigsvm")
    if importlib.util.find_spec(module.partition(".")[0]) is not None:
        return True
    print(f"skipped {who}: {module.partition('.')[0]} is not installed", file=sys.stderr)
    return False


def coefficients(model: Any) -> NDArray[np.float64]:  # noqa: ANN401 (ours or theirs)
    """Read the coefficients of the support vectors of one function, (n_support,)."""
    import numpy as np
    import scipy.sparse as sp

    found = model.dual_coef_  # CSR where the rows are
    return np.ravel(found.toarray() if sp.issparse(found) else found)


def dual_objective(
    x: Any,  # noqa: ANN401 (an array or CSR)
    beta: NDArray[np.float64],
    gamma: float,
) -> float:
    """Compute sum |beta| - beta' K beta / 2 with the rbf kernel, in float64.

    Parameters
    ----------
    x : (n_support, d)
        Support vectors, dense or CSR.
    beta : (n_support,) float64
        Label times alpha: `coefficients`.
    """
    import numpy as np
    from sklearn.metrics.pairwise import rbf_kernel

    x = x.astype(np.float64)
    quadratic = 0.0
    for start in range(0, len(beta), 1024):
        part = slice(start, start + 1024)
        quadratic += float(beta[part] @ (rbf_kernel(x[part], x, gamma=gamma) @ beta))
    return float(np.abs(beta).sum()) - quadratic / 2


def prepare(job: Job) -> dict[str, Any]:
    """Write what the fits of a case read; describe it."""
    import numpy as np
    import scipy.sparse as sp

    data, folder = DataSet(*job["data"]), Path(job["folder"])
    if data.name.startswith("connections-"):
        from tools.benchmarks import kdd_like

        kdd_like.write(folder / f"{data.name}.dense.zarr", n_rows=data.n_made)
        return {"n_rows": data.n_made, "n_columns": kdd_like.N_COLUMNS}
    x, y = load(data, data_folder())
    if job["labels"] == "even against odd":
        y = even_and_odd(y)
    np.save(folder / f"{data.name}.y.npy", y)
    facts = {
        "n_rows": x.shape[0],
        "n_columns": x.shape[1],
        "density": x.nnz / (x.shape[0] * x.shape[1]) if sp.issparse(x) else 1.0,
        "n_classes": len(np.unique(y)),
    }
    if job["distances"]:
        dense = x.toarray() if sp.issparse(x) else x
        facts["mean_distance"] = 2 * float(dense.var(axis=0, dtype=np.float64).sum())
    few = few_of_each(y)
    for layout in job["layouts"]:
        if layout == "csr":
            rows = sp.csr_matrix(x, dtype=np.float32)
            sp.save_npz(folder / f"{data.name}.npz", rows, compressed=False)
        else:
            rows = np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float32)
            np.save(folder / f"{data.name}.npy", rows)
        if job["stores"]:
            from bigsvm import open_store, write_store

            path, kind = (
                folder / f"{data.name}.{layout}.zarr",
                {"csr": "sparse"}.get(layout, layout),
            )
            write_store(path, rows, y, layout=kind)
            write_store(path.with_suffix(".tiny.zarr"), rows[few], y[few], layout=kind)
            stored = open_store(path).rows
            facts[f"row_bytes {layout}"] = round(stored.n_rows * stored.bytes_per_row)
    return facts


def few_of_each(y: NDArray[np.float64], n: int = TINY_ROWS) -> NDArray[np.int64]:
    """Give the first rows and the first of every class, where y has classes and not targets."""
    import numpy as np

    few, firsts = np.arange(min(n, len(y))), np.unique(y, return_index=True)[1]
    return np.union1d(few, firsts) if len(firsts) <= TINY_ROWS else few


def read_rows(job: Job) -> Any:  # noqa: ANN401 (an array or CSR)
    """Read what `prepare` wrote: (n, d) float32, an array or CSR."""
    import numpy as np
    import scipy.sparse as sp

    path = Path(job["folder"]) / job["name"]
    if job["layout"] == "dense":
        return np.load(f"{path}.npy")
    return sp.load_npz(f"{path}.npz")


def threads() -> int:
    """Threads that the parent has set."""
    return int(os.environ["OMP_NUM_THREADS"])


class Libsvm:
    """LIBSVM's own Python interface, with the names of scikit-learn's ``SVC``; rbf kernel."""

    def __init__(self, *, C: float, gamma: float, tol: float, cache_size: float) -> None:
        self._options = f"-q -s 0 -t 2 -c {C!r} -g {gamma!r} -e {tol!r} -m {cache_size!r}"

    def fit(self, x: Any, y: NDArray[np.float64]) -> Libsvm:  # noqa: ANN401
        """Train; x CSR, y (n,)."""
        import numpy as np
        import scipy.sparse as sp
        from libsvm.svmutil import svm_train

        self._model = svm_train(y, sp.csr_matrix(x), self._options)
        self.support_ = np.asarray(self._model.get_sv_indices()) - 1
        self.dual_coef_ = np.asarray(self._model.get_sv_coef()).T
        return self

    def score(self, x: Any, y: NDArray[np.float64]) -> float:  # noqa: ANN401
        """Give the share of rows that are right."""
        import scipy.sparse as sp
        from libsvm.svmutil import svm_predict

        return float(svm_predict(y, sp.csr_matrix(x), self._model, "-q")[1][0]) / 100


def estimator(job: Job, **changed: Any) -> Any:  # noqa: ANN401 (an estimator of any contestant)
    """Make the contestant's SVC with the parameters of the job."""
    who, parameters = job["who"], {"tol": TOL, **job["parameters"], **changed}
    if who in OURS:
        import bigsvm

        kind = getattr(bigsvm, parameters.pop("formulation", "SVC"))
        if who == "this" and job.get("memory"):  # others have the default budget
            parameters["memory"] = job["memory"]
        return kind(**parameters, n_jobs=threads())
    parameters["cache_size"] = job.get("cache", CACHE_MEGABYTES)
    if who == "libsvm":
        return Libsvm(**parameters)
    module = importlib.import_module("sklearnex.svm" if who == "sklearnex" else "sklearn.svm")
    return getattr(module, parameters.pop("formulation", "SVC"))(**parameters)


def own_solver() -> AbstractContextManager[None]:
    """Have small problems solved by the compiled code that large ones need, which is so loaded."""
    return mock.patch.dict(os.environ, BIGSVM_SMALL="never")


def tiny(layout: str, n_columns: int, dtype: Any) -> tuple[Any, NDArray[np.float64]]:  # noqa: ANN401
    """Make a problem that compiles and loads what the real one needs."""
    import numpy as np
    import scipy.sparse as sp

    random = np.random.default_rng(0)
    x = random.random((TINY_ROWS, n_columns)).astype(dtype)
    y = np.where(random.random(TINY_ROWS) < 0.5, -1.0, 1.0)
    if layout == "csr":
        x[x < 0.75] = 0
        return sp.csr_matrix(x), y
    return x, y


def rows_and_labels(job: Job) -> tuple[Any, Any]:
    """Give what is fitted: arrays in the order of the input, or a store or its rows."""
    import numpy as np

    if job["who"] != "this":
        return read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    from bigsvm import open_store

    store = open_store(Path(job["folder"]) / f"{job['name']}.{job['layout']}.zarr")
    store.rows.read(0, min(TINY_ROWS, store.rows.n_rows))
    if job["rows"] == "streamed":
        return store, None
    return store.rows.read(0, store.rows.n_rows), store.labels()


def timed(model: Any, *rows: Any) -> dict[str, Any]:  # noqa: ANN401 (of any contestant)
    """Train once; what it took, and what the certificate has."""
    fetched = fetched_bytes()
    print(f"{FIT_BEGAN}{time.time()!r}", flush=True)
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(*rows)
    answer = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "peak_rss": peak_so_far(os.getpid()),
        "n_support": len(model.support_),
    }
    if fetched is not None:
        answer["from_disk"] = (fetched_bytes() or 0) - fetched
    if hasattr(model, "certificate_"):
        certificate = model.certificate_
        answer |= {name: certificate[name] for name in CERTIFIED if name in certificate}
        answer["stopped"] = str(model.stop_reason_)
    return answer


def fit(job: Job) -> dict[str, Any]:
    """Train once."""
    import numpy as np

    warnings.simplefilter("ignore")  # others warn of parameters that they will rename
    # scikit-learn converts to float64 whatever it is given; this does it outside the clock.
    dtype = np.dtype(np.float64 if job["who"] in ("sklearn", "libsvm") else np.float32)
    with own_solver():
        estimator(job, C=1.0).fit(*tiny(job["layout"], job["n_columns"], dtype))
    x, y = rows_and_labels(job)
    if job["who"] in MODULES:
        x = x.astype(dtype, copy=False)
    model = estimator(job)
    answer = timed(model, x) if y is None else timed(model, x, y)
    parameters = {"kernel": "rbf", **job["parameters"]}
    if job["who"] == "this":  # another sum would be long among very many support vectors
        answer["objective"] = model.certificate_["objective"]
    elif parameters["kernel"] == "rbf" and job["n_classes"] == 2:
        answer["objective"] = dual_objective(
            x[model.support_], coefficients(model), parameters["gamma"]
        )
    if job["accuracy"]:
        answer["accuracy"] = 100 * float(model.score(x, y))
    if job["floors"] and job["who"] in OURS and y is not None:
        model.decision_function(x[:TINY_ROWS])
        started = time.perf_counter()
        model.decision_function(x)
        answer["floor_seconds"] = time.perf_counter() - started
    return answer


def train_and_test(
    job: Job,
    model: Any,  # noqa: ANN401 (any classifier)
    *,
    dense: bool = False,
    tiny: tuple[int, int] = (TINY_ROWS, TINY_STEPS),
) -> dict[str, Any]:
    """Train a model of a suite's own on the rows of a case, and test it on the data's test part.

    A fit of `tiny` rows and steps comes first, as in `fit`. With `dense` rows become an array,
    whatever their layout.
    """
    import numpy as np
    import scipy.sparse as sp

    warnings.simplefilter("ignore")  # who is not certified says so in `stopped`
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    x = x.toarray() if dense and sp.issparse(x) else x
    few, most = few_of_each(y, tiny[0]), model.max_iter
    with own_solver():
        model.set_params(max_iter=tiny[1]).fit(x[few], y[few])
    model.set_params(max_iter=most)
    answer = timed(model, x, y)
    data = DataSet(job["name"], x.shape[1], positive=tuple(job["positive"]), n_made=job["n_made"])
    test_x, test_y = load(data, data_folder(), test=True)
    if sp.issparse(test_x) and not sp.issparse(x):
        test_x = test_x.toarray()
    test_x = test_x.astype(np.float32)
    return answer | {"accuracy": 100 * float(model.score(test_x, test_y))}


def fetched_bytes() -> int | None:
    """Bytes that the system has fetched from disks for this process, where it counts them."""
    counted = Path("/proc/self/io")
    if not counted.exists():
        return None
    return int(dict(line.split(": ") for line in counted.read_text().splitlines())["read_bytes"])


def floor(job: Job) -> dict[str, Any]:
    """Time one sweep of the store with the support vectors of the model trained on it last."""
    from bigsvm import KernelExpansion, open_store

    folder = Path(job["folder"])
    model = KernelExpansion.load(folder / "model.safetensors")
    source = open_store(folder / f"{job['name']}.{job['layout']}.zarr").rows
    few = open_store(folder / f"{job['name']}.{job['layout']}.tiny.zarr").rows
    model.decision_function(few, threads=threads())
    started = time.perf_counter()
    model.decision_function(source, threads=threads())
    return {"seconds": time.perf_counter() - started}


def calibrate(job: Job) -> dict[str, Any]:
    """Time a fixed product of two float32 matrices, the best of three."""
    import numpy as np

    size = job.get("size", GEMM_SIZE)
    a = np.random.default_rng(0).random((size, size), dtype=np.float32)
    a @ a
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds)}


JOBS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "prepare": prepare, "fit": fit, "floor": floor, "calibrate": calibrate
}  # fmt: skip


def use_checkout(folder: str) -> None:
    """Have bigsvm imported from another checkout, and this module's neighbours from here."""
    sys.path.insert(0, folder)
    found = Path(importlib.import_module("bigsvm").__file__ or "").resolve()
    sys.path.remove(folder)
    if not found.is_relative_to(Path(folder).resolve()):
        raise SystemExit(f"bigsvm of {folder} was asked for after {found}: one process, one bigsvm")


def do(job: Job) -> dict[str, Any]:
    """Do a job: one of `JOBS`, or a function of a suite."""
    module, _, function = job["do"].rpartition(":")
    return (getattr(importlib.import_module(module), function) if module else JOBS[function])(job)


def main(arguments: Sequence[str]) -> None:
    for job in json.loads(arguments[0]):
        if job.get("checkout"):
            use_checkout(job["checkout"])
        print(json.dumps(do(job)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
