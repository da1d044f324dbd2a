"""BoxDual: problems whose variables live in boxes, solved by pair steps.

A row violates the optimality conditions by as much as its gradient ``g = linear − f`` lies on the
wrong side of the threshold b: above it where α may still rise, below it where α may still fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.cache.resident import BATCH, ComputedRows, KernelRowCache
from bigsvm.core import smo
from bigsvm.errors import DataError, ParameterError
from bigsvm.tiles import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.duals.formulations import CSVC
    from bigsvm.tiles import KernelTiles

SCAN_ROWS = 1 << 15
"""Rows looked at together when scoring: temporaries of 3 MB at most, whatever n is."""


class SelectionRule(IntEnum):
    """How a pair is chosen; the numbers are those of `bigsvm.core.smo`."""

    MVP = smo.MVP
    SECOND_ORDER = smo.SECOND_ORDER
    HMG = smo.HMG

    @classmethod
    def from_name(cls, name: str) -> SelectionRule:
        """Read ``"mvp"``, ``"second-order"``, ``"hmg"`` or ``"auto"``.

        ``"auto"`` is second-order: inside a working set most rows asked for are in memory, and it
        takes the fewest steps; HMG pays where each row has to be computed for one step.
        """
        names = {
            "mvp": cls.MVP,
            "second-order": cls.SECOND_ORDER,
            "hmg": cls.HMG,
            "auto": cls.SECOND_ORDER,
        }
        try:
            return names[name.replace("_", "-")]
        except KeyError:
            raise ParameterError(
                f"selection is {name!r}; it must be one of {', '.join(names)}"
            ) from None


class Progress(IntEnum):
    """Why `SubProblem.advance` returned."""

    CONVERGED = smo.CONVERGED
    STEPS_SPENT = smo.STEPS_SPENT
    STALLED = smo.STALLED


class Optimality(NamedTuple):
    """Where a point stands, from the gradients of all rows.

    Attributes
    ----------
    max_up, min_low : float
        Extremes of the gradient over the variables that may rise and that may fall.
    threshold : float
        The intercept: mean gradient of the free variables, or the middle of the two extremes.
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


def _spans(n: int) -> Iterator[slice]:
    return (slice(a, min(a + SCAN_ROWS, n)) for a in range(0, n, SCAN_ROWS))


@dataclass(frozen=True)
class BoxDual:
    """The scoring and selecting half of a training problem, over row-sized arrays.

    Parameters
    ----------
    formulation : CSVC
    rule : SelectionRule
    """

    formulation: CSVC
    rule: SelectionRule = SelectionRule.SECOND_ORDER

    def optimality(self, alpha: NDArray[np.float64], outputs: NDArray[np.float64]) -> Optimality:
        """Look at all rows; alpha, outputs (n,) float64.

        Raises
        ------
        DataError
            An output is not finite: sums of kernel values have left float32.
        """
        max_up, min_low = -np.inf, np.inf
        free_sum = linear_term = outputs_term = 0.0
        n_free = n_support = 0
        for rows in _spans(len(alpha)):
            linear, lower, upper = self.formulation.box(rows)
            a, f = alpha[rows], outputs[rows]
            if not np.isfinite(f).all():
                row = rows.start + int(np.flatnonzero(~np.isfinite(f))[0])
                raise DataError(
                    f"the sum of kernel values of row {row} is {outputs[row]}: too large for "
                    "float32; scale the features, or lower C"
                )
            gradient = linear - f
            rises, falls = a < upper, a > lower
            max_up = max(max_up, gradient[rises].max(initial=-np.inf))
            min_low = min(min_low, gradient[falls].min(initial=np.inf))
            free = rises & falls
            n_free += int(free.sum())
            free_sum += float(gradient[free].sum())
            n_support += int(np.count_nonzero(a))
            linear_term += float(linear @ a)
            outputs_term += float(a @ f)
        threshold = free_sum / n_free if n_free else float(0.5 * (max_up + min_low))
        slack = 0.0
        for rows in _spans(len(alpha)):
            linear, lower, upper = self.formulation.box(rows)
            excess = linear - outputs[rows] - threshold
            slack += float(np.maximum(excess, 0) @ upper + np.minimum(excess, 0) @ lower)
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
    ) -> NDArray[np.int64]:
        """Choose a working set: free rows, worst violators, then the next closest to violating.

        With violators alone the gap merely halves per sweep; as many again that nearly violate
        save half of the sweeps (w8a: 6 instead of 14). Where the violators are more than there is
        room for, the worst are often near copies of one another, so each counts by a random part of
        its violation: 8 sweeps instead of 10 on digits made many, 8 instead of 9 on w8a in 300 MB.
        The worst pair of all is always chosen, without which a sub-problem might have no step.

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

        Returns
        -------
        (m,) int64, ascending
        """
        n = len(alpha)
        scores = np.empty(n, np.float32)
        wanted = 0
        worst: list[list[int]] = [[], []]
        for rows in _spans(n):
            linear, lower, upper = self.formulation.box(rows)
            a = alpha[rows]
            gradient = linear - outputs[rows]
            rises, falls = a < upper, a > lower
            distance = gradient - at.threshold
            score = np.maximum(
                np.where(rises, distance, -np.inf), np.where(falls, -distance, -np.inf)
            )
            free = rises & falls
            wanted += int(np.count_nonzero(free | (score > 0)))
            if 2 * at.n_free <= capacity:
                score[free] = np.inf
            scores[rows] = score
            extremes = (rises & (gradient == at.max_up), falls & (gradient == at.min_low))
            for found, extreme in zip(worst, extremes, strict=True):
                if not found:
                    found.extend(rows.start + np.flatnonzero(extreme)[:1])
        size = int(min(n, capacity, max(smallest, fill * wanted)))
        if size == n:
            return np.arange(n)
        if size < wanted:
            for rows in _spans(n):
                score = scores[rows]
                violates = (score > 0) & np.isfinite(score)
                score[violates] *= rng.random(np.count_nonzero(violates), np.float32)
            scores[worst[0] + worst[1]] = np.inf
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
        for rows in _spans(len(alpha)):
            linear, lower, upper = self.formulation.box(rows)
            free = (alpha[rows] < upper) & (alpha[rows] > lower)
            near = np.abs(linear - outputs[rows] - at.threshold) <= margin
            chosen.append(rows.start + np.flatnonzero((free | near) & (lower < upper)))
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
        for rows in _spans(len(alpha)):
            linear, lower, upper = self.formulation.box(rows)
            gradient, a = linear - outputs[rows], alpha[rows]
            rises = (a < upper) & (gradient - at.min_low > limit)
            falls = (a > lower) & (at.max_up - gradient > limit)
            chosen.append(rows.start + np.flatnonzero((rises | falls) & (a == 0)))
        return np.concatenate(chosen)


class SubProblem:
    """The dual restricted to a working set, solved by pair steps on kernel rows made on demand.

    Parameters
    ----------
    dual : BoxDual
    tiles : KernelTiles
    rows : Rows
        The working set's rows, (m, d).
    working_set : (m,) int64
    alpha, gradient : (m,) float64
        Where to start.
    buffer : float32
        Memory for kernel rows.
    pair : (2,) int64, optional
        The last pair of an interrupted run, which HMG goes on from.
    steps : int
        Steps already done.
    """

    def __init__(
        self,
        dual: BoxDual,
        tiles: KernelTiles,
        rows: Rows,
        working_set: NDArray[np.int64],
        alpha: NDArray[np.float64],
        gradient: NDArray[np.float64],
        *,
        buffer: NDArray[np.float32],
        pair: NDArray[np.int64] | None = None,
        steps: int = 0,
    ) -> None:
        self.size = len(working_set)
        self.rule = dual.rule
        self.columns = Columns(tiles, rows, sparse_partners=not isinstance(rows, np.ndarray))
        _, lower, upper = dual.formulation.box(working_set)
        self.state = smo.make_state(alpha, gradient, lower, upper, tiles.diagonal(rows))
        if pair is not None:
            self.state.pair[:] = pair
        self.state.counters[0] = steps
        self.cache = KernelRowCache(
            ComputedRows(tiles, rows, self.columns),
            n_variables=self.size,
            width=len(self.state.alpha),
            buffer=buffer,
        )

    @property
    def alpha(self) -> NDArray[np.float64]:
        """(m,) float64, as far as it has got."""
        return self.state.alpha[: self.size]

    @property
    def gradient(self) -> NDArray[np.float64]:
        """(m,) float64, within the working set."""
        return self.state.gradient[: self.size]

    @property
    def gap(self) -> float:
        """KKT gap within the working set; 0 where nothing may rise, or nothing fall."""
        i, j = smo.exact_extremes(self.state)
        if i < 0 or j < 0:
            return 0.0
        return float(max(self.state.gradient[i] - self.state.gradient[j], 0.0))

    @property
    def steps(self) -> int:
        """Pair steps done."""
        return int(self.state.counters[0])

    def advance(
        self,
        *,
        tol: float,
        max_steps: int = smo.REFRESH,
        look: Callable[[], None] = lambda: None,
    ) -> Progress:
        """Take up to `max_steps` pair steps, fetching rows as asked for.

        `look` is called before rows are computed; where it raises, the slice is not done.
        """
        s, cache = self.state, self.cache
        goal = self.steps + max_steps
        while True:
            status, row = smo.run(
                s, cache.rows, cache.slots, cache.used, int(self.rule), tol, goal - self.steps
            )
            if status != smo.NEED_ROW:
                return Progress(status)
            look()
            wanted, quiet = self._most_wanted(row)
            cache.ensure(wanted, stamp=int(s.counters[1]), quiet=quiet)

    def _most_wanted(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """List the row asked for, then the worst violators without a row, up to a batch.

        And say which variables are quiet: at a bound, and pushed against it.
        """
        s, m = self.state, self.size
        alpha, gradient = s.alpha[:m], s.gradient[:m]
        rises, falls = alpha < s.upper[:m], alpha > s.lower[:m]
        middle = 0.5 * (gradient[rises].max() + gradient[falls].min())
        score = np.maximum(
            np.where(rises, gradient - middle, -np.inf), np.where(falls, middle - gradient, -np.inf)
        )
        quiet = score < 0
        score[self.cache.slots[:m] >= 0] = -np.inf
        score[row] = np.inf
        room = min(BATCH, self.cache.largest_batch(quiet))
        count = min(room, max(1, int(np.count_nonzero(score > 0))))
        best = np.argpartition(score, m - count)[m - count :]
        return best[np.argsort(-score[best], kind="stable")], quiet
