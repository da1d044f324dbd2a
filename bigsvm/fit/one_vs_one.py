"""Classifiers of many classes, one against one: from rows and labels to the functions of all pairs.

Gamma, the centre and the weights of the classes are those of all rows, as in scikit-learn's SVC;
each pair is otherwise trained as the two classes alone would be.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.kernel_matrix import training_matrix
from bigsvm.fit.fingerprint import recorded_rules
from bigsvm.fit.log_check import LogCheck
from bigsvm.fit.models import Trained
from bigsvm.fit.pair_problems import Budget, ClassPairs
from bigsvm.fit.problem import check_has_others
from bigsvm.fit.setting import Setting
from bigsvm.fit.trainer import (
    Trainer,
    limits_of,
    open_checkpoint,
)
from bigsvm.fit.variables import decision_of, make_variables
from bigsvm.gram import KernelTiles
from bigsvm.one_vs_one.class_rows import ClassRows
from bigsvm.one_vs_one.log import PairLog, Solved
from bigsvm.one_vs_one.small import SmallPairs
from bigsvm.one_vs_one.training import PairLane, PairTraining
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import BALLS
from bigsvm.training import events
from bigsvm.training.events import Hooks
from bigsvm.training.saving import Saver

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.one_vs_one.class_rows import PairRows
    from bigsvm.one_vs_one.joined import OneVsOne
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.state import Limits


def train_one_vs_one(
    source: RowSource,
    labels: NDArray[Any],
    sample_weight: NDArray[np.float64] | None,
    parameters: TrainingParameters,
    hooks: Hooks | None = None,
) -> Trained[OneVsOne]:
    """Train a classifier for each pair of classes.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array
        Two distinct values or more, of any sortable type.
    sample_weight : (n,) float64 or None
        In [0, ∞); 2 means the row twice, 0 that it is not there.
    parameters : TrainingParameters
        Of a classifier; the limits are those of all pairs together.
    hooks : Hooks, optional

    Returns
    -------
    Trained
        The certificate of its functions says whether all pairs converged, and if not why.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    check_parameters(parameters)
    hooks = hooks or Hooks()
    problem = ClassPairs(source, labels, sample_weight, parameters, hooks.listener)
    del labels
    if parameters.takes_kernel_matrix:
        source = training_matrix(source)
    rows = ClassRows(source, problem.codes, len(problem.classes), weights=problem.weights)
    problem.check(rows)
    if problem.name not in BALLS:
        check_has_others(parameters, int(np.sort(rows.sizes)[-2:].sum()))
    budget = Budget(parameters, rows, problem)
    setting = Setting.planned(
        parameters, source, problem.weights, hooks, budget.largest, source.scaler
    )
    fingerprint = setting.fingerprint(
        formulation=problem.name,
        per_row=(problem.codes, problem.weights),
        chosen=problem.chosen,
        class_weights=[float(weight) for weight in problem.class_weight],
        others={"classes": f"{len(rows)}, one against one", **recorded_rules(parameters)},
    )
    del problem.codes  # 4 bytes a row that the budget does not count
    with (
        Trainer(parameters, setting.kernel, setting.centre, offset=problem.offset) as trainer,
        open_checkpoint(parameters, fingerprint) as checkpoint,
        ExitStack() as stack,
    ):
        plan, small = budget.largest, None
        projected = dict(plan.projected)
        if problem.are_small_solved_together:
            exact = KernelTiles(
                setting.kernel,
                centre=setting.centre,
                dtype=np.float64,
                offset=problem.offset,
            )
            small = stack.enter_context(
                SmallPairs(
                    rows, stack.enter_context(exact), problem.bounds_of_class,
                    tol=parameters.tol, threads=parameters.n_threads, n_bytes=budget.small_bytes,
                    nu=problem.nu,
                )
            )  # fmt: skip
            projected["kernel rows"] = max(projected["kernel rows"], small.n_bytes)
        log = PairLog(
            checkpoint, problem.n_pairs, source, room=budget.coefficients,
            check=LogCheck(problem, rows, trainer, plan),
        )  # fmt: skip
        hooks.listener(
            events.Planned(source.n_rows, source.n_features, plan.working_set, projected, 0)
        )
        if log.n_not_recomputed:
            hooks.listener(events.TakenAsRecorded(log.n_not_recomputed, log.n_finished))
        functions = PairTraining(
            rows,
            PairLanes(trainer, problem, budget, parameters, log, hooks.listener),
            log,
            room=budget.room,
            limits=limits_of(parameters, hooks),
            listener=hooks.listener,
            small=small,
        ).run()
    return Trained(
        problem.classes, problem.class_weight, functions, setting, problem.name, fingerprint
    )


class PairLanes:
    """Lanes of pairs; each has a share of the threads and of the memory.

    Parameters
    ----------
    trainer : Trainer
        With all threads.
    problem : ClassPairs
    budget : Budget
    parameters : TrainingParameters
    log : PairLog
    listener : callable
        Told of what is saved.
    """

    def __init__(
        self,
        trainer: Trainer,
        problem: ClassPairs,
        budget: Budget,
        parameters: TrainingParameters,
        log: PairLog,
        listener: events.Listener,
    ) -> None:
        self._trainer, self._problem, self._budget = trainer, problem, budget
        self._parameters, self._log, self._listener = parameters, log, listener
        self.share_out = trainer.share_out

    def count(self, n_rows: int, row_alignment: int) -> int:
        """Count the lanes for pairs of so many rows, and sources of such an alignment."""
        return self._budget.lanes(n_rows, row_alignment)

    def open(self, count: int) -> list[PairLane]:
        """Make so many lanes."""
        threads = self._parameters.n_threads // count
        return [self._lane(i == 0, threads, copies=count > 1) for i in range(count)]

    def _lane(self, speaks: bool, threads: int, *, copies: bool) -> PairLane:
        slot = self._log.slot(copies=copies)
        # Of a pair that is finished the log has the result.
        saver = Saver(
            slot if self._parameters.checkpoint is not None else None,
            every=self._parameters.checkpoint_every,
            listener=self._listener,
            keeps_ends=False,
        )
        trainer = self._trainer.with_threads(threads)
        return PairLane(
            PairTrainer(trainer, self._problem, self._budget, self._parameters), slot, saver, speaks
        )


class PairTrainer:
    """Trains one pair after the other with what all of them share.

    Parameters
    ----------
    trainer : Trainer
        With the threads that a pair may use.
    problem : ClassPairs
    budget : Budget
    parameters : TrainingParameters
    """

    def __init__(
        self, trainer: Trainer, problem: ClassPairs, budget: Budget, parameters: TrainingParameters
    ) -> None:
        self._trainer, self._problem, self._budget = trainer, problem, budget
        self._merge = parameters.merges_rows

    def __call__(
        self,
        pair: tuple[int, int],
        rows: PairRows,
        *,
        saver: Saver,
        limits: Limits,
        listener: events.Listener,
    ) -> Solved:
        """Train a pair, or go on with what the saver has of it."""
        formulation, n_rows = self._problem.of_pair(pair, rows), rows.source.n_rows
        # To be compared, rows are copied: only as many as might be held.
        compare = n_rows <= self._budget.room
        variables = make_variables(rows.source, formulation, merge=self._merge, compare=compare)
        plan = self._budget.plan(n_rows, rows.source.row_alignment)
        result = self._trainer.train(variables, plan, saver=saver, limits=limits, listener=listener)
        found = decision_of(variables, formulation, result)
        return Solved(
            rows.rows[found.support],
            found.coefficients,
            found.intercept,
            found.found.get("rho", np.nan),
            found.certificate,
        )
