"""What a run returns: its point, the intercept there, and the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.training.result import Certificate, StopReason, TrainingResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.duals.box import BoxDual, Optimality
    from bigsvm.training.state import Counters, RowState


def conclude(
    dual: BoxDual,
    state: RowState,
    count: Counters,
    *,
    reason: StopReason,
    tol: float,
    alpha: NDArray[np.float64],
    at: Optimality | None,
) -> TrainingResult:
    """Gather the result of a run.

    Parameters
    ----------
    dual : BoxDual
    state : RowState
    count : Counters
        Brought up to date.
    reason : StopReason
    tol : float
    alpha : (n,) float64
        The point to return.
    at : Optimality or None
        Where it stands; None where its outputs are not complete: before the first sweep, or in the
        middle of one.
    """
    support = np.flatnonzero(alpha)
    box = dual.formulation.box(support)
    bounded = (alpha[support] == box.upper) | (alpha[support] == box.lower)
    certificate = Certificate(
        converged=reason is StopReason.CONVERGED,
        stop_reason=reason,
        tol=tol,
        objective=at.objective if at else None,
        gap=at.gap if at else None,
        duality_gap=at.duality_gap if at else None,
        n_support=len(support),
        n_bounded=int(bounded.sum()),
        n_sweeps=count.n_sweeps,
        n_iter=count.n_iter,
        n_kernel_evaluations=count.n_kernel_evaluations,
        n_working_sets=count.n_working_sets,
        rows_swept=count.rows_swept,
        row_misses=count.row_misses,
        row_reads=count.row_reads,
        disk_tier=count.disk_tier,
        bytes_read=count.bytes_read,
        seconds=count.seconds,
        cpu_idle=count.cpu_idle(),
    )
    intercept = at.threshold if at else _intercept_within(dual, state, count.scope)
    return TrainingResult(support, alpha[support], float(intercept), certificate)


def _intercept_within(dual: BoxDual, state: RowState, scope: int) -> float:
    """Take the threshold of the rows last solved, where that of all rows is not known."""
    if len(state.working):
        rows = state.active[state.working]
        outputs = dual.formulation.box(rows).linear - state.working_gradient
        return dual.optimality(state.working_alpha, outputs, rows=rows).threshold
    if len(state.active):
        return dual.optimality(
            state.active_alpha, state.active_outputs, rows=state.active
        ).threshold
    return dual.optimality(state.alpha[:scope], state.outputs[:scope]).threshold
