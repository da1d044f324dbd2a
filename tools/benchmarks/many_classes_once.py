"""One measurement of ``many_classes.py``, in a process of its own: prints one JSON object.

    many_classes_once.py prepare NAME ROWS FOLDER   arrays of a problem's parts: see `Prepared`
    many_classes_once.py fit WHO FOLDER PARAMETERS  train once; PARAMETERS is a JSON object of C,
                                                    gamma, tol and layout
    many_classes_once.py store letter PATH          a store of letter's training part
    many_classes_once.py store synthetic PATH CLASSES ROWS
                                                    a store of so many classes of so many rows

WHO is one of `METHODS`, ``separate``: as many binary `SVC` as there are classes, one after the
other, each class against the rest; or ``sklearnex``, scikit-learn-intelex's SVC. A fit is timed
after a tiny one of the same kind; labels of the test part are predicted after it.
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
from common import peak_so_far
from fit_once import CACHE_MEGABYTES
from many_classes_common import METHODS, estimator, few_of_each, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ARRAYS = ("x", "y", "test_x", "test_y")
LAYOUTS = ("dense", "csr")
N_COLUMNS = 32
SPREAD = 0.05
"""Standard deviation about the centre of a class, in a cube of side 1."""


def prepare(name: str, n_rows: int, folder: Path) -> dict[str, Any]:
    """Write the parts of a problem, its first rows of a random order that are trained on."""
    from many_classes_common import some_rows
    from timed_fits import UNHALVED, gamma_of

    (parts,) = read(name)
    rows = np.sort(some_rows(len(parts.y), n_rows, 0))
    parts = parts._replace(x=parts.x[rows], y=parts.y[rows])
    for array in ARRAYS:
        np.save(folder / f"{array}.npy", getattr(parts, array))
    n_classes = len(np.unique(parts.y))
    return {
        "gamma": gamma_of(parts.x, UNHALVED),
        "scaled": parts.scaled,
        "shape": [*parts.x.shape, n_classes],
        "n_tested": len(parts.test_y),
    }


def fit(who: str, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Train once, and test."""
    layout = given.pop("layout")
    x, y, test_x, test_y = (np.load(folder / f"{array}.npy") for array in ARRAYS)
    if layout == "csr":
        x, test_x = sp.csr_matrix(x), sp.csr_matrix(test_x)
    elif layout != "dense":
        raise SystemExit(f"unknown layout {layout}: dense or csr")
    run = separate if who == "separate" else joint
    few = few_of_each(y)
    run(who, x[few], y[few], x[few], given)
    answer, predicted = run(who, x, y, test_x, given)
    return {**answer, "accuracy": 100 * float(np.mean(predicted == test_y))}


def joint(
    who: str,
    x: Any,  # noqa: ANN401 (an array or CSR)
    y: NDArray[np.float64],
    test_x: Any,  # noqa: ANN401
    given: dict[str, Any],
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Train one estimator of all classes; also labels of `test_x`."""
    model = make(who, given)
    started = time.perf_counter()
    model.fit(x, y)
    seconds = time.perf_counter() - started
    answer = {
        "seconds": seconds,
        "peak_rss": peak_so_far(os.getpid()),
        "n_support": len(model.support_),
    }
    if who in METHODS:
        certificate = model.certificate_
        answer |= {name: certificate[name] for name in ("n_kernel_evaluations", "n_iter")}
        answer["converged"] = bool(certificate["converged"])
    return answer, model.predict(test_x)


def separate(
    who: str,
    x: Any,  # noqa: ANN401
    y: NDArray[np.float64],
    test_x: Any,  # noqa: ANN401
    given: dict[str, Any],
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Train each class against the rest by itself; sums over them, support vectors those of any."""
    del who  # it is the binary one
    classes = np.unique(y)
    values = np.empty((test_x.shape[0], len(classes)))
    support = np.zeros(len(y), np.bool_)
    sums = {"seconds": 0.0, "n_kernel_evaluations": 0, "n_iter": 0}
    converged = True
    for k, label in enumerate(classes):
        found = make("binary", given)
        of_class = np.where(y == label, 1.0, -1.0)
        started = time.perf_counter()
        found.fit(x, of_class)
        sums["seconds"] += time.perf_counter() - started
        for name in ("n_kernel_evaluations", "n_iter"):
            sums[name] += found.certificate_[name]
        converged &= bool(found.converged_)
        support[found.support_] = True
        values[:, k] = found.decision_function(test_x)
    answer = {
        **sums,
        "peak_rss": peak_so_far(os.getpid()),
        "n_support": int(support.sum()),
        "converged": converged,
    }
    return answer, classes[values.argmax(axis=1)]


def make(who: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 (a classifier)
    """Make somebody's estimator."""
    threads = int(os.environ["OMP_NUM_THREADS"])
    if who in METHODS:
        return estimator(who, **given, threads=threads)
    if who == "binary":
        from bigsvm import SVC

        return SVC(**given, n_jobs=threads)
    if who == "sklearnex":
        from sklearnex.svm import SVC

        return SVC(**given, cache_size=CACHE_MEGABYTES)
    raise SystemExit(f"unknown {who}: {', '.join(METHODS)}, separate or sklearnex")


def write(name: str, path: Path, x: NDArray[np.float32], y: NDArray[np.float64]) -> dict[str, Any]:
    """Write a store."""
    from bigsvm.data.write import write_store

    write_store(path, x, y)
    return {"name": name, "n_rows": len(y), "n_columns": x.shape[1]}


def synthetic_classes(
    n_classes: int, rows_per_class: int, n_columns: int = N_COLUMNS
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Make rows about a random centre each class, class by class: (n, n_columns), (n,)."""
    random = np.random.default_rng(0)
    centres = random.random((n_classes, n_columns))
    y = np.repeat(np.arange(n_classes), rows_per_class)
    x = centres[y] + SPREAD * random.standard_normal((len(y), n_columns))
    return x.astype(np.float32), y.astype(np.float64)


def main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["prepare", name, n_rows, folder]:
            answer = prepare(name, int(n_rows), Path(folder))
        case ["fit", who, folder, parameters]:
            answer = fit(who, Path(folder), json.loads(parameters))
        case ["store", "letter", path]:
            (parts,) = read("letter")
            answer = write("letter", Path(path), parts.x, parts.y)
        case ["store", "synthetic", path, n_classes, n_rows]:
            x, y = synthetic_classes(int(n_classes), int(n_rows))
            answer = write("synthetic", Path(path), x, y)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
