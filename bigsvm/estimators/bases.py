"""Base classes of scikit-learn, with the types of what is used of them: it has none of its own.

A class whose base has no types would accept any argument in the eyes of a type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    Method = TypeVar("Method", bound=Callable[..., Any])

    class CallbackContext:
        """A task of a fit, of which callbacks are told."""

        def subcontext(self, task_name: str) -> CallbackContext: ...
        def call_on_fit_task_begin(self, *, estimator: Any, **others: Any) -> CallbackContext: ...
        def call_on_fit_task_end(self, *, estimator: Any, **others: Any) -> bool: ...

    class CallbackSupportMixin:
        """An estimator that callbacks can be set on."""

        def set_callbacks(self, *callbacks: Any) -> Self: ...
        def _init_callback_context(self, *, max_subtasks: int | None) -> CallbackContext: ...

    def with_callbacks(method: Method) -> Method:
        """Make a method end what callbacks have begun, however it ends."""
        return method

    class BaseEstimator:
        """An estimator whose parameters are the arguments of its constructor."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_tags__(self) -> Any: ...
        def _html_repr(self) -> str: ...
        def __getattr__(self, name: str) -> Any: ...  # attributes that `fit` sets

    class ClassifierMixin:
        """A classifier."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

    class RegressorMixin:
        """A regression."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
        def __sklearn_tags__(self) -> Any: ...

    class OutlierMixin:
        """A detector of outliers."""

        def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> Any: ...
else:
    from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin

    try:
        from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks
    except ImportError:
        from bigsvm.estimators.no_callbacks import (
            CallbackContext,
            CallbackSupportMixin,
            with_callbacks,
        )

__all__ = [
    "BaseEstimator",
    "CallbackContext",
    "CallbackSupportMixin",
    "ClassifierMixin",
    "OutlierMixin",
    "RegressorMixin",
    "with_callbacks",
]
