"""The dual of a problem of one function, and what chooses the rows of its run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.duals.ball import BallDual, Solver
from bigsvm.duals.box import BoxDual, rule_of
from bigsvm.duals.picking import SCAN_ROWS
from bigsvm.fit.fingerprint import fingerprint_of_kernel_rows
from bigsvm.fit.gamma import SAMPLE, sampled_rows
from bigsvm.gram import Partners
from bigsvm.gram.low_rank import LARGEST_RANK, lack
from bigsvm.gram.partners import rows_at
from bigsvm.gram.tiles import SECONDS_PER_VALUE, value_seconds
from bigsvm.papers.disk import DiskCache
from bigsvm.papers.whole import WholeChoice
from bigsvm.training.uncertified import UncertifiedChoice
from bigsvm.working_sets.choice import LARGEST_SET, Choice
from bigsvm.working_sets.functions import FunctionChoice

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.ball import BallFormulation
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.gram import KernelTiles
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.run import Run


def choice_for(run: Run, parameters: TrainingParameters, *, certify: bool) -> Choice:
    """Return what chooses the rows of a run with these parameters; see `choice_of`."""
    whole = parameters.working_set == "all" and not run.dual.in_float64
    disk = None
    if whole and parameters.disk_cache_bytes():
        source, tiles = run.source, run.tiles
        # Values of a kernel matrix are looked up.
        each = SECONDS_PER_VALUE if parameters.takes_kernel_matrix else value_seconds(source)
        disk = DiskCache(
            Path(parameters.cache_dir or tempfile.gettempdir()),
            capacity_bytes=parameters.disk_cache_bytes(),
            fingerprint=fingerprint_of_kernel_rows(
                source, tiles.kernel, offset=run.dual.formulation.offset
            ),
            value_seconds=each / tiles.threads,
        )
    return choice_of(run, tol=parameters.tol, whole=whole, disk=disk, certify=certify)


def choice_of(
    run: Run,
    *,
    tol: float,
    whole: bool = False,
    disk: DiskCache | None = None,
    certify: bool = True,
) -> Choice:
    """Return what chooses the rows of a run, which are one working set if `whole`.

    Without `certify` a run ends once more rows are not worth their time; one working set of all
    rows is certified in any case.
    """
    if whole:
        return WholeChoice(run, tol=tol, disk=disk)
    problem = run.dual, run.source, run.plan
    if run.dual.functions and FunctionChoice.suits(*problem):
        return FunctionChoice(*problem, tol=tol, rng=run.rng)
    if certify:
        return Choice(*problem, tol=tol, rng=run.rng)
    return UncertifiedChoice(run, tol=tol)


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
    shrinks = whole and parameters.shrinks(rows_are_scarce=plan.holds_few_rows(SHRUNK))
    rule = rule_of(parameters.selection, rows_are_scarce=scarce)
    largest = coarse = 0.0
    if formulation.squares_losses:
        largest = _largest_diagonal(source, tiles, parameters)
        rounding = largest * float(np.finfo(np.float32).eps)
        coarse = rounding * _inverse_ridge(formulation, source.n_rows)
    common: dict[str, Any] = {
        "shrinking": shrinks,
        "rows_at_once": parameters.rows_at_once,
        "in_float64": coarse > 1.0,
    }
    if not formulation.is_ball:
        return BoxDual(formulation, rule, **common)

    def lacking() -> F8:
        chosen = source.sample_indices(LARGEST_RANK + TRIED, seed=parameters.seed)
        rows, places = rows_at(sampled_rows(source, chosen))
        mixed = np.random.default_rng(parameters.seed).permutation(places)
        return lack(tiles, RowsAt(rows, mixed), min(LARGEST_RANK, len(places) // 2))

    ball = cast("BallFormulation", formulation)
    # D is that of rows of weight 1, of a sample of the rows.
    return BallDual(
        ball, rule, Solver(parameters.solver), largest + 1.0 / ball.largest_penalty,
        None if whole else lacking, tol=parameters.ball_tol, **common,
    )  # fmt: skip


def _inverse_ridge(formulation: Formulation, n_rows: int) -> float:
    """Bound, of any working set, on the norm of ``u_i u_j / (S_i S_j)^½``, with random signs u.

    Rounding of that size, which kernel values but those on the diagonal have, makes K + S
    indefinite. A few rows with a tiny ridge, such as many equal rows, do not.
    """
    largest = total = 0.0
    for start in range(0, n_rows, SCAN_ROWS):
        (segment,) = formulation.segments(slice(start, min(start + SCAN_ROWS, n_rows)))
        ridge = np.asarray(segment.ridge)
        inverse = 1.0 / ridge[ridge > 0]
        largest, total = max(largest, float(inverse.max(initial=0.0))), total + inverse.sum()
    return float(np.sqrt(largest * min(total, largest * LARGEST_SET)))


def _largest_diagonal(
    source: RowSource, tiles: KernelTiles, parameters: TrainingParameters
) -> float:
    """Largest kernel value of a row with itself, of a sample of the rows."""
    if tiles.kernel.is_shift_invariant:
        return 1.0 + tiles.offset
    rows = sampled_rows(source, source.sample_indices(SAMPLE, seed=parameters.seed))
    partners = Partners(tiles.values, rows, for_sparse_rows=source.is_sparse)
    return float(tiles.values.diagonal(partners.norms).max())
