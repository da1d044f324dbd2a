"""The end of a run: its result, and the certificate of that.

For the certificate, outputs are recomputed in float64 where optimality and objectives are decided.

A sample of the support rows shows by how much float32 got their outputs wrong. Rows that could
violate, or decide the KKT gap, if every output were wrong by several times that much are
recomputed: those at the extremes of the gradient, with a coefficient or without. The other outputs
enter the objective and the duality gap alone. They are recomputed as well (all support rows, n_SV²
/ 2 evaluations) unless the sample shows that their errors change both by next to nothing; the
certificate has by how much. The error of a row at its bound cancels in the duality gap, as it adds
to the losses what it takes from the quadratic term. The slack of rows that are not recomputed keeps
the rounding of float32.

A point that is not feasible is not certified, whatever its gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigsvm.errors import CheckpointError
from bigsvm.gram.partners import weighted_rows
from bigsvm.training.learning_curve import LearningCurve
from bigsvm.training.result import (
    Certificate,
    KnownPoint,
    StopReason,
    TrainingResult,
    finite_or_none,
)
from bigsvm.training.state import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.executors.executor import Exact
    from bigsvm.training.run import Run
    from bigsvm.training.sampled_gap import SampledGap

EXACT_EVALUATIONS = 2e6
"""If n · n_SV is at most this, all outputs are recomputed in float64: a hundredth of a second."""
TRIED = 1024
"""Support rows that are sampled to estimate the float32 error of outputs."""
DOUBT = 4.0
"""An output may be off by this many times the largest error seen on recomputed rows."""
FEWER = 3
"""Chosen rows are recomputed only if they are this many times fewer than the support rows: a row of
them needs all of its kernel values, all support rows together need half of theirs."""
OBJECTIVE_ERROR = 5e-6
"""Relative error of the objective that a sample has to rule out: as small as duality gaps are."""
GAP_ERROR = 0.01
"""Relative error of the duality gap that a sample has to rule out, unless it is an error that the
objective may have: a gap is read to two digits at most."""


class Errors(NamedTuple):
    """Errors of the objective and of the duality gap."""

    objective: float
    duality_gap: float


EXACT = Errors(0.0, 0.0)


class Certified(NamedTuple):
    """The standing of a point, and by how much rounding may change its objective and duality gap.

    The errors are estimated from a sample: 0 where the outputs of all support rows are in float64,
    and None where they are not known.
    """

    standing: Standing
    errors: Errors | None = None


def certify(
    dual: Dual[Any],
    exact: Exact,
    alpha: F8,
    outputs: F8,
    *,
    tol: float,
    exact_objective: bool = False,
    inherited_error: Callable[[], float] = lambda: 0.0,
) -> Certified:
    """Return the standing of a point by outputs in float64; polish it first where few rows matter.

    Alpha and outputs, (n,) float64, are changed in place, at the end: the outputs of the rows that
    decide what is certified, or of all rows of a small problem. With `exact_objective` outputs of
    all support rows are recomputed. `inherited_error` returns the largest error of outputs that
    this process has not computed; it is called only if not all outputs are recomputed. Steps keep
    points feasible, so a point that is not came from a checkpoint.
    """
    if fault := dual.infeasible(alpha):
        raise CheckpointError(
            f"the point that was saved is no solution of this problem: {fault}; remove the "
            "checkpoint to start over"
        )
    support = weighted_rows(dual.formulation.per_output(alpha))
    if len(alpha) * len(support) > EXACT_EVALUATIONS:
        # Each function separately: it has fewer support rows, and needs half of their values.
        points, least_error = _points(dual, alpha, outputs), inherited_error()
        corrected = [
            _corrected(*part, exact, tol, least_error, exact_objective=exact_objective)
            for part in points
        ]
        for (_, _, f), (rows, exact_f, _) in zip(points, corrected, strict=True):
            f[rows] = exact_f
        known = [errors for *_, errors in corrected if errors is not None]
        errors = Errors(*np.sum(known, axis=0)) if len(known) == len(corrected) else None
    else:
        everything = np.arange(len(alpha))
        exact_f = exact.outputs(everything, dual.formulation.per_output(alpha))
        standing: Standing = dual.optimality(alpha, exact_f)
        # Newton's method for the rows that matter, if possible.
        better = dual.newton(alpha, exact_f, standing, exact, tol=tol)
        if better is not None:
            f = exact.outputs(everything, dual.formulation.per_output(better))
            reached = dual.optimality(better, f)
            # Above tol a larger objective counts even if the gap grows, as it may far from the
            # optimum and with an indefinite kernel.
            if reached.gap <= standing.gap or (
                standing.gap > tol and reached.objective > standing.objective
            ):
                alpha[:], exact_f = better, f
        outputs[:] = exact_f
        errors = EXACT
    return Certified(dual.optimality(alpha, outputs), errors)


def _points(dual: Dual[Any], alpha: F8, outputs: F8) -> list[tuple[Dual[Any], F8, F8]]:
    """Divide a point into the points of independent functions."""
    if not dual.functions:
        return [(dual, alpha, outputs)]
    return [(function, alpha[:, c], outputs[:, c]) for c, function in enumerate(dual.functions)]


def _corrected(
    dual: Dual[Any],
    alpha: F8,
    outputs: F8,
    exact: Exact,
    tol: float,
    least_error: float,
    *,
    exact_objective: bool,
) -> tuple[I8, F8, Errors | None]:
    """Recompute the outputs that decide what is certified; returns their rows, f, and the errors.

    Where an output may be off by `least_error`, more rows are recomputed to see whether the point
    stays within the tolerance. Where it does, they are returned as they were: a resumed run then
    has the bits of an undisturbed one. Outputs change while this runs, and are restored at the end.
    """
    beta = dual.formulation.per_output(alpha)
    support = weighted_rows(beta)
    with _Recomputed(exact, beta, outputs) as done:

        def doubtful(error: float = 0.0) -> I8:
            error = max(DOUBT * done.error, error)
            return dual.doubtful(alpha, outputs, tol=tol, error=error)

        is_enough, errors = False, None
        if not exact_objective:
            is_enough, errors = _few_are_enough(dual, alpha, outputs, support, done, doubtful, tol)
        if not is_enough:
            errors = EXACT
            done.add_all(support)
            while len(rows := done.missing(doubtful())):
                done.add(rows)
        rows, exact_f = done.rows, outputs[done.rows]
        if least_error > DOUBT * done.error and dual.optimality(alpha, outputs).gap <= tol:
            while len(more := done.missing(doubtful(least_error))):
                done.add(more)
            if dual.optimality(alpha, outputs).gap > tol:
                rows, exact_f = done.rows, outputs[done.rows]
        return rows, exact_f, errors


def _few_are_enough(
    dual: Dual[Any],
    alpha: F8,
    outputs: F8,
    support: I8,
    done: _Recomputed,
    doubtful: Callable[[], I8],
    tol: float,
) -> tuple[bool, Errors | None]:
    """Recompute a sample of the support rows, and rows in doubt; False if all are needed."""

    def are_few(n_more: int) -> bool:
        return FEWER * (done.n + n_more) <= len(support)

    if not are_few(TRIED + len(doubtful())):
        return False, None
    tried = np.sort(np.random.default_rng(0).choice(support, TRIED, replace=False))
    changes = done.add(tried)
    while len(rows := done.missing(near := doubtful())):
        if not are_few(len(rows)):
            return False, None
        done.add(rows)
        if dual.optimality(alpha, outputs).gap > tol:
            return True, None  # whatever the other outputs are
    settled = ~np.isin(tried, near)
    n_left = len(done.missing(support))
    tried, changes = tried[settled], changes[settled]
    if len(tried) < 2:
        return not n_left, EXACT
    standing = dual.optimality(alpha, outputs)
    # The objective has half of the errors of αᵀKα.
    objective = n_left * _largest_mean(0.5 * done.beta[tried] * changes)
    slopes = dual.slopes(alpha[tried], outputs[tried], tried, standing)
    duality_gap = n_left * _largest_mean(slopes * changes)
    most = OBJECTIVE_ERROR * abs(standing.objective)
    is_enough = objective <= most and duality_gap <= max(most, GAP_ERROR * standing.duality_gap)
    return is_enough, Errors(objective, duality_gap)


def _largest_mean(terms: F8) -> float:
    """Return the size of the mean of sampled terms, (t,) or (t, k), and its standard error."""
    sums = terms.reshape(len(terms), -1).sum(axis=1)
    return float(abs(sums.mean()) + sums.std(ddof=1) / len(sums) ** 0.5)


class _Recomputed:
    """Outputs, (n,) or (n, k), that are replaced by those in float64 within a `with` block.

    `error` is by how much an output was off at most.
    """

    def __init__(self, exact: Exact, beta: F8, outputs: F8) -> None:
        self._exact, self.beta, self._outputs = exact, beta, outputs
        self._is_done = np.zeros(len(outputs), np.bool_)
        self._before: list[tuple[I8, F8]] = []
        self.error = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for rows, before in reversed(self._before):
            self._outputs[rows] = before

    @property
    def n(self) -> int:
        """Number of recomputed outputs."""
        return int(np.count_nonzero(self._is_done))

    @property
    def rows(self) -> I8:
        """Rows of the recomputed outputs, ascending."""
        return np.flatnonzero(self._is_done)

    def missing(self, rows: I8) -> I8:
        """Which of some rows have not been recomputed."""
        return rows[~self._is_done[rows]]

    def add(self, rows: I8) -> F8:
        """Recompute rows, (m,) ascending; returns by how much they change."""
        before, change = self._outputs[rows], self._exact.outputs(rows, self.beta)
        self._before.append((rows, before))
        self._outputs[rows] = change
        self._is_done[rows] = True
        change -= before
        self.error = max(self.error, float(change.max(initial=0)), -float(change.min(initial=0)))
        return change

    def add_all(self, support: I8) -> None:
        """Recompute all support rows that are missing, or all of them where that is less work."""
        missing = self.missing(support)
        # All together need half of their kernel values.
        self.add(support if 2 * len(missing) > len(support) else missing)


COUNTED = (
    "n_sweeps", "n_iter", "n_kernel_evaluations", "n_working_sets", "rows_swept", "row_misses",
    "row_reads", "disk_tier", "bytes_read", "seconds",
)  # fmt: skip
"""Counters that the certificate has under the same names."""


def conclude(
    run: Run,
    reason: StopReason,
    *,
    tol: float,
    certified: Certified | None,
    certify: Callable[[], Certified],
    sample: Callable[[F8], SampledGap | None],
    returns_current: bool,
) -> TrainingResult:
    """Return the point of the last sweep, or a later one, whose gap is not known.

    `certified` and `certify` are for the point of the last sweep. `sample` estimates the duality
    gap of a later one, if the time limit has ended the run. `returns_current` says whether the
    current point is returned, also before it is swept.
    """
    state, count = run.state, run.count
    half_swept = count.phase in (Phase.SWEEP, Phase.FILL) and (
        count.rows_done > 0 or count.columns_done > 0
    )
    alpha = state.alpha
    if not count.n_sweeps or half_swept or returns_current:
        alpha, certified = state.current_alpha(), None
    elif reason is StopReason.MAX_ITER:
        certified = certify()
        if certified.standing.gap <= tol:  # few rows are polished, which takes no pair steps
            reason = StopReason.CONVERGED
    elif certified is None or reason not in (StopReason.CONVERGED, StopReason.STALLED):
        # Steps only raise the objective, and sweeps may be hours apart.
        alpha, certified = state.current_alpha(), None
        if np.array_equal(alpha, state.alpha):
            certified = Certified(run.dual.optimality(alpha, state.outputs))
    sampled = None
    if certified is None and reason is StopReason.TIME_LIMIT:
        sampled = sample(run.dual.formulation.netted(alpha))
    run.watch.account()
    return _result(run, reason, tol, alpha, certified, sampled)


def _result(
    run: Run,
    reason: StopReason,
    tol: float,
    alpha: F8,
    certified: Certified | None,
    sampled: SampledGap | None,
) -> TrainingResult:
    """Gather the result of a run at a point.

    `certified` is None where the outputs of the point are not complete: before the first sweep, or
    in the middle of a sweep.
    """
    standing, errors = certified or (None, None)
    dual, state, count = run.dual, run.state, run.count
    netted = dual.formulation.netted(alpha)
    if standing is not None and netted is not alpha:
        # The objective and the gaps are those of what the model has.
        standing = dual.optimality(netted, state.outputs)
    alpha = netted
    beta = dual.formulation.per_output(alpha)
    support = weighted_rows(beta)
    n_bounded = dual.n_bounded(alpha[support], support)
    is_partial = reason in (StopReason.SETTLED, StopReason.USED_UP)
    tested = LearningCurve(count.curve).last if is_partial else None
    certificate = Certificate(
        converged=reason is StopReason.CONVERGED,
        stop_reason=reason,
        tol=tol,
        objective=standing.objective if standing else None,
        objective_error=errors.objective if errors else None,
        duality_gap_error=errors.duality_gap if errors else None,
        gap=standing.gap if standing else None,
        duality_gap=finite_or_none(standing.duality_gap) if standing else None,
        n_support=len(support),
        n_bounded=n_bounded,
        **{name: getattr(count, name) for name in COUNTED},
        seconds_by_phase=count.seconds_by_phase(),
        cpu_idle=count.cpu_idle(),
        drift=count.drift if count.rows_drawn else None,
        last_gap=count.gap if standing is None and np.isfinite(count.gap) else None,
        test_error=tested.error if tested else None,
        test_error_deviation=tested.deviation if tested else None,
        rows_used=count.scope if is_partial else None,
        ball=dual.proof(alpha, state.outputs, standing) if standing else None,
        sampled_duality_gap=sampled.gap if sampled else None,
        sampled_duality_gap_deviation=sampled.deviation if sampled else None,
        sampled_rows=sampled.rows if sampled else None,
    )
    thresholds = standing.thresholds if standing else _thresholds_within(run)
    is_sparse = beta.ndim > 1 and alpha.ndim == beta.ndim
    coefficients = sp.csr_array(beta[support]) if is_sparse else alpha[support]
    of_functions = dual.standings(standing) if standing else ()
    point = None
    if of_functions and alpha is state.alpha:
        point = KnownPoint(alpha, state.outputs, computed_here=True)
    return TrainingResult(support, coefficients, thresholds, certificate, of_functions, point)


def _thresholds_within(run: Run) -> tuple[float, ...]:
    """Return the thresholds of the rows solved last, where those of all rows are not known."""
    dual, state, rows = run.dual, run.state, None
    alpha, outputs = run.of_scope()
    if len(state.active):
        alpha, outputs, rows = state.active_alpha, state.active_outputs, state.active
    if len(state.working) and not len(state.set_sizes):
        alpha, rows = state.working_alpha, state.working
        outputs = dual.outputs_from(state.working_gradient, alpha, rows)
    standing: Standing = dual.optimality(alpha, outputs, rows=rows)
    return standing.thresholds
