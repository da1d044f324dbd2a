"""Watching a `fit`: warnings, the log, progress lines and `history_` from events, and Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bigsvm.callbacks import Callback, CheckpointCallback
from bigsvm.compilation import compilations
from bigsvm.errors import ParameterError
from bigsvm.report.progress import Display, TrainingProgress, swept_text
from bigsvm.report.time_spent import most_of_the_time, slower_than_alone
from bigsvm.training import events
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.estimators.arguments import SharedArguments
    from bigsvm.estimators.bases import CallbackContext
    from bigsvm.models import KernelExpansion

    Columns = dict[str, NDArray[np.number[Any]]]

logger = logging.getLogger("bigsvm")


SET_COLUMNS = (
    "working_set", "seconds", "n_rows", "objective", "gap", "best_gap", "n_violating",
)  # fmt: skip
"""Names of what is kept of a working set."""
MOST_OF_SETS = 2000
"""Most working sets that are kept: more than a picture shows."""
MOST_OF_PAIRS = 200
"""Most entries of the history that tell how many class pairs are finished."""


class Recorded(NamedTuple):
    """An entry of `history_`, when a sweep, or another number of class pairs, is done."""

    done: int
    seconds: float
    objective: float
    gap: float
    n_support: int
    n_bounded: int


class History:
    """Keeps what each sweep over all rows has come to, or all class pairs finished so far.

    It also keeps where each working set was last; from `MOST_OF_SETS` of them on, of every second.
    """

    def __init__(self) -> None:
        self._entries: list[Recorded] = []
        self._sets: list[tuple[float | None, ...]] = []
        self._what = "sweep"

    def __call__(self, event: events.Event) -> None:
        """Add an entry for a sweep; for class pairs where a share of them has been finished."""
        if isinstance(event, events.Swept):
            done = event.sweep
        elif isinstance(event, events.Solving):
            if self._sets and self._sets[-1][0] == event.working_set:
                self._sets.pop()
            elif len(self._sets) >= MOST_OF_SETS:
                self._sets = self._sets[::2]
            self._sets.append(
                (
                    event.working_set, event.seconds, event.size, event.objective, event.gap,
                    event.best_gap, event.n_violating,
                )
            )  # fmt: skip
            return
        elif isinstance(event, events.PairsUnderWay):
            self._what, done = "pairs", event.done
            last = self._entries[-1].done if self._entries else 0
            if event.done < event.n_pairs and MOST_OF_PAIRS * (done - last) < event.n_pairs:
                return
            if done == last:
                return
        else:
            return
        self._entries.append(
            Recorded(
                done,
                event.seconds,
                event.objective,
                event.gap,
                event.n_support,
                event.n_bounded,
            )
        )

    def arrays(self) -> tuple[Columns, Columns]:
        """Return the entries by column, (entries,) each, and those of working sets by theirs."""
        names = Recorded._fields
        rows = np.array(self._entries, np.float64).reshape(-1, len(names))
        columns: Columns = dict(zip(names, rows.T.copy(), strict=True))
        for name in ("done", "n_support", "n_bounded"):
            columns[name] = columns[name].astype(np.int64)
        sets = np.array(self._sets, np.float64).reshape(-1, len(SET_COLUMNS))
        of_sets: Columns = dict(zip(SET_COLUMNS, sets.T.copy(), strict=True))
        for name in ("working_set", "n_rows"):
            of_sets[name] = of_sets[name].astype(np.int64)
        return {self._what: columns.pop("done"), **columns}, of_sets


class Tasks:
    """Tells callbacks of a fit: of its tasks as scikit-learn does, and ours of its events.

    A sweep is a task of the fit, and so is the work until the next report on class pairs. The
    context is that of the fit. `stopped_by` says why a callback has ended the fit; None if none
    has.
    """

    def __init__(self, estimator: SharedArguments, context: CallbackContext) -> None:
        self._estimator, self._context = estimator, context
        self._task: CallbackContext | None = None
        self._listeners = [
            callback.listener(estimator)
            for callback in callbacks_of(estimator)
            if isinstance(callback, Callback)
        ]
        self.stopped_by: str | None = None

    def __call__(self, event: events.Event) -> None:
        """Tell callbacks; a fit that has converged is not ended by one."""
        why = [listen(event) for listen in self._listeners]
        if isinstance(event, events.Swept | events.PairsUnderWay):
            why.append(self._end_task())
        elif isinstance(event, events.Solving | events.Sweeping | events.Searching):
            self._begin_task()
        has_converged = isinstance(event, events.Swept) and event.gap <= event.tol
        if self.stopped_by is None and not has_converged:
            self.stopped_by = next((reason for reason in why if reason is not None), None)

    def explained(self, model: KernelExpansion) -> KernelExpansion:
        """Return a model whose certificate says why a callback ended the fit, where one did."""
        if self.stopped_by is None or model.certificate["stop_reason"] != StopReason.INTERRUPTED:
            return model  # it ended before it was asked to
        said = {"stop_reason": str(StopReason.CALLBACK), "stopped_by": self.stopped_by}
        return replace(model, certificate={**model.certificate, **said})

    def _begin_task(self) -> CallbackContext:
        if self._task is None:
            self._task = self._context.subcontext(task_name="sweep")
            self._task.call_on_fit_task_begin(estimator=self._estimator)
        return self._task

    def _end_task(self) -> str | None:
        stops = self._begin_task().call_on_fit_task_end(estimator=self._estimator)
        self._task = None
        return "a callback asked for the end" if stops else None


def callbacks_of(estimator: SharedArguments) -> list[Any]:
    """Return the callbacks that are set on an estimator."""
    return list(getattr(estimator, "_skl_callbacks", ()))


def folder_of_checkpoints(estimator: SharedArguments) -> CheckpointCallback | None:
    """Return the callback that keeps checkpoints, if one is set."""
    keepers = [kept for kept in callbacks_of(estimator) if isinstance(kept, CheckpointCallback)]
    if not keepers:
        return None
    if len(keepers) > 1:
        raise ParameterError(f"{len(keepers)} CheckpointCallbacks are set; set one")
    for name in ("checkpoint", "checkpoint_copy"):
        if getattr(estimator, name) is not None:
            raise ParameterError(
                f"{name} is {getattr(estimator, name)!r} beside a CheckpointCallback, which names "
                "the folder of each run; set it to None"
            )
    return keepers[0]


class FitWatch:
    """Listens to the run of one `fit`; a context manager around it.

    `verbose` of the estimator says whether progress is shown on standard error. The context is that
    of the fit.
    """

    def __init__(
        self, estimator: SharedArguments, context: CallbackContext, stop: StoppedByCtrlC
    ) -> None:
        self.history, self._stop = History(), stop
        self._tasks = Tasks(estimator, context) if callbacks_of(estimator) else None
        self._display: Display | None = None
        self._progress: events.Listener | None = None
        if estimator.verbose:
            # Python's own filters decide what becomes of warnings.
            self._display = Display(quiet=False, takes_warnings=False)
            self._progress = TrainingProgress(self._display)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._display is not None:
                stack.enter_context(self._display)
            stack.enter_context(compilations(lambda text: logger.info("%s", text)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __call__(self, event: events.Event) -> None:
        """Take an event."""
        if isinstance(event, events.WARNINGS):
            warnings.warn(event.sentence, UserWarning, stacklevel=2)
            return
        if self._progress is not None:
            self._progress(event)
        self.history(event)
        if isinstance(event, events.TakenAsRecorded | events.Merged):
            logger.info("%s", event.sentence)
        elif isinstance(event, events.Swept) and logger.isEnabledFor(logging.INFO):
            logger.info("%s", swept_text(event))
        if self._tasks is not None:
            self._tasks(event)

    def has_stopped(self) -> bool:
        """Whether Ctrl-C or a callback has ended the fit."""
        by_callback = self._tasks is not None and self._tasks.stopped_by is not None
        return by_callback or self._stop.asked

    def explained(self, model: KernelExpansion) -> KernelExpansion:
        """Return `Tasks.explained` of a model, unless Ctrl-C has ended the fit.

        The end of the progress is what most of the time went into, and that workers were slower
        than this process would have been, where they were.
        """
        slower = None
        if "n_workers" in model.certificate:
            slower = slower_than_alone(model.certificate)
        if slower is not None:
            logger.info("%s", slower)
        if self._display is not None:
            told = most_of_the_time(model.certificate, of_one=model.rule is None)
            for line in filter(None, (told, slower)):
                self._display.line(line)
        if self._tasks is None or self._stop.asked:
            return model
        return self._tasks.explained(model)


class StoppedByCtrlC:
    """Delays the first Ctrl-C until the run has stopped; a context manager around training.

    The first Ctrl-C asks the run to stop, which it does within about a second, and saves it where
    there is a checkpoint; at the end of the block it is a KeyboardInterrupt. A second one raises
    KeyboardInterrupt at once. Outside the main thread, or if another handler is installed for
    SIGINT, nothing changes.
    """

    def __init__(self) -> None:
        self._applies = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        self.asked = False

    def requested(self) -> bool:
        """Whether the run should stop."""
        return self.asked

    def __enter__(self) -> Self:
        if self._applies:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._applies:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.asked and kind is None:
            raise KeyboardInterrupt

    def _handle(self, signum: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
