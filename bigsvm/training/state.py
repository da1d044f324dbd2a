"""The state of a run: row-sized arrays and counters, which is all that a checkpoint holds."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.errors import ClusterError, ParameterError, StoreError
from bigsvm.interruption import CHECK_SECONDS, checked_by
from bigsvm.training.result import PHASES
from bigsvm.working_sets.choice import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Standing
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks
    from bigsvm.training.result import StopReason


class Phase(StrEnum):
    """What the loop does next."""

    SEARCH = "search"
    SELECT = "select"
    SOLVE = "solve"
    SWEEP = "sweep"
    GROW = "grow"
    FILL = "fill"


class RowState(NamedTuple):
    """The arrays a checkpoint stores; with `Counters` they are all that survives a crash.

    Attributes
    ----------
    alpha, outputs : (n,) float64
        The point of the last sweep, and f there for the rows of the scope; both are 0 beyond it. In
        the middle of a sweep, the first `rows_done` rows have their f after the sweep. Every alpha
        and gradient is (…, 2) where rows have two variables, and all of these arrays are (…, k)
        where k functions are trained together.
    sums : (scope,) float64, or (0,)
        Change of f that a pass has added up so far. A pass may take several pieces; at its end the
        change is added to f.
    active : (b,) int64
        Ascending rows of the scope whose alpha has moved since, or may move.
    active_alpha, active_outputs : (b,) float64
        Alpha and f of these rows now.
    working, set_sizes, working_alpha, working_gradient
        The working set in progress, see `WorkingSet`; empty between two. Its rows are active,
        unless no row is: then it is of functions that have sets among all rows.
    pair : (2,) int64, or more
        Its last pair, or other integers that its steps need; see `Point.last`. −1 before the first.
    """

    alpha: F8
    outputs: F8
    sums: F8
    active: I8
    active_alpha: F8
    active_outputs: F8
    working: I8
    set_sizes: I8
    working_alpha: F8
    working_gradient: F8
    pair: I8

    def without_working_set(self) -> RowState:
        """Return the state between two working sets."""
        no_rows, nothing = np.empty(0, np.int64), np.empty(0)
        return self.with_working_set(WorkingSet(no_rows, no_rows, nothing, nothing))

    def without_active_rows(self) -> RowState:
        """Return the state of a point that the last sweep has brought up to date."""
        nothing = np.empty(0)
        return self._replace(
            active=np.empty(0, np.int64), active_alpha=nothing, active_outputs=nothing
        ).without_working_set()

    def with_working_set(self, chosen: WorkingSet) -> RowState:
        """Return the state before the first step on a working set."""
        rows, sizes, alpha, gradient = chosen
        return self._replace(
            working=rows, set_sizes=sizes, working_alpha=alpha, working_gradient=gradient,
            pair=np.full(2, -1, np.int64),
        )  # fmt: skip

    @property
    def working_set(self) -> WorkingSet:
        """The working set in progress."""
        return WorkingSet(self.working, self.set_sizes, self.working_alpha, self.working_gradient)

    def with_sums(self) -> RowState:
        """Add the sums to f, and return the state without them."""
        self.outputs[: len(self.sums)] += self.sums
        return self.without_sums()

    def without_sums(self) -> RowState:
        """Return the state between two passes."""
        return self._replace(sums=np.zeros_like(self.sums[:0]))

    def current_alpha(self, *, joined: bool = True) -> F8:
        """(n,) float64: alpha with all that the active rows and the working set have moved.

        What several sets of one function have moved counts only where it need not be `joined`:
        how far they go together is not known yet.
        """
        alpha = self.alpha.copy()
        if len(self.active):
            alpha[self.active] = self.active_alpha
        if len(self.set_sizes) and self.outputs.ndim > 1:
            alpha[self.working, self.working_set.functions] = self.working_alpha
        elif len(self.working) and not (len(self.set_sizes) and joined):
            alpha[self.working] = self.working_alpha
        return alpha


def first_state(alpha: F8, *, n_outputs: int = 1) -> RowState:
    """Begin at alpha = 0, where f = 0 is exact for every row."""
    no_rows, nothing = np.empty(0, np.int64), np.empty(0)
    outputs = np.zeros(len(alpha) if n_outputs == 1 else (len(alpha), n_outputs))
    return RowState(
        alpha, outputs, np.zeros_like(outputs[:0]), no_rows, nothing, nothing,
        no_rows, no_rows, nothing, nothing, np.full(2, -1, np.int64),
    )  # fmt: skip


class SearchState(NamedTuple):
    """The arrays of a checkpoint of a search: the core set's rows, weights and gradient, (p,) each.

    `parts`, (k,), says how the core set's points are packed.
    """

    core: I8
    weights: F8
    gradient: F8
    parts: I8


@dataclass
class Counters:
    """Where the loop is and what it has cost; stored beside the arrays.

    Attributes
    ----------
    scope : int
        The rows before this one take part.
    rows_done, columns_done, columns_end : int
        How far a pass in progress has got. If memory cannot hold all its support vectors, it takes
        them in pieces: every row has the first `columns_done` of them, and the first `rows_done`
        rows have those before `columns_end` too.
    active_tol, together
        The tolerance of the active rows, and whether they still step together, which
        ends once it gains too little.
    apart
        Whether several sets of the active rows may be solved at once: there are many, and such
        sets have not disturbed one another yet.
    rows_drawn, core_exact, empty_samples, drift
        For a sampled search: rows drawn; the size at which the core set's gradient was last
        computed from scratch; samples without a point outside since the last step; the largest
        error of that gradient, in units of R.
    sub_steps, sub_tol
        Steps on the working set in progress, and its tolerance.
    rows_swept, n_sweeps : int
        Rows that sweeps have passed over, and sweeps over all rows.
    certificate_seconds, sweep_seconds, row_seconds, step_seconds : float
        Time of the phases, see `bigsvm.training.result`.
    cpu_seconds, thread_seconds : float
        CPU time of the process in passes over rows, and what its threads could have given there;
        `…_swept` are the parts up to the last complete sweep.
    gap, objective : float
        At the last sweep.
    best_gap, best_objective, fruitless, judged
        Tell a run that has stalled: the best values, of certified outputs where a certificate was
        tried, and the sweeps since they improved, among the first `judged` sweeps.
    knew_outputs : bool
        Whether the run started from a point whose outputs were known for all rows.
    settled, solves, curve
        For a run without a certificate: whether the last rows have been added, how often the rows
        of the scope have been solved, and the errors at fresh rows
        (`bigsvm.training.learning_curve`).
    """

    phase: Phase = Phase.FILL
    scope: int = 0
    rows_done: int = 0
    columns_done: int = 0
    columns_end: int = 0
    active_tol: float = 0.0
    together: bool = False
    apart: bool = False
    rows_drawn: int = 0
    core_exact: int = 1
    empty_samples: int = 0
    drift: float = 0.0
    sub_steps: int = 0
    sub_tol: float = 0.0
    n_working_sets: int = 0
    rows_swept: int = 0
    n_sweeps: int = 0
    n_iter: int = 0
    n_kernel_evaluations: int = 0
    row_misses: int = 0
    row_reads: int = 0
    disk_tier: str | None = None
    keeps_rows: bool = False
    bytes_read: int = 0
    seconds: float = 0.0
    certificate_seconds: float = 0.0
    sweep_seconds: float = 0.0
    row_seconds: float = 0.0
    step_seconds: float = 0.0
    cpu_seconds: float = 0.0
    thread_seconds: float = 0.0
    cpu_seconds_swept: float = 0.0
    thread_seconds_swept: float = 0.0
    gap: float = float("inf")
    objective: float = -float("inf")
    best_gap: float = float("inf")
    best_objective: float = -float("inf")
    fruitless: int = 0
    judged: int = 0
    knew_outputs: bool = False
    settled: bool = False
    solves: int = 0
    curve: dict[str, list[float]] = field(default_factory=dict)
    random_state: dict[str, object] = field(default_factory=dict)

    def seconds_by_phase(self) -> dict[str, float]:
        """Return the seconds of each phase, by their names in a certificate."""
        phases = (
            self.certificate_seconds, self.sweep_seconds, self.row_seconds, self.step_seconds,
        )  # fmt: skip
        rest = max(0.0, self.seconds - sum(phases))
        return dict(zip(PHASES, (*phases, rest), strict=True))

    def cpu_idle(self) -> float | None:
        """Share of the threads' time in all passes in which they had nothing to do; see `Swept`."""
        return idle_share(self.cpu_seconds, self.thread_seconds)

    def end_sweep(self) -> float | None:
        """Return that share of the passes since this was last called."""
        idle = idle_share(
            self.cpu_seconds - self.cpu_seconds_swept,
            self.thread_seconds - self.thread_seconds_swept,
        )
        self.cpu_seconds_swept, self.thread_seconds_swept = self.cpu_seconds, self.thread_seconds
        return idle

    def has_fallen(self, standing: Standing) -> bool:
        """Whether the objective, which steps raise, is lower than before by more than its size."""
        return standing.objective < self.best_objective - abs(self.best_objective)

    def judge(self, standing: Standing) -> None:
        """Count the sweeps since gap or objective last improved; each sweep counts once."""
        if self.judged == self.n_sweeps:
            return
        # Better is a gap smaller by 1 %, or an objective larger by 1e-10 of its size.
        better_gap = standing.gap < 0.99 * self.best_gap
        scale = max(abs(self.best_objective), 1e-300)
        better_objective = standing.objective - self.best_objective >= 1e-10 * scale
        self.fruitless = 0 if better_gap or better_objective else self.fruitless + 1
        self.best_gap = min(self.best_gap, standing.gap)
        self.best_objective = max(self.best_objective, standing.objective)
        self.judged = self.n_sweeps


def idle_share(cpu_seconds: float, thread_seconds: float) -> float | None:
    """Share of their time that threads did not use, in [0, 1]; None where there was no time.

    Reading ahead has a thread of its own: where there are more processors than threads, the process
    can use more than their time, and the share is 0.
    """
    if not thread_seconds > 0:
        return None
    return min(1.0, max(0.0, 1 - cpu_seconds / thread_seconds))


SURROUNDINGS_FAILED = (ClusterError, StoreError)
"""Errors of what is around a run, such as a store that cannot be read or a cluster without workers.
They leave the state whole, as `Stopped` does: the run is saved, and can continue."""


class Stopped(Exception):
    """Raised by `Watch.check` when the run should end.

    It leaves the state as it was, or at a point from which the run can continue.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop without having converged; `max_iter` −1 is no limit of pair steps.

    `max_seconds` are of this process. `interrupted` is asked several times a second; True stops the
    run.
    """

    max_iter: int = -1
    max_seconds: float = float("inf")
    interrupted: Callable[[], bool] = lambda: False


def limits_of(parameters: TrainingParameters, hooks: Hooks) -> Limits:
    """When a run is to stop without having converged."""
    return Limits(
        max_iter=parameters.max_iter,
        max_seconds=parameters.max_seconds,
        interrupted=hooks.interrupted,
    )


@contextmanager
def before_training(
    parameters: TrainingParameters, hooks: Hooks, waited: Callable[[], float] | None = None
) -> Iterator[Callable[[], TrainingParameters]]:
    """Check whether to end while rows are read for the first time; there is no model yet.

    `waited` returns seconds without any worker, in which no rows were read. After them the run ends
    by the limit too, with a model.

    Yields
    ------
    callable
        Returns the parameters of training, whose time limit is what is left by then.

    Raises
    ------
    ParameterError
        The time limit is over.
    KeyboardInterrupt
        Interrupted.
    """
    began = time.monotonic()

    def left() -> TrainingParameters:
        if parameters.max_seconds == float("inf"):
            return parameters
        return replace(parameters, max_seconds=parameters.max_seconds + began - time.monotonic())

    def check() -> None:
        if hooks.interrupted():
            raise KeyboardInterrupt
        # A shorter read goes on: the run then ends by the limit, with a model.
        spent = time.monotonic() - began - (0.0 if waited is None else waited())
        if spent >= max(parameters.max_seconds, CHECK_SECONDS):
            raise ParameterError(
                f"max_seconds (max_time) is {parameters.max_seconds:g} and was over while the rows "
                "were read for the first time, before training; allow more time"
            )

    with checked_by(check):
        yield left
