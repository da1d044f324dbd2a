"""Fits of all folds of a point in one run, which shares kernel values between the folds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bigsvm.estimators.watching import History, callbacks_of
from bigsvm.fit.folds_in_one_run import projected_together, train_together
from bigsvm.fit.folds_in_one_run import why_apart as why_fits_are_apart
from bigsvm.selection.fits import Fitted
from bigsvm.selection.folds import sample_rows
from bigsvm.selection.record import Record
from bigsvm.training.events import Swept
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
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
