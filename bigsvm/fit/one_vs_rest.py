"""Classifiers of many classes, one against the rest: one function for each class, all in one run.

Each is what the classifier of "this class" against all others would be, with the same C, gamma and
rows; the value of a function is positive for its class. A weight given to a class by its label is
that of its rows in all functions; ``"balanced"`` weights are those of the two sides of each
function. Both are scikit-learn's, of `OneVsRestClassifier` and of its own classifiers that train
one function for each class.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import ACTIVE_OUTPUT_BYTES, GRAM_SHARE, GRAM_SHARE_OF_FUNCTIONS
from bigsvm.core import smo
from bigsvm.duals.box import BoxDual
from bigsvm.duals.function_steps import STATE_BYTES
from bigsvm.duals.functions import Functions, FunctionsDual
from bigsvm.duals.one_vs_rest import OneVsRest
from bigsvm.errors import ParameterError
from bigsvm.fit.fingerprint import Recorded, recorded_rules
from bigsvm.fit.held_out import held_out_for, recorded_calibration
from bigsvm.fit.problem import (
    check_every_class,
    check_has_others,
    find_classes,
    make_classification,
)
from bigsvm.fit.reduction import ModelFunctions, hold_and_plan, refuse_start
from bigsvm.fit.variables import Variables, decision_of, make_variables
from bigsvm.training.result import finite_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Classes, Given
    from bigsvm.fit.reduction import RunResources
    from bigsvm.fit.variables import DecisionFunction
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.result import KnownPoint, TrainingResult

SomeFunctions = TypeVar("SomeFunctions", bound=Functions)


class FunctionsReduction(ABC, Generic[SomeFunctions]):
    """The way of several functions that one run trains; all have the same offset."""

    def __init__(self, parameters: TrainingParameters, problem: SomeFunctions) -> None:
        self._parameters, self._problem = parameters, problem
        self.name, self.offset = problem.functions[0].name, problem.offset

    @abstractmethod
    def resident_bytes(self, source: RowSource) -> int:
        """Bytes of labels, and of what else is in memory for the whole run."""

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        function, k = self._problem.functions[0], self._problem.n_outputs
        state_bytes = STATE_BYTES * function.n_segments
        # The states of functions are padded, and the plan counts one variable of a row for each.
        others = k * state_bytes * smo.row_width(1) + 8 * (function.n_faces - 1) * k * source.n_rows
        return hold_and_plan(
            self._parameters,
            source,
            resident_bytes=self.resident_bytes(source) + others,
            n_outputs=k,
            active_output_bytes=ACTIVE_OUTPUT_BYTES * function.n_faces + state_bytes,
            gram_share=GRAM_SHARE if self._problem.alike else GRAM_SHARE_OF_FUNCTIONS,
        )

    def arrange(self, source: RowSource) -> None:
        merge, compare = self._parameters.merges_rows, self._parameters.compares_rows
        self._variables = make_variables(source, self._problem, merge=merge, compare=compare)

    def solve(self, resources: RunResources, point: KnownPoint | None = None) -> TrainingResult:
        """Solve the problems of all functions, from a feasible point of the variables if given."""
        trainer, plan, (source, problem, _) = resources.trainer, resources.plan, self._variables
        duals = tuple(trainer.dual(source, function, plan) for function in problem.functions)
        return trainer.decompose(
            source, FunctionsDual(problem, duals), plan, point=point, **resources.control()
        )

    def decisions(self, result: TrainingResult) -> list[DecisionFunction]:
        """Read the decision function of each function off a result, for the original rows."""
        source, trained, groups = self._variables
        return [
            decision_of(Variables(source, function, groups), function, of_function)
            for function, of_function in zip(
                self._problem.functions, _results_of(trained, result), strict=True
            )
        ]


def _results_of(trained: Functions, result: TrainingResult) -> Iterator[TrainingResult]:
    """Cut a result into those of the functions; costs stay those of the run."""
    alphas: Any = result.alpha
    if isinstance(alphas, sp.csr_array):
        alphas = sp.csc_array(alphas)
    for c, function in enumerate(trained.functions):
        if isinstance(alphas, np.ndarray):
            alpha = alphas[:, c]
            places = np.flatnonzero(alpha.any(axis=1))
            alpha = alpha[places]
        else:
            part = slice(alphas.indptr[c], alphas.indptr[c + 1])
            places, alpha = alphas.indices[part], alphas.data[part]
        support = result.support[places]
        certificate = replace(
            result.certificate,
            n_support=len(support),
            n_bounded=BoxDual(function).n_bounded(alpha, support),
        )
        if result.of_functions:
            standing = result.of_functions[c]
            certificate = replace(
                certificate,
                gap=standing.gap,
                objective=standing.objective,
                duality_gap=finite_or_none(standing.duality_gap),
            )
        yield replace(
            result,
            support=support,
            alpha=alpha,
            thresholds=trained.thresholds_of(c, result.thresholds),
            certificate=certificate,
        )


class OneVsRestReduction(FunctionsReduction[OneVsRest]):
    """One problem for each class, in one run.

    The L2-SVM is trained without a search among samples, so `solver` and `sampling` are not used.
    """

    rule = "ovr"

    def __init__(self, given: Given) -> None:
        refuse_start(given.start)
        parameters = given.parameters
        self.held_out, given = held_out_for(given)
        classes = find_classes(given)
        check_has_others(parameters, given.source.n_rows)
        for name in ("shrinking", "rows_at_once"):
            if getattr(parameters, name):
                raise ParameterError(
                    f"{name} is {getattr(parameters, name)!r}, but one against the rest has kernel "
                    "rows that all functions share; leave it out, or give multiclass='ovo'"
                )
        super().__init__(parameters, make_functions(parameters, classes))
        self.classes, self.class_weight = classes.labels.tolist(), classes.class_weight.tolist()
        self.sample_weight = classes.sample_weight

    def resident_bytes(self, source: RowSource) -> int:
        # Labels and weights twice: of rows, and of the variables in the order they are trained in.
        held_out = 0 if self.held_out is None else self.held_out.nbytes
        return 2 * (self._problem.label.nbytes + self._problem.held_bytes) + held_out

    def recorded(self) -> Recorded:
        problem = self._problem
        return Recorded(
            self.name,
            (problem.label, problem.sample_weight),
            problem.chosen(),
            problem.class_weight,
            {
                "classes": f"{problem.n_outputs}, one against the rest",
                **recorded_rules(self._parameters),
                **recorded_calibration(self.held_out, self._parameters),
            },
        )

    def run(self, resources: RunResources) -> TrainingResult:
        # The point takes memory that the model needs.
        return replace(self.solve(resources), point=None)

    def functions(self, result: TrainingResult) -> ModelFunctions:
        decisions = self.decisions(result)
        certificate, k = result.certificate, len(decisions)
        rows = np.concatenate([decision.support for decision in decisions])
        support, places = np.unique(rows, return_inverse=True)
        if self._variables.groups is not None:
            bounded = sum(decision.certificate.n_bounded for decision in decisions)
            certificate = replace(certificate, n_support=len(support), n_bounded=bounded)
        sizes = [len(decision.support) for decision in decisions]
        coefficients = sp.csr_array(
            (
                np.concatenate([decision.coefficients for decision in decisions]),
                (places, np.repeat(np.arange(k), sizes)),
            ),
            shape=(len(support), k),
        )
        label = self._problem.label[support]
        rho = np.array([decision.extras.get("rho", np.nan) for decision in decisions])
        functions = ModelFunctions(
            support,
            coefficients,
            np.array([decision.intercept for decision in decisions]),
            {
                **certificate.as_dict(),
                "n_support_of_classes": np.bincount(label, minlength=k).tolist(),
                **_least_sure(rho, certificate.gap),
            },
        )
        return functions.grouped(label)


def make_functions(parameters: TrainingParameters, classes: Classes) -> OneVsRest:
    """Make the problem of all classes, feasible and with rows for each class.

    Raises
    ------
    DataError, ParameterError
        Naming the class.
    """
    labels, codes, weights, class_weight = classes
    sizes = classes.sizes()
    check_every_class(labels, class_weight, sizes)
    sides = np.ones((len(labels), 2))
    if parameters.class_weight == "balanced":
        sides = sizes.sum() / (2.0 * np.stack([sizes.sum() - sizes, sizes], axis=1))
    elif parameters.class_weight is not None:
        weights = class_weight[codes] * (1.0 if weights is None else weights)
    problem = OneVsRest(
        label=codes,
        class_weight=tuple((float(rest), float(one)) for rest, one in sides),
        sample_weight=weights,
        make=functools.partial(make_classification, parameters),
    )
    for label, function in zip(labels.tolist(), problem.functions, strict=True):
        try:
            function.check()
        except ParameterError as error:
            raise ParameterError(f"class {label!r} against the rest: {error}") from None
    return problem


def _least_sure(rho: F8, gap: float | None) -> dict[str, Any]:
    """Find the class of the smallest rho; nothing if a class has none. The gap is the worst."""
    if gap is None or not np.isfinite(rho).all():
        return {}
    worst = int(np.argmin(np.abs(rho)))
    return {"least_sure": {"class": worst, "gap": gap, "rho": float(rho[worst])}}
