"""Compare the results of two commits bit for bit.

    git worktree add ../reference COMMIT
    PYTHONPATH=../reference python tools/same_results.py save FOLDER
    PYTHONPATH=. python tools/same_results.py compare FOLDER

Both commands do each run of `RUNS` on one thread with the package that PYTHONPATH names, through
the public API. ``save`` converts the data sets to stores and keeps stores, models and predictions
in FOLDER. ``compare`` trains on the stores that were saved, opens the models that were saved, and
prints a line for each run. Bits must agree on the same processor only, so both commands have to
run on one machine. The exit code is 1 if a run differs. Data sets are the files in the folder
BIGSVM_DATA; a run without its file is skipped, and a line says so. With names, only these runs are
done.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning

import bigsvm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bigsvm.estimators.base import KernelMachine

    Fit = Callable[["KernelMachine", "Place"], "KernelMachine"]

os.environ["BIGSVM_SMALL"] = "never"  # the bits of our own solver

PREDICTED = 500
"""Support vectors whose decision values are compared."""
MOMENTS = (0.25, 0.5, 0.75)
"""Shares of the pair steps after which a run is interrupted, and resumed."""


class Place(NamedTuple):
    """Where the data of a run are, and what it may write."""

    text: Path
    """LIBSVM text."""
    store: Path
    """A store of it."""
    new: Path
    """An empty folder."""

    def rows(self) -> tuple[sp.csr_matrix, NDArray[np.float64]]:
        """Read the text."""
        X, y = load_svmlight_file(str(self.text))
        return X, y


def fit_store(estimator: KernelMachine, place: Place) -> KernelMachine:
    """Fit a store."""
    return estimator.fit(str(place.store))


def fit_held(contained: Callable[[sp.csr_matrix], Any]) -> Fit:
    """Return a fit of rows in memory, in some container."""

    def fit(estimator: KernelMachine, place: Place) -> KernelMachine:
        X, y = place.rows()
        return estimator.fit(contained(X), y)

    return fit


def fit_zarr(estimator: KernelMachine, place: Place) -> KernelMachine:
    """Fit an array of Zarr."""
    X, y = place.rows()
    array = zarr.create_array(
        place.new / "X.zarr", shape=X.shape, chunks=(1000, X.shape[1]), dtype=np.float64
    )
    array[:] = X.toarray()
    return estimator.fit(array, y)


def fit_on_workers(estimator: KernelMachine, place: Place) -> KernelMachine:
    """Fit a store on two workers."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        return estimator.fit(str(place.store), client=client)


def fit_resumed(estimator: KernelMachine, place: Place) -> KernelMachine:
    """Fit a store with a checkpoint, interrupted after some shares of the steps."""
    from sklearn.base import clone

    n_steps = clone(estimator).fit(str(place.store)).certificate_["n_iter"]
    estimator.set_params(checkpoint=str(place.new / "checkpoint"))
    for share in MOMENTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            clone(estimator).set_params(max_iter=int(share * n_steps)).fit(str(place.store))
    return estimator.fit(str(place.store))


fit_csr = fit_held(lambda X: X)
fit_array = fit_held(lambda X: X.toarray())
fit_dask = fit_held(lambda X: da.from_array(X.toarray(), chunks=(1000, -1)))
fit_frame = fit_held(lambda X: pd.DataFrame(X.toarray()))


class Run(NamedTuple):
    """One fit: a data set, an estimator and its parameters, and how it gets the rows."""

    name: str
    data: str
    estimator: str
    parameters: dict[str, Any]
    fit: Fit = fit_store


class Work(NamedTuple):
    """Another work on a data set; returns arrays that must have the same bits."""

    name: str
    data: str
    do: Callable[[Place], dict[str, NDArray[Any]]]


def search(place: Place) -> dict[str, NDArray[Any]]:
    """Search a grid."""
    grid = {"C": [1.0, 8.0, 64.0], "gamma": [0.008, 0.03]}
    model = bigsvm.SVC(n_jobs=1, random_state=0)
    found = bigsvm.SearchCV(model, grid, cv=3).fit(str(place.store))
    values = {
        name: np.asarray(values, np.float64)
        for name, values in found.cv_results_.items()
        if "test" in name
    }
    best = found.best_estimator_
    return {**values, "coefficients": _dense(best.model_.coefficients)}


def validate(place: Place) -> dict[str, NDArray[Any]]:
    """Cross-validate."""
    model = bigsvm.SVC(C=8.0, gamma=0.008, n_jobs=1, random_state=0)
    found = bigsvm.cross_validate(model, str(place.store), cv=3)
    arrays = {name: np.asarray(values) for name, values in found.items() if "time" not in name}
    return {name: array for name, array in arrays.items() if array.dtype.kind in "biuf"}


def write(place: Place) -> dict[str, NDArray[Any]]:
    """Write stores of arrays."""
    X, y = place.rows()
    bigsvm.write_store(place.new / "sparse.zarr", X, y)
    bigsvm.write_store(place.new / "dense.zarr", X.toarray(), y)
    return {name: _bytes_of(place.new / f"{name}.zarr") for name in ("sparse", "dense")}


def convert(place: Place) -> dict[str, NDArray[Any]]:
    """Convert text, and scale the store."""
    bigsvm.convert(place.text, place.new / "rows.zarr")
    bigsvm.scale_store(place.new / "rows.zarr", place.new / "scaled.zarr")
    return {name: _bytes_of(place.new / f"{name}.zarr") for name in ("rows", "scaled")}


def _bytes_of(store: Path) -> NDArray[Any]:
    """Digest of the chunks of a store; its metadata have times and versions."""
    digest = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.suffix != ".json":
            digest.update(f"{path.relative_to(store)}".encode() + path.read_bytes())
    return np.frombuffer(digest.digest(), np.uint8)


SCARCE = {"C": 8.0, "gamma": 0.05, "working_set": "all", "memory": "12MB"}
DISK = {**SCARCE, "disk_cache": "100MB"}
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
    Run("a1a l2-one-class", "a1a", "L2OneClassSVM", {"C": 2.0}),
    Run("usps l2-svc", "usps", "L2SVC", {"C": 8.0}),
    Run("a1a squared hinge", "a1a", "SVC", {"loss": "squared_hinge", "gamma": 0.03}),
    Run("a1a squared hinge in float64", "a1a", "SVC", {"loss": "squared_hinge", "C": 1e5}),
    Run("w3a disk rows", "w3a", "SVC", DISK, fit_store),
    Run("w3a shrinking", "w3a", "SVC", {**SCARCE, "shrinking": True}),
    Run(
        "usps cooling",
        "usps",
        "CrammerSingerSVC",
        {"C": 1.0, "working_set": "all", "order": "active", "cooling": "log", "tol": 0.1},
    ),
    Run("a6a CSR", "a6a", "SVC", {"C": 8.0}, fit_csr),
    Run("usps array", "usps", "SVC", {"C": 10.0}, fit_array),
    Run("usps Dask array", "usps", "SVC", {"C": 10.0}, fit_dask),
    Run("usps frame", "usps", "SVC", {"C": 10.0}, fit_frame),
    Run("usps Zarr array", "usps", "SVC", {"C": 10.0}, fit_zarr),
    Run("a9a on workers", "a9a", "SVC", {"C": 1.0, "gamma": 0.008}, fit_on_workers),
    Run("usps one-vs-one on workers", "usps", "SVC", {"C": 10.0}, fit_on_workers),
    Run("a9a resumed", "a9a", "SVC", {"C": 1.0, "gamma": 0.008}, fit_resumed),
    Run("usps one-vs-one resumed", "usps", "SVC", {"C": 10.0}, fit_resumed),
    Run("usps one-vs-rest resumed", "usps", "SVC", {"C": 10.0, "multiclass": "ovr"}, fit_resumed),
    Run("usps Crammer-Singer resumed", "usps", "CrammerSingerSVC", {"C": 10.0}, fit_resumed),
    Run("w3a disk rows resumed", "w3a", "SVC", DISK, fit_resumed),
    Run("a1a probabilities", "a1a", "SVC", {"calibration": "sigmoid"}),
    Work("a1a search", "a1a", search),
    Work("a6a cross-validation", "a6a", validate),
    Work("usps stores", "usps", write),
    Work("usps conversion", "usps", convert),
)


def do(run: Run | Work, place: Place) -> tuple[dict[str, NDArray[Any]], Any, float]:
    """Do a run.

    Returns
    -------
    values : dict
        Arrays that must have the same bits.
    model : KernelExpansion or None
    seconds : float
        Of CPU time, of this process.
    """
    place.new.mkdir()
    began = time.process_time()
    if isinstance(run, Work):
        return run.do(place), None, time.process_time() - began
    parameters = {"n_jobs": 1, "random_state": 0, **run.parameters}
    estimator = run.fit(getattr(bigsvm, run.estimator)(**parameters), place)
    seconds = time.process_time() - began
    certificate = estimator.certificate_
    values = {
        "support": np.asarray(estimator.support_),
        "intercept": np.asarray(estimator.intercept_),
        "objective": _number(certificate["objective"]),
        "duality gap": _number(certificate["duality_gap"]),
        "coefficients": _dense(estimator.model_.coefficients),
    }
    if run.fit is not fit_resumed:  # which computes some kernel rows again
        values["kernel evaluations"] = np.asarray(certificate["n_kernel_evaluations"])
    return values, estimator.model_, seconds


def _dense(coefficients: NDArray[np.float64] | sp.csr_array) -> NDArray[np.float64]:
    return coefficients.toarray() if sp.issparse(coefficients) else coefficients


def _number(value: float | None) -> NDArray[np.float64]:
    return np.asarray(np.nan if value is None else value, np.float64)


def outputs(model: bigsvm.KernelExpansion) -> NDArray[np.float64]:
    """Decision values of the first support vectors of a model."""
    return np.asarray(model.decision_function(model.support_vectors[:PREDICTED]))


def place_of(run: Run | Work, folder: Path) -> Place:
    """Return where the data of a run are in the folder of a comparison."""
    text = Path(os.environ["BIGSVM_DATA"]) / f"{run.data}.libsvm.gz"
    new = folder / "new"
    shutil.rmtree(new, ignore_errors=True)
    return Place(text, folder / f"{run.data}.zarr", new)


def save(folder: Path, runs: Sequence[Run | Work]) -> None:
    """Do every run and keep what it leaves."""
    for run in runs:
        place = place_of(run, folder)
        if not place.text.is_file():
            print(f"{run.name}: skipped, no {place.text.name} in the folder BIGSVM_DATA")
            continue
        if not place.store.exists():
            bigsvm.convert(place.text, place.store)
        values, model, seconds = do(run, place)
        if model is not None:
            model.save(folder / f"{run.name}.model")
            values["decision values"] = outputs(model)
        np.savez(folder / f"{run.name}.npz", **values)
        print(f"{run.name}: saved, {seconds:.1f} s", flush=True)


def compare(folder: Path, runs: Sequence[Run | Work]) -> bool:
    """Do every run again; return whether all bits are those that were saved."""
    agree = True
    for run in runs:
        saved = folder / f"{run.name}.npz"
        if not saved.is_file():
            print(f"{run.name}: skipped, nothing was saved")
            continue
        values, model, seconds = do(run, place_of(run, folder))
        if model is not None:
            before = bigsvm.KernelExpansion.load(folder / f"{run.name}.model")
            values["decision values"] = outputs(before)
        with np.load(saved) as arrays:
            differing = [name for name in arrays.files if not _same(arrays[name], values[name])]
        agree = agree and not differing
        state = f"differs in {', '.join(differing)}" if differing else "same bits"
        print(f"{run.name}: {state}, {seconds:.1f} s", flush=True)
    return agree


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("save", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *(run.name for run in RUNS)])
    options = parser.parse_args(arguments)
    runs = [run for run in RUNS if run.name in options.names or not options.names]
    print(f"bigsvm of {Path(bigsvm.__file__).parents[1]}")
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.command == "save":
        save(options.folder, runs)
        return 0
    return 0 if compare(options.folder, runs) else 1


if __name__ == "__main__":
    sys.exit(main())
