"""Lines of points: fits that differ in C alone, each of which starts from the one before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from bigsvm.budget import HELD_SHARE
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError
from bigsvm.selection.folds_in_one_run import fit_folds, why_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.errors import BigsvmError
    from bigsvm.selection.fits import Fitted, FoldFits
    from bigsvm.selection.folds_in_one_run import FittedFolds

logger = logging.getLogger(__name__)


class Line(NamedTuple):
    """Points that are fitted one after the other on some folds.

    Attributes
    ----------
    points : list of dict
        Parameters, in ascending order of C.
    folds : list of int
        Numbers of the folds.
    n_rows : int or None
        As `FoldFits.fit` takes it.
    """

    points: list[dict[str, Any]]
    folds: list[int]
    n_rows: int | None = None


class LineFit(NamedTuple):
    """What a fit of a line has led to.

    Attributes
    ----------
    line, point, fold : int
        Place of the line among all, place of the point in the line, and number of the fold.
    fitted : Fitted or None
        None if it cannot be trained with these parameters.
    error : BigsvmError or None
        Why not.
    """

    line: int
    point: int
    fold: int
    fitted: Fitted | None
    error: BigsvmError | None = None


def fit_line(fits: FoldFits, line: Line, number: int = 0) -> Iterator[LineFit]:
    """Fit the points of a line on each of its folds; yield each fit when it is finished.

    Raises
    ------
    KeyboardInterrupt, MemoryBudgetError, CheckpointError
        As `FoldFits.fit`. What else it refuses is an `error` of the fit.
    """
    if trains_together(fits, line):
        yield from _fit_together(fits, line, number)
        return
    for fold in line.folds:
        start = None
        for place, point in enumerate(line.points):
            is_start = place + 1 < len(line.points)
            try:
                start = fits.fit(point, fold, n_rows=line.n_rows, start=start, is_start=is_start)
            except (ParameterError, DataError) as error:
                start = None
                yield LineFit(number, place, fold, None, error)
            else:
                yield LineFit(number, place, fold, start)


def trains_together(fits: FoldFits, line: Line) -> bool:
    """Whether the folds of a line are fitted in one run for each point; the log says why not."""
    if len(line.folds) < len(fits.folds):
        return False
    reason = why_apart(fits, line.points)
    if reason is None and not is_worthwhile(fits, line):
        reason = "no other point starts from this one, and rows in memory cost no reading"
    if reason is not None:
        logger.debug("folds are fitted one by one: %s", reason)
    return reason is None


def is_worthwhile(fits: FoldFits, line: Line) -> bool:
    """Whether one run costs less than separate fits of the folds.

    It does where points start from one another, as outputs go on from point to point, and where
    rows are read again for each pass. Otherwise sums for several functions cost more time than
    kernel values that are shared save.
    """
    source = fits.data.source
    is_held = source.n_rows * source.bytes_per_row <= HELD_SHARE * fits.memory
    return len(line.points) > 1 or (source.row_alignment > 1 and not is_held)


def _fit_together(fits: FoldFits, line: Line, number: int) -> Iterator[LineFit]:
    """Fit all folds of a point in one run, which starts where the one before has ended.

    A point that one run cannot fit is fitted fold by fold, and the next one starts from nothing.
    """
    start: FittedFolds | None = None
    for place, point in enumerate(line.points):
        is_start = place + 1 < len(line.points)
        try:
            start = fit_folds(fits, point, n_rows=line.n_rows, start=start, is_start=is_start)
        except (ParameterError, DataError, MemoryBudgetError) as error:
            logger.debug("folds are fitted one by one: %s", error)
            start = None
            for fold in line.folds:
                yield _fit(fits, line, number, place, fold)
        else:
            for fold, fitted in enumerate(start.fits):
                yield LineFit(number, place, fold, fitted)


def _fit(fits: FoldFits, line: Line, number: int, place: int, fold: int) -> LineFit:
    """Fit one fold of a point, from nothing."""
    try:
        fitted = fits.fit(line.points[place], fold, n_rows=line.n_rows)
    except (ParameterError, DataError) as error:
        return LineFit(number, place, fold, None, error)
    return LineFit(number, place, fold, fitted)
