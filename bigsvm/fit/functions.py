"""Problems of several functions over the same rows, solved in one run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import ACTIVE_OUTPUT_BYTES, GRAM_SHARE, GRAM_SHARE_OF_FUNCTIONS
from bigsvm.core.smo import row_width
from bigsvm.duals.box import BoxDual
from bigsvm.duals.function_steps import STATE_BYTES
from bigsvm.duals.functions import FunctionsDual
from bigsvm.fit.memory import hold_and_plan
from bigsvm.fit.variables import Variables, decision_of
from bigsvm.training.result import finite_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.functions import Functions
    from bigsvm.fit.reduction import RunResources
    from bigsvm.fit.variables import DecisionFunction
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.result import KnownPoint, TrainingResult


def plan_functions(
    parameters: TrainingParameters,
    source: RowSource,
    problem: Functions,
    *,
    resident_bytes: int,
) -> tuple[RowSource, TrainingPlan]:
    """Hold all rows in memory if they take little of it, and divide the memory.

    Parameters
    ----------
    resident_bytes : int
        Bytes of labels, and of what else is in memory for the whole run.

    Raises
    ------
    MemoryBudgetError
    """
    function, k = problem.functions[0], problem.n_outputs
    state_bytes = STATE_BYTES * function.n_segments
    # The states of functions are padded.
    resident_bytes += k * state_bytes * row_width(1)
    # The plan counts one variable of a row for each function.
    more_variables = function.n_faces - 1
    resident_bytes += 8 * more_variables * k * source.n_rows
    return hold_and_plan(
        parameters,
        source,
        resident_bytes=resident_bytes,
        n_outputs=k,
        active_output_bytes=ACTIVE_OUTPUT_BYTES * function.n_faces + state_bytes,
        gram_share=GRAM_SHARE if problem.alike else GRAM_SHARE_OF_FUNCTIONS,
    )


def solve_functions(
    variables: Variables[Functions], resources: RunResources, *, point: KnownPoint | None = None
) -> TrainingResult:
    """Solve the problems of all functions.

    Parameters
    ----------
    point : KnownPoint, optional
        A feasible point of the variables to start from.
    """
    trainer, plan, (source, problem, _) = resources.trainer, resources.plan, variables
    duals = tuple(trainer.dual(source, function, plan) for function in problem.functions)
    return trainer.decompose(
        source, FunctionsDual(problem, duals), plan, point=point, **resources.control()
    )


def decisions_of(
    variables: Variables[Functions], problem: Functions, result: TrainingResult
) -> Iterator[DecisionFunction]:
    """Read the decision function of each function off a result, for the original rows.

    Parameters
    ----------
    problem : Functions
        Problems of the original rows.
    """
    for function, of_function in zip(
        problem.functions, _results_of(variables.formulation, result), strict=True
    ):
        yield decision_of(
            Variables(variables.source, function, variables.groups), function, of_function
        )


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
