"""Runs by a given reduction, and its result before it is a model."""

from typing import Any, NamedTuple

from bigsvm.fit.problem import label_array
from bigsvm.fit.train import train_by
from bigsvm.models import KernelExpansion
from bigsvm.parameters.checks import check_parameters
from bigsvm.training.events import Hooks


class Trained(NamedTuple):
    """What a reduction has led to; `functions` is what its `run` returned."""

    classes: Any
    functions: Any
    model: KernelExpansion


def trained_by(reduction, source, y, weights, parameters, hooks=None):
    """Train by a reduction, for as few classes as two."""
    results = []

    class Watched(reduction):
        def run(self, resources):
            results.append(super().run(resources))
            return results[0]

    check_parameters(parameters)
    model = train_by(Watched, source, y, weights, parameters, hooks or Hooks())
    return Trained(label_array(model.classes), results[0], model)
