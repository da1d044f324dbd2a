"""`SVC`: the C-support vector classifier, for arrays in memory and for stores on disk."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from bigsvm.budget import available_processors
from bigsvm.data.sources import as_row_source, is_dask_array, is_zarr_array
from bigsvm.data.store import Store, open_store
from bigsvm.errors import DataError
from bigsvm.estimators.fitting import ClassifierParameters, fit_classifier
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.models import KernelExpansion


class SVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """C-support vector classification, exact, out of core, resumable, certified.

    Trains on NumPy arrays and SciPy sparse matrices as scikit-learn's `SVC` does, and on a store, a
    Zarr array or a Dask array without ever holding it in memory.

    Parameters
    ----------
    C : float, default 1.0
        Penalty of the hinge loss, ``C Σ ξ``; > 0.
    kernel : {"rbf", "linear", "poly", "sigmoid"}
    degree : int, default 3
        Of the polynomial kernel.
    gamma : float or {"scale", "auto"}
        ``"scale"`` is 1 / (n_features · X.var()), ``"auto"`` 1 / n_features. With sample weights
        the variance is the weighted one, so that a weight of 2 is the row twice and of 0 its
        absence; scikit-learn's SVC takes the plain one.
    coef0 : float, default 0.0
        Of the polynomial and sigmoid kernels.
    tol : float, default 1e-3
        KKT gap over all rows at which training has converged.
    class_weight : dict, "balanced" or None
    selection : {"auto", "second-order", "hmg", "mvp"}
        How the solver chooses a pair of variables.
    working_set : {"auto", "all"}
        ``"auto"`` works on parts of the rows, chosen anew as training goes on. ``"all"`` takes pair
        steps over all rows at once, with kernel rows on demand: the papers' own algorithm. All rows
        have to fit in `memory`, and the kernel rows get the rest of it.
    memory : int or str, default "1GB"
        Bytes that all arrays of training together may take.
    disk_cache : int or str, default 0
        Bytes of kernel rows that may be kept on disk where memory holds too few of them, with
        ``working_set="all"``. Rows are kept only where reading one back is cheaper than computing
        it, which is measured first. They serve later runs on the same data with the same kernel.
    cache_dir : path or None
        Folder for them; None is the system's for temporary files.
    checkpoint : path or None
        Directory to save the run to and to resume it from.
    checkpoint_every : float, default 60.0
        Seconds between two saves.
    max_iter : int, default -1
        Limit of pair steps; -1 is none.
    max_time : float or None
        Limit in seconds.
    n_jobs : int or None
        Threads; None is all processors this process may use. A lazy prediction has as many as the
        Dask scheduler that computes it.
    random_state : int or None
        Seed of the random samples training starts from, and of the choice among more violating rows
        than a working set holds; None is 0, so that a fit is repeatable.

    Attributes
    ----------
    classes_ : (2,) array
    support_ : (n_support,) int64
        Rows that are support vectors.
    support_vectors_ : (n_support, n_features) array or CSR
    n_support_ : (2,) int32
        Support vectors of each class.
    dual_coef_ : (1, n_support) float64
    intercept_ : (1,) float64
    coef_ : (1, n_features) float64
        Of the linear kernel only.
    converged_ : bool
    stop_reason_ : str
    gap_, duality_gap_, objective_ : float or None
        KKT gap over all rows, primal minus dual objective, dual objective; None where an
        interrupted run has not completed a sweep.
    n_iter_ : int
        Pair steps.
    certificate_ : dict
        All that training proved and cost.
    model_ : KernelExpansion
        The model itself, which can be saved.
    n_features_in_ : int

    Examples
    --------
    >>> import bigsvm
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = bigsvm.SVC(C=10, gamma=1).fit(X, y)
    >>> model.converged_, bool(model.gap_ <= model.tol)
    (True, True)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        class_weight: dict[Any, float] | str | None = None,
        selection: str = "auto",
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
        self.tol = tol
        self.class_weight = class_weight
        self.selection = selection
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array, sparse matrix, path of a store, Store, zarr.Array or dask array
            (n, d). A store brings its labels and weights.
        y : (n,) array
            Two classes of any type.
        sample_weight : (n,) array, optional
            In [0, ∞).

        Returns
        -------
        SVC
            This estimator, fitted; a `ConvergenceWarning` says so if training did not converge.

        Raises
        ------
        ParameterError, DataError, MemoryBudgetError, CheckpointError, StoreError
        """
        source, labels, weights = self._training_data(X, y, sample_weight)
        # Handed over rather than lent: those of a store would take 8 bytes a row for the whole run.
        last_reference = [labels]
        del labels
        self._adopt(fit_classifier(source, last_reference.pop(), weights, self._parameters()))
        if not self.converged_:
            reason = StopReason(self.stop_reason_)
            gap = "unknown" if self.gap_ is None else f"{self.gap_:.3g}"
            warnings.warn(
                f"training did not converge: {reason.sentence} (KKT gap {gap}, tol {self.tol:g})",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64] | da.Array:
        """Signed distances, (n,): positive is ``classes_[1]``.

        A NumPy or sparse `X` gives an array; a store, Zarr or Dask array a lazy Dask array.
        """
        check_is_fitted(self)
        return self._stream(X, lambda values: values, np.float64)

    def predict(self, X: Any) -> NDArray[Any] | da.Array:
        """Labels, (n,), lazy where `decision_function` is."""
        check_is_fitted(self)
        classes = self.classes_
        return self._stream(X, lambda values: classes[(values > 0).astype(np.intp)], classes.dtype)

    # -- in between ------------------------------------------------------------------------------

    def _parameters(self) -> ClassifierParameters:
        return ClassifierParameters(
            C=self.C,
            kernel=self.kernel,
            degree=self.degree,
            gamma=self.gamma,
            coef0=self.coef0,
            tol=self.tol,
            class_weight=self.class_weight,
            selection=self.selection,
            working_set=self.working_set,
            seed=self.random_state or 0,
            memory=self.memory,
            disk_cache=self.disk_cache,
            cache_dir=None if self.cache_dir is None else os.fspath(self.cache_dir),
            threads=None if self.n_jobs in (None, -1) else self.n_jobs,
            checkpoint=None if self.checkpoint is None else os.fspath(self.checkpoint),
            checkpoint_every=self.checkpoint_every,
            max_iter=self.max_iter,
            max_seconds=float("inf") if self.max_time is None else self.max_time,
        )

    def _training_data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
    ) -> tuple[RowSource, NDArray[Any], NDArray[np.float64] | None]:
        source: RowSource
        if isinstance(X, str | os.PathLike | Store):
            store = X if isinstance(X, Store) else open_store(X)
            source = store.rows
            labels = store.labels() if y is None else np.asarray(y)
            weights = store.sample_weight() if sample_weight is None else sample_weight
        elif _is_lazy(X):
            if y is None:
                raise DataError("y is None; labels are needed beside a Zarr or Dask array")
            source, labels, weights = as_row_source(X), np.asarray(y), sample_weight
        else:
            X, y = validate_data(
                self, X, y, accept_sparse="csr", accept_large_sparse=True, order="C",
                dtype=[np.float32, np.float64],
            )  # fmt: skip
            check_classification_targets(y)
            if sample_weight is not None:
                sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
            return as_row_source(X), y, sample_weight
        self.n_features_in_ = source.n_columns
        weights = None if weights is None else np.asarray(weights, np.float64)
        return source, column_or_1d(labels), weights

    def _adopt(self, model: KernelExpansion) -> None:
        """Show a model under scikit-learn's names."""
        self.model_ = model
        self.classes_ = np.asarray(model.classes)
        self.support_ = model.support
        self.support_vectors_ = model.support_vectors
        self.dual_coef_ = model.coefficients[None, :]
        self.intercept_ = np.array([model.intercept])
        positive = int(np.count_nonzero(model.coefficients > 0))
        self.n_support_ = np.array([len(model.support) - positive, positive], np.int32)
        self.certificate_ = dict(model.certificate)
        for name in ("converged", "stop_reason", "gap", "duality_gap", "objective", "n_iter"):
            setattr(self, f"{name}_", self.certificate_[name])
        if self.kernel == "linear":
            self.coef_ = np.asarray(self.dual_coef_ @ model.support_vectors).reshape(1, -1)

    def _stream(self, X: Any, map_values: Any, dtype: Any) -> Any:
        if isinstance(X, str | os.PathLike | Store):
            rows = (X if isinstance(X, Store) else open_store(X)).rows
            self.model_.check_columns(rows.n_columns, rows.first_index)
            X = rows.as_dask()
        elif is_zarr_array(X):
            X = as_row_source(X).as_dask()
        if is_dask_array(X):
            self.model_.check_columns(X.shape[1])
            return X.map_blocks(
                _block_values, model=self.model_, map_values=map_values,
                drop_axis=1, dtype=dtype, meta=np.empty(0, dtype),
            )  # fmt: skip
        X = validate_data(
            self, X, accept_sparse="csr", accept_large_sparse=True, order="C",
            dtype=[np.float32, np.float64], reset=False,
        )  # fmt: skip
        threads = available_processors() if self.n_jobs in (None, -1) else self.n_jobs
        return map_values(self.model_.decision_function(as_row_source(X), threads=threads))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags


def _is_lazy(X: Any) -> bool:
    return is_dask_array(X) or is_zarr_array(X)


def _block_values(rows: Any, model: KernelExpansion, map_values: Any) -> Any:
    """Decision values of one block of a Dask array; on one thread, as Dask runs many at once."""
    if rows.shape[0] == 0:
        return map_values(np.empty(0))
    return map_values(model.decision_function(as_row_source(rows)))
