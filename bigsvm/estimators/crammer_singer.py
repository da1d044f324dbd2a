"""`CrammerSingerSVC`: many classes at once, by one machine with a function for each."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bigsvm.estimators.arguments import documented
from bigsvm.estimators.bases import ClassifierMixin
from bigsvm.estimators.classifier import class_weights_of
from bigsvm.estimators.probabilities import OF_CLASSES, ClassProbabilities
from bigsvm.estimators.training_rows import ScoresRows
from bigsvm.models.doubt import label_distribution, label_doubt, support_codes
from bigsvm.models.expansion import label_array
from bigsvm.parameters.groups import CrammerSingerParameters
from bigsvm.parameters.names import ClassCalibration
from bigsvm.parameters.training import again

if TYPE_CHECKING:
    import dask.array as da
    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.models import KernelExpansion


@documented
@dataclass(eq=False, repr=False)
class CrammerSingerSVC(ScoresRows, ClassifierMixin, CrammerSingerParameters, ClassProbabilities):
    """Crammer and Singer's multiclass machine, exact, out of core, resumable, certified.

    Minimises ``½ Σ_r |M_r|² + C Σ_i ξ_i`` over a function M_r for each class, ξ_i being by how much
    the function of the row's class fails to be 1 above all others (Crammer & Singer 2001, section
    3; its β is 1 / C). One machine, where `SVC` trains one for each pair of classes. With the
    linear kernel it is that of scikit-learn's ``LinearSVC(multi_class="crammer_singer")``; of two
    classes it is a C-SVC without bias, of twice this C.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors, ascending.
    support_vectors_ : (n_support, n_features) array or CSR
    class_weight_ : (k,) float64
        Factors of `C` for each class.
    n_support_ : (k,) int32
        Support vectors of each class.
    dual_coef_ : (k, n_support) float64
        Coefficients of each function. Those of a support vector add up to 0, and only that of its
        class is positive.
    intercept_ : (k,) float64
    coef_ : (k, n_features) float64
        For the linear kernel only.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    label_distribution_ : (n_support, k) float64
        η: which classes each support vector could be taken for, in shares that add up to 1. All of
        it is on the label of a row that is no support vector.
    label_doubt_ : (n_support,) float64
        ‖τ‖, the distance of η from the label, up to √2: rows with the largest may well be labelled
        wrong (section 6, figure 8).
    gap_ : float or None
        Largest violation over all rows.
    n_iter_ : int
        Rows solved for.
    converged_, stop_reason_, duality_gap_, objective_, certificate_
        As `SVC` has them.
    history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    SVC : A function for each pair of classes, or for each class.

    References
    ----------
    Crammer, K. and Singer, Y. (2001). On the algorithmic implementation of multiclass kernel-based
    vector machines. Journal of Machine Learning Research 2, 265–292.

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = bigsvm.CrammerSingerSVC(C=10, gamma=0.1).fit(X, y)
    >>> model.converged_, model.decision_function(X).shape
    (True, (150, 3))
    """

    _formulation = "crammer-singer"

    C: float = again("C", text="Penalty of the loss; > 0.")
    _: KW_ONLY
    tol: float = again(
        "tol",
        text="""
        Largest violation ψ of a row at which training has converged.

        It is in units of the margin: ε of the paper, which recommends 0.1: enough where only labels
        are wanted (docs/guide.md).
        """,
    )
    calibration: ClassCalibration | None = again(
        "calibration", text=OF_CLASSES, type=ClassCalibration | None
    )
    max_iter: int = again(
        "max_iter", text="Stop after this number of rows that were solved for; -1 is never."
    )
    certify: bool = again("certify")
    class_weight: dict[Any, float] | str | None = again("class_weight")

    def decision_function(
        self, X: Any, *, order: Order = "store"
    ) -> NDArray[np.float64] | da.Array:
        """Values of the classes' functions, (n, k); the largest decides.

        With two classes, the value of the second minus that of the first, (n,), as in scikit-learn.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array. Values
        for a store are in the order of its rows; with ``order="input"`` in that of its input, in
        one block. Other containers have one order.
        """
        check_is_fitted(self)
        if len(self.classes_) == 2:
            return self._evaluate(X, _value_of_second, np.empty(0), order)
        return self._evaluate(X, _values, np.empty((0, len(self.classes_))), order)

    def predict(self, X: Any, *, order: Order = "store") -> NDArray[Any] | da.Array:
        """Labels by the largest value, (n,), lazy and ordered as `decision_function`."""
        check_is_fitted(self)
        classes = self.classes_
        return self._evaluate(
            X,
            lambda model, rows, threads: classes[model.decide(rows, threads=threads)],
            np.empty(0, classes.dtype),
            order,
        )

    # Made anew each time: dense they may be many times as large as the model.

    @property
    def dual_coef_(self) -> NDArray[np.float64] | sp.csr_array:
        """Coefficients of the support vectors, (k, n_support); CSR if the vectors are sparse."""
        coefficients: Any = self.model_.coefficients
        return self._as_vectors(coefficients.T)

    @property
    def label_distribution_(self) -> NDArray[np.float64]:
        """η of the support vectors, (n_support, k)."""
        return label_distribution(self.model_)

    @property
    def label_doubt_(self) -> NDArray[np.float64]:
        """‖τ‖ of the support vectors, (n_support,)."""
        return label_doubt(self.model_)

    def _adopt(self, model: KernelExpansion) -> None:
        super()._adopt(model)
        self.classes_: NDArray[Any] = label_array(model.classes)
        self.class_weight_: NDArray[np.float64] = class_weights_of(model)

    def _intercepts(self, model: KernelExpansion) -> NDArray[np.float64]:
        return np.asarray(model.intercept)

    def _count_support(self, model: KernelExpansion) -> NDArray[np.int32]:
        return np.bincount(support_codes(model), minlength=model.n_functions).astype(np.int32)


def _values(model: KernelExpansion, rows: RowSource, threads: int) -> NDArray[np.float64]:
    return model.decision_function(rows, threads=threads)


def _value_of_second(model: KernelExpansion, rows: RowSource, threads: int) -> NDArray[np.float64]:
    first, second = model.decision_function(rows, threads=threads).T
    difference: NDArray[np.float64] = second - first
    return difference
