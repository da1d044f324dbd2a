"""Compare the results of two commits bit for bit.

    git worktree add ../reference COMMIT
    PYTHONPATH=../reference python tools/same_results.py save FOLDER
    PYTHONPATH=. python tools/same_results.py compare FOLDER

Both commands train each run of `RUNS` on one thread with the package that PYTHONPATH names, through
the public API. ``save`` converts the data sets to stores and keeps stores, models and predictions
in FOLDER. ``compare`` trains on the stores that were saved, opens the models that were saved, and
prints a line for each run. Bits must agree on the same processor only, so both commands have to
run on one machine. The exit code is 1 if a run differs. Data sets are the files in the folder
BIGSVM_DATA; a run without its file is skipped, and a line says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import bigsvm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

PREDICTED = 500
"""Support vectors whose decision values are compared."""


class Run(NamedTuple):
    """One fit: a data set, an estimator and its parameters."""

    name: str
    data: str
    estimator: str
    parameters: dict[str, Any]


RUNS = (
    Run("a9a", "a9a", "SVC", {"C": 1.0, "gamma": 0.008}),
    Run("w8a", "w8a", "SVC", {"C": 8.0, "gamma": 0.05}),
    Run("w8a in 40 MB", "w8a", "SVC", {"C": 8.0, "gamma": 0.05, "memory": "40MB"}),
    Run("w8a uncertified", "w8a", "SVC", {"C": 8.0, "gamma": 0.05, "certify": False}),
    Run("usps one-vs-one", "usps", "SVC", {"C": 10.0}),
    Run("letter one-vs-one", "letter.scale", "SVC", {"C": 16.0}),
    Run("usps one-vs-rest", "usps", "SVC", {"C": 10.0, "multiclass": "ovr"}),
    Run("usps Crammer-Singer", "usps", "CrammerSingerSVC", {"C": 10.0}),
    Run(
        "usps textbook",
        "usps",
        "CrammerSingerSVC",
        {"C": 1.0, "working_set": "all", "order": "worst", "tol": 0.1},
    ),
    Run("cpusmall eps-svr", "cpusmall.scale", "SVR", {"C": 10.0, "epsilon": 1.0}),
    Run("cpusmall nu-svr", "cpusmall.scale", "NuSVR", {"C": 10.0, "nu": 0.3}),
    Run("a1a nu-svc", "a1a", "NuSVC", {"nu": 0.3}),
    Run("usps one-class", "usps", "OneClassSVM", {"nu": 0.1}),
    Run("a1a l2-svc", "a1a", "L2SVC", {"C": 2.0}),
    Run("w3a cvm", "w3a", "L2SVC", {"C": 8.0, "solver": "cvm"}),
    Run("w3a fw", "w3a", "L2SVC", {"C": 8.0, "solver": "fw", "certify": False}),
    Run("w3a mfw", "w3a", "L2SVC", {"C": 8.0, "solver": "mfw", "certify": False}),
    Run("w1a whole", "w1a", "SVC", {"C": 8.0, "working_set": "all", "shrinking": True}),
    Run("a1a poly", "a1a", "SVC", {"kernel": "poly", "coef0": 1.0}),
)


def train(run: Run, store: Path) -> tuple[dict[str, NDArray[Any]], bigsvm.KernelExpansion, float]:
    """Fit a run on its store.

    Returns
    -------
    values : dict
        Arrays that must have the same bits.
    model : KernelExpansion
    seconds : float
        Of CPU time.
    """
    parameters = {"n_jobs": 1, "random_state": 0, **run.parameters}
    estimator = getattr(bigsvm, run.estimator)(**parameters)
    began = time.process_time()
    estimator.fit(str(store))
    seconds = time.process_time() - began
    certificate = estimator.certificate_
    values = {
        "support": np.asarray(estimator.support_),
        "intercept": np.asarray(estimator.intercept_),
        "objective": _number(certificate["objective"]),
        "duality gap": _number(certificate["duality_gap"]),
        "kernel evaluations": np.asarray(certificate["n_kernel_evaluations"]),
    }
    values["coefficients"] = _dense(estimator.model_.coefficients)
    return values, estimator.model_, seconds


def _dense(coefficients: NDArray[np.float64] | sp.csr_array) -> NDArray[np.float64]:
    return coefficients.toarray() if sp.issparse(coefficients) else coefficients


def _number(value: float | None) -> NDArray[np.float64]:
    return np.asarray(np.nan if value is None else value, np.float64)


def outputs(model: bigsvm.KernelExpansion) -> NDArray[np.float64]:
    """Decision values of the first support vectors of a model."""
    return np.asarray(model.decision_function(model.support_vectors[:PREDICTED]))


def save(folder: Path) -> None:
    """Train every run and keep what it leaves."""
    data_folder = Path(os.environ["BIGSVM_DATA"])
    for run in RUNS:
        store = folder / f"{run.data}.zarr"
        text = data_folder / f"{run.data}.libsvm.gz"
        if not text.is_file():
            print(f"{run.name}: skipped, no {text.name} in the folder BIGSVM_DATA")
            continue
        if not store.exists():
            bigsvm.convert(text, store)
        values, model, seconds = train(run, store)
        model.save(folder / f"{run.name}.model")
        values["decision values"] = outputs(model)
        np.savez(folder / f"{run.name}.npz", **values)
        print(f"{run.name}: saved, {seconds:.1f} s", flush=True)


def compare(folder: Path) -> bool:
    """Train every run again; return whether all bits are those that were saved."""
    agree = True
    for run in RUNS:
        saved = folder / f"{run.name}.npz"
        if not saved.is_file():
            print(f"{run.name}: skipped, nothing was saved")
            continue
        store = folder / f"{run.data}.zarr"
        values, _, seconds = train(run, store)
        before = bigsvm.KernelExpansion.load(folder / f"{run.name}.model")
        values["decision values"] = outputs(before)
        with np.load(saved) as arrays:
            differing = [
                name
                for name in arrays.files
                if not np.array_equal(arrays[name], values[name], equal_nan=True)
            ]
        agree = agree and not differing
        state = f"differs in {', '.join(differing)}" if differing else "same bits"
        print(f"{run.name}: {state}, {seconds:.1f} s", flush=True)
    return agree


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("save", "compare"))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    print(f"bigsvm of {Path(bigsvm.__file__).parents[1]}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.command == "save":
        save(options.folder)
        return 0
    return 0 if compare(options.folder) else 1


if __name__ == "__main__":
    sys.exit(main())
