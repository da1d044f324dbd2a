"""Lines of points: fits that differ in C alone, each of which starts from the one before.

The folds of a point are fitted in one run where that gains: they share kernel values.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bigsvm.budget import HELD_SHARE
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError
from bigsvm.estimators.watching import History, callbacks_of
from bigsvm.fit.folds_in_one_run import projected_together, train_together
from bigsvm.fit.folds_in_one_run import why_apart as why_fits_are_apart
from bigsvm.selection.fits import Fitted
from bigsvm.selection.folds import sample_rows
from bigsvm.selection.record import Record
from bigsvm.training.events import Swept
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.errors import BigsvmError
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.fit.folds_in_one_run import PointOfFits, TrainedTogether
    from bigsvm.selection.fits import FoldFits
    from bigsvm.training.events import Event


class FittedFolds(NamedTuple):
    """Finished fits of all folds.

    Attributes
    ----------
    run : str
        Name of the run in the record.
    fits : list of Fitted
        One for each fold.
    point : PointOfFits or None
        Where the run ended; None if another process has made it, or if it was stopped.
    """

    run: str
    fits: list[Fitted]
    point: PointOfFits | None


def run_name(parameters: Mapping[str, Any], n_rows: int | None) -> str:
    """Name the run of all folds in the record."""
    return Record.key(parameters, rows=n_rows or 0)


def why_apart(fits: FoldFits, points: Sequence[Mapping[str, Any]]) -> str | None:
    """Say why the folds of some points are fitted each by itself; None if one run can fit them."""
    for point in points:
        estimator = clone(fits.estimator).set_params(**point)
        if callbacks_of(estimator):
            return "callbacks are called for each fit"
        reason = why_fits_are_apart(estimator._parameters(), fits.data.labels, len(fits.folds))
        if reason is not None:
            return reason
    return None


def fit_folds(
    fits: FoldFits,
    parameters: Mapping[str, Any],
    *,
    n_rows: int | None = None,
    start: FittedFolds | None = None,
    is_start: bool = False,
) -> FittedFolds:
    """Fit and score all folds in one run; `why_apart` has returned None.

    Parameters
    ----------
    fits : FoldFits
    parameters, n_rows, is_start
        As `FoldFits.fit` takes them.
    start : FittedFolds, optional
        Fits of the same folds and sample with another C, to start from; they are used up.

    Raises
    ------
    KeyboardInterrupt
        The run was asked to stop; if fits are recorded it was saved.
    ParameterError, DataError, MemoryBudgetError, CheckpointError
    """
    record, numbers = fits.record, range(len(fits.folds))
    run = run_name(parameters, n_rows)
    keys = [Record.key(parameters, fold=number, rows=n_rows or 0) for number in numbers]
    earlier = [None if record is None else record.result(key) for key in keys]
    fitted, point = [], None
    if None in earlier:
        estimator, started = fits.prepared(parameters, run), time.perf_counter()
        first = None if start is None else start.point
        if first is None and start is not None and record is not None:
            first = record.point(
                start.run, n_rows=n_rows or fits.data.source.n_rows, n_fits=len(keys)
            )
        estimators, trained = _trained(fits, estimator, n_rows, first)
        seconds, point = (time.perf_counter() - started) / len(keys), trained.point
        if record is not None and is_start and point is not None:
            record.add_point(run, point)
    for number, key, result in zip(numbers, keys, earlier, strict=True):
        if result is not None:
            fitted.append(Fitted(key, result, None))
        else:
            known = _known_values(fits, trained, number)
            fitted.append(fits.finished(estimators[number], key, number, seconds, values=known))
    if record is not None:
        record.drop_run(run)
        if start is not None:
            record.drop_start(start.run)
    return FittedFolds(run, fitted, point)


def projected_bytes(fits: FoldFits, estimator: KernelMachine, n_rows: int | None) -> int:
    """Bytes that a run of all folds takes.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError
    """
    source, labels, weights = _rows(fits, estimator, n_rows)
    return sum(projected_together(source, labels, weights, estimator._parameters()).values())


def _rows(
    fits: FoldFits, estimator: KernelMachine, n_rows: int | None
) -> tuple[RowSource, NDArray[Any] | None, list[F8]]:
    """Rows and labels that all folds are trained on, and the weights of each fold."""
    numbers = range(len(fits.folds))
    source, labels, weights = zip(
        *(fits.training_rows(estimator, number, n_rows) for number in numbers), strict=True
    )
    return source[0], labels[0], list(weights)


def _trained(
    fits: FoldFits, estimator: KernelMachine, n_rows: int | None, start: PointOfFits | None
) -> tuple[list[KernelMachine], TrainedTogether]:
    """Train an estimator for each fold."""
    source, labels, weights = _rows(fits, estimator, n_rows)
    histories = [History() for _ in weights]

    def listener(event: Event) -> None:
        if isinstance(event, Swept):
            for number, history in enumerate(histories):
                history(event.of_function(number))
        fits.hooks.listener(event)

    trained = train_together(
        source, labels, weights, estimator._parameters(),
        replace(fits.hooks, listener=listener), start=start,
    )  # fmt: skip
    estimators = [clone(estimator) for _ in weights]
    for fitted, model, history in zip(estimators, trained.models, histories, strict=True):
        fitted._take(model, source, history)
        if fitted.stop_reason_ == StopReason.INTERRUPTED:
            raise KeyboardInterrupt
    return estimators, trained


def _known_values(fits: FoldFits, trained: TrainedTogether, number: int) -> F8:
    """Values of the function of a fold at all rows, NaN where they are not known."""
    values, n = trained.values(number), fits.data.source.n_rows
    if len(values) == n:
        return values
    of_all = np.full(n, np.nan)
    of_all[sample_rows(fits.data.source, len(values))] = values
    return of_all


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
