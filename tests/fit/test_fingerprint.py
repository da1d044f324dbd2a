"""What a checkpoint must agree with: every parameter of a formulation, invented ones included."""

from dataclasses import dataclass, fields

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

import bigsvm
from bigsvm.duals.ball import L2Classification, L2OneClass
from bigsvm.duals.box_problem import BOX_PROBLEMS
from bigsvm.duals.crammer_singer import CrammerSinger
from bigsvm.duals.formulations import (
    CSVC,
    EpsilonSVR,
    NuClassification,
    NuRegression,
    OneClass,
    SquaredHingeSVC,
)
from bigsvm.duals.problem import FingerprintEntry, recorded_in
from bigsvm.errors import CheckpointError
from bigsvm.parameters import TrainingParameters

X, Y = make_blobs(60, centers=3, cluster_std=3.0, random_state=0)
SIGN = np.where(Y == 0, np.int8(1), np.int8(-1))

pytestmark = pytest.mark.fault("dropped-parameters")


@dataclass(frozen=True, kw_only=True)
class Shifted(CSVC):
    """A formulation with a parameter that its parent has not."""

    shift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ShiftedOneClass(OneClass):
    shift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ShiftedCrammerSinger(CrammerSinger):
    shift: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Costly(CSVC):
    """A formulation with a value for each row that no entry depends on."""

    cost: np.ndarray = None


def classification(invented, **values):
    def make(parameters, sign, class_weight, sample_weight):
        return invented(
            sign=sign, class_weight=class_weight, sample_weight=sample_weight, C=parameters.C,
            **values,
        )  # fmt: skip

    return make


def invent_pairs(monkeypatch, shift):
    made = classification(Shifted, shift=shift)
    monkeypatch.setattr("bigsvm.fit.pair_problems.make_classification", made)
    return bigsvm.SVC(), Y


def invent_rest(monkeypatch, shift):
    made = classification(Shifted, shift=shift)
    monkeypatch.setattr("bigsvm.fit.one_vs_rest.make_classification", made)
    return bigsvm.SVC(multiclass="ovr"), Y


def invent_two(monkeypatch, shift):
    made = classification(Shifted, shift=shift)
    monkeypatch.setattr("bigsvm.fit.problem.make_classification", made)
    return bigsvm.SVC(), SIGN


def invent_one(monkeypatch, shift):
    monkeypatch.setitem(BOX_PROBLEMS, "one-class", ShiftedOneClass)
    monkeypatch.setattr(TrainingParameters, "shift", shift, raising=False)
    return bigsvm.OneClassSVM(), None


def invent_simplex(monkeypatch, shift):
    def make(**values):
        return ShiftedCrammerSinger(**values, shift=shift)

    monkeypatch.setattr("bigsvm.fit.crammer_singer.CrammerSinger", make)
    return bigsvm.CrammerSingerSVC(), Y


INVENTED = {
    "two classes": invent_two,
    "pairs": invent_pairs,
    "each against the rest": invent_rest,
    "one class": invent_one,
    "crammer-singer": invent_simplex,
}


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
@pytest.mark.parametrize("kind", INVENTED)
def test_a_checkpoint_of_another_value_is_not_resumed(kind, monkeypatch, tmp_path):
    def run(shift):
        estimator, y = INVENTED[kind](monkeypatch, shift)
        return estimator.set_params(checkpoint=tmp_path / "run", max_iter=1).fit(X, y)

    run(1.0)
    run(1.0)
    with pytest.raises(CheckpointError, match=r"shift \(checkpoint: 1.0, now: 2.0\)"):
        run(2.0)


@pytest.mark.parametrize("kind", ["pairs", "two classes"])
@pytest.mark.parametrize("cost", [np.ones(60), {"a": 1}, (1.0, 2.0)])
def test_a_field_without_a_place_is_refused(kind, cost, monkeypatch):
    place = {"pairs": "pair_problems", "two classes": "problem"}[kind]
    monkeypatch.setattr(
        f"bigsvm.fit.{place}.make_classification", classification(Costly, cost=cost)
    )
    with pytest.raises(CheckpointError, match=r"field 'cost' of Costly is a .* no place"):
        bigsvm.SVC().fit(X, Y if kind == "pairs" else SIGN)


def given(kind):
    """Values of the fields of a formulation."""
    values = {
        "sign": SIGN, "target": X[:, 0].copy(), "label": Y.astype(np.int32), "n_classes": 3,
        "n_rows": 60, "C": 2.0, "nu": 0.3, "epsilon": 0.2, "fit_intercept": True,
        "class_weight": (1.0, 2.0), "sample_weight": None,
    }  # fmt: skip
    return kind(**{field.name: values[field.name] for field in fields(kind)})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (CSVC, {"C"}),
        (SquaredHingeSVC, {"C"}),
        (NuClassification, {"nu"}),
        (L2Classification, {"C"}),
        (OneClass, {"nu"}),
        (L2OneClass, {"C"}),
        (EpsilonSVR, {"C", "epsilon"}),
        (NuRegression, {"C", "nu"}),
        (CrammerSinger, {"C", "fit_intercept"}),
    ],
)
def test_all_parameters_of_a_formulation_are_recorded(kind, names):
    formulation = given(kind)
    assert formulation.chosen() == {name: getattr(formulation, name) for name in names}


def test_every_entry_is_in_the_fingerprint(tmp_path):
    from bigsvm.training.generations import newest_manifest

    bigsvm.SVC(checkpoint=tmp_path / "run").fit(X, SIGN)
    assert set(FingerprintEntry) <= newest_manifest(tmp_path / "run")["fingerprint"].keys()
    assert recorded_in(FingerprintEntry.DATA)["entry"] == "data"
