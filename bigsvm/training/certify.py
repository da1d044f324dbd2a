"""The certificate: outputs recomputed in float64 where optimality and objectives are decided.

At the optimum the objectives and the equality of gradients live on the support rows, so f is
recomputed there (n_SV² evaluations). By how much it was off shows what float32 did to the outputs
of the other rows: those that could violate by more than the tolerance after several times that much
are recomputed as well. The slack of the rest keeps float32's rounding. Of a gap that is certain
whatever the outputs are, so far off as some of the support rows show, these are enough.

A point that is not feasible is not certified, whatever its gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.errors import CheckpointError
from bigsvm.tiles import Columns
from bigsvm.tiles.functions import weighted_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.dual import Dual, Standing
    from bigsvm.tiles import KernelTiles

    Gather: TypeAlias = Callable[[NDArray[np.int64], Callable[[], None]], Rows]

EXACT_EVALUATIONS = 2e6
"""Up to n · n_SV evaluations all outputs are recomputed in float64: a hundredth of a second.
Seconds of all digits of mnist in pairs, 45 problems of 12 000 rows and some 800 support rows, with
2e7, 4e6 and 2e6: 13.5, 10.3 and 9.9."""
ROWS_AT_ONCE, MOST_WHOLE = 1 << 14, 1 << 15
"""Most vectors whose products with the support rows are summed up together."""
FEW = 1 << 12
"""Support rows that take no time whichever way their outputs are summed up."""
EVALUATIONS_AT_ONCE = 10**8
"""Between two looks: of 200 columns a second in one thread."""
PART = 1 << 12
"""Rows whose outputs of before and after are compared together."""
TRIED = 1024
"""Support rows that show how much outputs are off, where that is nearly sure to be enough."""
DOUBT = 4.0
"""Outputs are trusted to so many times the largest error seen on the support rows."""


class Exact:
    """Float64 outputs at chosen rows, a bounded number of rows at a time.

    Parameters
    ----------
    source : RowSource
    tiles : KernelTiles
        float64.
    gather : callable
        Rows by their indices, and `look` for the while it takes.
    rows_at_once, whole : int
        Most rows together, and most where none but they are in memory.
    look : callable
        Called between two parts of the work; raises to end it.
    """

    def __init__(
        self,
        source: RowSource,
        tiles: KernelTiles,
        gather: Gather,
        *,
        rows_at_once: int,
        whole: int = 0,
        look: Callable[[], None],
    ) -> None:
        self.source, self.tiles, self._gather = source, tiles, gather
        self._step, self.look = max(1, min(rows_at_once, ROWS_AT_ONCE)), look
        self._whole = max(min(whole, MOST_WHOLE), self._step)

    def rows(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at (m,) int64 `indices`."""
        return self._gather(indices, self.look)

    def columns(self, rows: Rows) -> Columns:
        """Pack rows as partners."""
        return Columns(self.tiles, rows, sparse_partners=self.source.is_sparse)

    def gram(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Kernel values among rows (m,), (m, m)."""
        values, gram = self.rows(rows), np.empty((len(rows), len(rows)))
        self.tiles.evaluate(values, self.columns(values), gram)
        return gram

    def outputs(self, rows: NDArray[np.int64], beta: NDArray[np.float64]) -> NDArray[np.float64]:
        """``K(rows, all) @ beta``; rows (m,) int64 ascending, beta (n,) or (n, k)."""
        out = np.zeros((len(rows), *beta.shape[1:]))
        support = weighted_rows(beta)
        many = self._step if len(support) <= FEW else self._whole
        if len(support) <= many and np.array_equal(rows, support):
            values = self.rows(support)
            columns = self.columns(values)
            self.tiles.multiply_symmetric(values, columns, beta[support], out, look=self.look)
            return out
        for low in range(0, len(support), self._step):
            chosen = support[low : low + self._step]
            columns = self.columns(self.rows(chosen))
            step = max(1, min(self._step, EVALUATIONS_AT_ONCE // max(columns.n, 1)))
            for first in range(0, len(rows), step):
                self.look()
                part = slice(first, first + step)
                self.tiles.multiply(self.rows(rows[part]), columns, beta[chosen], out[part])
        return out


def certify(
    dual: Dual[Any],
    source: RowSource,
    tiles: KernelTiles,
    gather: Gather,
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    *,
    tol: float,
    off: Callable[[], float] = lambda: 0.0,
    rows_at_once: int = ROWS_AT_ONCE,
    whole: int = 0,
    look: Callable[[], None] = lambda: None,
) -> Standing:
    """Look at a point with outputs in float64; polish it first where few rows matter.

    Parameters
    ----------
    dual : Dual
    source : RowSource
    tiles : KernelTiles
        The run's own, float32; its kernel, centre and threads are used, its count goes on.
    gather : callable
        Rows by their indices, and `look` for the while it takes.
    alpha, outputs : (n,) float64
        Changed in place, at the end: outputs of the support rows and of those in doubt, or of all
        rows of a small problem.
    tol : float
        What the KKT gap should be.
    off : callable
        Returns the largest error of outputs that this process has not computed; called only if not
        all outputs are recomputed.
    rows_at_once, whole : int
        Most rows that are gathered together, and where half of their kernel values are enough.
    look : callable
        Called between two parts of the work; where it raises, nothing has changed.

    Returns
    -------
    Standing

    Raises
    ------
    CheckpointError
        The point is not feasible; as steps keep points feasible, it came from a checkpoint.
    """
    if fault := dual.infeasible(alpha):
        raise CheckpointError(
            f"the point that was saved is no solution of this problem: {fault}; remove the "
            "checkpoint to start over"
        )
    with tiles.exact() as exact_tiles:
        exact = Exact(
            source, exact_tiles, gather, rows_at_once=rows_at_once, whole=whole, look=look
        )
        beta = dual.formulation.per_output(alpha)
        support = weighted_rows(beta)
        if len(alpha) * len(support) > EXACT_EVALUATIONS:
            # A function by itself has fewer support rows, and half of the values among them to do.
            parts, least_error = _parts(dual, alpha, outputs), off()
            corrected = [_corrected(*part, exact, tol, least_error) for part in parts]
            for (_, _, own), (rows, found) in zip(parts, corrected, strict=True):
                own[rows] = found
        else:
            _solve_exactly(dual, exact, alpha, outputs, tol)
        tiles.n_evaluations += exact_tiles.n_evaluations
    at: Standing = dual.optimality(alpha, outputs)
    return at


def _parts(
    dual: Dual[Any], alpha: NDArray[np.float64], outputs: NDArray[np.float64]
) -> list[tuple[Dual[Any], NDArray[np.float64], NDArray[np.float64]]]:
    """Divide a point into those of the functions that nothing ties together."""
    if not dual.columns:
        return [(dual, alpha, outputs)]
    return [(one, alpha[:, c], outputs[:, c]) for c, one in enumerate(dual.columns)]


def _corrected(
    dual: Dual[Any],
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    exact: Exact,
    tol: float,
    least_error: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Recompute the outputs of the support rows, and of those that their errors bring in doubt.

    The error of an output is taken to be at least `least_error`. Returns these rows, and their f.
    """
    beta = dual.formulation.per_output(alpha)
    support = weighted_rows(beta)
    tried = support[:: max(1, len(support) // TRIED)]
    if dual.is_certain(alpha, outputs, tol=tol, error=0.0):
        found = exact.outputs(tried, beta)
        error = float(np.abs(found - outputs[tried]).max(initial=0.0))
        doubt = max(DOUBT * error, least_error)
        if dual.is_certain(alpha, outputs, tol=tol, error=doubt):
            return tried, found
    found, before = exact.outputs(support, beta), outputs[support]
    parts = (slice(a, a + PART) for a in range(0, len(found), PART))
    error = max((float(np.abs(found[p] - before[p]).max()) for p in parts), default=0.0)
    outputs[support] = found
    try:
        doubt = max(DOUBT * error, least_error)
        doubtful = dual.doubtful(alpha, outputs, tol=tol, error=doubt)
    finally:
        outputs[support] = before
    others = exact.outputs(doubtful, beta)
    return np.concatenate([support, doubtful]), np.concatenate([found, others])


def _solve_exactly(
    dual: Dual[Any],
    exact: Exact,
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    tol: float,
) -> None:
    """Recompute all outputs; solve for the rows that matter by Newton's method, where it can be."""
    everything = np.arange(len(alpha))
    found = exact.outputs(everything, dual.formulation.per_output(alpha))
    at = dual.optimality(alpha, found)
    better = dual.newton(alpha, found, at, tol=tol, gram=exact.gram, look=exact.look)
    if better is not None:
        f = exact.outputs(everything, dual.formulation.per_output(better))
        reached = dual.optimality(better, f)
        # Far from the optimum, and with an indefinite kernel, more is gained where more is missing.
        if reached.gap <= at.gap or (at.gap > tol and reached.objective > at.objective):
            alpha[:], found = better, f
    outputs[:] = found
