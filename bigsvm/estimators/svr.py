"""`SVR` and `NuSVR`: regression, for arrays in memory and for stores on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bigsvm.estimators.arguments import HELD_OUT, KKT_GAP, IgnoredArguments, documented
from bigsvm.estimators.base import KernelMachine
from bigsvm.estimators.bases import RegressorMixin
from bigsvm.estimators.training_rows import ScoresRows
from bigsvm.parameters.groups import PairStepParameters
from bigsvm.parameters.training import again

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.row_values import Order
    from bigsvm.models import KernelExpansion


@dataclass(kw_only=True, eq=False, repr=False)
class Regressor(ScoresRows, RegressorMixin, IgnoredArguments, PairStepParameters, KernelMachine):
    """Predicts the values of the model's function."""

    tol: float = again("tol", text=KKT_GAP)
    calibration: Literal["laplace"] | None = again(
        "calibration",
        type=Literal["laplace"] | None,
        text=f"""
        Hold out a tenth of the rows, and fit the noise on them.

        ``"laplace"`` is the scale of a Laplace distribution of the targets around the predictions
        (Lin and Weng 2004).
        {HELD_OUT}""",
    )

    def _validated(self, X: Any, y: Any, types: list[Any]) -> tuple[Any, Any]:
        X, y = super()._validated(X, y, types)
        return X, np.asarray(y, np.float64)

    @property
    def noise_scale_(self) -> float:
        """Scale of a Laplace distribution of targets minus predictions, with `calibration` only."""
        if self.model_.calibration is None:
            raise AttributeError(
                "noise_scale_ is there with calibration='laplace' only, after a fit that was not "
                "interrupted"
            )
        return float(self.model_.calibration.numbers[0, 0])

    def predict(self, X: Any, *, order: Order = "store") -> NDArray[np.float64] | da.Array:
        """Values, (n,); a lazy Dask array for a store, a Zarr or Dask array.

        Values for a store are in the order of its rows; with ``order="input"`` in that of its
        input, in one block. Other containers have one order.
        """
        return self._values(X, order)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class SVR(Regressor):
    """ε-support vector regression, exact, out of core, resumable, certified.

    Minimises ``½ |w|² + C Σ max(0, |y − w·φ(x) − b| − ε)`` (Chang & Lin 2001, section 2.4).

    Attributes
    ----------
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
    noise_scale_ : float
        With ``calibration="laplace"`` only: scale σ of the Laplace distribution
        ``exp(-|z| / σ) / 2σ`` of targets minus predictions z, in units of the targets. Its standard
        deviation is √2 σ.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    NuSVR : `nu` in place of `epsilon`.
    SearchCV : Choose `C`, `gamma` and `epsilon`.

    References
    ----------
    Chang, C.-C. and Lin, C.-J. (2001). LIBSVM: a library for support vector machines.

    Examples
    --------
    >>> import numpy as np
    >>> import bigsvm
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = bigsvm.SVR(C=10, epsilon=0.05, gamma=1).fit(X, y)
    >>> model.converged_, model.score(X, y) > 0.95
    (True, True)
    """

    _formulation = "eps-svr"

    C: float = again(
        "C",
        text="""
        Penalty of the loss; > 0.

        ``inf`` allows no loss: all targets are inside the tube. Where there is no such function,
        training ends unconverged and says so.
        """,
    )
    epsilon: float = again("epsilon")


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class NuSVR(Regressor):
    """ν-support vector regression: told the share of support vectors instead of ε.

    Minimises ``½ |w|² + C (ν n ε + Σ max(0, |y − w·φ(x) − b| − ε))`` over ε as well, in LIBSVM's
    scale of C (Chang & Lin 2001, section 2.5, where C is divided by n).

    Attributes
    ----------
    epsilon_ : float
        Half-width of the tube that was found.
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
    noise_scale_ : float
        With ``calibration="laplace"`` only: scale σ of the Laplace distribution
        ``exp(-|z| / σ) / 2σ`` of targets minus predictions z, in units of the targets. Its standard
        deviation is √2 σ.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_
        As `SVC` has them.
    certificate_, history_, working_set_history_, fit_status_, shape_fit_, model_
        As `SVC` has them.
    n_features_in_ : int

    See Also
    --------
    SVR : `epsilon` in place of `nu`.

    References
    ----------
    Chang, C.-C. and Lin, C.-J. (2001). LIBSVM: a library for support vector machines.

    Examples
    --------
    >>> import numpy as np
    >>> import bigsvm
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = bigsvm.NuSVR(C=10, nu=0.2, gamma=1).fit(X, y)
    >>> model.converged_, model.score(X, y) > 0.95
    (True, True)
    """

    _formulation = "nu-svr"

    nu: float = again("nu")
    C: float = again("C", text="Penalty of the loss; > 0.")

    def _adopt(self, model: KernelExpansion) -> None:
        super()._adopt(model)
        self.epsilon_: float | None = self.certificate_.get("epsilon")
