"""Check of the outputs of an earlier process against alpha before a point is certified.

A resumed run continues from the outputs in its checkpoint, and adds to them. A hash does not prove
that they belong to its alpha, so this module recomputes them once from the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.executors.weighted import WeightedRows
from bigsvm.gram.weights import weighted_rows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.executor import Executor
    from bigsvm.executors.working_rows import WorkingRows
    from bigsvm.gram import KernelTiles


def confirm(
    outputs: F8,
    beta: F8,
    source: RowSource,
    tiles: KernelTiles,
    executor: Executor,
    rows: WorkingRows,
    plan: TrainingPlan,
    *,
    limit: float,
) -> float:
    """Recompute outputs, and replace those that differ by more than `limit`.

    Parameters
    ----------
    outputs : (n,) or (n, k) float64
        Changed in place.
    beta : as outputs
        Weights of the kernel rows.
    tiles : KernelTiles
        The tiles of the run; the check is added to their count.
    executor : Executor
    rows : WorkingRows
        Reads the support rows.
    plan : TrainingPlan
        The memory for kernel rows is free during the check.

    Returns
    -------
    float
        Largest difference from the recomputed outputs that remains.
    """
    support = weighted_rows(beta)
    # Rows in memory need no blocks, so the support rows may use the memory for these.
    spare_rows = plan.block_bytes // (4 * source.n_columns) if source.row_alignment <= 1 else 0
    weights = beta[support] if beta.ndim == 1 else sp.csr_array(beta[support])
    weighted = WeightedRows(
        weights, lambda places: rows.gathered(support[places]).everything(),
        at_once=max(plan.active_rows, spare_rows, 1),
    )  # fmt: skip
    most = 0.0
    for partial in executor.run(weighted, start=0, stop=len(outputs), sums_bytes=plan.gram_bytes):
        check_interrupt()
        part = slice(partial.start, partial.stop)
        tiles.n_evaluations += partial.evaluations
        most = max(most, _taken_over(outputs[part], partial.added, limit))
    return most


def _taken_over(outputs: F8, fresh: F8, limit: float) -> float:
    """Replace outputs that differ by more than `limit`; returns the largest other difference."""
    off = np.abs(fresh - outputs)
    wrong = ~(off <= limit)
    outputs[wrong] = fresh[wrong]
    off[wrong] = 0.0
    return float(off.max(initial=0.0))
