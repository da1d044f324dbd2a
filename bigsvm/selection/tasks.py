"""Lines of points as tasks for the workers of a cluster.

A line is a task where its rows, and the memory of one of its fits, fit a worker. The plan of that
memory is the one of this machine, so that results have the same bits wherever they are made. Other
lines, and a line alone, are fitted here, and workers do their passes.
"""

from __future__ import annotations

import functools
import logging
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.budget import show_bytes
from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import BigsvmError, MemoryBudgetError
from bigsvm.estimators.watching import callbacks_of
from bigsvm.executors.messages import Job
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import Listed
from bigsvm.executors.shared import buffers_of, put_together, split
from bigsvm.executors.tasks import watch_for_end
from bigsvm.executors.worker_state import PROCESS, Cost
from bigsvm.executors.workforce import Call
from bigsvm.fit.forecast import projected_parts
from bigsvm.fit.trainer import workforce_of
from bigsvm.interruption import checked, checked_by
from bigsvm.processors import one_thread
from bigsvm.selection.lines import fit_line, projected_bytes, trains_together
from bigsvm.selection.record import FoldFit
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bigsvm.executors.messages import Done, SentJob
    from bigsvm.executors.shared import Part
    from bigsvm.executors.worker_state import OpenJob
    from bigsvm.executors.workforce import Workforce
    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.points import Fitted, Line

logger = logging.getLogger("bigsvm")

BYTES_OF_FIT = 4096
"""Bytes of a result in a message, about: its certificate has most of them."""
ROW_BYTES = 24
"""Bytes of a row while a line is fitted: its weight, what it is tested by, and its prediction."""


class LineResult(NamedTuple):
    """What a task returns: its fits, the error that ended the line, and events to warn of."""

    fits: list[Fitted]
    error: MemoryBudgetError | None
    told: list[events.ManyClasses | events.ClassesLeftOut]

    @property
    def nbytes(self) -> int:
        """Bytes that are returned, about."""
        return BYTES_OF_FIT * len(self.fits)


# -- on the coordinator --------------------------------------------------------------------------


def fit_lines(
    fits: FoldFits, lines: Sequence[Line], *, name: str, raises: bool, as_tasks: bool = True
) -> Generator[tuple[int, Fitted]]:
    """Fit lines, on the workers of a cluster if there is one.

    Yields each fit when it is finished, and the place of its line.

    Parameters
    ----------
    name : str
        What the tasks are called on Dask's dashboard.
    raises : bool
        Whether parameters or rows that training refuses are an error; otherwise they are the result
        of the fit.
    as_tasks : bool
        Whether a line may be a task; workers return no estimators.

    Raises
    ------
    KeyboardInterrupt, MemoryBudgetError, CheckpointError, ClusterError, StoreError
    """

    def checked_fit(number: int, fit: Fitted) -> tuple[int, Fitted]:
        if raises and isinstance(fit.result, BigsvmError):
            raise fit.result
        return number, fit

    left = list(range(len(lines)))
    if as_tasks and fits.hooks.client is not None:
        fresh = [number for number in left if not _has_begun(fits, lines[number])]
        with closing(_fitted_by_workers(fits, lines, fresh, name)) as results:
            for number, result in results:
                n_fits = len(lines[number].points) * len(lines[number].folds)
                if result.error is None and len(result.fits) < n_fits:
                    continue  # its task was given up, and it is fitted here
                left.remove(number)
                for told in result.told:
                    fits.hooks.listener(told)
                _record(fits, lines[number], result)
                for fit in result.fits:
                    yield checked_fit(number, fit)
                if result.error is not None:
                    raise result.error
    for number in left:
        for fit in fit_line(fits, lines[number]):
            yield checked_fit(number, fit)


def _has_begun(fits: FoldFits, line: Line) -> bool:
    """Whether the record has a part of a line, which is only gone on with here."""
    record, places = fits.record, range(len(line.points))
    if record is None:
        return False
    keys = [line.key(place, fold=fold) for place in places for fold in line.folds]
    keys += [line.key(place) for place in places]
    return any(record.has_run(key) or record.result(key) is not None for key in keys)


def _record(fits: FoldFits, line: Line, result: LineResult) -> None:
    """Record the fits of a task.

    The last one is recorded first: where this is cut short, no fit that is missing starts from a
    recorded one, whose model is not here.
    """
    for fit in reversed(result.fits):
        if fits.record is not None and not isinstance(fit.result, BigsvmError):
            fits.record.add(line.key(fit.place, fold=fit.fold), fit.result)


def _fitted_by_workers(
    fits: FoldFits, lines: Sequence[Line], numbers: Sequence[int], name: str
) -> Generator[tuple[int, LineResult]]:
    """Yield the results of those lines that fit a worker, as they arrive."""
    source = fits.data.source
    portable = source.portable()
    if not numbers or (portable is None and not isinstance(source, ArrayRows)):
        return
    try:
        shared = buffers_of((fits.to_send(portable or source), list(lines)))
    except Exception as error:
        # Scores and kernels may be anything. What cannot be sent is computed here all the same.
        logger.debug("lines are fitted here, as they cannot be sent to workers: %s", error)
        return

    sent: list[int] = []
    done = 0

    def check() -> None:
        if fits.hooks.interrupted():
            raise KeyboardInterrupt
        if sent:
            fits.hooks.listener(events.TasksUnderWay(done, len(sent)))

    workforce = workforce_of(fits.hooks)
    try:
        with checked_by(check):
            workforce.wait_for_workers()
        most = _bytes_for_task(workforce, fits, rows_are_sent=portable is None)
        sent = [number for number in numbers if _bytes_of_task(fits, lines[number]) <= most]
        logger.debug(
            "%d of %d lines are tasks: a worker has %s for each", len(sent), len(lines),
            show_bytes(max(most, 0)),
        )  # fmt: skip
        if len(sent) < 2:
            return  # this process has more threads for a line alone than a worker, and all workers
        job = workforce.open_job(Job(portable, None, None, 0.0, source.is_sparse))
        calls = [
            Call(
                fit_line_here, None, (number,),
                Listed(1, functools.partial(_fault_of, lines[number])),
            )
            for number in sent
        ]  # fmt: skip

        under_way = Pass(workforce, job, calls, lambda unique: split(unique, shared), name=name)
        for place, made in checked(under_way.as_done(), check):
            done += 1
            yield sent[place], made.values[0]
    finally:
        workforce.close()


def _fault_of(line: Line, place: int, result: Any) -> str:
    """Return what is wrong with the result of a task; scores may be any numbers."""
    try:
        is_right = type(result) is LineResult and type(result.told) is list
        is_right &= isinstance(result.error, MemoryBudgetError | None)
        for place_in_line, fold, outcome, estimator in result.fits:
            is_right &= 0 <= place_in_line < len(line.points) and fold in line.folds
            is_right &= estimator is None
            if not isinstance(outcome, BigsvmError):
                gap, tol = outcome.certificate["gap"], outcome.certificate["tol"]
                scores = [*outcome.scores.values(), *outcome.train_scores.values()]
                is_right &= type(outcome) is FoldFit and all(type(one) is float for one in scores)
                is_right &= 0 <= outcome.fit_seconds < np.inf and outcome.score_seconds >= 0
                is_right &= not outcome.certificate["converged"] or gap is None or 0 <= gap <= tol
    except (AttributeError, KeyError, TypeError, ValueError):
        is_right = False
    return "" if is_right else f"returned a wrong result of a fit ({type(result).__name__})"


def _bytes_for_task(workforce: Workforce, fits: FoldFits, *, rows_are_sent: bool) -> float:
    """Bytes that each worker has for a task, besides what all tasks have in common."""
    data = fits.data
    common = data.nbytes + sum(fold.nbytes for fold in fits.folds)
    if rows_are_sent:
        common += int(data.source.n_rows * data.source.bytes_per_row)
    # What is sent is there twice, as it came and put together.
    return workforce.memory_of_task(common=2 * common)


def _bytes_of_task(fits: FoldFits, line: Line) -> float:
    """Bytes that a fit of a line takes; infinite where only this machine can fit it."""
    estimator = fits.at(line.points[0]).set_params(memory=fits.memory)
    if callbacks_of(estimator):
        return np.inf  # they are called in this process
    try:
        parameters = estimator._parameters()
        rows = fits.training_rows(estimator, line.folds[0], line.n_rows, line.points[0])
        needed = sum(projected_parts(*rows, parameters).values())
        if trains_together(fits, line):
            needed = max(needed, projected_bytes(fits, estimator, line.n_rows))
    except BigsvmError:
        return np.inf  # fitting it says what is wrong
    if parameters.disk_cache_bytes():
        return np.inf
    return needed + ROW_BYTES * fits.data.source.n_rows


# -- on a worker ---------------------------------------------------------------------------------


def fit_line_here(sent: SentJob, parts: list[Part], number: int) -> Done:
    """Fit one of the lines; the values of the result are a `LineResult`.

    It ends early if the result is not needed any more.
    """
    job = PROCESS.job(sent)
    cost = Cost(job)
    fits, lines = job.kept((parts[0].name,), lambda: _put_together(job, parts), 0)
    told: list[events.ManyClasses | events.ClassesLeftOut] = []

    def listener(event: events.Event) -> None:
        if isinstance(event, events.WARNINGS):
            told.append(event)

    fits = fits.with_hooks(events.Hooks(listener=listener, interrupted=watch_for_end()))
    results: list[Fitted] = []
    ended = None
    with one_thread(), suppress(KeyboardInterrupt):
        try:
            for fit in fit_line(fits, lines[number]):
                results.append(fit._replace(estimator=None))  # noqa: PERF401 (kept if one fails)
        except MemoryBudgetError as error:
            ended = error
    give_back_freed_memory()
    evaluations = sum(
        fit.result.certificate.get("n_kernel_evaluations") or 0
        for fit in results
        if not isinstance(fit.result, BigsvmError)
    )
    return cost.done([LineResult(results, ended, told)], evaluations)


def _put_together(job: OpenJob, parts: list[Part]) -> tuple[tuple[FoldFits, list[Line]], int]:
    """Put fits with their rows together, and the lines; also returns their bytes."""
    (fits, lines), _ = put_together(parts)
    if job.source is not None:
        fits.data = fits.data._replace(source=job.source)
    return (fits, lines), sum(part.nbytes for part in parts)
