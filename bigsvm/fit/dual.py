"""The dual of a problem of one function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt, rows_at
from bigsvm.duals.ball import BallDual, Solver, is_ball
from bigsvm.duals.box import BoxDual, SelectionRule
from bigsvm.fit.gamma import SAMPLE, sampled_rows
from bigsvm.gram import Partners
from bigsvm.gram.low_rank import LARGEST_RANK, lack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.ball import BallFormulation
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.gram import KernelTiles
    from bigsvm.parameters import TrainingParameters

SCARCE = 0.25
"""With memory for less than this share of all kernel rows, HMG is the faster rule."""
SHRUNK = 0.1
"""With fewer than this share, shrinking by default: it computes fewer kernel values there, and more
where many rows fit, as those left out have to be brought back (benchmark ``hmg --part
shrinking``)."""
TRIED = 512
"""Rows that show what a model of low rank lacks."""


def make_dual(
    source: RowSource,
    formulation: Formulation,
    tiles: KernelTiles,
    plan: TrainingPlan,
    parameters: TrainingParameters,
) -> BoxDual:
    """Make the dual of a formulation whose rows are those of `source`."""
    whole = parameters.working_set == "all"
    scarce = whole and plan.holds_few_rows(SCARCE)
    shrinks = parameters.shrinks(rows_are_scarce=plan.holds_few_rows(SHRUNK))
    rule = SelectionRule.from_name(parameters.selection, rows_are_scarce=scarce)
    if is_ball(formulation):
        return _ball_dual(source, formulation, tiles, parameters, rule, shrinking=shrinks)
    return BoxDual(
        formulation,
        rule,
        shrinking=shrinks,
        rows_at_once=parameters.rows_at_once,
    )


def _ball_dual(
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
        rows, places = rows_at(sampled_rows(source, chosen))
        mixed = np.random.default_rng(parameters.seed).permutation(places)
        return lack(tiles, RowsAt(rows, mixed), min(LARGEST_RANK, len(places) // 2))

    diagonal = 1.0 + tiles.offset
    if not tiles.kernel.is_shift_invariant:
        rows = sampled_rows(source, source.sample_indices(SAMPLE, seed=parameters.seed))
        partners = Partners(tiles.values, rows, for_sparse_rows=source.is_sparse)
        diagonal = float(tiles.values.diagonal(partners.norms).max())
    largest = diagonal + 1.0 / formulation.largest_penalty
    lack_of = None if parameters.working_set == "all" else lacking
    return BallDual(
        formulation, rule, Solver(parameters.solver), largest, lack_of,
        shrinking=shrinking,
        rows_at_once=parameters.rows_at_once,
    )  # fmt: skip
