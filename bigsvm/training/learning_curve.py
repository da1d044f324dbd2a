"""The uncertified stop: training ends when the rows not used yet would gain next to nothing.

Each time a run grows, the model trained so far is evaluated at rows that it has never seen: random
ones, as the rows come in random order. Their share of mistakes is an unbiased estimate of its test
error, for nothing, as training needs these outputs anyway. The fresh rows of different growths are
different ones, so that the estimates are independent, and each has a standard error.

Two successive estimates that differ by less than their standard error say little: of a few
thousand rows they often do so from the start, and where errors fall slowly, many small differences
are still to come. So the last three are taken together. Errors of many rows are taken to fall as
1 / √(rows trained on). A line through the estimates over that, weighted by 1 / standard error², has
a slope with a standard error of its own. The slope plus this error says what all rows would still
gain at most, and training ends when that is no more than `WORTH`. So differences are held against
their standard errors, and what is left counts too.

The rows that led to the end are trained on as well: the model that is returned has seen them, and
so the last estimate, of the model before it, is cautious. Nothing else is known of the model: it is
not certified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.training import events
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from bigsvm.arrays import F8, Mask
    from bigsvm.duals.dual import Standing
    from bigsvm.training.run import Run
    from bigsvm.working_sets.choice import Choice

WORTH = 0.005
"""Test error that all rows must be expected to gain for training to go on: half a point, by which
an uncertified model may be worse than a certified one."""
MOST_SOLVES = 10
"""Times that a scope is solved without a certificate, where rows go on to violate."""
LATEST = 3
"""Estimates on the line: of few rows errors fall otherwise."""
NAMES = ("trained", "error", "deviation")
"""Lists of a curve as it is saved: rows trained on, error at fresh rows, its standard error."""


class Estimate(NamedTuple):
    """A test error from rows that were not trained on, and its standard error; shares of 1."""

    error: float
    deviation: float


def estimate(wrong: Mask, weights: F8) -> Estimate | None:
    """Estimate a test error from fresh rows; None where none of them has a weight.

    Parameters
    ----------
    wrong : (m,) bool
        Which rows the model gets wrong.
    weights : (m,) float64
        How much each row counts, 0 or more.
    """
    total = float(weights.sum())
    if not total > 0:
        return None
    error = float(weights[wrong].sum()) / total
    n_effective = total**2 / float(weights @ weights)
    # One mistake and one hit more: no mistake in m rows does not mean that there are none.
    share = (error * n_effective + 1.0) / (n_effective + 2.0)
    return Estimate(error, float(np.sqrt(share * (1.0 - share) / n_effective)))


class LearningCurve:
    """Estimates of a run so far.

    Parameters
    ----------
    saved : dict
        What `saved` of an earlier one was; kept up to date. Empty at first.
    """

    def __init__(self, saved: dict[str, list[float]]) -> None:
        self.saved = saved
        for name in NAMES:
            saved.setdefault(name, [])

    def add(self, trained: int, found: Estimate) -> None:
        """Add an estimate for a model trained on so many rows."""
        for name, value in zip(NAMES, (float(trained), *found), strict=True):
            self.saved[name].append(value)

    @property
    def last(self) -> Estimate | None:
        """The latest estimate."""
        if not self.saved["error"]:
            return None
        return Estimate(self.saved["error"][-1], self.saved["deviation"][-1])

    def gain(self, trained: int, n_rows: int) -> float:
        """Bound the error that all `n_rows` rows gain over the first `trained`.

        Infinite while there are fewer than two estimates.
        """
        rows, errors, deviations = (np.array(self.saved[name][-LATEST:]) for name in NAMES)
        if len(rows) < 2:
            return float("inf")
        places, weights = rows**-0.5, deviations**-2.0
        places = places - weights @ places / weights.sum()
        spread = float(weights @ places**2)
        slope = max(float(weights @ (places * errors)) / spread, 0.0)
        return (slope + float(spread**-0.5)) * float(trained**-0.5 - n_rows**-0.5)

    def is_settled(self, trained: int, n_rows: int) -> bool:
        """Whether training on the first `trained` of `n_rows` rows is enough."""
        return self.gain(trained, n_rows) <= WORTH


class UncertifiedStop:
    """Decides when a run without a certificate grows, and when it ends.

    Parameters
    ----------
    run : Run
    choice : Choice
    """

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
