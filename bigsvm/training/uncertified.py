"""When a run without a certificate grows and ends; see `bigsvm.training.learning_curve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.training import events
from bigsvm.training.learning_curve import LearningCurve, estimate
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from bigsvm.duals.dual import Standing
    from bigsvm.training.run import Run
    from bigsvm.working_sets.choice import Choice

MOST_SOLVES = 10
"""Times that a scope is solved without a certificate, where rows go on to violate."""


class UncertifiedStop:
    """Decides when a run without a certificate grows, and when it ends."""

    def __init__(self, run: Run, choice: Choice) -> None:
        self._run, self._choice = run, choice
        # Rows that those of the source stand for.
        self._n_represented = round(run.source.n_rows / run.source.share_drawn)

    def reason(self, standing: Standing) -> StopReason | None:
        """Return why the run ends at this point of its scope; None if it does not."""
        count = self._run.count
        if not (count.settled and count.solves and self._is_solved(standing)):
            return None
        is_settled = LearningCurve(count.curve).is_settled(count.scope, self._n_represented)
        return StopReason.SETTLED if is_settled else StopReason.USED_UP

    def grows(self) -> bool:
        """Whether the scope grows now: it has a model, whose error is estimated then."""
        run = self._run
        return not run.count.settled and self._is_solved(run.dual.optimality(*run.of_scope()))

    def test(self, stop: int) -> None:
        """Estimate the test error from the rows up to `stop`, which have had no part so far."""
        run, count, problem = self._run, self._run.count, self._run.dual.formulation
        standing = run.dual.optimality(*run.of_scope())
        fresh = slice(count.scope, stop)
        wrong = problem.mistakes(run.state.outputs[fresh], fresh, standing.thresholds)
        curve, error = LearningCurve(count.curve), estimate(wrong, problem.importance(fresh))
        if error is not None:
            curve.add(count.scope, error)
            run.listener(events.Tested(count.scope, stop - count.scope, *error))
        is_end = stop == run.source.n_rows < self._n_represented
        count.settled = is_end or curve.is_settled(stop, self._n_represented)

    def _is_solved(self, standing: Standing) -> bool:
        """Whether the scope has been solved well enough for a run without a certificate."""
        run = self._run
        return run.count.solves > MOST_SOLVES or self._choice.is_solved(*run.of_scope(), standing)
