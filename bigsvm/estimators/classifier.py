"""What the classifiers share: labels and probabilities, of two classes or of many."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from bigsvm.errors import ParameterError
from bigsvm.estimators.arguments import ClassArguments
from bigsvm.estimators.base import KernelMachine
from bigsvm.estimators.bases import ClassifierMixin
from bigsvm.estimators.probabilities import OF_CLASSES, ClassProbabilities
from bigsvm.estimators.training_rows import ScoresRows
from bigsvm.models.expansion import label_array
from bigsvm.parameters.declaration import check_value
from bigsvm.parameters.names import ClassCalibration
from bigsvm.parameters.training import again
from bigsvm.votes import OF_PAIRS, libsvm_coefficients, support_classes

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ScoresRows, ClassifierMixin, ClassProbabilities, ClassArguments, KernelMachine):
    """Two classes, told apart by the sign of a decision function, or many, by several functions."""

    calibration: ClassCalibration | None = again(
        "calibration", text=OF_CLASSES, type=ClassCalibration | None
    )

    _own_parameters = KernelMachine._own_parameters | {
        "decision_function_shape",
        "break_ties",
    }

    def _parameters(self) -> TrainingParameters:
        self._rule(self.multiclass)
        return super()._parameters()

    def _start(self, labels: NDArray[Any] | None) -> KernelExpansion | None:
        if self.warm_start:
            # Imported here, as it takes Numba.
            from bigsvm.fit.problem import are_many_classes

            if are_many_classes(labels):
                raise ParameterError(
                    "warm_start is True, which is for two classes (Only binary classification is "
                    "supported with it), but y has more; set it to False"
                )
        return super()._start(labels)

    def _adopt(self, model: KernelExpansion) -> None:
        rule = None if model.rule is None else self._rule(model.rule)
        if rule != model.rule:
            # So that a saved model says the same.
            model = replace(model, rule=rule)
        super()._adopt(model)
        self.classes_: NDArray[Any] = label_array(model.classes)
        self.class_weight_: NDArray[np.float64] = class_weights_of(model)
        counts = [self.certificate_.get("n_iter")]
        if model.rule in OF_PAIRS:
            counts = self.certificate_.get("pairs", {}).get("n_iter_of_pairs", [None])
        self.n_iter_: NDArray[np.int64] | None = (
            None if None in counts else np.array(counts, np.int64)
        )

    def _rule(self, trained: str) -> str:
        """Give the rule of `bigsvm.votes` that decides, for functions trained for another one."""
        break_ties = self.break_ties
        for field in fields(ClassArguments):
            if field.name in ("decision_function_shape", "break_ties"):
                check_value(field, getattr(self, field.name))
        if break_ties and trained in ("ddag", "ovr"):
            raise ParameterError(
                f"break_ties must be False when multiclass is {trained!r}, which has no votes to "
                "be equal"
            )
        if trained in ("ovo", "ovo-break-ties"):
            return "ovo-break-ties" if break_ties else "ovo"
        return trained

    def _deciding_rule(self, trained: str | None) -> str | None:
        return None if trained is None else self._rule(trained)

    # -- the functions of many classes, as scikit-learn has them ---------------------------------

    @property
    def dual_coef_(self) -> NDArray[np.float64] | sp.csr_array:
        """Coefficients, (1, n_support), or with more than two classes (k - 1, n_support).

        With more than two classes a support vector has a coefficient for every other class, in the
        order of the classes, positive where it pulls towards the first of the two. With
        ``multiclass="ovr"`` they are those of the function of each class, (k, n_support). They are
        made at each access, as CSR if the support vectors are sparse.
        """
        model = self.model_
        if model.rule is None:
            return super().dual_coef_
        if model.rule not in OF_PAIRS:
            return self._as_vectors(sp.csr_array(model.coefficients.T))
        _, _, coefficients = libsvm_coefficients(model.coefficients, len(self.classes_))
        return self._as_vectors(coefficients)

    def _intercepts(self, model: KernelExpansion) -> NDArray[np.float64]:
        if model.rule is None:
            return super()._intercepts(model)
        return self._sign_of(model) * np.asarray(model.intercept)

    @staticmethod
    def _sign_of(model: KernelExpansion) -> float:
        """Those of pairs are positive for the first class."""
        return -1.0 if model.rule in OF_PAIRS else 1.0

    def _count_support(self, model: KernelExpansion) -> NDArray[np.int32]:
        if model.rule is not None and model.classes is not None:
            if model.rule not in OF_PAIRS:
                return np.asarray(model.certificate["n_support_of_classes"], np.int32)
            k = len(model.classes)
            of_class = support_classes(model.coefficients, k)
            return np.bincount(of_class, minlength=k).astype(np.int32)
        positive = int(np.count_nonzero(model.coefficients > 0))
        return np.array([len(model.support) - positive, positive], np.int32)

    # -- prediction ------------------------------------------------------------------------------

    def decision_function(
        self, X: Any, *, order: Order = "store"
    ) -> NDArray[np.float64] | da.Array:
        """Values of the decision function, (n,) for two classes: positive is ``classes_[1]``.

        For k classes the values are scikit-learn's. With ``decision_function_shape="ovr"`` they are
        votes, (n, k), to which the values of the pairs add less than half a vote. With ``"ovo"``
        they are the values of the pairs (0, 1), (0, 2), …, (1, 2), …, (n, k (k - 1) / 2), positive
        for the first class of a pair. With ``multiclass="ovr"`` they are the values of the classes,
        (n, k), in either case.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array. Values
        for a store are in the order of its rows; with ``order="input"`` in that of its input, in
        one block. Other containers have one order.
        """
        check_is_fitted(self)
        model = self.model_
        if model.rule is None:
            return self._values(X, order)
        self._rule(model.rule)
        if self.decision_function_shape == "ovo" and model.rule in OF_PAIRS:
            return self._evaluate(X, _values_of_pairs, np.empty((0, model.n_functions)), order)
        return self._evaluate(X, _values_of_classes, np.empty((0, len(self.classes_))), order)

    def predict(self, X: Any, *, order: Order = "store") -> NDArray[Any] | da.Array:
        """Labels, (n,), lazy where `decision_function` is, and in its order.

        With two classes the sign of the decision function decides. A calibration does not change
        labels: near the threshold a label may have the smaller probability. With more classes
        `multiclass` and `break_ties` decide.
        """
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ParameterError(
                "break_ties must be False when decision_function_shape is 'ovo', whose values "
                "tell nothing of ties"
            )
        classes, model = self.classes_, self.model_
        if model.rule is None:
            return self._stream(
                X, lambda values: classes[(values > 0).astype(np.intp)], classes.dtype, order
            )
        rule = self._rule(model.rule)
        return self._evaluate(
            X,
            lambda model, rows, threads: classes[model.decide(rows, rule=rule, threads=threads)],
            np.empty(0, classes.dtype),
            order,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self.warm_start
        return tags


def class_weights_of(model: KernelExpansion) -> NDArray[np.float64]:
    """Factors of C that a model was trained with, one for each class."""
    recorded = model.provenance.get("parameters", {}).get("class_weight")
    return np.ones(len(model.classes or ())) if recorded is None else np.array(recorded, np.float64)


def _values_of_pairs(model: KernelExpansion, rows: RowSource, threads: int) -> NDArray[np.float64]:
    """Give values as scikit-learn does: positive for the first of a pair."""
    values = model.decision_function(rows, threads=threads)
    return np.negative(values, out=values)


def _values_of_classes(
    model: KernelExpansion, rows: RowSource, threads: int
) -> NDArray[np.float64]:
    return model.class_values(rows, threads=threads)
