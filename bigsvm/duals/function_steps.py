"""Pair steps on several independent problems over one working set, whose kernel rows they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.abilities import Leap
from bigsvm.duals.dual import Point, Steps
from bigsvm.duals.pair_steps import is_last_pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F4, F8, I4, I8, Mask
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.box_problem import Formulation

LOOSEST = 1.0
"""Gap of the first round, in units of the margin: functions then need the same rows in the same
round, before others take the place of these."""
TIGHTER = 0.1
"""Factor of the gap from one round to the next."""
MOST_ROUNDS = 400
"""Most rounds: the last one asks for a gap below the resolution of float64."""
STATE_BYTES = 72
"""Bytes of the `bigsvm.core.smo.PairState` of a function for each variable of a working set."""


def is_last_of_functions(functions: Sequence[Formulation], last: I8, size: int) -> bool:
    """Whether `last` is a valid `last` of `FunctionSteps` for `size` rows, or none, (2,)."""
    k = len(functions)
    if len(last) != 3 * k + 3:
        return len(last) == 2 and bool((last == -1).all())
    each, (turn, rounds, stalled) = last[:-3].reshape(k, 3), last[-3:].tolist()
    return (
        0 <= turn <= k
        and 0 <= rounds <= MOST_ROUNDS
        and stalled in (0, 1)
        and bool((each[:, 2] >= 0).all())
        and all(
            is_last_pair(formulation, each[c, :2], size) for c, formulation in enumerate(functions)
        )
    )


class FunctionSteps(Steps):
    """Pair steps of k functions, each with a dual: in rounds, one function after the other.

    A round takes each function to the gap of the round. A kernel row serves all functions while it
    is in memory. When a function misses a row, the rows that all functions together want most are
    fetched. `last` of the start is (3 k + 3,); anything shorter counts as none.
    """

    def __init__(self, duals: Sequence[BoxDual], start: Point, rows: I8, *, diagonal: F8) -> None:
        k, last = len(duals), start.last
        self._turn = self._round = self._stalled = self._stamp = 0
        self._n_finished = 0
        each = np.tile(np.array([-1, -1, 0], np.int64), (k, 1))
        if len(last) == 3 * k + 3:
            each = last[:-3].reshape(k, 3)
            self._turn, self._round, self._stalled = last[-3:].tolist()
        self._functions = [
            dual.begin(
                Point(start.alpha[:, c], start.gradient[:, c], each[c, :2], int(each[c, 2])),
                rows, diagonal=diagonal,
            )
            for c, dual in enumerate(duals)
        ]  # fmt: skip
        self.n_slack = self._functions[0].n_slack
        self._n_done = int(each[:, 2].sum())

    @property
    def point(self) -> Point:
        """Alpha and gradient are (m, k) float64.

        `last` has each function's last pair and steps; whose turn it is, the round, whether one
        stalled.
        """
        points = [function.point for function in self._functions]
        each = [[*point.last.tolist(), point.n_done] for point in points]
        now = [self._turn, self._round, self._stalled]
        return Point(
            np.stack([point.alpha for point in points], axis=1),
            np.stack([point.gradient for point in points], axis=1),
            np.array([*np.ravel(each).tolist(), *now], np.int64), self._n_done,
        )  # fmt: skip

    @property
    def gap(self) -> float:
        """Gap of the worst function."""
        return max(function.gap for function in self._functions)

    @property
    def n_done(self) -> int:
        """Pair steps of all functions."""
        return self._n_done

    @property
    def stamp(self) -> int:
        """Counter of the last use of a kernel row, by any function."""
        return self._stamp

    def advance(
        self, rows: F4, slots: I4, used: I8, *, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Take pair steps of the function whose turn it is, and of those that follow.

        A function that cannot move is left where it is; once the others are done, all have stalled.
        """
        left = max_steps
        while True:
            goal = max(tol, LOOSEST * TIGHTER**self._round)
            while self._turn < len(self._functions):
                if left <= 0:
                    return smo.STEPS_SPENT, -1
                function = self._functions[self._turn]
                before = function.n_done
                function.state.number[smo.STAMP] = self._stamp
                status, row = function.advance(rows, slots, used, tol=goal, max_steps=left)
                self._stamp = function.stamp
                self._n_done += function.n_done - before
                left -= function.n_done - before
                if status in (smo.NEED_ROW, smo.STEPS_SPENT):
                    return status, row
                self._turn += 1
                if goal <= tol:
                    self._stalled |= int(status == smo.STALLED)
                    self._n_finished = self._turn
            if goal <= tol:
                return (smo.STALLED if self._stalled else smo.CONVERGED), -1
            self._turn, self._round = 0, self._round + 1

    @property
    def leaps(self) -> Self:
        """Leaps of the functions."""
        return self

    def leap_bytes(self, width: float) -> float:
        """Bytes of one function's leap, and of the targets of all."""
        targets = 24 * self.point.alpha.size
        return self._functions[0].leap_bytes(width) + targets

    def leap(self, origin: tuple[F8, F8], factor: F8, *, tol: float) -> Leap:
        """Each function by itself; where the method fails, a function stays where it is."""
        targets, changes = [], []
        for c, function in enumerate(self._functions):
            origin_alpha = origin[0][:, c]
            leap = function.leap((origin_alpha, origin[1][:, c]), factor, tol=tol)
            target, change = leap or function.stay(origin_alpha)
            targets.append(target)
            changes.append(change)
        return Leap(np.stack(targets), np.stack(changes, axis=1))

    def land(self, origin: tuple[F8, F8], target: F8, outputs: F8, outputs_here: F8) -> None:
        """Each function goes to its target."""
        for c, function in enumerate(self._functions):
            function_origin = origin[0][:, c], origin[1][:, c]
            function.land(function_origin, target[c], outputs[:, c], outputs_here[:, c])

    def violations(self, score: F4, quiet: Mask) -> None:
        """Add up by how much a row violates in the functions; it is quiet if it is quiet in all.

        Functions that have reached their goal do not count.
        """
        score[:], quiet[:] = 0.0, True
        its_score, its_quiet = np.empty_like(score), np.empty_like(quiet)
        for function in self._functions[self._n_finished :]:
            function.violations(its_score, its_quiet)
            score += np.maximum(its_score, 0.0)
            quiet &= its_quiet
