"""Which strategy chooses the rows of a run."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from bigsvm.fit.fingerprint import fingerprint_of_kernel_rows
from bigsvm.gram.tiles import SECONDS_PER_VALUE, value_seconds
from bigsvm.papers.disk import DiskCache
from bigsvm.papers.whole import WholeChoice
from bigsvm.training.uncertified import UncertifiedChoice
from bigsvm.working_sets.choice import Choice
from bigsvm.working_sets.functions import FunctionChoice

if TYPE_CHECKING:
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
            parameters.cache_dir or tempfile.gettempdir(),
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
    """Return what chooses the rows of a run.

    Parameters
    ----------
    whole : bool
        Whether all rows are one working set.
    disk : DiskCache, optional
        Keeps kernel rows of this working set besides memory.
    certify : bool
        Whether the run has to certify `tol`, as it always does with one working set of all rows. If
        not, it ends once more rows are not worth their time.
    """
    if whole:
        return WholeChoice(run, tol=tol, disk=disk)
    problem = run.dual, run.source, run.plan
    if run.dual.functions and FunctionChoice.suits(*problem):
        return FunctionChoice(*problem, tol=tol, rng=run.rng)
    if certify:
        return Choice(*problem, tol=tol, rng=run.rng)
    return UncertifiedChoice(run, tol=tol)
