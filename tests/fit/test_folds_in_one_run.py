"""Fits that are trained together: each as the fit by itself, in one run that shares the kernel."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from support.resuming import StopAt, assert_resumed_to_the_same_bits

from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, MemoryBudgetError
from bigsvm.fit.folds_in_one_run import train_together, why_apart
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks, Swept

KINDS = {
    "c-svc": {"C": 3.0},
    "balanced": {"C": 3.0, "class_weight": "balanced"},
    "squared": {"C": 3.0, "loss": "squared_hinge"},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.3},
    "eps-svr": {"formulation": "eps-svr", "C": 2.0, "epsilon": 0.1},
    "nu-svr": {"formulation": "nu-svr", "C": 2.0, "nu": 0.4},
    "one-class": {"formulation": "one-class", "nu": 0.2},
}


def rows_of(kind, n=150, seed=0):
    """Rows, labels or targets, and the weights of three folds."""
    X, y = make_classification(n, 5, flip_y=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.5, 1.0, 2.0], n)
    folds = [np.where(rng.permutation(n) % 3 == k, 0.0, weights) for k in range(3)]
    if kind in ("eps-svr", "nu-svr"):
        y = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=n)
    return X.astype(np.float32), None if kind == "one-class" else y, folds


def parameters_of(kind, **others):
    given = {"gamma": 0.3, "tol": 1e-6, "threads": 1, **KINDS[kind], **others}
    return TrainingParameters(**given)


def assert_same_fits(found, X, y, folds, parameters, atol=2e-4):
    """Each of the models found is that of its own fit."""
    source = as_row_source(X)
    for k, (model, weights) in enumerate(zip(found.models, folds, strict=True)):
        alone = train_model(source, y, weights, parameters)
        expected = alone.decision_function(source)
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(model.decision_function(source), expected, atol=atol * scale)
        assert model.certificate["converged"]
        assert model.certificate["gap"] <= parameters.tol
        for name in ("objective", "rho", "epsilon"):
            if name in alone.certificate:
                value = alone.certificate[name]
                assert model.certificate[name] == pytest.approx(value, rel=1e-4, abs=1e-5)
        assert model.certificate["n_support"] == len(model.support)
        assert not (weights[model.support] == 0).any()
        assert model.classes == alone.classes
        rows = np.flatnonzero(np.any(folds, axis=0))
        of_model = model.decision_function(source)[rows]
        np.testing.assert_allclose(found.values(k)[rows], of_model, atol=1e-4 * scale)
        for name in ("class_weight", "C", "nu"):
            of_alone = alone.provenance["parameters"][name]
            assert model.provenance["parameters"][name] == of_alone


@pytest.mark.parametrize("kind", KINDS)
def test_each_fit_is_that_of_its_own(kind):
    X, y, folds = rows_of(kind)
    parameters = parameters_of(kind)
    found = train_together(as_row_source(X), y, folds, parameters, Hooks())
    assert_same_fits(found, X, y, folds, parameters)


@pytest.fixture
def many_phases(monkeypatch):
    """Small enough that scopes, active rows and working sets are several."""
    for name, value in {
        "training.certify.EXACT_EVALUATIONS": 0,
        "working_sets.choice.FIRST_SCOPE": 100,
        "working_sets.choice.DIRECT_ROWS": 0,
        "fit.variables.DIRECT_ROWS": 0,
        "working_sets.choice.SMALLEST_SET": 40,
        "working_sets.choice.LARGEST_SET": 80,
        "working_sets.choice.BAND": (0.6, 0.7),
        "training.run.REFRESH": 64,
        "working_sets.lanes.REFRESH": 64,
    }.items():
        monkeypatch.setattr(f"bigsvm.{name}", value)


@pytest.mark.usefixtures("many_phases")
@pytest.mark.parametrize("kind", KINDS)
def test_each_fit_is_that_of_its_own_in_many_parts(kind):
    """Some rows are equal, in different folds too, and fits start from those of a smaller C."""
    X, y, folds = rows_of(kind, n=400)
    X[300:], folds = X[:100], [np.repeat(fold[:200], 2) for fold in folds]
    if y is not None:
        y[300:] = y[:100]
    parameters = parameters_of(kind, tol=1e-5)
    found = train_together(as_row_source(X), y, folds, parameters, Hooks())
    assert_same_fits(found, X, y, folds, parameters, atol=2e-3)
    if "C" in KINDS[kind]:
        larger = parameters_of(kind, tol=1e-5, C=2 * KINDS[kind]["C"])
        again = train_together(as_row_source(X), y, folds, larger, Hooks(), start=found.point)
        assert_same_fits(again, X, y, folds, larger, atol=2e-3)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 6), sparse=st.booleans())
def test_any_weights(seed, k, sparse):
    X, y, _ = rows_of("c-svc", n=60, seed=seed)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], (k, 60))
    weights[:, [np.argmin(y), np.argmax(y)]] = 1.0
    parameters = parameters_of("c-svc")
    rows = sp.csr_array(X) if sparse else X
    found = train_together(as_row_source(rows), y, list(weights), parameters, Hooks())
    assert_same_fits(found, rows, y, weights, parameters)


def test_kernel_values_are_shared_and_costs_add_up():
    X, y, folds = rows_of("c-svc", n=600)
    parameters = parameters_of("c-svc", tol=1e-3)
    found = train_together(as_row_source(X), y, folds, parameters, Hooks())
    alone = [train_model(as_row_source(X), y, weights, parameters) for weights in folds]
    together, apart = (
        sum(model.certificate["n_kernel_evaluations"] for model in models)
        for models in (found.models, alone)
    )
    assert together < 0.6 * apart
    seconds = [model.certificate["seconds"] for model in found.models]
    by_phase = [sum(model.certificate["seconds_by_phase"].values()) for model in found.models]
    assert seconds == pytest.approx(by_phase)


def test_sweeps_are_told_of_each_fit():
    X, y, folds = rows_of("c-svc")
    seen = []
    found = train_together(
        as_row_source(X), y, folds, parameters_of("c-svc"), Hooks(listener=seen.append)
    )
    last = [event for event in seen if isinstance(event, Swept)][-1]
    for number, model in enumerate(found.models):
        swept = last.of_function(number)
        assert swept.gap == model.certificate["gap"]
        assert swept.objective == model.certificate["objective"]
        assert swept.n_support == model.certificate["n_support"]


class Fits(NamedTuple):
    models: list

    @property
    def certificate(self):
        return self.models[0].certificate


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_fit_knows_the_values_of_rows_without_weight(kind):
    X, y, folds = rows_of(kind)
    source, fold, others = as_row_source(X), folds[0], 1.0 * (folds[0] == 0)
    parameters, start = parameters_of(kind), None
    for C in (parameters.C, 4 * parameters.C):  # the second starts from the first
        asked = replace(parameters, C=C)
        found = train_together(source, y, [fold], asked, Hooks(), start=start, tracked=others)
        assert_same_fits(found, X, y, [fold], asked)
        of_model = found.models[0].decision_function(source)
        scale = max(1.0, np.abs(of_model).max())
        np.testing.assert_allclose(found.values(0), of_model, atol=1e-4 * scale)
        start = found.point
        assert start is not None


@pytest.mark.usefixtures("many_phases")
@pytest.mark.parametrize("n_fits", [3, 1])
@pytest.mark.parametrize("kind", ["c-svc", "eps-svr"])
def test_interrupted_run_ends_at_the_same_bits(kind, n_fits, tmp_path):
    X, y, folds = rows_of(kind, n=300)
    folds, tracked = folds[:n_fits], None if n_fits > 1 else np.ones(300)

    def attempt(folder, interrupted):
        parameters = parameters_of(kind, tol=1e-4, checkpoint=str(folder))
        trained = train_together(
            as_row_source(X), y, folds, parameters, Hooks(interrupted=interrupted), tracked=tracked
        )
        return Fits(trained.models)

    count = StopAt()
    whole = attempt(tmp_path / "whole", count)
    firsts = np.linspace(1, count.count, 5).astype(int).tolist()
    assert_resumed_to_the_same_bits(
        attempt, tmp_path / "stopped", firsts, whole, same=assert_same_models
    )


def assert_same_models(found, expected):
    for one, other in zip(found.models, expected.models, strict=True):
        np.testing.assert_array_equal(one.support, other.support)
        np.testing.assert_array_equal(one.coefficients, other.coefficients)
        assert one.intercept == other.intercept


def test_memory_is_planned_for_all_functions():
    X, y, folds = rows_of("eps-svr", n=3000)
    with pytest.raises(MemoryBudgetError, match="3 functions"):
        train_together(
            as_row_source(X), y, folds, parameters_of("eps-svr", memory=300_000), Hooks()
        )


def test_a_fit_without_a_class_is_refused():
    X, y, folds = rows_of("c-svc")
    folds[1] = folds[1] * (y == y[0])
    with pytest.raises(DataError, match="class"):
        train_together(as_row_source(X), y, folds, parameters_of("c-svc"), Hooks())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gamma": "scale"}, "gamma depends"),
        ({"formulation": "l2-svc"}, "search"),
        ({"formulation": "crammer-singer"}, "many functions"),
        ({"certify": False}, "without a certificate"),
        ({"calibration": "sigmoid"}, "held out"),
        ({"max_iter": 10}, "max_iter"),
        ({"max_seconds": 10.0}, "max_time"),
        ({"working_set": "all"}, "one working set"),
    ],
)
def test_what_is_not_trained_together(changes, reason):
    labels = np.array([0, 1, 1, 0])
    parameters = TrainingParameters(**{"gamma": 0.3, **changes})
    assert reason in why_apart(parameters, labels, 3)
    plain = TrainingParameters(gamma=0.3)
    assert why_apart(plain, labels, 3) is None
    assert "one fit" in why_apart(plain, labels, 1)
    assert "many" in why_apart(plain, labels, 100)
    assert "many classes" in why_apart(plain, np.array([0, 1, 2]), 3)
