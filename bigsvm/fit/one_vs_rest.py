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

from bigsvm.budget import ACTIVE_OUTPUT_BYTES, GRAM_SHARE_OF_COLUMNS
from bigsvm.core.smo import row_width
from bigsvm.duals.column_steps import STATE_BYTES
from bigsvm.duals.one_vs_rest import OneVsRest, OneVsRestDual
from bigsvm.errors import ParameterError
from bigsvm.fit.fingerprint import recorded_rules
from bigsvm.fit.models import Trained
from bigsvm.fit.problem import (
    check_classes,
    check_every_class,
    check_has_others,
    make_classification,
)
from bigsvm.fit.setting import Setting
from bigsvm.fit.variables import Variables, decision_of, make_variables
from bigsvm.parameters.checks import check_parameters
from bigsvm.training.events import Hooks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Classes
    from bigsvm.parameters import TrainingParameters
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


def train_one_vs_rest(
    source: RowSource,
    labels: NDArray[Any],
    sample_weight: NDArray[np.float64] | None,
    parameters: TrainingParameters,
    hooks: Hooks | None = None,
) -> Trained[ClassFunctions]:
    """Train a function for each class.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array
        Two distinct values or more, of any sortable type.
    sample_weight : (n,) float64 or None
        In [0, ∞); 2 means the row twice, 0 that it is not there.
    parameters : TrainingParameters
        Of a classifier. The L2-SVM is not searched for with samples of the rows: its `solver` and
        `sampling` mean nothing.
    hooks : Hooks, optional

    Returns
    -------
    Trained
        For the rule "ovr".

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    check_parameters(parameters)
    hooks = hooks or Hooks()
    classes = check_classes(parameters, source.n_rows, labels, sample_weight, hooks.listener)
    del labels  # 8 bytes a row that the budget does not count
    check_has_others(parameters, source.n_rows)
    for name in ("shrinking", "rows_at_once"):
        if getattr(parameters, name):
            raise ParameterError(
                f"{name} is {getattr(parameters, name)!r}, but one against the rest has kernel "
                "rows that all functions share; leave it out, or give multiclass='ovo'"
            )
    problem = make_columns(parameters, classes)
    state_bytes = STATE_BYTES * problem.columns[0].n_segments
    setting = Setting.of(
        parameters,
        source,
        classes.sample_weight,
        hooks,
        resident_bytes=_resident_bytes(problem, state_bytes),
        n_outputs=problem.n_outputs,
        active_output_bytes=ACTIVE_OUTPUT_BYTES + state_bytes,
        gram_share=GRAM_SHARE_OF_COLUMNS,
    )
    fingerprint = setting.fingerprint(
        formulation=problem.columns[0].name,
        per_row=(problem.label, problem.sample_weight),
        chosen=problem.chosen(),
        class_weights=problem.class_weight,
        others={
            "classes": f"{problem.n_outputs}, one against the rest",
            **recorded_rules(parameters),
        },
    )
    variables = make_variables(
        setting.source, problem, merge=parameters.merges_rows, compare=parameters.compares_rows
    )
    with setting.running(fingerprint, offset=problem.offset) as (trainer, watched):
        trained = variables.formulation
        duals = tuple(
            trainer.dual(variables.source, column, setting.plan) for column in trained.columns
        )
        result = trainer.decompose(
            variables.source, OneVsRestDual(trained, duals), setting.plan, **watched
        )
    functions = _functions(result, variables, problem)
    return Trained(
        classes.labels,
        classes.class_weight,
        functions,
        setting,
        problem.columns[0].name,
        fingerprint,
    )


def make_columns(parameters: TrainingParameters, classes: Classes) -> OneVsRest:
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
    for label, column in zip(labels.tolist(), problem.columns, strict=True):
        try:
            column.check()
        except ParameterError as error:
            raise ParameterError(f"class {label!r} against the rest: {error}") from None
    return problem


def _resident_bytes(problem: OneVsRest, state_bytes: int) -> int:
    """Bytes that are in memory for the whole run, beside the rows."""
    # Labels and weights twice: of rows, and of the variables in the order they are trained in.
    resident = 2 * (problem.label.nbytes + problem.held_bytes)
    # The states of columns are padded.
    return resident + problem.n_outputs * state_bytes * row_width(1)


def _functions(
    result: TrainingResult, variables: Variables[OneVsRest], problem: OneVsRest
) -> ClassFunctions:
    """Read the functions, of rows again instead of variables, off a result."""
    found, decisions = sp.csc_array(result.alpha), []
    for c, column in enumerate(problem.columns):
        part = slice(found.indptr[c], found.indptr[c + 1])
        own = replace(
            result,
            support=result.support[found.indices[part]],
            alpha=found.data[part],
            thresholds=problem.thresholds_of(c, result.thresholds),
        )
        merged = Variables(variables.source, variables.formulation.columns[c], variables.groups)
        decisions.append(decision_of(merged, column, own))
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
