import weakref

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training import events
from bigsvm.training.events import Hooks


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(300) > 0, 1.0, -1.0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gamma_scale_counts_a_row_by_its_weight(problem, form):
    X, y = problem
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    model = train_model(as_row_source(form(X)), y, weights, TrainingParameters())
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert model.kernel.gamma == pytest.approx(1 / (4 * repeated.var()), rel=1e-12)


def test_hooks_hear_and_stop_the_run(problem):
    X, y = problem
    seen = []
    hooks = Hooks(listener=seen.append, interrupted=lambda: True)
    model = train_model(as_row_source(X), y, None, TrainingParameters(), hooks)
    assert isinstance(seen[0], events.Planned)
    assert model.certificate["stop_reason"] == "interrupted"
    assert not model.certificate["converged"]


def test_the_model_tells_where_it_comes_from(problem):
    X, y = problem
    source = as_row_source(X)
    model = train_model(source, y, None, TrainingParameters(C=2.5))
    assert model.provenance["data"] == source.fingerprint()
    assert model.provenance["parameters"]["C"] == 2.5
    assert model.classes == [-1.0, 1.0]


def test_weights_may_be_a_column_of_a_table(problem):
    X, y = problem
    table = np.random.default_rng(1).random((len(y), 2))
    lent = train_model(as_row_source(X), y, table[:, 1], TrainingParameters())
    own = train_model(as_row_source(X), y, table[:, 1].copy(), TrainingParameters())
    np.testing.assert_array_equal(lent.coefficients, own.coefficients)


def test_labels_are_let_go_before_the_run(problem):
    """The budget has no room for their 8 bytes a row."""
    X, y = problem
    labels = []
    left = []

    def make():
        labels.append(weakref.ref(copy := y.copy()))
        return copy

    def listener(event):
        if isinstance(event, events.Planned):
            left.append(labels[0]())

    train_model(as_row_source(X), make(), None, TrainingParameters(), Hooks(listener=listener))
    assert left == [None]
