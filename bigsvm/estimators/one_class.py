"""`OneClassSVM` and `L2OneClassSVM`: where most rows are, in memory and in stores on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from bigsvm.estimators.base import KernelMachine

if TYPE_CHECKING:
    import os

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.kernels import Kernel
    from bigsvm.models import KernelExpansion


class OutlierDetector(OutlierMixin, KernelMachine):  # type: ignore[misc]  # scikit-learn has no types
    """Rows inside and outside, told apart by the sign of the decision function."""

    _needs_y = False

    def decision_function(self, X: Any) -> NDArray[np.float64] | da.Array:
        """Signed distances, (n,): positive is inside.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array.
        """
        return self._values(X)

    def score_samples(self, X: Any) -> NDArray[np.float64] | da.Array:
        """Values before the offset is taken off, (n,), lazy where `decision_function` is."""
        return self._values(X) + self.offset_[0]

    def predict(self, X: Any) -> NDArray[np.int64] | da.Array:
        """1 for rows inside, -1 for others, (n,), lazy where `decision_function` is."""
        check_is_fitted(self)
        return self._stream(X, lambda values: np.where(values >= 0, 1, -1), np.int64)

    def _adopt(self, model: KernelExpansion) -> None:
        super()._adopt(model)
        self.offset_ = -self.intercept_


class OneClassSVM(OutlierDetector):
    """Unsupervised outlier detection, exact, out of core, resumable, certified.

    Minimises ``½ |w|² − ν n ρ + Σ max(0, ρ − w·φ(x))`` (libsvm-2.2.txt, section 2.3, with w
    and ρ times ν n); a row is inside where ``w·φ(x) ≥ ρ``.

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
    nu : float, default 0.5
        In (0, 1]: at most this share of the rows (by weight) is outside, at least this share are
        support vectors.
    warm_start, selection, working_set, memory, disk_cache, cache_dir, checkpoint,
    checkpoint_every, max_iter, max_time, n_jobs, random_state
        As `SVC` has them.
    shrinking, cache_size, verbose
        Accepted for compatibility with scikit-learn and ignored; values other than its defaults
        cause a warning that names what to use instead.

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
        Of the linear kernel only.
    converged_, stop_reason_, gap_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int
    """

    _formulation = "one-class"

    def __init__(
        self,
        *,
        nu: float = 0.5,
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


class L2OneClassSVM(OutlierDetector):
    """Outlier detection by a minimal enclosing ball: core vector machine, Frank-Wolfe, certified.

    Minimises ``½ |w|² − ρ + C/2 Σ ξ²`` with ``w·φ(x_i) ≥ ρ − ξ_i``; the rbf and laplacian kernels
    have the same value for all k(x, x), and with such a kernel this is support vector data
    description, ``r² + C/4 Σ ξ²`` with ``|φ(x_i) − c|² ≤ r² + ξ_i``. Trained as `L2SVC` is
    (frank-wolfe.txt; Tsang, Kwok & Cheung 2005), from random samples and then full sweeps, or from
    samples alone. The kernel must be positive semidefinite.

    The support vectors are the training rows that are outside: by ``ξ_i``, which tends to 0 as C
    grows.

    Parameters
    ----------
    C : float, default 1.0
        Penalty of the loss; > 0. The larger, the fewer rows are outside.
    solver, sampling, empty_samples, first_points, ball_tol, certify
        As `L2SVC` has them.
    kernel, degree, gamma, coef0, warm_start, selection, working_set, memory, disk_cache, cache_dir,
    checkpoint, checkpoint_every, max_iter, max_time, n_jobs, random_state
        As `L2SVC` has them.

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
        Of the linear kernel only.
    converged_, gap_
        As `L2SVC` has them; the gap is in units of ρ.
    stop_reason_, duality_gap_, objective_, n_iter_, certificate_, model_
        As `SVC` has them. The objective is ``1 / (2ρ)``.
    n_features_in_ : int

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

    def __init__(
        self,
        C: float = 1.0,
        *,
        solver: str = "pairwise",
        sampling: float | str = 60,
        empty_samples: int = 1,
        first_points: str = "random",
        ball_tol: float = 1e-6,
        certify: bool = True,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        warm_start: bool = False,
        selection: str = "auto",
        working_set: str = "auto",
        rows_at_once: int | None = None,
        shrinking: bool | None = None,
        memory: int | str = "1GB",
        disk_cache: int | str = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        max_iter: int = -1,
        max_time: float | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.C = C
        self.solver = solver
        self.sampling = sampling
        self.empty_samples = empty_samples
        self.first_points = first_points
        self.ball_tol = ball_tol
        self.certify = certify
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.warm_start = warm_start
        self.selection = selection
        self.working_set = working_set
        self.rows_at_once = rows_at_once
        self.shrinking = shrinking
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state
