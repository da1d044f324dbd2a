"""FunctionProblems: working sets of several functions, each of its own rows, side by side."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.dual import Point
from bigsvm.duals.pair_steps import DONE, ENDED, PAIR, STALLED, STEPS
from bigsvm.working_sets.subproblem import REFRESH, Costs, Memory, Progress, WorkingProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import I8
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.row_cache import RowBuffer

SLICES = 4
"""Slices of REFRESH steps that a lane takes before all lanes meet; they wait for the slowest."""
LEAST_COUNTED = REFRESH // 16
"""Steps that a function counts for at least: its kernel rows take time, however few its steps."""
LEAST_HELD = 0.5
"""Least share of the kernel rows of the largest working set that fits in the memory of a lane: with
less, rows are fetched again and again."""


class LaneLimits(NamedTuple):
    """Most functions that are solved at once, and most rows of their working sets together."""

    lanes: int
    rows: int


@dataclass
class FunctionLane:
    """A lane: it solves one function after the other, in its own memory.

    `function` is −1, and `problem` None, while it solves none.
    """

    tiles: KernelTiles
    buffer: RowBuffer
    function: int = -1
    problem: WorkingProblem | None = None


class MakeSubProblem(Protocol):
    """Makes the sub-problem of one function's working set."""

    def __call__(
        self, rows: I8, start: Point, *, memory: Memory, tiles: KernelTiles
    ) -> WorkingProblem:
        """Make the sub-problem."""


class FunctionProblems(WorkingProblem):
    """The sub-problems of functions that share nothing but the kernel, or of sets of one function.

    Several disjoint sets of one function count as functions here: see `bigsvm.working_sets.crowd`.
    Each lane solves one of them at a time. The steps of a function do not depend on the others, so
    the number of lanes does not change its bits. `sets` has the rows of each function's working
    set, (m_c,), empty where it has none. Alpha and gradient of `start` are (Σ m_c,), function by
    function; its `last` is (4 k,), and anything shorter counts as none. The memory is that of all
    lanes.
    """

    def __init__(
        self,
        sets: Sequence[I8],
        start: Point,
        *,
        make: Sequence[MakeSubProblem],
        tiles: KernelTiles,
        memory: Memory,
        limits: LaneLimits,
    ) -> None:
        self._sets, self._make, self._memory = sets, make, memory
        self._edges = np.cumsum([0, *(len(places) for places in sets)])
        self._alpha, self._gradient = start.alpha.copy(), start.gradient.copy()
        self._steps, self._gap, self._costs = start.n_done, 0.0, Costs()
        self._each = np.tile(np.array([0, 0, -1, -1]), (len(sets), 1))
        if start.last.size == self._each.size:
            self._each[:] = start.last.reshape(self._each.shape)
        # The longest first, so that all lanes are done at about the same time.
        left = [c for c, rows in enumerate(sets) if len(rows) and not self._each[c, ENDED]]
        self._waiting = deque(sorted(left, key=lambda c: -len(sets[c])))
        self._tiles = tiles
        n_lanes = self._most_lanes(limits, len(left))
        alone = n_lanes == 1
        self._lanes = [
            FunctionLane(tiles if alone else tiles.with_threads(1), part)
            for part in memory.buffer.parts(n_lanes)
        ]
        self._counting = Lock()

    def _most_lanes(self, limits: LaneLimits, n_left: int) -> int:
        largest = max(1, *map(len, self._sets))
        n_values = self._memory.buffer.values.size
        with_rows = n_values / (LEAST_HELD * largest * smo.row_width(largest))
        return max(1, min(limits.lanes, n_left, limits.rows // largest, int(with_rows)))

    @property
    def size(self) -> int:
        return int(self._edges[-1])

    @property
    def point(self) -> Point:
        """`last` has for each function whether and how it ended, its steps and its last pair."""
        return Point(self._alpha, self._gradient, self._each.ravel().copy(), self._steps)

    @property
    def gap(self) -> float:
        return self._gap

    @property
    def costs(self) -> Costs:
        return self._costs

    @property
    def slices(self) -> int:
        return SLICES * len(self._lanes)

    def close(self) -> None:
        for lane in self._lanes:
            self._close(lane)

    def advance(self, *, tol: float, max_steps: int = REFRESH) -> Progress:
        """Take up to `max_steps` steps, of one function after the other in every lane.

        A function that cannot move stays where it is; once the others are done, all have stalled.
        """
        # The slices of a function are the same in any lane and with any number of lanes: all have
        # the same length, and none is started for which too few steps are left.
        length = min(REFRESH, max_steps)
        left = max_steps

        def may_start() -> bool:
            nonlocal left
            with self._counting:
                if left < length:
                    return False
                left -= length
                return True

        def work(lane: FunctionLane) -> None:
            nonlocal left
            while self._has_turn(lane) and may_start():
                taken = self._advance(lane, tol, length)
                with self._counting:
                    left += length - min(length, max(taken, LEAST_COUNTED))

        try:
            self._tiles.share_out(work, self._lanes)
        finally:
            for lane in self._lanes:
                if lane.tiles is not self._tiles:
                    self._tiles.n_evaluations += lane.tiles.n_evaluations
                    lane.tiles.n_evaluations = 0
        if self._waiting or any(lane.function >= 0 for lane in self._lanes):
            return Progress.STEPS_SPENT
        stalled = (self._each[:, ENDED] == STALLED).any()
        return Progress.STALLED if stalled else Progress.CONVERGED

    def _has_turn(self, lane: FunctionLane) -> bool:
        """Whether the lane has a function; it takes the next one if it has none."""
        if lane.function < 0:
            try:
                lane.function = self._waiting.popleft()
            except IndexError:  # another lane was faster
                return False
        return True

    def _advance(self, lane: FunctionLane, tol: float, max_steps: int) -> int:
        """Advance the function of a lane by a slice, and return the steps that it took."""
        c, problem = lane.function, self._open(lane)
        steps, costs = int(self._each[c, STEPS]), problem.costs
        progress = problem.advance(tol=tol, max_steps=max_steps)
        part = slice(self._edges[c], self._edges[c + 1])
        point = problem.point
        self._alpha[part], self._gradient[part] = point.alpha, point.gradient
        self._each[c, STEPS], self._each[c, PAIR] = point.n_done, point.last
        taken = point.n_done - steps
        with self._counting:
            self._steps += taken
            spent = problem.costs.since(costs)
            # Lanes work at the same time.
            self._costs = self._costs.plus(spent._replace(seconds=spent.seconds / len(self._lanes)))
            self._gap = problem.gap
        if progress is not Progress.STEPS_SPENT:
            self._each[c, ENDED] = STALLED if progress is Progress.STALLED else DONE
            self._close(lane)
            lane.function = -1
        return taken

    def _open(self, lane: FunctionLane) -> WorkingProblem:
        if lane.problem is None:
            c = lane.function
            part = slice(self._edges[c], self._edges[c + 1])
            start = Point(
                self._alpha[part], self._gradient[part],
                self._each[c, PAIR], int(self._each[c, STEPS]),
            )  # fmt: skip
            memory = self._memory._replace(buffer=lane.buffer)
            lane.problem = self._make[c](self._sets[c], start, memory=memory, tiles=lane.tiles)
        return lane.problem

    def _close(self, lane: FunctionLane) -> None:
        if lane.problem is not None:
            lane.problem.close()
            lane.problem = None
