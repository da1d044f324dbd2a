"""Runs with kernels of fields that are killed, and gone on with, have the same bits."""

import numpy as np
import pytest
from support.resuming import assert_killed_to_the_same_bits
from support.same import assert_same_bits

from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

N_ROWS, N_COLUMNS = 1500, 12
KERNELS = {
    "tanimoto": {"kernel": "tanimoto"},
    "chi2": {"kernel": "chi2", "gamma": 0.1},
    "matern32": {"kernel": "matern32", "gamma": 0.05},
    "rbf by column": {"kernel": "rbf", "gamma": np.linspace(0, 0.1, N_COLUMNS)},
}


def train(folder, name):
    """Working sets of some hundred rows, and one saved after the other."""
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, (N_ROWS, N_COLUMNS)).astype(float)
    y = (X[:, :4].sum(axis=1) + rng.normal(size=N_ROWS) > 4).astype(float)
    parameters = TrainingParameters(
        checkpoint=str(folder), checkpoint_every=0.05,
        memory=2 * 10**6, threads=1, C=10.0, **KERNELS[name],
    )  # fmt: skip
    return train_model(as_row_source(X), y, None, parameters, Hooks())


def same(found, expected):
    assert expected.certificate["converged"]
    for name in ("support", "coefficients", "intercept"):
        assert_same_bits(getattr(found, name), getattr(expected, name))
    for name in ("objective", "gap", "n_iter", "n_sweeps", "n_working_sets", "stop_reason"):
        assert found.certificate[name] == expected.certificate[name], name


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_killed_it_has_the_same_bits(tmp_path, name):
    assert_killed_to_the_same_bits(train, tmp_path, arguments=(name,), same=same)
