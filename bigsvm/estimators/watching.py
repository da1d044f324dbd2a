"""Watching a `fit`: warnings, the log, progress lines and `history_`, from the events of a run."""

from __future__ import annotations

import logging
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bigsvm.compilation import COMPILING, compilations
from bigsvm.report.progress import Display, TrainingProgress, swept_text
from bigsvm.training import events

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger("bigsvm")


class Recorded(NamedTuple):
    """An entry of `history_`; NaN is what is not known."""

    sweep: int
    seconds: float
    objective: float
    gap: float
    n_support: int
    n_bounded: int


class History:
    """Keeps what each sweep over all rows has come to."""

    def __init__(self) -> None:
        self._entries: list[Recorded] = []

    def __call__(self, event: events.Event) -> None:
        """Add an entry for a sweep."""
        if isinstance(event, events.Swept):
            self._entries.append(
                Recorded(
                    event.sweep,
                    event.seconds,
                    event.objective,
                    event.gap,
                    event.n_support,
                    event.n_bounded,
                )
            )

    def arrays(self) -> dict[str, NDArray[np.number[Any]]]:
        """Return the entries by column, (entries,) each."""
        return {
            name: np.array(
                [getattr(entry, name) for entry in self._entries],
                np.float64 if name in ("seconds", "objective", "gap") else np.int64,
            )
            for name in Recorded._fields
        }


class FitWatch:
    """Listens to the run of one `fit`; a context manager around it.

    Parameters
    ----------
    verbose : bool
        Whether to show progress on standard error.

    Attributes
    ----------
    history : History
    """

    def __init__(self, *, verbose: bool) -> None:
        self.history = History()
        # Python's own filters decide what becomes of warnings.
        self._display = Display(quiet=not verbose, takes_warnings=False)
        self._progress = TrainingProgress(self._display)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._display)
            stack.enter_context(compilations(self._tell_of_compilation))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __call__(self, event: events.Event) -> None:
        """Take an event."""
        if isinstance(event, events.ManyClasses):
            warnings.warn(event.sentence, UserWarning, stacklevel=2)
            return
        self._progress(event)
        self.history(event)
        if isinstance(event, events.TakenAsRecorded):
            logger.info("%s", event.sentence)
        elif isinstance(event, events.Swept):
            logger.info("%s", swept_text(event))

    def _tell_of_compilation(self) -> None:
        self._display.line(COMPILING)
        logger.info("%s", COMPILING)
