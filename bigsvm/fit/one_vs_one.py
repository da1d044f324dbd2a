"""Classifiers of many classes, one against one: from rows and labels to the functions of all pairs.

Gamma, the centre and the weights of the classes are those of all rows, as in scikit-learn's SVC;
each pair is otherwise trained as the two classes alone would be.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.fit.fingerprint import Recorded, recorded_rules
from bigsvm.fit.held_out import held_out_for, recorded_calibration
from bigsvm.fit.pair_problems import Budget, ClassPairs
from bigsvm.fit.problem import check_has_others
from bigsvm.fit.reduction import ModelFunctions, refuse_start
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.one_vs_one.log import PairLog
from bigsvm.parameters.formulations import BALLS
from bigsvm.training import events
from bigsvm.training.state import limits_of
from bigsvm.votes import pair_classes, support_classes

if TYPE_CHECKING:
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Given
    from bigsvm.fit.reduction import RunResources
    from bigsvm.one_vs_one.joined import OneVsOne


class OneVsOneReduction:
    """A problem for each pair of classes; the limits are those of all pairs together."""

    def __init__(self, given: Given) -> None:
        refuse_start(given.start)
        self._parameters, self.rule = given.parameters, given.parameters.multiclass
        self.held_out, given = held_out_for(given)
        self.problem = ClassPairs(given)
        self.classes = self.problem.classes.tolist()
        self.class_weight = self.problem.class_weight.tolist()
        self.sample_weight = self.problem.weights

    def checked_rows(self, source: RowSource) -> ClassRows:
        """Find the rows of each class; refuse classes that cannot be told from others."""
        problem = self.problem
        rows = ClassRows(source, problem.codes, len(problem.classes), weights=problem.weights)
        problem.check(rows)
        self.name, self.offset, self._rows = problem.name, problem.offset, rows
        return rows

    def plan(self, source: RowSource) -> tuple[RowSource, TrainingPlan]:
        problem, parameters = self.problem, self._parameters
        rows = self.checked_rows(source)
        if problem.name not in BALLS:
            check_has_others(parameters, int(np.sort(rows.sizes)[-2:].sum()))
        held = 0 if self.held_out is None else self.held_out.nbytes
        self._budget = Budget(parameters, rows, problem, resident_bytes=held)
        return source, self._budget.largest

    def recorded(self) -> Recorded:
        problem = self.problem
        return Recorded(
            problem.name,
            (problem.codes, problem.weights),
            problem.chosen,
            self.class_weight,
            {
                "classes": f"{len(self._rows)}, one against one",
                **recorded_rules(self._parameters),
                **recorded_calibration(self.held_out, self._parameters),
            },
        )

    def arrange(self, source: RowSource) -> None:
        del self.problem.codes  # 4 bytes a row that the budget does not count

    def run(self, resources: RunResources) -> OneVsOne:
        # Small problems do without.
        from bigsvm.fit.log_check import LogCheck
        from bigsvm.fit.pair_training import PairLanes, PairTraining
        from bigsvm.fit.pair_workers import PairWorkers, trains_whole_pairs
        from bigsvm.one_vs_one.small import SmallPairs

        trainer, plan, parameters, hooks, checkpoint = resources
        problem, budget, rows = self.problem, self._budget, self._rows
        source, projected = rows.source, dict(plan.projected)
        with ExitStack() as stack:
            small = None
            if problem.are_small_solved_together:
                exact = stack.enter_context(trainer.tiles.with_threads(1).exact())
                small = stack.enter_context(
                    SmallPairs(
                        rows, exact, problem.bounds_of_class,
                        tol=parameters.tol, threads=parameters.n_threads,
                        n_bytes=budget.small_bytes, nu=problem.nu,
                    )
                )  # fmt: skip
                projected["kernel rows"] = max(projected["kernel rows"], small.n_bytes)
            check = LogCheck(problem, rows, trainer, plan)
            log = PairLog(
                checkpoint, problem.n_pairs, source, most_bytes=budget.coefficients, check=check
            )
            hooks.listener(
                events.Planned(source.n_rows, source.n_features, plan.working_set, projected, 0)
            )
            if log.n_not_recomputed:
                hooks.listener(events.TakenAsRecorded(log.n_not_recomputed, log.n_finished))
            workers = None
            if trains_whole_pairs(trainer, parameters):
                workers = PairWorkers(trainer, rows, problem, budget, parameters, small, check)
            return PairTraining(
                rows,
                PairLanes(trainer, problem, budget, parameters, log, hooks),
                log,
                most_held_rows=budget.most_held_rows,
                limits=limits_of(parameters, hooks),
                listener=hooks.listener,
                small=small,
                workers=workers,
            ).run()

    def functions(self, result: OneVsOne) -> ModelFunctions:
        return functions_of_pairs(result, len(self.classes))


def functions_of_pairs(result: OneVsOne, n_classes: int) -> ModelFunctions:
    """Make the functions of a model of k classes, whose support vectors are grouped by class."""
    of_class = support_classes(result.coefficients, n_classes)
    return functions_in_order(result, n_classes).grouped(of_class)


def functions_in_order(result: OneVsOne, n_classes: int) -> ModelFunctions:
    """Do the same where the support vectors are grouped already."""
    certificate = {
        **result.certificate.as_dict(),
        "pairs": {**result.pairs, **_least_sure(result, n_classes)},
    }
    return ModelFunctions(result.support, result.coefficients, result.intercepts, certificate)


def _least_sure(functions: OneVsOne, n_classes: int) -> dict[str, Any]:
    """Find the pair whose gap is largest relative to its rho; nothing if no pair has a rho."""
    known = np.flatnonzero(np.isfinite(functions.rho) & np.isfinite(functions.gaps))
    if not len(known):
        return {}
    gaps, rho = functions.gaps[known], np.abs(functions.rho[known])
    with np.errstate(over="ignore"):  # beside no gap, any rho is sure
        worst = known[np.argmin(rho / np.maximum(gaps, np.finfo(np.float64).tiny))]
    first, second = pair_classes(n_classes)
    return {
        "least_sure": {
            "classes": [int(first[worst]), int(second[worst])],
            "gap": float(functions.gaps[worst]),
            "rho": float(functions.rho[worst]),
        }
    }
