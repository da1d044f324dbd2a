"""FunctionProblems: working sets of several functions, each of its own rows, side by side."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.core.smo import REFRESH, row_width
from bigsvm.duals.function_steps import DONE, ENDED, PAIR, STALLED, STEPS
from bigsvm.working_sets.subproblem import Progress, SubProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bigsvm.arrays import F8, I8
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.row_cache import RowBuffer

SLICES = 4
"""Slices of REFRESH steps that a lane takes before all lanes meet; they wait for the slowest."""
LEAST_HELD = 0.5
"""There are only as many lanes as have memory for this share of the kernel rows of their largest
working set: with less, rows are fetched again and again."""


class Room(NamedTuple):
    """What there is room for at once.

    Attributes
    ----------
    lanes : int
        Functions.
    rows : int
        Of all of them together.
    """

    lanes: int
    rows: int


@dataclass
class FunctionLane:
    """One function after the other, in memory of its own.

    Attributes
    ----------
    tiles : KernelTiles
    buffer : RowBuffer
    function : int
        Whose turn it is, or −1.
    problem : SubProblem or None
        Its problem, while it is open.
    """

    tiles: KernelTiles
    buffer: RowBuffer
    function: int = -1
    problem: SubProblem | None = None


class FunctionProblems:
    """The sub-problems of functions that nothing but the kernel ties together.

    As many are solved at once as there are lanes. A function's steps do not hang on the others', so
    lanes do not change a bit of what it becomes.

    Parameters
    ----------
    sets : sequence of (m_c,) int64
        Places of each function's working set; empty where it has none.
    alpha, gradient : (Σ m_c,) float64
        Where to start, function by function.
    make : sequence of callable
        For each function: makes the `SubProblem` of places, alpha and gradient; `tiles`, `buffer`,
        `last`, `steps` and `given` are named.
    tiles : KernelTiles
    buffer : RowBuffer
        Memory for kernel rows of all lanes.
    room : Room
        For how many functions at once.
    last : (4 k,) int64, optional
        Of an interrupted run; anything shorter is of none.
    steps : int
        Steps already done.

    Attributes
    ----------
    row_seconds : float
        What kernel rows have taken, on average of the lanes.
    """

    def __init__(
        self,
        sets: Sequence[I8],
        alpha: F8,
        gradient: F8,
        *,
        make: Sequence[Callable[..., SubProblem]],
        tiles: KernelTiles,
        buffer: RowBuffer,
        room: Room,
        last: I8 | None = None,
        steps: int = 0,
        **given: Any,  # noqa: ANN401 (of `make`)
    ) -> None:
        self._sets, self._make, self._given = sets, make, given
        self._edges = np.cumsum([0, *(len(places) for places in sets)])
        self.alpha, self.gradient = alpha.copy(), gradient.copy()
        self.size = int(self._edges[-1])
        self.steps = steps
        self.gap = 0.0
        self.n_misses = self.n_reads = 0
        self.row_seconds = 0.0
        self._each = np.tile(np.array([0, 0, -1, -1]), (len(sets), 1))
        if last is not None and last.size == self._each.size:
            self._each[:] = last.reshape(self._each.shape)
        # The longest first, so that no lane has much left to do when the others are done.
        left = [c for c, rows in enumerate(sets) if len(rows) and not self._each[c, ENDED]]
        self._waiting = deque(sorted(left, key=lambda c: -len(sets[c])))
        self._tiles = tiles
        n_lanes = self._lanes_in(room, buffer, len(left))
        alone = n_lanes == 1
        self._lanes = [
            FunctionLane(tiles if alone else tiles.with_threads(1), part)
            for part in buffer.parts(n_lanes)
        ]
        self._counting = Lock()

    def _lanes_in(self, room: Room, buffer: RowBuffer, n_left: int) -> int:
        largest = max(1, *map(len, self._sets))
        held = buffer.values.size / (LEAST_HELD * largest * row_width(largest))
        return max(1, min(room.lanes, n_left, room.rows // largest, int(held)))

    @property
    def slices(self) -> int:
        """Of how many slices of one problem a slice of these is."""
        return 1 if len(self._lanes) == 1 else SLICES * len(self._lanes)

    @property
    def last(self) -> I8:
        """Of each function whether and how it ended, its steps and its last pair."""
        return self._each.ravel().copy()

    def bring_up_to_date(self, look: Callable[[], None]) -> None:
        """Have alpha and gradient belong together, which they always do here."""

    def close(self) -> None:
        """Hand the kernel rows to whatever keeps them."""
        for lane in self._lanes:
            self._close(lane)

    def advance(
        self, *, tol: float, max_steps: int = REFRESH, look: Callable[[], None] = lambda: None
    ) -> Progress:
        """Take up to `max_steps` steps, of one function after the other in every lane.

        A function that cannot move is left where it is; once the others are done, all have stalled.
        """
        left = max_steps

        def slice_of(most: int) -> int:
            nonlocal left
            with self._counting:
                taken = min(most, left)
                left -= taken
                return taken

        def work(lane: FunctionLane) -> None:
            # A function has slices of the same steps in any lane, and with any number of them: what
            # one that ends leaves of its slice is nobody's.
            while self._has_turn(lane) and (steps := slice_of(REFRESH)):
                self._advance(lane, tol, steps, look)

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

    def _advance(
        self, lane: FunctionLane, tol: float, max_steps: int, look: Callable[[], None]
    ) -> None:
        """Advance the function of a lane by a slice."""
        c, problem = lane.function, self._open(lane)
        before = problem.steps, problem.n_misses, problem.n_reads, problem.row_seconds
        progress = problem.advance(tol=tol, max_steps=max_steps, look=look)
        part = slice(self._edges[c], self._edges[c + 1])
        self.alpha[part], self.gradient[part] = problem.alpha, problem.gradient
        self._each[c, STEPS], self._each[c, PAIR] = problem.steps, problem.last
        with self._counting:
            self.steps += problem.steps - before[0]
            self.n_misses += problem.n_misses - before[1]
            self.n_reads += problem.n_reads - before[2]
            self.row_seconds += (problem.row_seconds - before[3]) / len(self._lanes)
            self.gap = problem.gap
        if progress is not Progress.STEPS_SPENT:
            self._each[c, ENDED] = STALLED if progress is Progress.STALLED else DONE
            self._close(lane)
            lane.function = -1

    def _open(self, lane: FunctionLane) -> SubProblem:
        if lane.problem is None:
            c = lane.function
            part = slice(self._edges[c], self._edges[c + 1])
            lane.problem = self._make[c](
                self._sets[c], self.alpha[part], self.gradient[part],
                tiles=lane.tiles, buffer=lane.buffer,
                last=self._each[c, PAIR], steps=int(self._each[c, STEPS]), **self._given,
            )  # fmt: skip
        return lane.problem

    def _close(self, lane: FunctionLane) -> None:
        if lane.problem is not None:
            lane.problem.close()
            lane.problem = None
