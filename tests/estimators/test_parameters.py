"""Parameters of estimators, all of which must arrive where they are used."""

from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons

import bigsvm
from bigsvm.errors import ParameterError
from bigsvm.parameters import TrainingParameters

X, Y = make_moons(40, noise=0.2, random_state=0)


class Softer(bigsvm.SVC):
    """Has a parameter that nothing uses."""

    def __init__(self, C=1.0, *, softness=0.5):
        super().__init__(C)
        self.softness = softness


class SofterRegression(bigsvm.SVR):
    def __init__(self, *, softness=0.5):
        super().__init__()
        self.softness = softness


class SofterOneClass(bigsvm.OneClassSVM):
    def __init__(self, *, softness=0.5):
        super().__init__()
        self.softness = softness


class SofterMachine(bigsvm.CrammerSingerSVC):
    def __init__(self, *, softness=0.5):
        super().__init__()
        self.softness = softness


class Squared(bigsvm.SVC):
    """Uses its parameter itself, and says so."""

    _own_parameters = bigsvm.SVC._own_parameters | {"power"}

    def __init__(self, C=1.0, *, power=2):
        super().__init__(C)
        self.power = power

    def fit(self, X, y):
        return super().fit(X**self.power, y)


class Rare(bigsvm.SVC):
    """Has one parameter more that training uses."""

    def __init__(self, C=1.0, *, kernel_rows=None):
        super().__init__(C)
        self.kernel_rows = kernel_rows


class Unused(bigsvm.SVC):
    """Has a parameter that training uses for other formulations only."""

    def __init__(self, C=1.0, *, nu=0.5):
        super().__init__(C)
        self.nu = nu


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize("invented", [Softer, SofterRegression, SofterOneClass, SofterMachine])
def test_a_parameter_that_nothing_uses_is_refused(invented):
    with pytest.raises(ParameterError, match=f"{invented.__name__} has the parameter 'softness'"):
        invented().fit(X, Y)


def test_a_parameter_that_the_estimator_uses_is_accepted():
    fitted = clone(Squared(2.0, power=1)).fit(X, Y)
    np.testing.assert_array_equal(fitted.dual_coef_, bigsvm.SVC(2.0).fit(X, Y).dual_coef_)


def test_a_parameter_that_training_knows_arrives():
    given = Rare(kernel_rows=30).fit(X, Y).model_.provenance["parameters"]
    assert given["kernel_rows"] == 30


@pytest.mark.fault("dropped-parameters")
def test_a_parameter_of_another_formulation_is_refused():
    with pytest.raises(ParameterError, match=r"Unused has the parameter 'nu', .* c-svc does not"):
        Unused().fit(X, Y)


@pytest.mark.fault("dropped-parameters")
@pytest.mark.parametrize(
    "name",
    [
        "SVC", "NuSVC", "L2SVC", "CrammerSingerSVC", "SVR", "NuSVR", "OneClassSVM",
        "L2OneClassSVM",
    ],
)  # fmt: skip
def test_every_parameter_arrives(name):
    """What an estimator passes on is what it was given."""
    estimator = getattr(bigsvm, name)()
    own = estimator._own_parameters
    renamed = {"random_state": "seed", "n_jobs": "threads", "max_time": "max_seconds"}
    known = {field.name for field in fields(TrainingParameters)}
    marks = {}
    for place, parameter in enumerate(sorted(estimator.get_params().keys() - own)):
        if parameter == "multiclass":  # looked at before it is passed on
            continue
        marks[parameter] = str(place) if parameter in ("cache_dir", "checkpoint") else place + 1
    passed = estimator.set_params(**marks)._parameters()
    for parameter, mark in marks.items():
        assert renamed.get(parameter, parameter) in known
        assert getattr(passed, renamed.get(parameter, parameter)) == mark
