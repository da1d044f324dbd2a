"""The certificate: outputs recomputed in float64 where optimality and objectives are decided.

At the optimum the slack, the objectives and the equality of gradients all live on the support rows,
so recomputing f there (n_SV² evaluations) takes float32's rounding out of every figure reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.polish import MOST_ROWS, polish
from bigsvm.tiles import Columns, KernelTiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.box import BoxDual, Optimality

EXACT_EVALUATIONS = 2e7
"""Up to n · n_SV evaluations all outputs are recomputed in float64: a tenth of a second."""
ROWS_AT_ONCE = 1 << 14


def certify(
    dual: BoxDual,
    source: RowSource,
    tiles: KernelTiles,
    gather: Callable[[NDArray[np.int64]], Rows],
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    *,
    tol: float,
) -> Optimality:
    """Look at a point with outputs in float64; polish it first where it is small and solved.

    Parameters
    ----------
    dual : BoxDual
    source : RowSource
    tiles : KernelTiles
        The run's own, float32; its kernel, centre and threads are used, its count goes on.
    gather : callable
        Rows by their indices.
    alpha, outputs : (n,) float64
        Changed in place: outputs of the support rows, or of all rows of a small problem.
    tol : float
        A point with a larger KKT gap is not polished.

    Returns
    -------
    Optimality
    """
    support = np.flatnonzero(alpha)
    with KernelTiles(
        tiles.kernel, centre=tiles.centre, threads=tiles.threads, dtype=np.float64
    ) as exact:
        if len(alpha) * len(support) > EXACT_EVALUATIONS:
            outputs[support] = _outputs(exact, source, gather, support, alpha[support], support)
        else:
            everything = np.arange(len(alpha))
            outputs[:] = _outputs(exact, source, gather, everything, alpha[support], support)
            at = dual.optimality(alpha, outputs)
            rows = dual.near_threshold(alpha, outputs, at, margin=2 * tol)
            if at.gap <= tol and 2 <= len(rows) <= MOST_ROWS:
                kept = alpha[rows], outputs.copy()
                alpha[rows] = _polished(exact, dual, source, gather, rows, alpha, outputs)
                support = np.flatnonzero(alpha)
                outputs[:] = _outputs(exact, source, gather, everything, alpha[support], support)
                if dual.optimality(alpha, outputs).gap > at.gap:
                    # An indefinite kernel: Newton's direction need not lead upwards.
                    alpha[rows], outputs[:] = kept
        tiles.n_evaluations += exact.n_evaluations
    return dual.optimality(alpha, outputs)


def _outputs(
    exact: KernelTiles,
    source: RowSource,
    gather: Callable[[NDArray[np.int64]], Rows],
    rows: NDArray[np.int64],
    coefficients: NDArray[np.float64],
    support: NDArray[np.int64],
) -> NDArray[np.float64]:
    """``K(rows, support) @ coefficients``, a bounded number of rows at a time on either side."""
    out = np.zeros(len(rows))
    for low in range(0, len(support), ROWS_AT_ONCE):
        high = low + ROWS_AT_ONCE
        columns = Columns(exact, gather(support[low:high]), sparse_partners=source.is_sparse)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[first : first + ROWS_AT_ONCE]
            values = gather(part)
            exact.multiply(values, columns, coefficients[low:high], out[first : first + len(part)])
    return out


def _polished(
    exact: KernelTiles,
    dual: BoxDual,
    source: RowSource,
    gather: Callable[[NDArray[np.int64]], Rows],
    rows: NDArray[np.int64],
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Polish the alpha of `rows`, all others staying as they are."""
    values = gather(rows)
    gram = np.empty((len(rows), len(rows)))
    exact.evaluate(values, Columns(exact, values, sparse_partners=source.is_sparse), gram)
    box = dual.formulation.box(rows)
    rest = outputs[rows] - gram @ alpha[rows]
    return polish(gram, box._replace(linear=box.linear - rest), alpha[rows])
