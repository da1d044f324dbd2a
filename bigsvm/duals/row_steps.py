"""Row steps on a working set of Crammer and Singer's problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.core import climb, crammer_singer
from bigsvm.duals.dual import Point, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bigsvm.arrays import F4, F8, I4, I8, Mask


SLICE_WORK = 1 << 28
"""Values that the steps of one slice look at, whatever the number of classes: a tenth of a second
or two."""
FIRST_CLIMB = 1 << 16
"""Steps on a working set before its free variables first climb together; most need fewer steps."""
NEXT_CLIMB = 1 << 13
"""Steps between two climbs."""
MOST_CLIMBING = 2048
"""Rows of a climb, at most."""
STEP_READS = 3
"""Values for each row of a working set that a step looks at, about."""
MOST_HALVINGS = 1100
"""Most halvings of the level: after these it is 0 in float64."""
EQUAL = 0.25
"""Share of the tolerance to which a climb makes the gradients of a row's variables equal."""


def watched_bytes(n_classes: int) -> int:
    """Bytes of the rows that are watched at each step, beside the states of all rows."""
    return crammer_singer.watched_rows(n_classes) * (12 * n_classes + 32)


def is_last(last: I8, *, in_turn: bool) -> bool:
    """Whether `last`, (2,), is a valid `last` of `RowSteps`, or none, (−1, −1)."""
    if len(last) != 2 or (last < -1).any():
        return False
    return in_turn or bool(last[0] <= MOST_HALVINGS)


class RowSteps(Steps):
    """The state of row steps, laid out for `bigsvm.core.crammer_singer`, which numbers the orders.

    The seed is that of the order ``random``.
    """

    def __init__(
        self,
        start: Point,
        bounds: F8,
        label: I4,
        *,
        solver: int,
        order: int,
        cooling: int,
        seed: int,
        diagonal: F8,
    ) -> None:
        self._solver, self._order, self._cooling = solver, order, cooling
        self._size, self._seed, self._dealt = len(label), seed, -1
        self.state = crammer_singer.make_state(
            start.alpha, start.gradient, bounds, label.astype(np.int64), diagonal, order=order
        )
        self.state.counters[0] = start.n_done
        self._climbed = max(int(start.last[1]), 0)
        self.state.counters[2] = max(start.last[0], 0)

    @property
    def point(self) -> Point:
        """Alpha and gradient are (m, k) float64.

        `last` is the third counter of `crammer_singer.RowProblem`, and the steps at the last climb.
        """
        alpha, gradient = (
            self.state.alpha[:, : self._size].T,
            self.state.gradient[:, : self._size].T,
        )
        last = np.array([self.state.counters[2], self._climbed], np.int64)
        return Point(alpha, gradient, last, self.n_done)

    @property
    def gap(self) -> float:
        """Largest ψ."""
        return float(self.state.violation.max())

    @property
    def n_done(self) -> int:
        """Rows solved for."""
        return int(self.state.counters[0])

    @property
    def stamp(self) -> int:
        """Counter of the last use of a kernel row."""
        return int(self.state.counters[1])

    def advance(
        self, rows: F4, slots: I4, used: I8, *, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Solve for one row after the other; see `bigsvm.core.crammer_singer.run`."""
        if len(self.state.some.places) == 0:
            max_steps = min(max_steps, max(1, SLICE_WORK // self.state.alpha.size))
        # Else steps look at few values; where a slice ends must not depend on the rows in memory.
        goal = self.n_done + max_steps
        while True:
            left = goal - self.n_done
            if self._order == crammer_singer.RANDOM:
                left = min(left, self._deal())
            status, row = crammer_singer.run(
                self.state, rows, slots, used, method=self._solver, order=self._order,
                cooling=self._cooling, tol=tol, max_steps=left,
            )  # fmt: skip
            if status != crammer_singer.STEPS_SPENT or self.n_done >= goal:
                return status, row

    def _deal(self) -> int:
        """Put the rows in the random order of this pass; returns the steps that are left of it.

        It follows from the seed and the number of the pass, so that nothing of it is saved.
        """
        lap, done = divmod(self.n_done, self._size)
        if lap != self._dealt:
            self.state.turn[:] = np.random.default_rng((self._seed, lap)).permutation(self._size)
            self._dealt = lap
        return self._size - done

    @property
    def climbs(self) -> Self:
        """Itself."""
        return self

    def climbing(self, fits: Callable[[int], bool]) -> I8:
        """Rows with two variables below their bounds, once steps have been many.

        The paper's orders have none.
        """
        due = max(FIRST_CLIMB, self._climbed + NEXT_CLIMB)
        if self._order != crammer_singer.AUTO or self.n_done < due:
            return np.empty(0, np.int64)
        has_room = self.state.all.ceiling[:, : self._size] == 0.0
        places = np.flatnonzero(has_room.sum(axis=0) > 1)
        n = len(places)
        # K, and ten arrays of float64 for each class.
        wanted = n * n + 20 * n * len(self.state.alpha)
        return places if n <= MOST_CLIMBING and fits(wanted) else places[:0]

    def climb(self, places: I8, gram: F4, *, tol: float) -> F8:
        """Climb by conjugate gradients, about as long as the steps since the last climb took."""
        state, label = self.state, self.state.label[places]
        work = STEP_READS * state.alpha.shape[1] * (self.n_done - self._climbed)
        upper = np.zeros((len(state.alpha), len(places)))
        upper[label, np.arange(len(places))] = state.bound[places]
        before = state.alpha[:, places]
        after, gradient = before.copy(), state.gradient[:, places]
        diagonal = float(state.diagonal[places].max())
        climb.climb(gram, after, upper, gradient, diagonal, EQUAL * tol, work)
        state.alpha[:, places] = after
        self._climbed = self.n_done
        return (after - before).T

    def follow(self, change: F8, rows: Iterable[F4]) -> None:
        """Update the gradient row by row, then the rest of the state."""
        done = 0
        for part in rows:
            climb.follow(self.state.gradient, part, change[done : done + len(part)])
            done += len(part)
        crammer_singer.refresh(self.state)

    def violations(self, score: F4, quiet: Mask) -> None:
        """Score rows by ψ, where it is above the level; rows that do not violate are quiet.

        If rows are taken in turn, those whose ψ is not 0 are scored by their place in it.
        """
        crammer_singer.violations(self.state, self._cooling, score, quiet)
        if len(self.state.turn):
            ahead = np.roll(self.state.turn, -(self.n_done % self._size))
            wanted = ahead[~quiet[ahead]]
            score[wanted] = np.linspace(2.0, 1.0, len(wanted), dtype=np.float32)
