"""What a run returns: its point, the intercept there, and the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.gram.weights import weighted_rows
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

    from bigsvm.arrays import F8
    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.training.run import Run
    from bigsvm.training.state import Counters, RowState

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
    standing: Standing | None,
    certify: Callable[[], Standing],
    returns_current: bool,
) -> TrainingResult:
    """Return the point of the last sweep, or a later one, whose gap is not known.

    Parameters
    ----------
    standing : Standing or None
        Standing at the last sweep.
    certify : callable
        Certifies the point of the last sweep.
    returns_current : bool
        Whether the current point is returned, also before it is swept.
    """
    state, count = run.state, run.count
    half_swept = count.phase in (Phase.SWEEP, Phase.FILL) and (
        count.rows_done > 0 or count.columns_done > 0
    )
    alpha = state.alpha
    if not count.n_sweeps or half_swept or returns_current:
        alpha, standing = state.current_alpha(), None
    elif reason is StopReason.MAX_ITER:
        standing = certify()
        if standing.gap <= tol:  # few rows are polished, which takes no pair steps
            reason = StopReason.CONVERGED
    elif standing is None or reason not in (StopReason.CONVERGED, StopReason.STALLED):
        # Steps only raise the objective, and sweeps may be hours apart.
        alpha, standing = state.current_alpha(), None
        if np.array_equal(alpha, state.alpha):
            standing = run.dual.optimality(alpha, state.outputs)
    run.watch.account()
    return _result(run.dual, state, count, reason, tol, alpha, standing)


def _result(
    dual: Dual[Any],
    state: RowState,
    count: Counters,
    reason: StopReason,
    tol: float,
    alpha: F8,
    standing: Standing | None,
) -> TrainingResult:
    """Gather the result of a run at a point.

    `standing` is None where the outputs of the point are not complete: before the first sweep, or
    in the middle of a sweep.
    """
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
    )
    thresholds = standing.thresholds if standing else _thresholds_within(dual, state, count.scope)
    is_sparse = beta.ndim > 1 and alpha.ndim == beta.ndim
    coefficients = sp.csr_array(beta[support]) if is_sparse else alpha[support]
    of_functions = dual.standings(standing) if standing else ()
    point = None
    if of_functions and alpha is state.alpha:
        point = KnownPoint(alpha, state.outputs, computed_here=True)
    return TrainingResult(support, coefficients, thresholds, certificate, of_functions, point)


def _thresholds_within(dual: Dual[Any], state: RowState, scope: int) -> tuple[float, ...]:
    """Return the thresholds of the rows solved last, where those of all rows are not known."""
    alpha, outputs, rows = state.alpha[:scope], state.outputs[:scope], None
    if len(state.active):
        alpha, outputs, rows = state.active_alpha, state.active_outputs, state.active
    if len(state.working) and not len(state.set_sizes):
        alpha, rows = state.working_alpha, state.working
        outputs = dual.outputs_from(state.working_gradient, alpha, rows)
    standing: Standing = dual.optimality(alpha, outputs, rows=rows)
    return standing.thresholds
