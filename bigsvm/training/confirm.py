"""Check of the outputs of an earlier process against alpha before a point is certified.

A resumed run continues from the outputs in its checkpoint, and adds to them. A hash does not prove
that they belong to its alpha, so this module recomputes them once from the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.executors.executor import WeightedRows
from bigsvm.gram.partners import weighted_rows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from bigsvm.executors.executor import Exact, Executor
    from bigsvm.executors.working_rows import WorkingRows
    from bigsvm.training.run import Run


UNCONFIRMED = 0.5
"""Largest error of such outputs, in units of the tolerance: those with larger errors are
replaced."""


def confirm(run: Run, executor: Executor, rows: WorkingRows, exact: Exact, *, tol: float) -> float:
    """Recompute outputs that were derived from files of earlier processes; replace wrong ones.

    Outputs that seem to be wrong are recomputed in float64: rounding alone may exceed a small
    tolerance. The outputs of the run are changed in place; returns the largest difference from the
    recomputed ones that remains. The memory for kernel rows is free during the check.
    """
    if run.computed_outputs:
        return 0.0
    plan, source, outputs = run.plan, run.source, run.state.outputs
    beta, limit = run.per_output(run.state.alpha), UNCONFIRMED * tol
    support = weighted_rows(beta)
    # Rows in memory need no blocks, so the support rows may use the memory for these.
    spare_rows = plan.block_bytes // (4 * source.n_columns) if source.row_alignment <= 1 else 0
    weights = beta[support] if beta.ndim == 1 else sp.csr_array(beta[support])
    weighted = WeightedRows(
        weights, lambda places: rows.gathered(support[places]).everything(),
        at_once=max(plan.active_rows, spare_rows, 1),
    )  # fmt: skip
    most, seem_wrong = 0.0, np.zeros(len(outputs), np.bool_)
    for partial in executor.run(weighted, start=0, stop=len(outputs), sums_bytes=plan.gram_bytes):
        check_interrupt()
        part = slice(partial.start, partial.stop)
        run.tiles.n_evaluations += partial.evaluations
        off = np.abs(partial.added - outputs[part])
        near = off <= limit
        most = max(most, float(off.max(initial=0.0, where=near)))
        seem_wrong[part] = ~near.reshape(len(near), -1).all(axis=1)
    in_doubt = np.flatnonzero(seem_wrong)
    if len(in_doubt):
        fresh, kept = exact.outputs(in_doubt, beta), outputs[in_doubt]
        off = np.abs(fresh - kept)
        right = off <= limit
        outputs[in_doubt] = np.where(right, kept, fresh)
        most = max(most, float(off.max(initial=0.0, where=right)))
    return most
