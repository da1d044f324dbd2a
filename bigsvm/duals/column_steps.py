"""Pair steps on several independent problems over one working set, whose kernel rows they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.core import smo
from bigsvm.duals.abilities import Leap
from bigsvm.duals.dual import Steps
from bigsvm.duals.pair_steps import is_last_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bigsvm.arrays import F4, F8, I4, I8, Mask
    from bigsvm.duals.box import BoxDual
    from bigsvm.duals.box_problem import Formulation

LOOSEST = 1.0
"""Gap of the first round, in units of the margin: rows that several columns need are then needed in
the same round, before others take their place."""
TIGHTER = 0.1
"""Factor of the gap from one round to the next."""
MOST_ROUNDS = 400
"""Most rounds: the last one asks for a gap below the resolution of float64."""
STATE_BYTES = 68
"""Of each variable of a working set, in each column: `bigsvm.core.smo.PairState`."""
ENDED, STEPS, PAIR = 0, 1, slice(2, 4)
"""What is known of a column: whether and how it ended, its steps, and its last pair."""
DONE, STALLED = 1, 2


def is_last_of_columns(columns: Sequence[Formulation], last: I8, size: int) -> bool:
    """Whether `last` is a valid `last` of `ColumnSteps` for `size` rows, or none, (2,)."""
    k = len(columns)
    if len(last) != 3 * k + 3:
        return len(last) == 2 and bool((last == -1).all())
    each, (turn, rounds, stalled) = last[:-3].reshape(k, 3), last[-3:].tolist()
    return (
        0 <= turn <= k
        and 0 <= rounds <= MOST_ROUNDS
        and stalled in (0, 1)
        and bool((each[:, 2] >= 0).all())
        and all(is_last_pair(one, each[c, :2], size) for c, one in enumerate(columns))
    )


def is_last_of_sets(columns: Sequence[Formulation], last: I8, sizes: Sequence[int]) -> bool:
    """Whether `last` is a valid `last` of `ColumnProblems` for these set sizes, or none, (2,)."""
    k = len(columns)
    if len(last) != 4 * k:
        return len(last) == 2 and bool((last == -1).all())
    each = last.reshape(k, 4)
    return bool(
        np.isin(each[:, ENDED], (0, DONE, STALLED)).all() and (each[:, STEPS] >= 0).all()
    ) and all(
        is_last_pair(one, each[c, PAIR], size)
        for c, (one, size) in enumerate(zip(columns, sizes, strict=True))
    )


class ColumnSteps(Steps):
    """The states of pair steps of k columns; in rounds, one column after the other.

    A round takes each column to the gap of the round. A kernel row serves all columns while it is
    in memory, and whichever column misses a row, rows are brought that all columns together want
    most.

    Parameters
    ----------
    duals : sequence of BoxDual
        One for each column.
    alpha, gradient : (m, k) float64
    rows : (m,) int64
    diagonal : (m,) float64
    last : (3 k + 3,) int64, optional
        Of an interrupted run; anything shorter is of none.
    """

    def __init__(
        self,
        duals: Sequence[BoxDual],
        alpha: F8,
        gradient: F8,
        rows: I8,
        *,
        diagonal: F8,
        last: I8 | None,
    ) -> None:
        k = len(duals)
        self._turn = self._round = self._stalled = self._stamp = 0
        self._n_finished = 0
        each = np.tile(np.array([-1, -1, 0], np.int64), (k, 1))
        if last is not None and len(last) == 3 * k + 3:
            each = last[:-3].reshape(k, 3)
            self._turn, self._round, self._stalled = last[-3:].tolist()
        self._columns = [
            dual.begin(
                alpha[:, c], gradient[:, c], rows,
                diagonal=diagonal, last=each[c, :2], n_done=int(each[c, 2]),
            )
            for c, dual in enumerate(duals)
        ]  # fmt: skip
        self.n_slack = self._columns[0].n_slack
        self._n_done = int(each[:, 2].sum())

    @property
    def alpha(self) -> F8:
        """(m, k) float64."""
        return np.stack([column.alpha for column in self._columns], axis=1)

    @property
    def gradient(self) -> F8:
        """(m, k) float64."""
        return np.stack([column.gradient for column in self._columns], axis=1)

    @property
    def gap(self) -> float:
        """Of the worst column."""
        return max(column.gap for column in self._columns)

    @property
    def n_done(self) -> int:
        """Pair steps of all columns."""
        return self._n_done

    @property
    def stamp(self) -> int:
        """Of the last use of a kernel row, by any column."""
        return self._stamp

    @property
    def last(self) -> I8:
        """Each column's last pair and steps; whose turn it is, the round, whether one stalled."""
        each = [[*column.last.tolist(), column.n_done] for column in self._columns]
        now = [self._turn, self._round, self._stalled]
        return np.array([*np.ravel(each).tolist(), *now], np.int64)

    def advance(
        self, rows: F4, slots: I4, used: I8, *, tol: float, max_steps: int
    ) -> tuple[int, int]:
        """Take pair steps of the column whose turn it is, and of those that follow.

        A column that cannot move is left where it is; once the others are done, all have stalled.
        """
        left = max_steps
        while True:
            goal = max(tol, LOOSEST * TIGHTER**self._round)
            while self._turn < len(self._columns):
                if left <= 0:
                    return smo.STEPS_SPENT, -1
                column = self._columns[self._turn]
                before = column.n_done
                column.state.counters[1] = self._stamp
                status, row = column.advance(rows, slots, used, tol=goal, max_steps=left)
                self._stamp = column.stamp
                self._n_done += column.n_done - before
                left -= column.n_done - before
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
        """Those of the columns."""
        return self

    def leap_bytes(self, width: float) -> float:
        """Of one column, and where all of them lead."""
        targets = 24 * self.alpha.size
        return self._columns[0].leap_bytes(width) + targets

    def leap(
        self, origin: tuple[F8, F8], factor: F8, *, tol: float, look: Callable[[], None]
    ) -> Leap:
        """Each column by itself; one without a way stays where it is."""
        targets, changes = [], []
        for c, column in enumerate(self._columns):
            begin = origin[0][:, c]
            found = column.leap((begin, origin[1][:, c]), factor, tol=tol, look=look)
            target, change = found or (column.alpha[None, :], column.alpha - begin)
            targets.append(target)
            changes.append(change)
        return Leap(np.stack(targets), np.stack(changes, axis=1))

    def land(self, origin: tuple[F8, F8], target: F8, outputs: F8, outputs_here: F8) -> None:
        """Each column where it leads."""
        for c, column in enumerate(self._columns):
            begin = origin[0][:, c], origin[1][:, c]
            column.land(begin, target[c], outputs[:, c], outputs_here[:, c])

    def violations(self, score: F4, quiet: Mask) -> None:
        """Add up by how much a row violates in the columns; quiet are those quiet in all.

        Columns that have reached their goal ask for nothing.
        """
        score[:], quiet[:] = 0.0, True
        one, still = np.empty_like(score), np.empty_like(quiet)
        for column in self._columns[self._n_finished :]:
            column.violations(one, still)
            score += np.maximum(one, 0.0)
            quiet &= still
