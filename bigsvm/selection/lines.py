"""Lines of points: fits that differ in C alone, each of which starts from the one before.

The folds of a point are fitted in one run where that gains: they share kernel values. Otherwise a
run of one fold keeps the outputs of all rows, so that the next point of the line, and the score at
the rows that the fold tests, need no further kernel values.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from bigsvm.budget import HELD_SHARE
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError
from bigsvm.estimators.watching import History, callbacks_of
from bigsvm.fit.folds_in_one_run import projected_together, train_together
from bigsvm.fit.folds_in_one_run import why_apart as why_fits_are_apart
from bigsvm.selection.folds import sample_rows
from bigsvm.selection.points import Fitted
from bigsvm.training.events import Swept
from bigsvm.training.result import StopReason
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.fit.folds_in_one_run import PointOfFits, TrainedTogether
    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.points import Line
    from bigsvm.training.events import Event

    RunEnd = tuple[str, PointOfFits | None]
    """Where a run of folds ended, from which another point of the line starts: the name of the
    run in the record, and the point, None if another process made the run, or if it was stopped."""

logger = logging.getLogger(__name__)


def fit_line(fits: FoldFits, line: Line) -> Iterator[Fitted]:
    """Fit the points of a line on each of its folds; yield each fit when it is finished.

    Raises
    ------
    KeyboardInterrupt, MemoryBudgetError, CheckpointError
        As `FoldFits.fit`. What else it refuses is the result of the fit.
    """
    if trains_together(fits, line):
        if are_many_rows(fits, line):
            for fold in line.folds:
                yield from _fit_together(fits, line, [fold])
        else:
            yield from _fit_together(fits, line, line.folds)
        return
    for fold in line.folds:
        yield from _fit_fold(fits, line, fold, range(len(line.points)))


def _fit_fold(fits: FoldFits, line: Line, fold: int, places: Sequence[int]) -> Iterator[Fitted]:
    """Fit some points on one fold: the first from nothing, others from the one before."""
    start = None
    for place in places:
        try:
            start = fits.fit(line, place, fold, start=start, is_start=place != places[-1])
        except (ParameterError, DataError) as error:
            start = None
            yield Fitted(place, fold, error)
        else:
            yield start


def _fit_together(fits: FoldFits, line: Line, folds: list[int]) -> Iterator[Fitted]:
    """Fit all folds or one of each point in a run, which starts where the one before has ended.

    A point that such a run cannot fit is fitted fold by fold, and the next one starts from nothing.
    """
    end: RunEnd | None = None
    for place in range(len(line.points)):
        try:
            fitted, end = _fit_folds(fits, line, place, folds, end)
        except (ParameterError, DataError, MemoryBudgetError) as error:
            logger.debug("folds are fitted one by one: %s", error)
            end = None
            for fold in folds:
                yield from _fit_fold(fits, line, fold, [place])
        else:
            yield from fitted


def trains_together(fits: FoldFits, line: Line) -> bool:
    """Whether the folds of a line are fitted in one run for each point; the log says why not."""
    if len(line.folds) < len(fits.folds):
        return False
    reason = why_apart(fits, line)
    if reason is None and not is_worthwhile(fits, line):
        reason = "no other point starts from this one, and rows in memory cost no reading"
    if reason is not None:
        logger.debug("folds are fitted one by one: %s", reason)
    return reason is None


def why_apart(fits: FoldFits, line: Line) -> str | None:
    """Say why the folds of some points are fitted each by itself; None if one run can fit them."""
    if fits.steps.has_scalers:
        return "each fold has scalers of its own"
    for point in line.points:
        estimator = fits.at(point)
        if callbacks_of(estimator):
            return "callbacks are called for each fit"
        reason = why_fits_are_apart(estimator._parameters(), fits.data.labels, len(fits.folds))
        if reason is not None:
            return reason
    return None


def is_worthwhile(fits: FoldFits, line: Line) -> bool:
    """Whether one run costs less than separate fits of the folds.

    It does where points start from one another, as outputs go on from point to point, and where
    rows are read again for each pass. Otherwise sums for several functions cost more time than
    kernel values that are shared save.
    """
    return len(line.points) > 1 or _reads_again(fits)


def are_many_rows(fits: FoldFits, line: Line) -> bool:
    """Whether each fold of a line has a run of its own after all, which knows all outputs too.

    Among many rows the folds have different working sets, and in memory a pass costs no reading.
    Few rows are one working set for all folds.
    """
    n_rows = fits.data.source.n_rows
    return min(line.n_rows or n_rows, n_rows) > DIRECT_ROWS and not _reads_again(fits)


def _reads_again(fits: FoldFits) -> bool:
    """Whether each pass over the rows reads them again."""
    source = fits.data.source
    is_held = source.n_rows * source.bytes_per_row <= HELD_SHARE * fits.memory
    return source.row_alignment > 1 and not is_held


# -- folds of a point in one run -----------------------------------------------------------------


def _fit_folds(
    fits: FoldFits, line: Line, place: int, folds: list[int], start: RunEnd | None
) -> tuple[list[Fitted], RunEnd]:
    """Fit and score all folds or one of a point in a run, and say where it ended.

    It starts where a run of the same folds with another C ended, whose end is used up. Errors are
    those of `FoldFits.fit`.
    """
    record = fits.record
    run = line.key(place) if len(folds) > 1 else line.key(place, fold=folds[0])
    earlier = [
        None if record is None else record.result(line.key(place, fold=number)) for number in folds
    ]
    fitted, point = [], None
    if None in earlier:
        estimator, started = fits.prepared(line.points[place], run), time.perf_counter()
        earlier_run, first = start or ("", None)
        if first is None and start is not None and record is not None:
            n_rows = line.n_rows or fits.data.source.n_rows
            first = record.point(earlier_run, n_rows=n_rows, n_fits=len(earlier))
        estimators, trained = _trained(fits, estimator, line.n_rows, folds, first)
        seconds, point = (time.perf_counter() - started) / len(earlier), trained.point
        if record is not None and place + 1 < len(line.points) and point is not None:
            record.add_point(run, point)
    for k, (number, result) in enumerate(zip(folds, earlier, strict=True)):
        if result is not None:
            fitted.append(Fitted(place, number, result))
        else:
            known = _known_values(fits, trained, k)
            fitted.append(fits.finished(estimators[k], line, place, number, seconds, values=known))
    if record is not None:
        record.drop_run(run)
        if start is not None:
            record.drop_start(start[0])
    return fitted, (run, point)


def projected_bytes(fits: FoldFits, estimator: KernelMachine, n_rows: int | None) -> int:
    """Bytes that a run of all folds takes; one of a single fold takes no more."""
    source, labels, weights = _rows(fits, estimator, n_rows, list(range(len(fits.folds))))
    return sum(projected_together(source, labels, weights, estimator._parameters()).values())


def _rows(
    fits: FoldFits, estimator: KernelMachine, n_rows: int | None, numbers: list[int]
) -> tuple[RowSource, NDArray[Any] | None, list[F8]]:
    """Rows and labels that some folds are trained on, and the weights of each fold."""
    source, labels, weights = zip(
        *(fits.training_rows(estimator, number, n_rows, {}) for number in numbers), strict=True
    )
    return source[0], labels[0], list(weights)


def _trained(
    fits: FoldFits,
    estimator: KernelMachine,
    n_rows: int | None,
    folds: list[int],
    start: PointOfFits | None,
) -> tuple[list[KernelMachine], TrainedTogether]:
    """Train an estimator for each of some folds."""
    source, labels, weights = _rows(fits, estimator, n_rows, folds)
    tracked = None
    if len(folds) == 1 and source.n_rows == fits.data.source.n_rows:
        # A model of a sample is tested at rows that are not in it, and predicts these.
        tracked = np.zeros(source.n_rows)
        tracked[fits.folds[folds[0]].test] = 1.0
    histories = [History() for _ in weights]

    def listener(event: Event) -> None:
        if isinstance(event, Swept):
            for number, history in enumerate(histories):
                history(event.of_function(number))
        fits.hooks.listener(event)

    trained = train_together(
        source, labels, weights, estimator._parameters(),
        replace(fits.hooks, listener=listener), start=start, tracked=tracked,
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
