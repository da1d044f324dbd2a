"""`SVR` and `NuSVR`: regression, for arrays in memory and for stores on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from bigsvm.estimators.base import KernelMachine

if TYPE_CHECKING:
    import os

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.kernels import Kernel
    from bigsvm.models import KernelExpansion


class Regressor(RegressorMixin, KernelMachine):  # type: ignore[misc]  # scikit-learn has no types
    """Predicts the values of the model's function."""

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = super()._validated(X, y)
        return X, np.asarray(y, np.float64)

    def predict(self, X: Any) -> NDArray[np.float64] | da.Array:
        """Values, (n,); a lazy Dask array for a store, a Zarr or Dask array."""
        return self._values(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictions for `X`, any container that `fit` takes.

        Without `y` the targets of the store are used; for a shuffled store give
        ``store.row_values(y, order="input")``.
        """
        return float(super().score(*self._to_score(X, y, sample_weight)))


class SVR(Regressor):
    """ε-support vector regression, exact, out of core, resumable, certified.

    Minimises ``½ |w|² + C Σ max(0, |y − w·φ(x) − b| − ε)`` (libsvm-2.2.txt, section 2.4).

    Parameters
    ----------
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` is 1 / (n_features · X.var()), ``"auto"`` 1 / n_features, ``"mean-distance"``
        1 / (2 · the average squared distance of two of 4096 rows). With sample weights the
        variance is the weighted one, so that a weight of 2 is the row twice and of 0 its absence;
        scikit-learn's SVC takes the plain one.
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    tol : float, default 1e-3
        KKT gap over all rows at which training has converged.
    C : float, default 1.0
        Penalty of what is outside of the tube; > 0.
    epsilon : float, default 0.1
        Half-width of the tube within which nothing is lost, in units of y; >= 0.
    warm_start, selection, working_set, memory, disk_cache, cache_dir, checkpoint,
    checkpoint_every, max_iter, max_time, n_jobs, random_state
        As `SVC` has them.
    shrinking, cache_size, verbose
        Accepted for compatibility with scikit-learn and ignored; values other than its defaults
        cause a warning that names what to use instead.

    Attributes
    ----------
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (1,) int32
    dual_coef_ : (1, n_support) float64
    intercept_ : (1,) float64
    coef_ : (1, n_features) float64
        Of the linear kernel only.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int
    """

    _formulation = "eps-svr"

    def __init__(
        self,
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        shrinking: bool | None = None,
        cache_size: float = 200,
        verbose: bool = False,
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose


class NuSVR(Regressor):
    """ν-support vector regression: told the share of support vectors instead of ε.

    Minimises ``½ |w|² + C (ν n ε + Σ max(0, |y − w·φ(x) − b| − ε))`` over ε as well, in LIBSVM's
    scale of C (libsvm-2.2.txt, section 2.5, where C is divided by n).

    Parameters
    ----------
    nu : float, default 0.5
        In (0, 1]: at most this share of the rows (by weight) is outside of the tube, at least this
        share are support vectors.
    C : float, default 1.0
        Penalty of what is outside of the tube; > 0.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` is 1 / (n_features · X.var()), ``"auto"`` 1 / n_features, ``"mean-distance"``
        1 / (2 · the average squared distance of two of 4096 rows). With sample weights the
        variance is the weighted one, so that a weight of 2 is the row twice and of 0 its absence;
        scikit-learn's SVC takes the plain one.
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    tol : float, default 1e-3
        KKT gap over all rows at which training has converged.
    warm_start, selection, working_set, memory, disk_cache, cache_dir, checkpoint,
    checkpoint_every, max_iter, max_time, n_jobs, random_state
        As `SVC` has them.
    shrinking, cache_size, verbose
        Accepted for compatibility with scikit-learn and ignored; values other than its defaults
        cause a warning that names what to use instead.

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
        Of the linear kernel only.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int
    """

    _formulation = "nu-svr"

    def __init__(
        self,
        *,
        nu: float = 0.5,
        C: float = 1.0,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        shrinking: bool | None = None,
        cache_size: float = 200,
        verbose: bool = False,
    ) -> None:
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose

    def _adopt(self, model: KernelExpansion) -> None:
        super()._adopt(model)
        self.epsilon_ = self.certificate_["epsilon"]
