"""Check of the outputs of an earlier process against alpha before a point is certified.

A resumed run continues from the outputs in its checkpoint, and adds to them. A hash does not prove
that they belong to its alpha, so this module recomputes them once from the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.executors.local import blocks, rows_at_once
from bigsvm.gram import Partners
from bigsvm.gram.partners import in_whole_tiles
from bigsvm.gram.weights import weighted_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.gram import KernelTiles
    from bigsvm.working_sets.held_rows import WorkingRows


def confirm(
    outputs: F8,
    beta: F8,
    source: RowSource,
    tiles: KernelTiles,
    rows: WorkingRows,
    plan: TrainingPlan,
    *,
    limit: float,
    look: Callable[[], None],
) -> float:
    """Recompute outputs, and replace those that differ by more than `limit`.

    Parameters
    ----------
    outputs : (n,) or (n, k) float64
        Changed in place.
    beta : as outputs
        Weights of the kernel rows.
    tiles : KernelTiles
        The tiles of the run, float32.
    rows : WorkingRows
        Reads the support rows.
    plan : TrainingPlan
        The memory for kernel rows is free during the check.
    look : callable
        Called several times a second; may raise.

    Returns
    -------
    float
        Largest difference from the recomputed outputs that remains.
    """
    n, k = len(outputs), outputs.size // max(len(outputs), 1)
    support = weighted_rows(beta)
    # Rows in memory need no blocks, so the support rows may use the memory for these.
    spare_rows = plan.block_bytes // (4 * source.n_columns) if source.row_alignment <= 1 else 0
    size = in_whole_tiles(max(plan.active_rows, spare_rows, 1))
    step = max(1, plan.gram_bytes // (8 * max(k, 1)))
    most = 0.0
    for start in range(0, n, step):
        stop = min(start + step, n)
        fresh = np.zeros((stop - start, *outputs.shape[1:]))
        for first in range(0, len(support), size):
            piece = support[first : first + size]
            values = rows.gathered(piece, look).everything()
            partners = Partners(tiles.values, values, for_sparse_rows=source.is_sparse)
            weights = beta[piece] if beta.ndim == 1 else sp.csr_array(beta[piece])
            prepared = tiles.prepared(partners, weights)
            at_once = rows_at_once(partners, prepared)
            for block in blocks(source, start, stop, at_once, plan.block_bytes):
                part = slice(block.start - start, block.stop - start)
                tiles.multiply(block.rows, partners, prepared, fresh[part])
                look()
        most = max(most, _taken_over(outputs[start:stop], fresh, limit))
    return most


def _taken_over(outputs: F8, fresh: F8, limit: float) -> float:
    """Replace outputs that differ by more than `limit`; returns the largest other difference."""
    off = np.abs(fresh - outputs)
    wrong = ~(off <= limit)
    outputs[wrong] = fresh[wrong]
    off[wrong] = 0.0
    return float(off.max(initial=0.0))
