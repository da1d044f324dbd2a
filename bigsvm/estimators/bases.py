"""Base classes of scikit-learn, with the types of what is used of them: it has none of its own.

A class whose base has no types would accept any argument in the eyes of a type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    class BaseEstimator:
        """An estimator whose parameters are the arguments of its constructor."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_tags__(self) -> Any: ...
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

__all__ = ["BaseEstimator", "ClassifierMixin", "OutlierMixin", "RegressorMixin"]
