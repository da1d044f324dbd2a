"""Stands for `sklearn.callback` before scikit-learn 1.9: no callback can be set."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import sklearn

from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class CallbackContext:
    """A task without callbacks."""

    def subcontext(self, task_name: str) -> CallbackContext:
        """Return a task in it."""
        return self

    def call_on_fit_task_begin(self, **about: Any) -> CallbackContext:
        """Return the task: there are no callbacks to call."""
        return self

    def call_on_fit_task_end(self, **about: Any) -> bool:
        """Return that the fit goes on: no callback can end it."""
        return False


class CallbackSupportMixin:
    """An estimator without callbacks."""

    def set_callbacks(self, *callbacks: Any) -> NoReturn:
        """Refuse callbacks.

        Raises
        ------
        ParameterError
        """
        raise ParameterError(
            f"callbacks need scikit-learn 1.9, and this is {sklearn.__version__}; upgrade it"
        )

    def _init_callback_context(self, *, max_subtasks: int | None) -> CallbackContext:
        return CallbackContext()


def with_callbacks(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method as scikit-learn does, so that warnings name the same line."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(*args, **kwargs)

    return wrapped
