"""Words of parameters: one spelling each, a member of each enumeration, unknown ones refused."""

from dataclasses import fields
from typing import get_args

import pytest

from bigsvm.balls.search import FirstPoints
from bigsvm.calibration import SHAPES
from bigsvm.core import smo
from bigsvm.duals.ball import Solver
from bigsvm.duals.crammer_singer import Cooling, Order, RowSolver
from bigsvm.errors import ParameterError
from bigsvm.kernels import KERNELS
from bigsvm.parameters import FIELDS, TrainingParameters, formulations, names
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.declaration import check_value, choices_of, spelled
from bigsvm.votes import RULES

CHOICES = {name: choices_of(field) for name, field in FIELDS.items() if choices_of(field)}


def test_every_literal_is_the_choice_of_a_parameter():
    named = {**vars(names), **vars(formulations)}
    literals = {get_args(value) for name, value in named.items() if name.endswith("Name")}
    assert literals == set(CHOICES.values())


def test_every_formulation_has_traits():
    assert tuple(formulations.TRAITS) == get_args(formulations.FormulationName)


def test_every_kernel_has_its_parameters():
    assert tuple(names.KERNEL_PARAMETERS) == get_args(names.KernelName)
    for kernel, own in names.KERNEL_PARAMETERS.items():
        assert set(own) == {field.name for field in fields(KERNELS[kernel])}


@pytest.mark.parametrize("name", CHOICES)
def test_a_word_is_accepted_with_hyphens_and_with_underscores(name):
    for word in CHOICES[name]:
        for spelling in (word, word.replace("_", "-"), word.replace("-", "_")):
            assert getattr(TrainingParameters(**{name: spelling}), name) == word


@pytest.mark.parametrize("name", sorted(CHOICES.keys() - {"kernel"}))
def test_an_unknown_word_is_refused_with_the_known_ones(name):
    assert spelled(FIELDS[name], "best") == "best"
    known = ", ".join(CHOICES[name])
    with pytest.raises(ParameterError, match=f"^{name} is 'best'; it must be one of {known}"):
        check_value(FIELDS[name], "best")


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("selection", {"auto", *(rule.replace("-", "_") for rule in smo.RULES)}),
        ("subproblem", {solver.name for solver in RowSolver}),
        ("order", {order.name for order in Order}),
        ("cooling", {cooling.name for cooling in Cooling}),
        ("solver", set(Solver)),
        ("first_points", set(FirstPoints)),
        ("calibration", set(SHAPES)),
    ],
)
def test_each_word_is_a_member(name, members):
    assert {w.replace("-", "_") for w in CHOICES[name]} == {m.lower() for m in members}


def test_words_name_kernels_and_rules_of_votes():
    assert set(CHOICES["kernel"]) <= KERNELS.keys()
    assert set(CHOICES["multiclass"]) <= set(RULES)


def test_defaults_are_valid():
    check_parameters(TrainingParameters())
    for field in fields(TrainingParameters):
        check_value(field, field.default)
