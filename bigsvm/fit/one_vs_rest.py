"""Classifiers of many classes, one against the rest: one function for each class, all in one run.

Each is what the classifier of "this class" against all others would be, with the same C, gamma and
rows; the value of a function is positive for its class. A weight given to a class by its label is
that of its rows in all functions; ``"balanced"`` weights are those of the two sides of each
function. Both are scikit-learn's, of `OneVsRestClassifier` and of its own classifiers that train
one function for each class.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import ACTIVE_OUTPUT_BYTES, GRAM_SHARE_OF_FUNCTIONS
from bigsvm.core.smo import row_width
from bigsvm.duals.function_steps import STATE_BYTES
from bigsvm.duals.one_vs_rest import OneVsRest, OneVsRestDual
from bigsvm.errors import ParameterError
from bigsvm.fit.fingerprint import Recorded, recorded_rules
from bigsvm.fit.memory import hold_and_plan
from bigsvm.fit.problem import (
    check_classes,
    check_every_class,
    check_has_others,
    make_classification,
)
from bigsvm.fit.reduction import ModelFunctions, refuse_start
from bigsvm.fit.variables import Variables, decision_of, make_variables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Classes
    from bigsvm.fit.reduction import RunResources
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks
    from bigsvm.training.result import Certificate, TrainingResult


class ClassFunctions(NamedTuple):
    """The functions of all classes, over support vectors that they share.

    Attributes
    ----------
    support : (p,) int64
        Rows that any class has a coefficient of, ascending.
    coefficients : (p, k) CSR, float64
    intercepts : (k,) float64
    rho : (k,) float64
        By which nu-svc has divided coefficients and intercept; NaN for the others.
    certificate : Certificate
        Sums over the classes, and the worst gap.
    label : (p,) int32
        Class of each support row.
    """

    support: NDArray[np.int64]
    coefficients: sp.csr_array
    intercepts: NDArray[np.float64]
    rho: NDArray[np.float64]
    certificate: Certificate
    label: NDArray[np.int32]


class OneVsRestReduction:
    """One problem for each class, in one run; the arguments are those of `train_model`, checked.

    The L2-SVM is not searched for with samples of the rows: its `solver` and `sampling` mean
    nothing.

    Raises
    ------
    ParameterError, DataError
    """

    rule, held_out = "ovr", None

    def __init__(
        self,
        source: RowSource,
        labels: NDArray[Any] | None,
        sample_weight: F8 | None,
        parameters: TrainingParameters,
        hooks: Hooks,
        start: KernelExpansion | None = None,
    ) -> None:
        refuse_start(start)
        self._parameters = parameters
        classes = check_classes(parameters, source.n_rows, labels, sample_weight, hooks.listener)
        check_has_others(parameters, source.n_rows)
        for name in ("shrinking", "rows_at_once"):
            if getattr(parameters, name):
                raise ParameterError(
                    f"{name} is {getattr(parameters, name)!r}, but one against the rest has kernel "
                    "rows that all functions share; leave it out, or give multiclass='ovo'"
                )
        self._problem = make_functions(parameters, classes)
        self.name, self.offset = self._problem.functions[0].name, self._problem.offset
        self.classes, self.class_weight = classes.labels.tolist(), classes.class_weight.tolist()
        self.sample_weight = classes.sample_weight

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        problem = self._problem
        state_bytes = STATE_BYTES * problem.functions[0].n_segments
        # Labels and weights twice: of rows, and of the variables in the order they are trained in.
        resident = 2 * (problem.label.nbytes + problem.held_bytes)
        # The states of functions are padded.
        resident += problem.n_outputs * state_bytes * row_width(1)
        return hold_and_plan(
            self._parameters,
            source,
            resident_bytes=resident,
            n_outputs=problem.n_outputs,
            active_output_bytes=ACTIVE_OUTPUT_BYTES + state_bytes,
            gram_share=GRAM_SHARE_OF_FUNCTIONS,
        )

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
            },
        )

    def arrange(self, source: RowSource) -> None:
        merge, compare = self._parameters.merges_rows, self._parameters.compares_rows
        self._variables: Variables[OneVsRest] = make_variables(
            source, self._problem, merge=merge, compare=compare
        )

    def run(self, resources: RunResources) -> ClassFunctions:
        trainer, plan, source = resources.trainer, resources.plan, self._variables.source
        trained = self._variables.formulation
        duals = tuple(trainer.dual(source, function, plan) for function in trained.functions)
        result = trainer.decompose(
            source, OneVsRestDual(trained, duals), plan, **resources.control()
        )
        return _functions(result, self._variables, self._problem)

    def functions(self, result: ClassFunctions) -> ModelFunctions:
        sizes = np.bincount(result.label, minlength=len(self.classes))
        certificate = {
            **result.certificate.as_dict(),
            "n_support_of_classes": sizes.tolist(),
            **_least_sure(result),
        }
        functions = ModelFunctions(
            result.support, result.coefficients, result.intercepts, certificate
        )
        return functions.grouped(result.label)


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


def _functions(
    result: TrainingResult, variables: Variables[OneVsRest], problem: OneVsRest
) -> ClassFunctions:
    """Read the functions, of rows again instead of variables, off a result."""
    found, decisions = sp.csc_array(result.alpha), []
    for c, function in enumerate(problem.functions):
        part = slice(found.indptr[c], found.indptr[c + 1])
        own = replace(
            result,
            support=result.support[found.indices[part]],
            alpha=found.data[part],
            thresholds=problem.thresholds_of(c, result.thresholds),
        )
        merged = Variables(variables.source, variables.formulation.functions[c], variables.groups)
        decisions.append(decision_of(merged, function, own))
    certificate = result.certificate
    rows = np.concatenate([one.support for one in decisions])
    support, places = np.unique(rows, return_inverse=True)
    if variables.groups is not None:
        bounded = sum(one.certificate.n_bounded for one in decisions)
        certificate = replace(certificate, n_support=len(support), n_bounded=bounded)
    sizes = [len(one.support) for one in decisions]
    coefficients = sp.csr_array(
        (
            np.concatenate([one.coefficients for one in decisions]),
            (places, np.repeat(np.arange(len(decisions)), sizes)),
        ),
        shape=(len(support), len(decisions)),
    )
    return ClassFunctions(
        support,
        coefficients,
        np.array([one.intercept for one in decisions]),
        np.array([one.found.get("rho", np.nan) for one in decisions]),
        certificate,
        problem.label[support],
    )


def _least_sure(functions: ClassFunctions) -> dict[str, Any]:
    """Find the class of the smallest rho, where there are such; the gap is that of all classes."""
    rho, gap = np.abs(functions.rho), functions.certificate.gap
    if gap is None or not np.isfinite(rho).all():
        return {}
    worst = int(np.argmin(rho))
    return {"least_sure": {"class": worst, "gap": gap, "rho": float(functions.rho[worst])}}
