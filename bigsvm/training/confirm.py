"""Outputs of an earlier process, held against alpha before anything is certified.

A run goes on from the outputs that its checkpoint has, and adds to them. That they are those of its
alpha is not for a hash to say: here they are computed anew, once, from the rows themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.tiles import Columns
from bigsvm.tiles.functions import weighted_rows
from bigsvm.training.sweep import parts, rows_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import RowSource
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.working_rows import WorkingRows


def confirm(
    outputs: NDArray[np.float64],
    beta: NDArray[np.float64],
    source: RowSource,
    tiles: KernelTiles,
    rows: WorkingRows,
    plan: TrainingPlan,
    *,
    limit: float,
    look: Callable[[], None],
) -> float:
    """Compute outputs anew, and take over those that are further off than `limit`.

    Parameters
    ----------
    outputs : (n,) or (n, k) float64
        Changed in place.
    beta : as outputs
        What kernel rows are weighted by.
    source : RowSource
    tiles : KernelTiles
        The run's own, float32.
    rows : WorkingRows
        Brings the support rows.
    plan : TrainingPlan
        Memory for kernel rows is free meanwhile.
    limit : float
    look : callable
        Called several times a second; may raise.

    Returns
    -------
    float
        By how much any output is off from the one computed here, now.
    """
    n, k = len(outputs), outputs.size // max(len(outputs), 1)
    support = weighted_rows(beta)
    # Rows in memory need no blocks: theirs is for them as partners of all.
    room = plan.block_bytes // (4 * source.n_columns) if source.row_alignment <= 1 else 0
    size = max(plan.active_rows, room, 1)
    step = max(1, plan.gram_bytes // (8 * max(k, 1)))
    most = 0.0
    for start in range(0, n, step):
        stop = min(start + step, n)
        fresh = np.zeros((stop - start, *outputs.shape[1:]))
        for first in range(0, len(support), size):
            piece = support[first : first + size]
            values = rows.at(piece, look).at(np.arange(len(piece)))
            columns = Columns(tiles, values, sparse_partners=source.is_sparse)
            weights = beta[piece] if beta.ndim == 1 else sp.csr_array(beta[piece])
            prepared = tiles.prepared(columns, weights)
            at_once = rows_at_once(columns, prepared)
            for low, high, _, block in parts(source, start, stop, at_once, plan.block_bytes):
                tiles.multiply(block, columns, prepared, fresh[low - start : high - start])
                look()
        most = max(most, _taken_over(outputs[start:stop], fresh, limit))
    return most


def _taken_over(outputs: NDArray[np.float64], fresh: NDArray[np.float64], limit: float) -> float:
    """Take over what is off by more than `limit`; returns by how much others are off at most."""
    off = np.abs(fresh - outputs)
    wrong = ~(off <= limit)
    outputs[wrong] = fresh[wrong]
    off[wrong] = 0.0
    return float(off.max(initial=0.0))
