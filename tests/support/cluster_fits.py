"""Small fits of every formulation whose passes have many tasks, here and on a cluster."""

import numpy as np
import scipy.sparse as sp

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.store import open_store
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks, ignore
from support.problems import blobs, classes_of_blobs, target
from support.same import assert_same_bits

N_ROWS = 4000
N_COLUMNS = 10
FITS = {
    "c-svc": ("two", {"formulation": "c-svc"}),
    "squared hinge": ("two", {"formulation": "c-svc", "loss": "squared_hinge"}),
    "nu-svc": ("two", {"formulation": "nu-svc", "nu": 0.1}),
    "eps-svr": ("target", {"formulation": "eps-svr", "epsilon": 0.2}),
    "one-class": ("none", {"formulation": "one-class", "nu": 0.1}),
    "l2-svc": ("two", {"formulation": "l2-svc"}),
    "one-vs-rest": ("ten", {"formulation": "c-svc", "multiclass": "ovr", "memory": 6 * 10**6}),
    "crammer-singer": ("ten", {"formulation": "crammer-singer", "memory": 6 * 10**6}),
}
"""Labels and parameters of each formulation."""


def problem(labels, *, sparse=False):
    """Rows (N_ROWS, N_COLUMNS), dense or CSR, and labels; see `FITS`."""
    if labels == "ten":
        X, y = classes_of_blobs(N_ROWS, k=10, d=N_COLUMNS, overlap=0.7)
    else:
        X, y = blobs(N_ROWS, d=N_COLUMNS, overlap=0.5)
    if labels == "target":
        y = target(X)
    if sparse:
        X = sp.csr_array(np.where(np.abs(X) > 0.2, X, 0))
    return X, None if labels == "none" else y


def stored(folder, labels, *, sparse=False):
    """Rows of a store that is written unless it exists, and their labels."""
    path = folder / f"{labels}-{sparse}.zarr"
    if not path.exists():
        X, y = problem(labels, sparse=sparse)
        write_store(path, X, np.zeros(N_ROWS) if y is None else y)
    store = open_store(path)
    return store.rows, None if labels == "none" else store.labels()


def fit(
    rows, y, options, client=None, listener=ignore, *, interrupted=lambda: False,
    terms=None, **others,
):  # fmt: skip
    """Train a model on rows from a store, in little memory; on a cluster if there is a client."""
    options = {
        "gamma": 0.1, "tol": 1e-2, "memory": 2 * 10**6, "threads": 1, "seed": 0, **options, **others
    }  # fmt: skip
    hooks = Hooks(client=client, terms=terms, listener=listener, interrupted=interrupted)
    return train_model(rows, y, None, TrainingParameters(**options), hooks)


def assert_same_fit(model, expected):
    """Hold a model to the bits of another one."""
    for name in ("support", "coefficients", "intercept"):
        assert_same_bits(getattr(model, name), getattr(expected, name))
    for name in ("objective", "gap", "n_iter", "n_sweeps", "n_working_sets"):
        assert model.certificate[name] == expected.certificate[name], name
