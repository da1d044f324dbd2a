"""The rule that says which fits are solved as small problems."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

import bigsvm
from bigsvm.callbacks import Callback
from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import ParameterError
from bigsvm.parameters import TrainingParameters
from bigsvm.small import rule

ROWS = ArrayRows(np.zeros((100, 3)))


def is_small(source=ROWS, *, n_classes=2, has_start=False, by_steps=False, **parameters):
    return rule.is_small(
        TrainingParameters(**parameters),
        source,
        n_classes=n_classes,
        has_start=has_start,
        by_steps=by_steps,
    )


@pytest.mark.parametrize("formulation", rule.FORMULATIONS)
def test_what_libsvm_solves_is_small(formulation):
    assert is_small(formulation=formulation)


@pytest.mark.parametrize(
    "parameters",
    [
        {"formulation": "l2-svc"},
        {"formulation": "crammer-singer"},
        {"kernel": "laplacian"},
        {"loss": "squared_hinge"},
        {"C": float("inf")},
        {"max_iter": 100},
        {"max_seconds": 60.0},
        {"certify": False},
        {"calibration": "sigmoid"},
        {"checkpoint": "run"},
        {"checkpoint_copy": "s3://bucket/run"},
        {"selection": "hmg"},
        {"working_set": "all"},
        {"rows_at_once": 4},
        {"disk_cache": "1GB"},
        {"kernel_rows": 10},
        {"multiclass": "ovr", "n_classes": 3},
        {"n_classes": rule.MOST_CLASSES + 1},
        {"has_start": True},
        {"by_steps": True},
        {"source": ArrayRows(np.zeros((rule.MOST_ROWS + 1, 3)))},
        {"source": ArrayRows(np.zeros((1000, rule.MOST_VALUES // 1000 + 1), np.float32))},
    ],
    ids=lambda parameters: " ".join(parameters),
)
def test_what_only_the_usual_run_honours_is_not_small(parameters):
    assert not is_small(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [{"threads": 1}, {"memory": "1MB"}, {"seed": 3}, {"tol": 1e-8}, {"multiclass": "ddag"},
     {"multiclass": "ovr"}, {"class_weight": "balanced"}, {"gamma": "mean-distance"}],
    ids=lambda parameters: " ".join(parameters),
)  # fmt: skip
def test_it_does_not_look_at_what_changes_no_bits(parameters):
    assert is_small(**parameters)


def test_the_switch(monkeypatch):
    large = ArrayRows(np.zeros((rule.MOST_ROWS + 1, 3)))
    monkeypatch.setenv(rule.SWITCH, "always")
    assert is_small(large)
    assert not is_small(large, max_iter=5)
    monkeypatch.setenv(rule.SWITCH, "never")
    assert not is_small()
    monkeypatch.setenv(rule.SWITCH, "perhaps")
    with pytest.raises(ParameterError, match="BIGSVM_SMALL is 'perhaps'"):
        is_small()


def test_parameters_of_the_run_are_parameters():
    assert set(rule.OF_THE_RUN) <= rule.FIELDS.keys()


def test_a_callback_makes_it_the_usual_run():
    class Listens(Callback):
        def listener(self, estimator):
            return lambda event: None

    X, y = make_classification(100, random_state=0)
    model = bigsvm.SVC()
    assert model.fit(X, y).certificate_["solver"] == "libsvm"
    assert model.set_callbacks(Listens()).fit(X, y).certificate_["solver"] == "bigsvm"


def test_a_forecast_is_of_the_usual_run():
    X, y = make_classification(300, random_state=0)
    assert bigsvm.SVC().plan(X, y).samples[0].n_sweeps >= 1
