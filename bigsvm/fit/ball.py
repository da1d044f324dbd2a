"""What is found out about the rows before a ball is trained on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt, rows_at
from bigsvm.duals.ball import BallDual, Solver
from bigsvm.tiles import Columns
from bigsvm.tiles.low_rank import LARGEST_RANK, lack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource
    from bigsvm.duals.ball import BallFormulation
    from bigsvm.duals.box import SelectionRule
    from bigsvm.parameters import TrainingParameters
    from bigsvm.tiles import KernelTiles

ROUNDING = 1e-13
"""Share of squares below which their difference is one of rounding."""
TRIED = 512
"""Rows that show what a model of low rank lacks."""
SAMPLE = 4096
"""Rows that distances and the largest kernel value of a row with itself are taken from."""


def ball_dual(
    source: RowSource,
    formulation: BallFormulation,
    tiles: KernelTiles,
    parameters: TrainingParameters,
    rule: SelectionRule,
    *,
    shrinking: bool,
) -> BallDual:
    """Make the dual of a ball; its D is that of rows of weight 1, of a sample of the rows."""

    def lacking() -> NDArray[np.float64]:
        chosen = source.sample_indices(LARGEST_RANK + TRIED, seed=parameters.seed)
        rows, places = rows_at(_rows(source, chosen))
        mixed = np.random.default_rng(parameters.seed).permutation(places)
        return lack(tiles, RowsAt(rows, mixed), min(LARGEST_RANK, len(places) // 2))

    diagonal = 1.0 + tiles.offset
    if not tiles.kernel.is_shift_invariant:
        rows = _rows(source, source.sample_indices(SAMPLE, seed=parameters.seed))
        columns = Columns(tiles, rows, sparse_partners=source.is_sparse)
        diagonal = float(tiles.values.diagonal(columns).max())
    largest = diagonal + 1.0 / formulation.largest_penalty
    lack_of = None if parameters.working_set == "all" else lacking
    return BallDual(
        formulation, rule, Solver(parameters.solver), largest, lack_of,
        shrinking=shrinking,
        rows_at_once=parameters.rows_at_once,
    )  # fmt: skip


def mean_distance(
    source: RowSource, sample_weight: NDArray[np.float64] | None, *, seed: int
) -> float:
    """Average squared distance of two rows of a sample: σ² of frank-wolfe.txt, section 5.2.1.

    Parameters
    ----------
    source : RowSource
        (n, d); the sample is all rows with a weight if they are no more than 4096.
    sample_weight : (n,) float64 or None
        A row counts by its weight.
    seed : int

    Returns
    -------
    float
        ``2 Σ variances of the columns``, 0 where all rows are equal.
    """
    weighted = None if sample_weight is None else np.flatnonzero(sample_weight)
    chosen = source.sample_indices(SAMPLE, seed=seed, candidates=weighted)
    rows = _rows(source, chosen)
    weights = np.ones(len(chosen)) if sample_weight is None else sample_weight[chosen]
    share = weights / max(weights.sum(), np.finfo(np.float64).tiny)
    values = rows.astype(np.float64)
    if not isinstance(values, np.ndarray):
        mean = np.asarray(share @ values).ravel()
        squared = float(share @ np.asarray(values.multiply(values).sum(axis=1)).ravel())
        spread = squared - float(mean @ mean)
        return 2.0 * spread if spread > ROUNDING * squared else 0.0
    values -= values[0].copy()  # so that nothing is left of rows that are equal
    return 2.0 * float(share @ np.square(values - share @ values).sum(axis=1))


def _rows(source: RowSource, indices: NDArray[np.int64]) -> Rows:
    """Rows at ascending, distinct indices, at least one; a run of them is read as such."""
    first, stop = int(indices[0]), int(indices[-1]) + 1
    return source.read(first, stop) if stop - first == len(indices) else source.take(indices)
