"""Runs with float64 kernel values that are interrupted or killed, and gone on with."""

import numpy as np
import pytest
from support.resuming import (
    StopAt,
    assert_killed_to_the_same_bits,
    assert_resumed_to_the_same_bits,
)
from support.same import assert_same_bits

from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.models import KernelExpansion
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

SQUARED = {"formulation": "c-svc", "loss": "squared_hinge"}
LITTLE = {"gamma": 1e-3, "C": 1e6, "memory": 2 * 10**6}
"""A kernel without a narrow factor, and working sets of a few hundred rows."""
FITS = {
    "ball": ({"formulation": "l2-svc", **LITTLE}, 500),
    "squared hinge": ({**SQUARED, **LITTLE}, 500),
    "functions": ({**SQUARED, **LITTLE, "multiclass": "ovr", "memory": 4 * 10**6}, 1000),
    "all rows": ({**SQUARED, "kernel": "linear", "C": 1e3, "working_set": "all"}, 300),
}


def rows(n, k):
    """Columns far from the origin, and labels of k classes, of which two overlap."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    z = X[:, 0] + (k == 2) * rng.normal(size=n)
    return X + 100, np.digitize(z, np.quantile(z, np.linspace(0, 1, k + 1)[1:-1]))


def train(folder, name, interrupted=lambda: False):
    options, n = FITS[name]
    X, y = rows(n, 3 if "multiclass" in options else 2)
    checkpoint = None if folder is None else str(folder)
    parameters = TrainingParameters(checkpoint=checkpoint, threads=1, **options)
    return train_model(as_row_source(X), y, None, parameters, Hooks(interrupted=interrupted))


def same(found, expected):
    assert isinstance(expected, KernelExpansion)
    for name in ("support", "coefficients", "intercept"):
        assert_same_bits(getattr(found, name), getattr(expected, name))
    for name in ("objective", "gap", "n_iter", "n_sweeps", "n_working_sets", "stop_reason"):
        assert found.certificate[name] == expected.certificate[name], name


@pytest.mark.parametrize("name", FITS)
def test_resumed_it_has_the_same_bits(tmp_path, name):
    asked = StopAt()
    whole = train(None, name, asked)
    assert whole.certificate["converged"]
    # Many moments of a run with many working sets lie between a solution and its sweep.
    firsts = sorted({1, *np.linspace(2, asked.count, 5).astype(int).tolist()})
    assert_resumed_to_the_same_bits(
        lambda folder, interrupted: train(folder, name, interrupted), tmp_path, firsts, whole,
        then=(2, 5, -1), same=same,
    )  # fmt: skip


@pytest.mark.slow
def test_killed_it_has_the_same_bits(tmp_path):
    assert_killed_to_the_same_bits(train, tmp_path, arguments=("ball",), same=same)
