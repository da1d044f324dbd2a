"""When a run is to stop, before training and in it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from bigsvm.errors import ParameterError
from bigsvm.interruption import CHECK_SECONDS, checked_by
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks


def limits_of(parameters: TrainingParameters, hooks: Hooks) -> Limits:
    """When a run is to stop without having converged."""
    return Limits(
        max_iter=parameters.max_iter,
        max_seconds=parameters.max_seconds,
        interrupted=hooks.interrupted,
    )


@contextmanager
def before_training(
    parameters: TrainingParameters, hooks: Hooks
) -> Iterator[Callable[[], TrainingParameters]]:
    """Check whether to end while rows are read for the first time; there is no model yet.

    Yields
    ------
    callable
        Returns the parameters of training, whose time limit is what is left by then.

    Raises
    ------
    ParameterError
        The time limit is over.
    KeyboardInterrupt
        Interrupted.
    """
    began = time.monotonic()

    def left() -> TrainingParameters:
        if parameters.max_seconds == float("inf"):
            return parameters
        return replace(parameters, max_seconds=parameters.max_seconds + began - time.monotonic())

    def check() -> None:
        if hooks.interrupted():
            raise KeyboardInterrupt
        # A shorter read goes on: the run then ends by the limit, with a model.
        if time.monotonic() - began >= max(parameters.max_seconds, CHECK_SECONDS):
            raise ParameterError(
                f"max_seconds (max_time) is {parameters.max_seconds:g} and was over while the rows "
                "were read for the first time, before training; allow more time"
            )

    with checked_by(check):
        yield left
