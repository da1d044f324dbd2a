"""PairTrainer: one pair of classes after the other, each a problem of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from bigsvm.fit.variables import decision_of, make_variables
from bigsvm.one_vs_one.log import Solved

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.budget import TrainingPlan
    from bigsvm.fit.pair_problems import ClassPairs
    from bigsvm.fit.trainer import Trainer
    from bigsvm.one_vs_one.class_rows import PairRows
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training import events
    from bigsvm.training.saving import Saver
    from bigsvm.training.state import Limits


class PairBudget(Protocol):
    """The memory of a pair. What it says decides bits, so it is the same wherever a pair is."""

    @property
    def most_held_rows(self) -> float:
        """Rows that may be held in memory."""

    def plan(self, n_rows: int, row_alignment: int) -> TrainingPlan:
        """Divide the memory of a pair of `n_rows` rows of a source with this alignment."""


class PairTrainer:
    """Trains one pair after the other with what all of them share.

    Parameters
    ----------
    trainer : callable
        Given the rows of a pair, returns the `Trainer` for it.
    problem : ClassPairs
    budget : PairBudget
    parameters : TrainingParameters
    """

    def __init__(
        self,
        trainer: Callable[[int], Trainer],
        problem: ClassPairs,
        budget: PairBudget,
        parameters: TrainingParameters,
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
        # Rows are copied to be compared, so there must be memory to hold them.
        compare = n_rows <= self._budget.most_held_rows
        variables = make_variables(rows.source, formulation, merge=self._merge, compare=compare)
        plan = self._budget.plan(n_rows, rows.source.row_alignment)
        result = self._trainer(n_rows).train(
            variables, plan, saver=saver, limits=limits, listener=listener
        )
        decision = decision_of(variables, formulation, result)
        return Solved(
            rows.rows[decision.support],
            decision.coefficients,
            decision.intercept,
            decision.extras.get("rho", np.nan),
            decision.certificate,
        )
