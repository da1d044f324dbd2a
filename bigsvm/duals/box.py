"""BoxDual: problems whose variables live in boxes, solved by pair steps.

A row violates the optimality conditions by as much as its gradient ``g = linear − f`` lies on the
wrong side of the threshold b: above it where α may still rise, below it where α may still fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.core import smo
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.duals.formulations import CSVC

SCAN_ROWS = 1 << 15
"""Rows looked at together when scoring: temporaries of 3 MB at most, whatever n is."""


class SelectionRule(IntEnum):
    """How a pair is chosen; the numbers are those of `bigsvm.core.smo`."""

    MVP = smo.MVP
    SECOND_ORDER = smo.SECOND_ORDER
    HMG = smo.HMG

    @classmethod
    def from_name(cls, name: str, *, rows_are_scarce: bool = False) -> SelectionRule:
        """Read ``"mvp"``, ``"second-order"``, ``"hmg"`` or ``"auto"``.

        ``"auto"`` is second-order where most rows asked for are in memory, as it takes the fewest
        steps, and HMG where rows are scarce and each has to be computed for one step.
        """
        names = {
            "mvp": cls.MVP,
            "second-order": cls.SECOND_ORDER,
            "hmg": cls.HMG,
            "auto": cls.HMG if rows_are_scarce else cls.SECOND_ORDER,
        }
        try:
            return names[name.replace("_", "-")]
        except KeyError:
            raise ParameterError(
                f"selection is {name!r}; it must be one of {', '.join(names)}"
            ) from None


class Optimality(NamedTuple):
    """Where a point stands, from the gradients of all rows.

    Attributes
    ----------
    max_up, min_low : float
        Extremes of the gradient over the variables that may rise and that may fall.
    threshold : float
        The intercept: mean gradient of the free variables, or the middle of the two extremes, or
        the one there is.
    n_support, n_bounded, n_free : int
    linear_term : float
        ``linearᵀα``.
    outputs_term : float
        ``αᵀf``, which is αᵀKα where f is exact.
    slack : float
        ``Σ_i C_i ξ_i`` at the threshold.
    """

    max_up: float
    min_low: float
    threshold: float
    n_support: int
    n_bounded: int
    n_free: int
    linear_term: float
    outputs_term: float
    slack: float

    @property
    def gap(self) -> float:
        """The KKT gap, 0 or more: what `tol` bounds."""
        return max(self.max_up - self.min_low, 0.0)

    @property
    def objective(self) -> float:
        """The dual objective, maximised."""
        return self.linear_term - 0.5 * self.outputs_term

    @property
    def duality_gap(self) -> float:
        """Primal minus dual objective, 0 or more at exact outputs."""
        return self.slack + self.outputs_term - self.linear_term


class _Part(NamedTuple):
    """Some consecutive variables of those that are looked at: place, box, where they stand."""

    start: int
    stop: int
    linear: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    alpha: NDArray[np.float64]
    outputs: NDArray[np.float64]

    @property
    def gradient(self) -> NDArray[np.float64]:
        return self.linear - self.outputs

    @property
    def rises(self) -> NDArray[np.bool_]:
        return self.alpha < self.upper

    @property
    def falls(self) -> NDArray[np.bool_]:
        return self.alpha > self.lower


@dataclass(frozen=True)
class BoxDual:
    """The scoring and selecting half of a training problem, over row-sized arrays.

    Every method looks at the first rows, as many as alpha has, or at the rows listed.

    Parameters
    ----------
    formulation : CSVC
    rule : SelectionRule
    """

    formulation: CSVC
    rule: SelectionRule = SelectionRule.SECOND_ORDER

    def _parts(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        rows: NDArray[np.int64] | None,
    ) -> Iterator[_Part]:
        for start in range(0, len(alpha), SCAN_ROWS):
            stop = min(start + SCAN_ROWS, len(alpha))
            span = slice(start, stop)
            box = self.formulation.box(span if rows is None else rows[span])
            yield _Part(start, stop, *box, alpha[span], outputs[span])

    def optimality(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        *,
        rows: NDArray[np.int64] | None = None,
    ) -> Optimality:
        """Look at alpha, outputs (m,) float64 of the first m rows, or of `rows`, (m,) int64.

        Raises
        ------
        DataError
            An output is not finite: sums of kernel values have left float32.
        """
        max_up, min_low = -np.inf, np.inf
        free_sum = linear_term = outputs_term = 0.0
        n_free = n_support = 0
        for part in self._parts(alpha, outputs, rows):
            a, f = part.alpha, part.outputs
            if not np.isfinite(f).all():
                place = part.start + int(np.flatnonzero(~np.isfinite(f))[0])
                row = place if rows is None else int(rows[place])
                raise DataError(
                    f"the sum of kernel values of row {row} is {outputs[place]}: too large for "
                    "float32; scale the features, or lower C"
                )
            gradient, rises, falls = part.gradient, part.rises, part.falls
            max_up = max(max_up, gradient[rises].max(initial=-np.inf))
            min_low = min(min_low, gradient[falls].min(initial=np.inf))
            free = rises & falls
            n_free += int(free.sum())
            free_sum += float(gradient[free].sum())
            n_support += int(np.count_nonzero(a))
            linear_term += float(part.linear @ a)
            outputs_term += float(a @ f)
        extremes = [g for g in (float(max_up), float(min_low)) if np.isfinite(g)]
        threshold = sum(extremes) / max(len(extremes), 1)
        if n_free:
            threshold = free_sum / n_free
        slack = 0.0
        for part in self._parts(alpha, outputs, rows):
            excess = part.gradient - threshold
            slack += float(np.maximum(excess, 0) @ part.upper + np.minimum(excess, 0) @ part.lower)
        return Optimality(
            float(max_up), float(min_low), threshold, n_support, n_support - n_free, n_free,
            linear_term, outputs_term, slack,
        )  # fmt: skip

    def select(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        at: Optimality,
        *,
        capacity: int,
        smallest: int,
        fill: float,
        rng: np.random.Generator,
        tol: float = 0.0,
        band: tuple[int, int] = (0, 0),
        margin: float = 0.0,
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Choose what to work on: free rows, worst violators, then the next closest to violating.

        With violators alone the gap merely halves per sweep; some more that nearly violate save
        half of the sweeps (w8a: 6 instead of 14). Where the violators are more than there is room
        for, each counts by a random part of its violation, as the worst are often near copies of
        one another (8 sweeps instead of 10 on digits made many), and half of them come from either
        side of the threshold: of one side alone hardly any could move (a9a: 12 working sets instead
        of 55). The worst pair of all is always chosen, without which there might be no step.

        Parameters
        ----------
        alpha, outputs : (n,) float64
        at : Optimality
        capacity : int
            Most rows of a working set, 2 or more.
        smallest : int
            Fewest, where there are as many.
        fill : float
            Size as a multiple of the free and violating rows.
        rng : numpy.random.Generator
        tol : float
            A row violates if its gradient is beyond the threshold by more than this.
        band : tuple
            Fewest and most rows that are made up by those close to violating.
        margin : float
            How close, in the gradient.
        rows : (n,) int64, optional
            The rows that alpha and outputs are of.

        Returns
        -------
        (m,) int64
            Ascending places in alpha.
        """
        n = len(alpha)
        scores, above = np.empty(n, np.float32), np.empty(n, np.bool_)
        wanted = 0
        worst: list[list[int]] = [[], []]
        for part in self._parts(alpha, outputs, rows):
            span = slice(part.start, part.stop)
            gradient, rises, falls = part.gradient, part.rises, part.falls
            distance = gradient - at.threshold
            score = np.maximum(
                np.where(rises, distance, -np.inf), np.where(falls, -distance, -np.inf)
            )
            free = rises & falls
            wanted += int(np.count_nonzero(free | (score > tol)))
            if 2 * at.n_free <= capacity:
                score[free] = np.inf
            scores[span], above[span] = score, distance > 0
            extremes = (rises & (gradient == at.max_up), falls & (gradient == at.min_low))
            for found, extreme in zip(worst, extremes, strict=True):
                if not found:
                    found.extend(part.start + np.flatnonzero(extreme)[:1])
        size = int(min(n, capacity, max(smallest, fill * wanted)))
        near = max(band[0], int(np.count_nonzero(scores > -margin)))
        size = max(size, min(near, band[1]))
        if size == n:
            return np.arange(n)
        if size < wanted:
            _crowd(scores, above, worst[0] + worst[1], size, rng)
        last = np.partition(scores, n - size)[n - size]
        chosen = np.flatnonzero(scores > last)
        ties = np.flatnonzero(scores == last)[: size - len(chosen)]
        return np.sort(np.concatenate([chosen, ties]))

    def near_threshold(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        at: Optimality,
        *,
        margin: float,
    ) -> NDArray[np.int64]:
        """Rows that are free, or whose gradient is within `margin` of the threshold; ascending."""
        chosen = []
        for part in self._parts(alpha, outputs, None):
            near = np.abs(part.gradient - at.threshold) <= margin
            near |= part.rises & part.falls
            chosen.append(part.start + np.flatnonzero(near & (part.lower < part.upper)))
        return np.concatenate(chosen)

    def doubtful(
        self,
        alpha: NDArray[np.float64],
        outputs: NDArray[np.float64],
        *,
        tol: float,
        error: float,
    ) -> NDArray[np.int64]:
        """Rows without alpha that may violate by more than `tol`; ascending.

        Parameters
        ----------
        alpha, outputs : (n,) float64
        error : float
            By how much any output may be wrong.
        """
        at = self.optimality(alpha, outputs)
        limit = tol - 2 * error
        chosen = []
        for part in self._parts(alpha, outputs, None):
            gradient = part.gradient
            rises = part.rises & (gradient - at.min_low > limit)
            falls = part.falls & (at.max_up - gradient > limit)
            chosen.append(part.start + np.flatnonzero((rises | falls) & (part.alpha == 0)))
        return np.concatenate(chosen)


def _crowd(
    scores: NDArray[np.float32],
    above: NDArray[np.bool_],
    worst: list[int],
    size: int,
    rng: np.random.Generator,
) -> None:
    """Make the scores of too many violators random, and no more than half of `size` of a side."""
    for start in range(0, len(scores), SCAN_ROWS):
        score = scores[start : start + SCAN_ROWS]
        violates = (score > 0) & np.isfinite(score)
        score[violates] *= rng.random(np.count_nonzero(violates), np.float32)
    scores[worst] = np.inf
    open_places = size - int(np.count_nonzero(np.isposinf(scores)))
    sides = [np.flatnonzero((scores > 0) & np.isfinite(scores) & (above == s)) for s in (0, 1)]
    fewer = min(len(side) for side in sides)
    quota = max(-(-open_places // 2), open_places - fewer)
    for side in sides:
        if len(side) > quota:
            order = np.argpartition(scores[side], len(side) - quota)
            scores[side[order[: len(side) - quota]]] = 0
