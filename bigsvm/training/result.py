"""What a run ends with: why it stopped, what it proved, what it cost, and the coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import scipy.sparse as sp

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.box_problem import Optimality


class StopReason(StrEnum):
    """Why a run ended."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"
    SAMPLED = "sampled"
    CORE_FULL = "core_full"
    SETTLED = "settled"
    USED_UP = "used_up"
    CALLBACK = "callback"
    ENDLESS = "endless"

    @property
    def sentence(self) -> str:
        """The reason in words, with the remedy where there is one."""
        return {
            StopReason.CONVERGED: "a full sweep certified the tolerance",
            StopReason.MAX_ITER: "the limit of steps was reached; raise max_iter",
            StopReason.TIME_LIMIT: "the time limit was reached; give more, or resume a saved run",
            StopReason.INTERRUPTED: "the run was interrupted; repeat it, or resume a saved run",
            StopReason.STALLED: "neither gap nor objective improved any more at the precision of "
            "kernel values; scale the columns, lower C or ask for a larger tol",
            StopReason.SAMPLED: "random samples had no point outside the ball; as no sweep over "
            "all rows was asked for, nothing is certified",
            StopReason.CORE_FULL: "the core set had as many points as memory holds, and training "
            "ended there; train it again, which goes on with sweeps now",
            StopReason.SETTLED: "the rows not used yet would gain less than half a point of test "
            "error; as no sweep over all rows was asked for, nothing is certified",
            StopReason.USED_UP: "memory held no more random rows to draw, and others would still "
            "gain; give more memory, or shuffle the rows in a store",
            StopReason.CALLBACK: "a callback ended it",
            StopReason.ENDLESS: "C is inf, and no function has all rows on the right side of their "
            "margins (of a regression, in its tube), so that coefficients grow without end; give a "
            "finite C, or another kernel",
        }[self]

    @property
    def is_uncertified(self) -> bool:
        """Whether the run ended as it was asked to, without a certificate."""
        return self in (StopReason.SAMPLED, StopReason.SETTLED)


PHASES = ("certificate", "sweeps", "kernel_rows", "steps", "rest")
"""Phases of a run, in the order in which they are shown."""

CLUSTER_COSTS = (
    "n_workers", "tasks", "tasks_again", "bytes_sent", "bytes_returned", "bytes_fetched",
    "bytes_checked",
)  # fmt: skip
"""What a certificate has besides where the workers of a cluster took part, of this process alone:
most workers at a time, tasks done, tasks started once more because a worker was late or gone, bytes
sent to workers, and bytes of results; among these bytes of rows that workers read for this process;
and bytes of rows that it read again to check workers, which `bytes_read` does not count."""
BYTES_OF_WORKERS = "bytes_read_by_workers"
"""A list besides: bytes of rows that each worker has read, the most first."""

CLUSTER_SECONDS = ("seconds_waited", "seconds_alone")
"""And: how long this process has waited for workers while there were some, and how long its own
threads would take for the work that they did meanwhile."""
MEASURED = (
    "seconds", "seconds_by_phase", "cpu_idle", "disk_tier", *CLUSTER_COSTS, *CLUSTER_SECONDS,
    BYTES_OF_WORKERS,
)  # fmt: skip
"""Fields of a certificate that differ between two runs of the same fit."""


def finite_or_none(value: float) -> float | None:
    """Return a number as certificates have it: None where it is infinite or NaN."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Certificate:
    """What a run proved about the returned point, and what that cost.

    Attributes
    ----------
    objective : float or None
        Dual objective, maximised. Unless the run was interrupted or out of time, the outputs that
        decide the KKT gap are recomputed in float64; of many other support rows a sample is, which
        has to show that their errors hardly change objective and duality gap. None, as the gaps,
        where the run stopped before the first sweep or in the middle of one.
    gap : float or None
        KKT gap over all rows (Chang & Lin 2001, section 4.1, maximal violating pair).
    duality_gap : float or None
        Primal minus dual objective; None where C is inf and a row has a loss, be it by rounding.
    objective_error, duality_gap_error : float or None
        By how much float32 may have changed objective and duality gap, estimated from a sample of
        the support rows; 0 where outputs of all of them are in float64. None where they are not
        certified, and of pairs of classes.
    n_sweeps, n_iter : int
        Passes over all rows; pair steps.
    n_working_sets, rows_swept : int
        Sub-problems solved; rows that all sweeps together have passed over.
    row_misses, row_reads : int
        Kernel rows that had to be brought to memory, and those of them that were read from disk.
    seconds : float
        Time of training, earlier processes of a resumed run included.
    seconds_by_phase : dict
        Seconds by phase, see `PHASES`: ``"certificate"``, outputs in float64; ``"sweeps"``, sums
        over kernel values in float32, among the active rows too, and the samples of a search;
        ``"kernel_rows"``; ``"steps"``; and the ``"rest"``, such as selection and saving. Steps and
        the rest use one thread, unless several functions are solved at once. Of pairs of classes
        the seconds of all pairs are added: pairs that are trained at the same time make this sum
        larger than `seconds`.
    cpu_idle : float or None
        Share of the threads' time in all passes over rows in which they waited, as
        `bigsvm.training.events.Swept` has it; None where there was no pass.
    disk_tier : str or None
        What was decided about keeping kernel rows on disk, and why.
    drift : float or None
        For a sampled search: by how much rounding had moved the core set's gradient at most when it
        was computed from scratch, in units of R.
    last_gap : float or None
        If the gap is None, the gap of the last complete sweep, if any; it belongs to an earlier
        point.
    test_error, test_error_deviation : float or None
        For a run without a certificate: the share of mistakes at rows that the model had not seen,
        and the standard error of that; each row counts by its weight. They are of the model before
        the last rows were added (`bigsvm.training.learning_curve`).
    rows_used : int or None
        For a run without a certificate: number of rows that were trained on.
    sampled_duality_gap, sampled_duality_gap_deviation : float or None
        If a time limit ended the run at a point whose duality gap is not known: an estimate of this
        gap from a sample of the rows, and the standard error of that. It proves nothing.
    sampled_rows : int or None
        Number of rows of that sample.
    n_different : int or None
        Different rows, where equal rows of one class were trained as one.
    ball : dict or None
        For a ball, at the centre that is returned, if a sweep has looked at all rows. ``"test"`` is
        the paper's test that it passes: ``"radius"``, as no row is farther than (1 + `ball_tol`)
        times the radius; ``"duality gap"``, as the dual objective is so near the primal one that
        another centre has that property (`bigsvm.duals.ball`); None where it passes neither.
        ``"eps"`` is the smallest ε for which (1 + ε) times the radius encloses all rows round this
        centre; None where the radius is 0. ``"farthest_gap"`` and ``"losses_gap"`` are what the
        tests compare with ε of the radius, in units of the margin; the latter is None where the
        duality gap is too large to count.
    """

    converged: bool
    stop_reason: StopReason
    tol: float
    objective: float | None
    gap: float | None
    duality_gap: float | None
    n_support: int
    n_bounded: int
    n_sweeps: int
    n_iter: int
    n_kernel_evaluations: int
    row_misses: int
    row_reads: int
    n_working_sets: int
    rows_swept: int
    bytes_read: int
    seconds: float
    seconds_by_phase: dict[str, float]
    cpu_idle: float | None = None
    disk_tier: str | None = None
    drift: float | None = None
    last_gap: float | None = None
    test_error: float | None = None
    test_error_deviation: float | None = None
    rows_used: int | None = None
    sampled_duality_gap: float | None = None
    sampled_duality_gap_deviation: float | None = None
    sampled_rows: int | None = None
    n_different: int | None = None
    ball: dict[str, float | str | None] | None = None
    objective_error: float | None = None
    duality_gap_error: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        phases = dict(self.seconds_by_phase)
        ball = None if self.ball is None else dict(self.ball)
        own = {"stop_reason": str(self.stop_reason), "seconds_by_phase": phases, "ball": ball}
        return {**vars(self), **own}


class KnownPoint(NamedTuple):
    """A point of all rows whose outputs are known, as `bigsvm.training.state.RowState` has them.

    A run that starts here takes the arrays over. `computed_here` says whether this process has
    computed the outputs, or checked them; a run that starts from others checks them before it
    certifies.
    """

    alpha: F8
    outputs: F8
    computed_here: bool


@dataclass(frozen=True)
class TrainingResult:
    """The point a run ended at.

    Attributes
    ----------
    support : (n_support,) int64
        Rows with a coefficient, ascending.
    alpha : (n_support,) or (n_support, faces) float64; CSR (n_support, k), or (n_support, k, faces)
        Their variables: ``y_i a_i`` for a classifier. Of k functions over the same rows, of which
        most rows have a part in few.
    thresholds : tuple of float
        Thresholds of the groups.
    of_functions : tuple
        Standing of each function, of several that share nothing but the kernel; empty where it is
        not known.
    point : KnownPoint or None
        Variables of all rows, of such functions; None where their outputs are not known.
    """

    support: I8
    alpha: F8 | sp.csr_array
    thresholds: tuple[float, ...]
    certificate: Certificate
    of_functions: tuple[Optimality, ...] = ()
    point: KnownPoint | None = None
