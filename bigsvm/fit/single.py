"""One problem of one function: two classes, a regression, one class, or a minimal ball.

`alpha_of` is the point that a model of the same rows gives such a run to start from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.declared import LARGEST, is_number
from bigsvm.duals.feasible import project
from bigsvm.duals.problem import EarlierModel
from bigsvm.errors import DataError, ParameterError
from bigsvm.fit.fingerprint import Recorded, recorded_rules
from bigsvm.fit.held_out import held_out_for, recorded_calibration
from bigsvm.fit.problem import check_has_others, make_problem
from bigsvm.fit.reduction import ModelFunctions, hold_and_plan
from bigsvm.fit.variables import Variables, decision_of, make_variables
from bigsvm.parameters.formulations import BALLS
from bigsvm.training.events import Merged

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.crammer_singer import CrammerSinger
    from bigsvm.fit.problem import Given
    from bigsvm.fit.reduction import RunResources
    from bigsvm.models import KernelExpansion
    from bigsvm.training.result import TrainingResult


class StartError(DataError, ParameterError):
    """A model that a run cannot start from."""


def alpha_of(
    model: KernelExpansion,
    problem: Formulation | CrammerSinger,
    *,
    rule: str | None = None,
    classes: list[Any] | None = None,
) -> F8:
    """Return alpha of all rows that a model of them leads to; it must have this rule and classes.

    Raises
    ------
    StartError
        The model has another formulation, rule or classes, was trained on other rows, or has
        coefficients that training does not leave.
    """
    if model.formulation != problem.name:
        raise StartError(
            f"the model to start from is a {model.formulation}, this one a {problem.name}"
        )
    if model.rule != rule:
        raise StartError(
            "the model to start from is one of many classes, which have no two to start from; set "
            "warm_start to False"
        )
    n_rows = len(problem)
    trained_on = model.provenance.get("n_rows", n_rows)
    if trained_on != n_rows:
        raise StartError(
            f"the model to start from was trained on {trained_on} rows, not {n_rows}; add rows "
            "to a store with bigsvm.append and fit that, or set warm_start to False"
        )
    if classes is not None and model.classes != classes:
        raise StartError("the model to start from has other classes; start anew")
    coefficients: Any = model.coefficients
    C = model.provenance.get("parameters", {}).get("C")
    earlier = EarlierModel(
        model.support,
        coefficients if rule is None else coefficients.toarray(),
        C if is_number(C) and 0 < C < LARGEST else None,
        model.certificate.get("rho"),
        model.bounds,
    )
    alpha = problem.zeros(n_rows)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        alpha[model.support] = problem.alpha_from(earlier)
    if not bool((np.abs(alpha) < LARGEST).all()):  # comparisons with NaN are False
        raise StartError("the model to start from has coefficients beyond all bounds; start anew")
    return alpha


class SingleReduction:
    """A problem that is trained as it is."""

    rule = None

    def __init__(self, given: Given) -> None:
        parameters, n_rows = given.parameters, given.source.n_rows
        self._parameters, self._start, self.held_out = parameters, given.start, None
        if parameters.calibration is not None:
            self.held_out, given = held_out_for(given)
        self.classes, self.problem = make_problem(
            parameters, n_rows, given.labels, given.sample_weight
        )
        if parameters.formulation not in BALLS:
            check_has_others(parameters, n_rows)
        self.name, self.offset = self.problem.name, self.problem.offset
        self.sample_weight = self.problem.sample_weight
        self.class_weight: tuple[float, ...] | None = getattr(self.problem, "class_weight", None)

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        problem = self.problem
        # The plan counts alpha of the first variable of each row.
        resident = 8 * (problem.n_faces - 1) * source.n_rows + problem.held_bytes
        resident += 0 if self.held_out is None else self.held_out.nbytes
        return hold_and_plan(self._parameters, source, resident_bytes=resident)

    def recorded(self) -> Recorded:
        others = recorded_rules(self._parameters)
        if self.held_out is not None:
            others |= recorded_calibration(self.held_out, self._parameters)
        return Recorded(
            self.name,
            (self.problem.per_row, self.problem.sample_weight),
            self.problem.chosen(),
            self.class_weight,
            others,
        )

    def arrange(self, source: RowSource) -> None:
        merge, compare = self._parameters.merges_rows, self._parameters.compares_rows
        self._variables: Variables[Formulation] = make_variables(
            source, self.problem, merge=merge, compare=compare
        )
        self._first_alpha = None
        if self._start is not None:
            gathered = self._variables.gather(alpha_of(self._start, self.problem))
            self._first_alpha = project(self._variables.formulation, gathered)

    def run(self, resources: RunResources) -> TrainingResult:
        groups = self._variables.groups
        if groups is not None and len(groups) < len(groups.rows):
            resources.hooks.listener(Merged(len(groups.rows), len(groups)))
        return resources.trainer.train(
            self._variables, resources.plan, start=self._first_alpha, **resources.control()
        )

    def functions(self, result: TrainingResult) -> ModelFunctions:
        decision = decision_of(self._variables, self.problem, result)
        certificate = {**decision.certificate.as_dict(), **decision.extras}
        return ModelFunctions(
            decision.support, decision.coefficients, decision.intercept, certificate
        )
