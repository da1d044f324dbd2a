"""Crammer and Singer's machine: from rows and labels to a model of k functions.

Rows have their variables to themselves, and equal rows stay apart: their labels may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.wrappers import ChosenRows
from bigsvm.duals.crammer_singer import Cooling, CrammerSinger, CrammerSingerDual, Order, RowSolver
from bigsvm.duals.row_steps import watched_bytes
from bigsvm.fit.fingerprint import Recorded
from bigsvm.fit.held_out import held_out_for, recorded_calibration
from bigsvm.fit.problem import check_every_class, check_has_others, find_classes
from bigsvm.fit.reduction import ModelFunctions, hold_and_plan
from bigsvm.fit.single import StartError, alpha_of
from bigsvm.fit.variables import ORDER_SEED
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from bigsvm.arrays import I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Classes, Given
    from bigsvm.fit.reduction import RunResources
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.result import TrainingResult

ROW_BYTES = 12
"""Bytes of a row besides those of any run: its class and its place in the order of training."""
ORDER_BYTES = 32
"""Bytes of a row in one of the paper's orders: its place in a pass, and the permutation of it."""


class CrammerSingerReduction:
    """One problem of all classes."""

    def __init__(self, given: Given) -> None:
        parameters = given.parameters
        self._parameters, self._start = parameters, given.start
        self.held_out, given = held_out_for(given)
        classes = find_classes(given)
        check_has_others(parameters, given.source.n_rows)
        self._problem = make_crammer_singer(parameters, classes)
        self.classes, self.class_weight = classes.labels.tolist(), classes.class_weight.tolist()
        self.name = self.rule = self._problem.name
        self.offset, self.sample_weight = self._problem.offset, given.sample_weight

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        n, k = source.n_rows, self._problem.n_classes
        resident = ROW_BYTES * n + watched_bytes(k) + self._problem.held_bytes
        resident += 0 if self._parameters.order == "auto" else ORDER_BYTES * n
        resident += 0 if self.held_out is None else self.held_out.nbytes
        resident += 0 if self._start is None else 8 * n * k
        return hold_and_plan(self._parameters, source, resident_bytes=resident, n_outputs=k)

    def recorded(self) -> Recorded:
        problem = self._problem
        return Recorded(
            problem.name,
            (problem.label, problem.sample_weight),
            problem.chosen(),
            self.class_weight,
            # The label of each row is known by its place among these.
            {
                "classes": repr(self.classes),
                **_recorded_order(self._parameters),
                **recorded_calibration(self.held_out, self._parameters),
            },
        )

    def arrange(self, source: RowSource) -> None:
        parameters, problem = self._parameters, self._problem
        self._first_alpha = None
        if self._start is not None:
            self._first_alpha = alpha_of(self._start, problem, rule=self.rule, classes=self.classes)
        self._source, self._order = source, _order(source, problem, parameters)
        if self._order is not None:
            self._source = ChosenRows(source, self._order, in_random_order=True)
            problem = problem.take(self._order)
            if self._first_alpha is not None:
                self._first_alpha = self._first_alpha[self._order]
        self._dual = CrammerSingerDual(
            problem,
            RowSolver[parameters.subproblem.upper()],
            Order[parameters.order.upper()],
            Cooling[str(parameters.cooling).upper()],
            parameters.seed,
        )
        if self._first_alpha is not None and (fault := self._dual.infeasible(self._first_alpha)):
            raise StartError(f"no run can start from this model: {fault}; start anew")

    def run(self, resources: RunResources) -> TrainingResult:
        return resources.trainer.decompose(
            self._source,
            self._dual,
            resources.plan,
            start=self._first_alpha,
            **resources.control(),
        )

    def functions(self, result: TrainingResult) -> ModelFunctions:
        problem = self._problem
        support = result.support if self._order is None else self._order[result.support]
        ascending = np.argsort(support)
        support, alpha = support[ascending], result.alpha[ascending]
        has_bias = problem.fit_intercept
        return ModelFunctions(
            support,
            alpha,
            np.asarray(alpha.sum(axis=0)) if has_bias else np.zeros(problem.n_classes),
            result.certificate.as_dict(),
            problem.bounds(support),
        )


def make_crammer_singer(parameters: TrainingParameters, classes: Classes) -> CrammerSinger:
    """Make the problem, with rows for each class.

    Raises
    ------
    ParameterError
        A class weight that is none.
    DataError
        A class without a row of positive weight: its function would only say what it is not.
    """
    labels, codes, weights, class_weight = classes
    check_every_class(labels, class_weight, classes.sizes())
    if (class_weight != 1).any():
        weights = class_weight[codes] if weights is None else weights * class_weight[codes]
    return CrammerSinger(
        label=codes,
        n_classes=len(labels),
        C=parameters.C,
        fit_intercept=bool(parameters.fit_intercept),
        sample_weight=weights,
    )


def _recorded_order(parameters: TrainingParameters) -> dict[str, str]:
    """Say in which of the paper's orders rows are taken, as a run goes on in the same one."""
    if parameters.order == "auto":
        return {}
    cools = parameters.cooling not in (None, "none")
    cooled = f", cooled by {parameters.cooling}" if cools else ""
    seed = f", seed {parameters.seed}" if parameters.order == "random" else ""
    return {"order": f"{parameters.order}{cooled}{seed}"}


def _order(source: RowSource, problem: CrammerSinger, parameters: TrainingParameters) -> I8 | None:
    """Rows with a weight in the order of training; None for all as they come."""
    if source.row_alignment > 1 or source.n_rows <= DIRECT_ROWS or parameters.working_set == "all":
        return None
    weighted = np.flatnonzero(problem.weights(slice(None)))
    return (
        weighted if source.is_shuffled else np.random.default_rng(ORDER_SEED).permutation(weighted)
    )
