"""The certificate: outputs recomputed in float64 where optimality and objectives are decided.

At the optimum the objectives and the equality of gradients live on the support rows, so f is
recomputed there (n_SV² evaluations). By how much it was off shows what float32 did to the outputs
of the other rows: those that could violate by more than the tolerance after several times that much
are recomputed as well. The slack of the rest keeps float32's rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.formulations import Box
from bigsvm.duals.polish import MOST_ROWS, polish
from bigsvm.tiles import Columns, KernelTiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.box import BoxDual, Optimality

    Gather: TypeAlias = Callable[[NDArray[np.int64], Callable[[], None]], Rows]

EXACT_EVALUATIONS = 2e7
"""Up to n · n_SV evaluations all outputs are recomputed in float64: a tenth of a second."""
ROWS_AT_ONCE = 1 << 14
"""Most vectors whose products with the support rows are summed up together."""
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
    rows_at_once : int
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
        look: Callable[[], None],
    ) -> None:
        self.source, self.tiles, self._gather = source, tiles, gather
        self._step, self.look = max(1, min(rows_at_once, ROWS_AT_ONCE)), look

    def rows(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at (m,) int64 `indices`."""
        return self._gather(indices, self.look)

    def columns(self, rows: Rows) -> Columns:
        """Pack rows as partners."""
        return Columns(self.tiles, rows, sparse_partners=self.source.is_sparse)

    def outputs(self, rows: NDArray[np.int64], beta: NDArray[np.float64]) -> NDArray[np.float64]:
        """``K(rows, all) @ beta``; rows (m,) int64 ascending, beta (n,)."""
        out = np.zeros(len(rows))
        support = np.flatnonzero(beta)
        if len(support) <= self._step and np.array_equal(rows, support):
            self.look()
            values = self.rows(support)
            columns = self.columns(values)
            self.tiles.multiply_symmetric(values, columns, beta[support], out)
            return out
        for low in range(0, len(support), self._step):
            chosen = support[low : low + self._step]
            columns = self.columns(self.rows(chosen))
            for first in range(0, len(rows), self._step):
                self.look()
                part = slice(first, first + self._step)
                self.tiles.multiply(self.rows(rows[part]), columns, beta[chosen], out[part])
        return out


def certify(
    dual: BoxDual,
    source: RowSource,
    tiles: KernelTiles,
    gather: Gather,
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    *,
    tol: float,
    rows_at_once: int = ROWS_AT_ONCE,
    look: Callable[[], None] = lambda: None,
) -> Optimality:
    """Look at a point with outputs in float64; polish it first where few rows matter.

    Parameters
    ----------
    dual : BoxDual
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
    rows_at_once : int
        Most rows that are gathered together.
    look : callable
        Called between two parts of the work; where it raises, nothing has changed.

    Returns
    -------
    Optimality
    """
    with KernelTiles(
        tiles.kernel,
        centre=tiles.centre,
        threads=tiles.threads,
        dtype=np.float64,
        offset=tiles.offset,
    ) as exact_tiles:
        exact = Exact(source, exact_tiles, gather, rows_at_once=rows_at_once, look=look)
        support = np.flatnonzero(dual.formulation.per_output(alpha))
        if len(alpha) * len(support) > EXACT_EVALUATIONS:
            _correct(dual, exact, alpha, outputs, support, tol)
        else:
            _solve_exactly(dual, exact, alpha, outputs, tol)
        tiles.n_evaluations += exact_tiles.n_evaluations
    return dual.optimality(alpha, outputs)


def _correct(
    dual: BoxDual,
    exact: Exact,
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    support: NDArray[np.int64],
    tol: float,
) -> None:
    """Recompute the outputs of the support rows, and of those that their errors bring in doubt."""
    beta = dual.formulation.per_output(alpha)
    found, before = exact.outputs(support, beta), outputs[support]
    error = float(np.abs(found - before).max(initial=0.0))
    outputs[support] = found
    try:
        doubtful = dual.doubtful(alpha, outputs, tol=tol, error=DOUBT * error)
        outputs[doubtful] = exact.outputs(doubtful, beta)
    except BaseException:
        outputs[support] = before
        raise


def _solve_exactly(
    dual: BoxDual,
    exact: Exact,
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
    tol: float,
) -> None:
    """Recompute all outputs; solve for the rows at the threshold by Newton's method."""
    everything = np.arange(len(alpha))
    found = exact.outputs(everything, dual.formulation.per_output(alpha))
    at = dual.optimality(alpha, found)
    solved = at.gap <= tol
    rows = everything
    if solved or len(rows) > MOST_ROWS:
        rows = dual.near_threshold(alpha, found, at, margin=2 * max(tol, at.gap))
    if 2 <= len(rows) <= MOST_ROWS:
        better = alpha.copy()
        better[rows] = _polished(exact, dual, rows, alpha, found)
        f = exact.outputs(everything, dual.formulation.per_output(better))
        reached = dual.optimality(better, f)
        # Far from the optimum, and with an indefinite kernel, more is gained where more is missing.
        if reached.gap <= at.gap or (not solved and reached.objective > at.objective):
            alpha[:], found = better, f
    outputs[:] = found


def _polished(
    exact: Exact,
    dual: BoxDual,
    rows: NDArray[np.int64],
    alpha: NDArray[np.float64],
    outputs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Polish the alpha of `rows`, all others staying as they are."""
    formulation = dual.formulation
    values = exact.rows(rows)
    gram = np.empty((len(rows), len(rows)))
    exact.tiles.evaluate(values, exact.columns(values), gram)
    rest = outputs[rows] - gram @ formulation.per_output(alpha[rows])
    segments = formulation.segments(rows)
    of_variables = np.tile(gram, (len(segments), len(segments)))
    of_variables += np.diag(np.concatenate([np.broadcast_to(s.ridge, len(rows)) for s in segments]))
    box = Box(
        np.concatenate([segment.box.linear - rest for segment in segments]),
        np.concatenate([segment.box.lower for segment in segments]),
        np.concatenate([segment.box.upper for segment in segments]),
    )
    begin = np.concatenate(formulation.split(alpha[rows], rows))
    groups = np.repeat([segment.group for segment in segments], len(rows))
    n = len(begin)
    if not formulation.sums_are_bound:  # a variable without a row takes up the rest
        of_variables = np.pad(of_variables, (0, 1))
        begin, groups = np.append(begin, 0.0), np.append(groups, 0)
        box = Box(
            *(np.append(part, end) for part, end in zip(box, (0, -np.inf, np.inf), strict=True))
        )
    parts = polish(of_variables, box, begin, groups=groups, look=exact.look)[:n]
    return formulation.join(list(parts.reshape(len(segments), len(rows))))
