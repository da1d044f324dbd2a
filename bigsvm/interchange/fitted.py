"""The model of a fitted estimator, for functions that accept a model or an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.errors import ParameterError
from bigsvm.models import KernelExpansion

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


def model_of(trained: KernelExpansion | BaseEstimator) -> KernelExpansion:
    """Return a model as it is, and the model of a fitted estimator."""
    if isinstance(trained, KernelExpansion):
        return trained
    # Imported here, as the export of a saved model does not need it.
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

    if isinstance(trained, BaseEstimator):
        check_is_fitted(trained)
        model = getattr(trained, "model_", None)
        if isinstance(model, KernelExpansion):
            return model
    raise ParameterError(
        f"model is a {type(trained).__name__}; it must be a fitted estimator of bigsvm or a "
        "KernelExpansion"
    )
