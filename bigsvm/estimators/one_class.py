"""`OneClassSVM` and `L2OneClassSVM`: where most rows are, in memory and in stores on disk."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bigsvm.estimators.arguments import HELD_OUT, KKT_GAP, IgnoredArguments, documented
from bigsvm.estimators.base import KernelMachine
from bigsvm.estimators.bases import OutlierMixin
from bigsvm.estimators.probabilities import calibrated, of_rows, probabilities
from bigsvm.parameters.groups import BallParameters, PairStepParameters
from bigsvm.parameters.training import again

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_values import Order
    from bigsvm.models import KernelExpansion


@dataclass(kw_only=True, eq=False, repr=False)
class OutlierDetector(OutlierMixin, PairStepParameters, KernelMachine):
    """Rows inside and outside, told apart by the sign of the decision function."""

    _needs_y = False
    calibration: Literal["density"] | None = again(
        "calibration",
        type=Literal["density"] | None,
        text=f"""
        Hold out a tenth of the rows, and fit probabilities to be inside on them.

        ``"density"`` divides the rows inside and outside by ten marks (Que and Lin, as in LIBSVM).
        {HELD_OUT}""",
    )

    def decision_function(
        self, X: Any, *, order: Order = "store"
    ) -> NDArray[np.float64] | da.Array:
        """Signed distances, (n,): positive is inside.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array. Values
        for a store are in the order of its rows; with ``order="input"`` in that of its input, in
        one block. Other containers have one order.
        """
        return self._values(X, order)

    def score_samples(self, X: Any, *, order: Order = "store") -> NDArray[np.float64] | da.Array:
        """Values before the offset is taken off, (n,), lazy and ordered as `decision_function`."""
        return self._values(X, order) + self.offset_[0]

    def predict(self, X: Any, *, order: Order = "store") -> NDArray[np.int64] | da.Array:
        """1 for rows inside, -1 for others, (n,), lazy and ordered as `decision_function`."""
        check_is_fitted(self)
        return self._stream(X, lambda values: np.where(values >= 0, 1, -1), np.int64, order)

    @calibrated
    def predict_proba(self, X: Any, *, order: Order = "store") -> NDArray[np.float64] | da.Array:
        """Probabilities to be outside and inside, (n, 2): of the labels -1 and 1 in this order.

        By ten marks (`calibration`), so that there are eleven different ones: 0.5 or more to be
        inside where `predict` is 1, 0.5 or less where it is -1. Lazy and ordered as
        `decision_function`.
        """
        return probabilities(self, X, of_rows, order)

    def _adopt(self, model: KernelExpansion) -> None:
        super()._adopt(model)
        self.offset_: NDArray[np.float64] = -self.intercept_


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class OneClassSVM(OutlierDetector, IgnoredArguments):
    """Unsupervised outlier detection, exact, out of core, resumable, certified.

    Minimises ``½ |w|² − ν n ρ + Σ max(0, ρ − w·φ(x))`` (Chang & Lin 2001, section 2.3, with w
    and ρ times ν n); a row is inside where ``w·φ(x) ≥ ρ``.

    Attributes
    ----------
    offset_ : (1,) float64
        ``decision_function = score_samples - offset_``.
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (1,) int32
    dual_coef_ : (1, n_support) float64
    intercept_ : (1,) float64
    coef_ : (1, n_features) float64
        For the linear kernel only.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    L2OneClassSVM : Squared losses, for very many rows.
    SearchCV : Choose `gamma`, also without labels.

    References
    ----------
    Chang, C.-C. and Lin, C.-J. (2001). LIBSVM: a library for support vector machines.

    Examples
    --------
    >>> import numpy as np
    >>> import bigsvm
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = bigsvm.OneClassSVM(nu=0.1, gamma=0.5).fit(X)
    >>> model.converged_, model.predict([[0.0, 0.0], [9.0, 9.0]]).tolist()
    (True, [1, -1])
    """

    _formulation = "one-class"

    nu: float = again("nu")
    tol: float = again("tol", text=KKT_GAP)


@documented
@dataclass(eq=False, repr=False)
class L2OneClassSVM(BallParameters, OutlierDetector):
    """Outlier detection by a minimal enclosing ball: core vector machine, Frank-Wolfe, certified.

    Minimises ``½ |w|² − ρ + C/2 Σ ξ²`` with ``w·φ(x_i) ≥ ρ − ξ_i``; the rbf and laplacian kernels
    have the same value for all k(x, x), and with such a kernel this is support vector data
    description, ``r² + C/4 Σ ξ²`` with ``|φ(x_i) − c|² ≤ r² + ξ_i``. Trained as `L2SVC` is
    (Frandi et al. 2013; Tsang, Kwok & Cheung 2005), from random samples and then full sweeps, or
    from samples alone. The kernel must be positive semidefinite.

    The support vectors are the training rows that are outside: by ``ξ_i``, which tends to 0 as C
    grows. The larger C, the fewer rows are outside.

    Attributes
    ----------
    offset_ : (1,) float64
        ``decision_function = score_samples - offset_``: 1, as values are in units of ρ.
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (1,) int32
    dual_coef_ : (1, n_support) float64
    intercept_ : (1,) float64
    coef_ : (1, n_features) float64
        For the linear kernel only.
    gamma_ : float
        Gamma of the kernel as a number, also where `gamma` is a word.
    converged_, gap_
        As `L2SVC` has them; the gap is in units of ρ.
    stop_reason_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them. The objective is ``1 / (2ρ)``.
    n_features_in_ : int

    See Also
    --------
    OneClassSVM : The share of rows outside is given.
    L2SVC : The same for two classes.

    References
    ----------
    Frandi, E., Ñanculef, R., Gasparo, M. G., Lodi, S. and Sartori, C. (2013). Training support
    vector machines using Frank-Wolfe optimization methods. International Journal of Pattern
    Recognition and Artificial Intelligence 27 (3).

    Examples
    --------
    >>> import bigsvm
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = bigsvm.L2OneClassSVM(C=10, gamma=0.1).fit(X)
    >>> model.converged_, model.predict([[0, 0], [9, 9]]).tolist()
    (True, [1, -1])
    """

    _formulation = "l2-one-class"

    C: float = again("C", text="Penalty of the loss; > 0.")
    _: KW_ONLY
    tol: float = again("tol", text=f"{KKT_GAP} The search for a ball ends at `ball_tol`.")
    certify: bool = again("certify")
