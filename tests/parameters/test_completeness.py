"""A formulation or a parameter that is forgotten somewhere fails a test here."""

import numpy as np
import pytest
from command_line import answer, run_here
from sklearn.base import is_classifier, is_outlier_detector, is_regressor

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.duals.box_problem import BOX_PROBLEMS
from bigsvm.duals.crammer_singer import CrammerSinger
from bigsvm.estimators.base import CONVERTED
from bigsvm.fit.train import train_model
from bigsvm.parameters import FIELDS, TrainingParameters
from bigsvm.parameters.declaration import PANELS, declaration_of, documentation, help_of
from bigsvm.parameters.formulations import BALLS, FORMULATIONS, REGRESSIONS, TRAITS
from bigsvm.training.generations import newest_manifest

pytestmark = pytest.mark.fault("dropped-parameters")

KINDS = {**BOX_PROBLEMS, CrammerSinger.name: CrammerSinger}
ESTIMATORS = {
    public._formulation: public
    for public in (getattr(bigsvm, name) for name in bigsvm.__all__)
    if hasattr(public, "_formulation")
}
WITHOUT_OPTION = {"kernel_rows"}
IN_PYTHON = {
    declaration_of(field).in_estimators or name
    for name, field in FIELDS.items()
    if name not in {"formulation", *WITHOUT_OPTION}
}


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_formulation_has_its_own_parameters_declared(formulation):
    """Those that the problem has as fields are those that list the formulation."""
    own = set(KINDS[formulation].chosen_names()) - {"n_classes"}
    assert own <= FIELDS.keys()
    assert all(declaration_of(FIELDS[name]).is_used_by(formulation) for name in own)
    problem = {name for kind in KINDS.values() for name in kind.chosen_names()} & FIELDS.keys()
    assert own == {name for name in problem if declaration_of(FIELDS[name]).is_used_by(formulation)}


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_formulation_has_an_estimator_with_all_of_its_parameters(formulation):
    estimator = ESTIMATORS[formulation]()
    arguments = estimator.get_params().keys() - estimator._own_parameters
    used = {
        declaration_of(field).in_estimators or name
        for name, field in FIELDS.items()
        if declaration_of(field).is_used_by(formulation)
    }
    assert arguments == used & IN_PYTHON
    renamed = {declaration_of(field).in_estimators for field in FIELDS.values()} - {None}
    assert renamed <= CONVERTED


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_an_estimator_is_of_the_kind_that_the_formulation_learns(formulation):
    estimator = ESTIMATORS[formulation]()
    kinds = {
        "classes": is_classifier(estimator),
        "targets": is_regressor(estimator),
        "rows": is_outlier_detector(estimator),
    }
    assert [kind for kind, is_one in kinds.items() if is_one] == [TRAITS[formulation].learns]
    assert hasattr(estimator, "ball_tol") == (formulation in BALLS)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_an_estimator_is_shown_and_compared_as_scikit_learn_does(formulation):
    """Fields of dataclasses bring their own representation and equality, unless told otherwise."""
    estimator = ESTIMATORS[formulation]
    assert repr(estimator(gamma=2.0)) == f"{estimator.__name__}(gamma=2.0)"
    one, other = estimator(), estimator()
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_documentation_of_an_estimator_has_every_argument(formulation):
    estimator = ESTIMATORS[formulation]
    described = estimator.__doc__[estimator.__doc__.index("Parameters\n----------\n") :]
    described = described[: described.index("Attributes\n----------\n")]
    for name in estimator().get_params():
        assert f"\n{name} : " in described


def test_every_parameter_has_a_text_and_an_option():
    for name, field in FIELDS.items():
        assert help_of(field).endswith(".")
        assert f"{name} : " in documentation([field])
        assert (declaration_of(field).panel in PANELS) == (name not in WITHOUT_OPTION)
        assert set(declaration_of(field).formulations or ()) <= set(FORMULATIONS)


def test_the_help_of_training_has_every_option():
    shown = run_here("train", "--help-all").stdout
    for panel in PANELS:
        assert f"\n{panel}:\n" in shown
    with pytest.raises(AssertionError):
        run_here("train", "--kernel-rows", "3")


def rows_and_labels(formulation):
    X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    labels = {"classes": (X[:, 0] > 0).astype(float), "targets": X[:, 0].astype(float)}
    return X, labels.get(TRAITS[formulation].learns)


@pytest.mark.parametrize("formulation", REGRESSIONS)
def test_predictions_of_a_regression_are_scored_by_their_errors(formulation, tmp_path):
    store = tmp_path / "rows.zarr"
    bigsvm.write_store(store, *rows_and_labels(formulation))
    run_here("train", store, tmp_path / "m", "--formulation", formulation)
    record = answer("predict", store, tmp_path / "m")
    assert record["mean_squared_error"] is not None
    assert record["accuracy"] is None


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_model_of_a_formulation_is_saved_and_loaded(formulation, tmp_path):
    fitted = ESTIMATORS[formulation]().fit(*rows_and_labels(formulation))
    fitted.model_.save(tmp_path / "model")
    assert bigsvm.KernelExpansion.load(tmp_path / "model").formulation == formulation


OTHERS = {
    "loss": {"loss": "squared_hinge"}, "C": {"C": 2.0}, "nu": {"nu": 0.3},
    "epsilon": {"epsilon": 1.0},
    "class_weight": {"class_weight": "balanced"}, "multiclass": {"multiclass": "ovr"},
    "calibration": {"calibration": "sigmoid"}, "certify": {"certify": False, "solver": "fw"},
    "solver": {"solver": "cvm"}, "sampling": {"sampling": 7},
    "empty_samples": {"empty_samples": 3, "solver": "fw"}, "first_points": {"first_points": "pair"},
    "ball_tol": {"ball_tol": 0.3}, "subproblem": {"subproblem": "fixed_point"},
    "order": {"order": "worst", "working_set": "all"},
    "cooling": {"cooling": "log", "order": "active", "working_set": "all"},
    "fit_intercept": {"fit_intercept": True}, "kernel": {"kernel": "linear"},
    "gamma": {"gamma": 2.0}, "degree": {"degree": 2, "kernel": "poly"},
    "coef0": {"coef0": 0.7, "kernel": "poly"}, "tol": {"tol": 0.5},
    "selection": {"selection": "mvp"}, "working_set": {"working_set": "all"},
    "shrinking": {"shrinking": True, "working_set": "all"},
    "rows_at_once": {"rows_at_once": 1, "working_set": "all"}, "memory": {"memory": "9MB"},
    "kernel_rows": {"kernel_rows": 50}, "disk_cache": {"disk_cache": "9MB", "working_set": "all"},
    "cache_dir": {"cache_dir": "."}, "threads": {"threads": 2}, "seed": {"seed": 5},
    "checkpoint_every": {"checkpoint_every": 1.0}, "max_iter": {"max_iter": 2},
    "max_seconds": {"max_seconds": 99.0}, "exact_objective": {"exact_objective": True},
    "checkpoint_copy": {"checkpoint_copy": "memory://completeness"},
}  # fmt: skip
"""Another value of each parameter, and what else has to be given for it to mean something."""


def fingerprint(formulation, folder, **given):
    """What a checkpoint has to agree with; of three classes where a reduction is given."""
    X, labels = rows_and_labels(formulation)
    if "multiclass" in given:
        labels = np.digitize(X[:, 0], [-0.5, 0.5])
    parameters = TrainingParameters(
        **{"formulation": formulation, "max_iter": 1, "checkpoint": str(folder), **given}
    )
    train_model(as_row_source(X), labels, None, parameters)
    return newest_manifest(folder)["fingerprint"]


def test_every_parameter_has_another_value_in_this_test():
    assert OTHERS.keys() | {"formulation", "checkpoint"} == FIELDS.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_a_parameter_is_in_the_fingerprint_if_it_is_declared_so(name, tmp_path):
    declared = declaration_of(FIELDS[name])
    formulation = "l2-svc" if name == "certify" else (declared.formulations or FORMULATIONS)[0]
    others = OTHERS[name] | {name: FIELDS[name].default}
    before = fingerprint(formulation, tmp_path / "before", **others)
    after = fingerprint(formulation, tmp_path / "after", **OTHERS[name])
    assert (before != after) == declared.recorded
