"""The uncertified stop: training ends when the rows not used yet would gain next to nothing.

Each time a run grows, the model trained so far is evaluated at rows that it has never seen: random
ones, as the rows come in random order. Their share of mistakes is an unbiased estimate of its test
error and costs nothing, as training needs these outputs anyway. Each growth has other fresh rows,
so the estimates are independent, and each has a standard error.

Two successive estimates that differ by less than their standard error say little, so the last three
are taken together. Errors are assumed to fall as 1 / √(rows trained on). A line through the
estimates over that, weighted by 1 / standard error², has a slope with a standard error. The slope
plus this error bounds what all rows would still gain, and training ends when that is at most
`WORTH`.

The rows of the last estimate are trained on too: the model that is returned has seen them, so the
last estimate, of the model before it, is cautious. The model is not certified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from bigsvm.arrays import F8, Mask

WORTH = 0.005
"""Test error that all rows must be expected to gain for training to go on: half a point, by which
an uncertified model may be worse than a certified one."""
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

    `wrong`, (m,), says which rows the model gets wrong; weights, (m,), are 0 or more.
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

    It keeps `saved` up to date, which is empty at first, or what that of an earlier one was.
    """

    def __init__(self, saved: dict[str, list[float]]) -> None:
        self.saved = saved
        for name in NAMES:
            saved.setdefault(name, [])

    def add(self, trained: int, latest: Estimate) -> None:
        """Add an estimate for a model trained on this number of rows."""
        for name, value in zip(NAMES, (float(trained), *latest), strict=True):
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
