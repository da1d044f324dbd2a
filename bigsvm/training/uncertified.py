"""A run without a certificate: when it grows and ends; see `bigsvm.training.learning_curve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.training import events
from bigsvm.training.learning_curve import LearningCurve, estimate
from bigsvm.training.result import StopReason
from bigsvm.working_sets.choice import Choice

if TYPE_CHECKING:
    from bigsvm.duals.dual import Standing
    from bigsvm.training.run import Run

MOST_SOLVES = 10
"""Times that a scope is solved without a certificate, where rows go on to violate."""
SETTLED_TOL = 0.5
"""A row matters if it violates by more than this, in units of `Problem.scale` (1 for labels ±1)."""
SETTLED_SHARE = 1e-3
"""A scope is solved until at most this share of its rows matter: a fifth of
`learning_curve.WORTH`."""


class UncertifiedChoice(Choice):
    """Has a run end once more rows would gain next to nothing.

    The learning curve is in the counters of the run. No row is worked on below the KKT gap `tol`.
    """

    def __init__(self, run: Run, *, tol: float) -> None:
        super().__init__(run.dual, run.source, run.plan, tol=tol, rng=run.rng)
        self._run = run
        # Rows that those of the source stand for.
        self._n_represented = round(run.source.n_rows / run.source.share_drawn)

    def active_tol(self, scope: int, standing: Standing) -> float:
        """KKT gap to which the active rows are solved: loose also once the last rows take part."""
        return self._tol_of(standing, is_last=scope == self._n_rows and not self._run.count.settled)

    def one_set_is_enough(self, *, knows_all_outputs: bool) -> bool:
        """Return False: there may be no sweep over all rows, and each scope has to be a model."""
        return False

    def end(self, standing: Standing) -> StopReason | None:
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

    def growing(self, stop: int) -> None:
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

    @property
    def returns_current(self) -> bool:
        """Whether the last rows take part: their scope is returned as it is."""
        return self._run.count.settled

    def _is_solved(self, standing: Standing) -> bool:
        """Whether the scope has been solved well enough to be a model."""
        run = self._run
        if run.count.solves > MOST_SOLVES:
            return True
        tol = max(self._tol, SETTLED_TOL * run.dual.formulation.scale(standing.thresholds))
        if standing.gap <= tol:
            return True
        alpha, outputs = run.of_scope()
        violating = run.dual.n_violating(alpha, outputs, standing, tol=tol)
        return violating <= SETTLED_SHARE * len(alpha)
