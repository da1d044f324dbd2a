"""The state of a run: row-sized arrays and counters, which is all that a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.duals.box import Optimality
    from bigsvm.training.result import StopReason


class Phase(StrEnum):
    """What the loop does next."""

    SELECT = "select"
    SOLVE = "solve"
    SWEEP = "sweep"


class RowState(NamedTuple):
    """The arrays a checkpoint stores; with `Counters` they are all that survives a crash.

    Attributes
    ----------
    alpha, outputs : (n,) float64
        The point before the working set was changed, and f there. In the middle of a sweep the rows
        done have their f of after it.
    sample : (s,) int64
        Random rows for the nested samples of the start.
    working_set : (m,) int64
    working_alpha, working_gradient : (m,) float64
        The sub-problem in progress; Δbeta of a sweep is ``working_alpha − alpha[working_set]``.
    pair : (2,) int64
        Last pair of the sub-problem.
    """

    alpha: NDArray[np.float64]
    outputs: NDArray[np.float64]
    sample: NDArray[np.int64]
    working_set: NDArray[np.int64]
    working_alpha: NDArray[np.float64]
    working_gradient: NDArray[np.float64]
    pair: NDArray[np.int64]


@dataclass
class Counters:
    """Where the loop is and what it has cost; stored beside the arrays.

    `gap` and `objective` are of the last complete sweep. The best ones, of certified outputs where
    a certificate was tried, and `fruitless` tell a run that has stalled; `judged` sweeps are in it.
    """

    phase: Phase = Phase.SELECT
    sampling: bool = True
    rows_done: int = 0
    sub_steps: int = 0
    n_sweeps: int = 0
    n_iter: int = 0
    n_kernel_evaluations: int = 0
    row_misses: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    gap: float = float("inf")
    objective: float = -float("inf")
    best_gap: float = float("inf")
    best_objective: float = -float("inf")
    fruitless: int = 0
    judged: int = 0
    random_state: dict[str, object] = field(default_factory=dict)

    def judge(self, at: Optimality) -> None:
        """Count the sweeps since gap or objective last improved; each sweep counts once."""
        if self.judged == self.n_sweeps:
            return
        better_gap = at.gap < 0.99 * self.best_gap
        scale = max(abs(self.best_objective), 1e-300)
        better_objective = not at.objective - self.best_objective < 1e-10 * scale
        self.fruitless = 0 if better_gap or better_objective else self.fruitless + 1
        self.best_gap = min(self.best_gap, at.gap)
        self.best_objective = max(self.best_objective, at.objective)
        self.judged = self.n_sweeps


class Stopped(Exception):
    """Raised where a run looks up from its work and finds that it should end.

    Whatever raises it has left the state as it was, or at a point it can go on from.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop without having converged.

    Attributes
    ----------
    max_iter : int
        Pair steps; −1 is no limit.
    max_seconds : float
        Of this process.
    interrupted : callable
        Asked several times a second; True stops the run.
    """

    max_iter: int = -1
    max_seconds: float = float("inf")
    interrupted: Callable[[], bool] = lambda: False
