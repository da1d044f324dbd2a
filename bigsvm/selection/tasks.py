"""Lines of points as tasks for the workers of a cluster.

A line is a task where its rows, and the memory of one of its fits, fit a worker. The plan of that
memory is the one of this machine, so that results have the same bits wherever they are made. Other
lines, and a line alone, are fitted here, and workers do their passes.
"""

from __future__ import annotations

import functools
import logging
import pickle
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from bigsvm.allocator import give_back_freed_memory
from bigsvm.budget import show_bytes
from bigsvm.data.rows import bytes_of, stack_rows
from bigsvm.errors import BigsvmError, ClusterError, MemoryBudgetError
from bigsvm.estimators.watching import callbacks_of
from bigsvm.executors.messages import Done, Job
from bigsvm.executors.passes import results_as_done
from bigsvm.executors.replies import Listed
from bigsvm.executors.tasks import open_job, watch_for_end
from bigsvm.executors.workforce import Call
from bigsvm.fit.forecast import projected_parts
from bigsvm.fit.trainer import workforce_of
from bigsvm.interruption import checked, checked_by
from bigsvm.processors import one_thread
from bigsvm.selection.fits import Fitted
from bigsvm.selection.folds import Data, Fold
from bigsvm.selection.lines import LineFit, fit_line, projected_bytes, run_name, trains_together
from bigsvm.selection.record import FoldFit, Record
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.messages import SentJob
    from bigsvm.executors.worker_state import OpenJob
    from bigsvm.executors.workforce import Workforce
    from bigsvm.selection.fits import FoldFits
    from bigsvm.selection.lines import Line

logger = logging.getLogger("bigsvm")

PIECE_BYTES = 4 << 20
"""Most bytes of rows, or of their values, in a message."""
BYTES_OF_FIT = 4096
"""Bytes of a result in a message, about: its certificate has most of them."""
ROW_BYTES = 24
"""Bytes of a row while a line is fitted: its weight, what it is tested by, and its prediction."""


class SentFits:
    """The fits of a data set without its rows, as they are sent to workers.

    Parameters
    ----------
    name : str
        The rows are kept under it.
    pickled : bytes
        Of the emptied `FoldFits`; of what makes its source of rows that are sent, or None; and of
        all lines.
    """

    def __init__(self, name: str, pickled: bytes) -> None:
        self.name, self.pickled = name, pickled

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        return len(self.pickled)


class SentPart:
    """Some values of the rows, as they are sent to workers.

    Parameters
    ----------
    name : tuple
        Whose part it is: ``("rows",)``, ``("labels",)``, ``("test", number of the fold)``, …
    values : array or CSR rows
    """

    def __init__(self, name: tuple[Any, ...], values: Any) -> None:
        self.name, self.values = name, values

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return bytes_of(self.values)

    def __sizeof__(self) -> int:
        return 100 + self.nbytes


class LineResult(NamedTuple):
    """What a task returns.

    Attributes
    ----------
    fits : list of tuple
        Place of the point, number of the fold, and the result or why there is none.
    error : MemoryBudgetError or None
        What has ended the line.
    told : list of ManyClasses and ClassesLeftOut
        Events that a warning is made of.
    """

    fits: list[tuple[int, int, FoldFit | BigsvmError]]
    error: MemoryBudgetError | None
    told: list[events.ManyClasses | events.ClassesLeftOut]

    @property
    def nbytes(self) -> int:
        """Bytes that are returned, about."""
        return BYTES_OF_FIT * len(self.fits)


# -- on the coordinator --------------------------------------------------------------------------


def fit_lines(
    fits: FoldFits, lines: Sequence[Line], *, name: str, raises: bool
) -> Generator[LineFit]:
    """Fit lines, on the workers of a cluster if there is one; yield each fit when it is finished.

    Parameters
    ----------
    fits : FoldFits
        Its hooks say whether there is a cluster.
    lines : sequence of Line
    name : str
        What the tasks are called on Dask's dashboard.
    raises : bool
        Whether parameters or rows that training refuses are an error; otherwise they are an `error`
        of the fit.

    Raises
    ------
    KeyboardInterrupt, MemoryBudgetError, CheckpointError, ClusterError, StoreError
    """
    with closing(_fits_of(fits, lines, name)) as fitted:
        for fit in fitted:
            if raises and fit.error is not None:
                raise fit.error
            yield fit


def _fits_of(fits: FoldFits, lines: Sequence[Line], name: str) -> Generator[LineFit]:
    left = set(range(len(lines)))
    if fits.hooks.client is not None:
        fresh = [number for number in sorted(left) if not _has_begun(fits, lines[number])]
        with closing(_fitted_by_workers(fits, lines, fresh, name)) as results:
            for number, result in results:
                n_fits = len(lines[number].points) * len(lines[number].folds)
                if result.error is None and len(result.fits) < n_fits:
                    continue  # its task was given up, and it is fitted here
                left.remove(number)
                for told in result.told:
                    fits.hooks.listener(told)
                yield from _taken(fits, lines[number], number, result)
                if result.error is not None:
                    raise result.error
    for number in sorted(left):
        yield from fit_line(fits, lines[number], number)


def _key(line: Line, point: int, fold: int) -> str:
    return Record.key(line.points[point], fold=fold, rows=line.n_rows or 0)


def _has_begun(fits: FoldFits, line: Line) -> bool:
    """Whether the record has a part of a line, which is only gone on with here."""
    record = fits.record
    if record is None:
        return False
    keys = [_key(line, point, fold) for point in range(len(line.points)) for fold in line.folds]
    keys += [run_name(point, line.n_rows) for point in line.points]
    return any(record.has_run(key) or record.result(key) is not None for key in keys)


def _taken(fits: FoldFits, line: Line, number: int, result: LineResult) -> Generator[LineFit]:
    """Record the fits of a task, then yield them.

    The last one is recorded first: where this is cut short, no fit that is missing starts from a
    recorded one, whose model is not here.
    """
    if fits.record is not None:
        for point, fold, fit in reversed(result.fits):
            if not isinstance(fit, BigsvmError):
                fits.record.add(_key(line, point, fold), fit)
    for point, fold, fit in result.fits:
        if isinstance(fit, BigsvmError):
            yield LineFit(number, point, fold, None, fit)
        else:
            yield LineFit(number, point, fold, Fitted(_key(line, point, fold), fit, None))


def _fitted_by_workers(
    fits: FoldFits, lines: Sequence[Line], numbers: Sequence[int], name: str
) -> Generator[tuple[int, LineResult]]:
    """Yield the results of those lines that fit a worker, as they arrive."""
    source = fits.data.source
    portable, maker = source.portable(), source.maker()
    if not numbers or (portable is None and maker is None):
        return
    pickled = _pickled((fits.emptied(), maker, list(lines)))
    if pickled is None:
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

        def pieces(unique: str) -> Iterator[SentFits | SentPart]:
            yield SentFits(unique, pickled)
            yield from _parts(fits, rows_are_sent=portable is None)

        results = results_as_done(workforce, job, calls, pieces, name=name)
        for place, made in checked(results, check):
            done += 1
            yield sent[place], made.values[0]
    finally:
        workforce.close()


def _fault_of(line: Line, place: int, result: Any) -> str:
    """Return what is wrong with the result of a task; scores may be any numbers."""
    try:
        is_right = type(result) is LineResult and type(result.told) is list
        is_right &= isinstance(result.error, MemoryBudgetError | None)
        for point, fold, outcome in result.fits:
            is_right &= 0 <= point < len(line.points) and fold in line.folds
            if not isinstance(outcome, BigsvmError):
                gap, tol = outcome.certificate["gap"], outcome.certificate["tol"]
                scores = [*outcome.scores.values(), *outcome.train_scores.values()]
                is_right &= type(outcome) is FoldFit and all(type(one) is float for one in scores)
                is_right &= 0 <= outcome.fit_seconds < np.inf and outcome.score_seconds >= 0
                is_right &= not outcome.certificate["converged"] or gap is None or 0 <= gap <= tol
    except (AttributeError, KeyError, TypeError, ValueError):
        is_right = False
    return "" if is_right else f"returned a wrong result of a fit ({type(result).__name__})"


def _pickled(values: tuple[Any, ...]) -> bytes | None:
    """Pickle fits and lines as Dask does; None where a score or a parameter cannot be pickled."""
    from distributed.protocol.pickle import dumps

    try:
        pickled: bytes = dumps(values)
    except Exception as error:
        # Scores and kernels may be anything. What cannot be sent is computed here all the same.
        logger.debug("lines are fitted here, as they cannot be sent to workers: %s", error)
        return None
    return pickled


def _bytes_for_task(workforce: Workforce, fits: FoldFits, *, rows_are_sent: bool) -> float:
    """Bytes that each worker has for a task, besides what all tasks have in common."""
    data = fits.data
    common = data.nbytes + sum(fold.nbytes for fold in fits.folds)
    if rows_are_sent:
        common += int(data.source.n_rows * data.source.bytes_per_row)
    sizes = [
        # What is sent in pieces is there twice, as it came and put together.
        (worker.opened.memory - 2 * common) / worker.threads
        for worker in workforce.ready()
        if worker.opened is not None
    ]
    return min(sizes, default=0.0)


def _bytes_of_task(fits: FoldFits, line: Line) -> float:
    """Bytes that a fit of a line takes; infinite where only this machine can fit it."""
    estimator = clone(fits.estimator).set_params(**line.points[0], memory=fits.memory)
    if callbacks_of(estimator):
        return np.inf  # they are called in this process
    try:
        parameters = estimator._parameters()
        rows = fits.training_rows(estimator, line.folds[0], line.n_rows)
        needed = sum(projected_parts(*rows, parameters).values())
        if trains_together(fits, line):
            needed = max(needed, projected_bytes(fits, estimator, line.n_rows))
    except BigsvmError:
        return np.inf  # fitting it says what is wrong
    if parameters.disk_cache_bytes():
        return np.inf
    return needed + ROW_BYTES * fits.data.source.n_rows


def _parts(fits: FoldFits, *, rows_are_sent: bool) -> Iterator[SentPart]:
    """Yield what all lines have in common, piece by piece."""
    data = fits.data
    arrays = [("labels", data.labels), ("weights", data.weights)]
    if data.truth is not data.labels:
        arrays.append(("truth", data.truth))
    folds = [
        ((which, number), rows)
        for number, fold in enumerate(fits.folds)
        for which, rows in zip(("test", "train"), fold, strict=True)
    ]
    for name, values in [*(((name,), values) for name, values in arrays), *folds]:
        if values is not None:
            step = max(1, PIECE_BYTES // max(values.itemsize, 1))
            for low in range(0, len(values), step):
                yield SentPart(name, values[low : low + step])
    if rows_are_sent:
        source = data.source
        step = max(1, int(PIECE_BYTES / max(source.bytes_per_row, 1.0)))
        for low in range(0, source.n_rows, step):
            yield SentPart(("rows",), source.read(low, min(low + step, source.n_rows)))


# -- on a worker ---------------------------------------------------------------------------------


def fit_line_here(sent: SentJob, pieces: list[Any], number: int) -> Done:
    """Fit one of the lines; the values of the result are a `LineResult`.

    It ends early if the result is not needed any more.
    """
    wall, cpu = time.perf_counter(), time.thread_time()
    job = open_job(sent)
    before = job.bytes_read
    about: SentFits = pieces[0]
    common: tuple[FoldFits, list[Line]]
    common = job.kept((about.name,), lambda: _put_together(job, pieces), 0)
    told: list[events.ManyClasses | events.ClassesLeftOut] = []

    def listener(event: events.Event) -> None:
        if isinstance(event, events.WARNINGS):
            told.append(event)

    hooks = events.Hooks(listener=listener, interrupted=watch_for_end())
    fits = common[0].filled(common[0].data, common[0].folds, hooks)
    results: list[tuple[int, int, FoldFit | BigsvmError]] = []
    ended = None
    with one_thread(), suppress(KeyboardInterrupt):
        try:
            for fit in fit_line(fits, common[1][number]):
                outcome = fit.error if fit.fitted is None else fit.fitted.result
                assert outcome is not None
                results.append((fit.point, fit.fold, outcome))
        except MemoryBudgetError as error:
            ended = error
    give_back_freed_memory()
    evaluations = sum(
        fit.certificate.get("n_kernel_evaluations") or 0
        for _, _, fit in results
        if not isinstance(fit, BigsvmError)
    )
    return Done(
        [LineResult(results, ended, told)], evaluations, job.bytes_read - before,
        time.perf_counter() - wall, time.thread_time() - cpu,
    )  # fmt: skip


def _put_together(job: OpenJob, pieces: list[Any]) -> tuple[tuple[FoldFits, list[Line]], int]:
    """Put fits and their rows together, and the lines; also returns the bytes of the rows."""
    about: SentFits = pieces[0]
    try:
        empty, maker, lines = pickle.loads(about.pickled)
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"cannot open the scores or the kernel of the run ({error}); those of your own must be "
            "in a module that workers can import"
        ) from error
    parts: dict[tuple[Any, ...], list[Any]] = {}
    for piece in pieces[1:]:
        parts.setdefault(piece.name, []).append(piece.values)
    source: RowSource
    n_bytes = 0
    if job.source is None:
        rows = parts.pop(("rows",))
        first = rows[0]
        values = stack_rows(rows, first.shape[1], first.dtype, sparse=job.is_sparse)
        source, n_bytes = maker(values), bytes_of(values)
    else:
        source = job.source
    arrays = {name: np.concatenate(some) for name, some in parts.items()}
    labels = arrays.get(("labels",))
    data = Data(source, labels, arrays.get(("truth",), labels), arrays.get(("weights",)))
    n_folds = sum(name[0] == "test" for name in arrays)
    folds = [Fold(arrays["test", k], arrays.get(("train", k))) for k in range(n_folds)]
    n_bytes += sum(array.nbytes for array in arrays.values())
    return (empty.filled(data, folds, events.Hooks()), lines), n_bytes
