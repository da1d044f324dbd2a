"""`CrammerSingerSVC`: many classes at once, by one machine with a function for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from bigsvm.estimators.base import KernelMachine
from bigsvm.estimators.problem import label_array
from bigsvm.models.doubt import label_distribution, label_doubt, support_codes

if TYPE_CHECKING:
    import os

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.kernels import Kernel
    from bigsvm.models import KernelExpansion


class CrammerSingerSVC(ClassifierMixin, KernelMachine):  # type: ignore[misc]  # scikit-learn has no types
    """Crammer and Singer's multiclass machine, exact, out of core, resumable, certified.

    Minimises ``½ Σ_r |M_r|² + C Σ_i ξ_i`` over a function M_r for each class, ξ_i being by how much
    the function of the row's class fails to be 1 above all others (crammer-singer.txt, section 3;
    its β is 1 / C). One machine, where `SVC` trains one for each pair of classes. With the linear
    kernel it is that of scikit-learn's ``LinearSVC(multi_class="crammer_singer")``; of two classes
    it is a C-SVC without bias, of twice this C.

    Parameters
    ----------
    C : float, default 1.0
        Penalty of the loss; > 0.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or bigsvm.Kernel
        As `SVC` has it.
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto", "mean-distance"}
        ``"scale"`` and ``"auto"`` as `SVC` has them. ``"mean-distance"`` is
        1 / (2 · the average squared distance of two of 4096 rows).
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    fit_intercept : bool, default False
        Whether each function has a bias, which counts as one of its weights: 1 is added to the
        kernel.
    subproblem : {"exact", "fixed_point"}
        How the variables of one row are solved for: by sorting, or by the paper's fixed point
        iteration (section 5). They end at the same model.
    order : {"auto", "worst", "active", "sequential", "random"}
        Which row is solved for next. All but ``"auto"`` are the paper's, with
        ``working_set="all"``: ``"worst"`` the row of largest ψ (section 4); ``"active"`` the worst
        of the rows with a coefficient, and another one only when none of these violates by more
        than a level (section 6); ``"sequential"`` and ``"random"`` all rows in turn, in their order
        or in another random one in each pass. ``"auto"`` takes rows with a coefficient first, but
        lets no other wait whose ψ is much larger, and chooses working sets.
    cooling : {"log"} or None
        Whether the level of ``order="active"`` comes down to `tol` with the number of steps t, as
        0.999 / log₁₀(t + 10) (section 6), or is `tol` from the start. The other two schedules of
        the paper, exponential and linear, are at a tolerance of 1e-3 after 7 and 998 steps, and
        therefore no options.
    tol : float, default 1e-3
        Largest violation ψ of any row at which training has converged, in units of the margin: ε of
        the paper, which recommends 0.1: enough where only labels are wanted (docs/guide.md).
    certify : bool, default True
        As `SVC` has it.
    class_weight : dict, "balanced" or None
        Factors of C.
    warm_start : bool, default False
        Whether `fit` starts from the model of the last one, which must be of the same rows and
        classes: after a change of C, of a weight or of a label it takes fewer steps.
    working_set, memory, disk_cache, cache_dir, checkpoint, checkpoint_every, max_time, n_jobs,
    random_state
        As `SVC` has them.
    max_iter : int, default -1
        Limit of rows solved for; -1 is none.

    Attributes
    ----------
    classes_ : (k,) array
    support_ : (n_support,) int64
        Rows that are support vectors, ascending.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (k,) int32
        Support vectors of each class.
    dual_coef_ : (k, n_support) float64
        Of each function; a support vector has one above 0, for its own class, and they add up to 0.
    intercept_ : (k,) float64
    coef_ : (k, n_features) float64
        Of the linear kernel only.
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
    converged_, stop_reason_, duality_gap_, objective_, certificate_, model_
        As `SVC` has them.
    n_features_in_ : int

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

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Kernel = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        fit_intercept: bool = False,
        subproblem: str = "exact",
        order: str = "auto",
        cooling: str | None = None,
        tol: float = 1e-3,
        certify: bool = True,
        class_weight: dict[Any, float] | str | None = None,
        warm_start: bool = False,
        working_set: str = "auto",
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
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.subproblem = subproblem
        self.order = order
        self.cooling = cooling
        self.tol = tol
        self.certify = certify
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.working_set = working_set
        self.memory = memory
        self.disk_cache = disk_cache
        self.cache_dir = cache_dir
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.random_state = random_state

    def decision_function(self, X: Any) -> NDArray[np.float64] | da.Array:
        """Values of the classes' functions, (n, k); the largest decides.

        Of two classes what the second has more than the first, (n,), as scikit-learn has it.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array.
        """
        check_is_fitted(self)
        if len(self.classes_) == 2:
            return self._evaluate(X, _value_of_second, np.empty(0))
        return self._evaluate(X, _values, np.empty((0, len(self.classes_))))

    def predict(self, X: Any) -> NDArray[Any] | da.Array:
        """Labels by the largest value, (n,), lazy where `decision_function` is."""
        check_is_fitted(self)
        classes = self.classes_
        return self._evaluate(
            X,
            lambda model, rows, threads: classes[model.decide(rows, threads=threads)],
            np.empty(0, classes.dtype),
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy of the predictions for `X`, any container that `fit` takes.

        Without `y` the labels of the store are used; for a shuffled store give
        ``store.row_values(y, order="input")``.
        """
        return float(super().score(*self._to_score(X, y, sample_weight)))

    # Made anew each time: dense they may be many times as large as the model.

    @property
    def dual_coef_(self) -> NDArray[np.float64]:
        """Coefficients of the support vectors, (k, n_support)."""
        coefficients: Any = self.model_.coefficients
        return np.asarray(coefficients.T.toarray())

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the columns, (k, n_features); of the linear kernel only."""
        self._check_linear()
        found: Any = self.model_.coefficients.T @ self.model_.support_vectors
        return found.toarray() if sp.issparse(found) else np.asarray(found)

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
        self.classes_ = label_array(model.classes)

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
