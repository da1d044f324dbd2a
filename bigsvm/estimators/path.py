"""A path of models: one after the other, each from the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.estimators.base import KernelMachine


def C_path(
    estimator: KernelMachine,
    X: Any,
    y: Any = None,
    *,
    C: Sequence[float],
    sample_weight: Any = None,
) -> list[KernelMachine]:
    """Train with one C after the other, the smallest first, each from the model before.

    Parameters
    ----------
    estimator : SVC, L2SVC, CrammerSingerSVC, SVR, NuSVR or L2OneClassSVM
        With all parameters but C; it stays as it is. Of more than two classes CrammerSingerSVC
        only, as `warm_start` is.
    X, y, sample_weight
        As its ``fit`` takes them.
    C : sequence of float

    Returns
    -------
    list of estimators
        Fitted, in the order of C; what each has cost is in its ``certificate_``.

    Raises
    ------
    ParameterError
        The estimator has no C, or there is none to train with; or there are more classes than
        two, and it trains a function for each pair or class of them.
    """
    if "C" not in estimator.get_params() or not len(C):
        raise ParameterError(f"C is {list(C)}; give some values for an estimator that has a C")
    fitted: dict[float, KernelMachine] = {}
    last = None
    for value in sorted(set(C)):
        model = clone(estimator).set_params(C=value, warm_start=True)
        if last is not None:
            model.model_ = last.model_
        last = fitted[value] = model.fit(X, y, sample_weight=sample_weight)
        last.set_params(warm_start=estimator.warm_start)
    return [fitted[value] for value in C]
