"""`predict_proba`: probabilities of estimators with a calibration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bigsvm.errors import ParameterError
from bigsvm.estimators.arguments import HELD_OUT, calibration_in
from bigsvm.estimators.base import KernelMachine
from bigsvm.parameters.formulations import CALIBRATIONS, traits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.estimators.lazily import Evaluate
    from bigsvm.models import KernelExpansion


class calibrated:
    """A method of estimators with a calibration; others lack it, and the error says why.

    With `available_if` of scikit-learn the reason is only the cause of the error that is shown.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)  # type: ignore[arg-type]  # it is called through __get__
        self._function = function

    def __get__(self, estimator: KernelMachine | None, owner: object = None) -> Any:
        if estimator is None:
            return self._function
        if calibration_in(estimator.get_params(deep=False)) is None:
            methods = CALIBRATIONS[traits_of(estimator._formulation).learns]
            wanted = " or ".join(f"calibration={method!r}" for method in methods)
            raise AttributeError(
                f"This {type(estimator).__name__!r} has no attribute {self._function.__name__!r}: "
                f"calibration is None; probabilities need {wanted}"
            )
        return MethodType(self._function, estimator)


def probabilities(machine: KernelMachine, X: Any, evaluate: Evaluate, order: Order) -> Any:
    """Evaluate probabilities at all rows, (n, k), lazily where X is."""
    check_is_fitted(machine)
    model = machine.model_
    if model.calibration is None:
        raise ParameterError(
            f"calibration is {machine.calibration!r}, but the model was trained without; fit again"
        )
    return machine._evaluate(X, evaluate, np.empty((0, model.n_probabilities)), order)


OF_CLASSES = f"""
        Hold out a tenth of the rows, and fit probabilities of the classes on them.

        ``"sigmoid"`` is Platt's method (1999), ``"isotonic"`` the best ascending function, for many
        thousands of rows. Either is fitted once. With more than two classes all pairs share one,
        and their probabilities are coupled (Wu, Lin and Weng 2004); of functions of one class each
        (``multiclass="ovr"``, `CrammerSingerSVC`) a sigmoid is a softmax of the values with a
        fitted temperature.
        {HELD_OUT}"""
"""Text of `calibration`."""


@dataclass(kw_only=True, eq=False, repr=False)
class ClassProbabilities(KernelMachine):
    """Classifiers with probabilities of their classes."""

    @calibrated
    def predict_proba(self, X: Any, *, order: Order = "store") -> NDArray[np.float64] | da.Array:
        """Probabilities of the classes, (n, k), in the order of `classes_`.

        By the calibration, and so only where the parameter of that name is set. With more than two
        classes and ``multiclass="ovo"`` or ``"ddag"`` they are those that fit the probabilities of
        all pairs best (Wu, Lin and Weng 2004), moved where the predicted class would not have the
        largest. With more than two classes it always has. Lazy where `decision_function` is, and in
        its order.
        """
        return probabilities(self, X, self._by_rule(of_rows), order)

    @calibrated
    def predict_log_proba(
        self, X: Any, *, order: Order = "store"
    ) -> NDArray[np.float64] | da.Array:
        """Logarithms of `predict_proba`; that of 0 is -inf."""
        return probabilities(self, X, self._by_rule(_logarithms), order)

    def _deciding_rule(self, trained: str | None) -> str | None:
        """Give the rule by which `predict` decides, for functions trained for another one."""
        return trained

    def _by_rule(self, evaluate: Evaluate) -> Evaluate:
        """Evaluate with the rule by which `predict` decides."""
        check_is_fitted(self)
        rule = self._deciding_rule(self.model_.rule)
        return lambda model, rows, threads: evaluate(replace(model, rule=rule), rows, threads)


def of_rows(model: KernelExpansion, rows: RowSource, threads: int) -> NDArray[np.float64]:
    """Probabilities of some rows, (m, k)."""
    return model.probabilities(rows, threads=threads)


def _logarithms(model: KernelExpansion, rows: RowSource, threads: int) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logarithms: NDArray[np.float64] = np.log(model.probabilities(rows, threads=threads))
    return logarithms
