"""Runs by a given reduction, and its result before it is a model."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from bigsvm.fit.one_vs_rest import OneVsRestReduction
from bigsvm.fit.problem import Given
from bigsvm.fit.train import train_by
from bigsvm.models import KernelExpansion
from bigsvm.models.expansion import label_array
from bigsvm.parameters.checks import check_parameters
from bigsvm.training.events import Hooks
from bigsvm.training.result import Certificate, StopReason


class Trained(NamedTuple):
    """What a reduction has led to; `functions` is what its `run` returned."""

    classes: Any
    functions: Any
    model: KernelExpansion


class OneVsRestFunctions(NamedTuple):
    """The functions of all classes, over rows in ascending order."""

    support: Any
    coefficients: Any
    intercepts: Any
    certificate: Certificate


def trained_by(reduction, source, y, weights, parameters, hooks=None):
    """Train by a reduction, for as few classes as two."""
    results = []

    class Watched(reduction):
        def run(self, resources):
            results.append(super().run(resources))
            return results[0]

    check_parameters(parameters)
    model = train_by(Watched, Given(source, y, weights, parameters, hooks or Hooks()))
    return Trained(label_array(model.classes), results[0], model)


def trained_one_vs_rest(source, y, weights, parameters, hooks=None):
    """Train one against the rest; the rows of `functions` are in ascending order."""
    trained = trained_by(OneVsRestReduction, source, y, weights, parameters, hooks)
    model, ascending = trained.model, np.argsort(trained.model.support)
    values = {field.name: model.certificate[field.name] for field in fields(Certificate)}
    functions = OneVsRestFunctions(
        model.support[ascending],
        model.coefficients[ascending],
        model.intercept,
        Certificate(**{**values, "stop_reason": StopReason(values["stop_reason"])}),
    )
    return trained._replace(functions=functions)
