"""A model as the fitted estimator scikit-learn would have made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.kernel_matrix import row_numbers
from bigsvm.errors import ModelError
from bigsvm.interchange.fitted import model_of
from bigsvm.votes import libsvm_coefficients

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.base import BaseEstimator

    from bigsvm.data.scaler import Scaler
    from bigsvm.models import KernelExpansion

KINDS = {
    "c-svc": "SVC",
    "nu-svc": "NuSVC",
    "one-class": "OneClassSVM",
    "eps-svr": "SVR",
    "nu-svr": "NuSVR",
}
MOST_SCALED_COLUMNS = 1 << 24
"""Most columns of a scaled model: StandardScaler would take half a gigabyte for this many."""
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")


def to_scikit_learn(
    model: KernelExpansion | BaseEstimator,
) -> Any:  # noqa: ANN401 (an estimator of sklearn.svm)
    """Make a fitted estimator of `sklearn.svm` that predicts as the model does, in float64.

    It has no probabilities, as those of scikit-learn are deprecated. For a model of scaled rows a
    pipeline is returned. Its first step is a `StandardScaler` that scales rows as the training rows
    were, not necessarily by standard deviations.

    Parameters
    ----------
    model : KernelExpansion or fitted estimator of bigsvm
        A model gets scikit-learn's default `decision_function_shape`; an estimator keeps its own.

    Raises
    ------
    ModelError
        If scikit-learn's SVMs do not have its kernel, or its rule is not a vote of pairs.
    """
    from sklearn import svm

    given, model = model, model_of(model)
    name = model.kind
    if model.kernel.name not in KERNELS or name not in KINDS:
        raise ModelError(f"scikit-learn has no {name} with the kernel {model.kernel.name}")
    if model.classes is not None and len(model.classes) == 1:
        raise ModelError("scikit-learn has no SVM of one class only")
    described = model.kernel.describe()
    parameters = {k: described[k] for k in ("gamma", "coef0", "degree") if k in described}
    estimator = getattr(svm, KINDS[name])(kernel=described["name"], **parameters)
    if model.rule is not None:
        if model.rule not in ("ovo", "ovo-break-ties"):
            raise ModelError(f"scikit-learn has votes of pairs of classes only, no {model.rule}")
        estimator.set_params(
            break_ties=model.rule == "ovo-break-ties",
            decision_function_shape=getattr(given, "decision_function_shape", "ovr"),
        )
    order, coefficients, counts = _lay_out(model)
    vectors: Any = model.support_vectors
    vectors = vectors[order].astype(np.float64)
    rows = model.support[order]
    if model.kernel.name == "precomputed":
        rows, vectors = row_numbers(vectors, np.arange(len(rows))) - 1, np.empty((0, 0))
    is_sparse = sp.issparse(vectors)
    estimator._sparse = is_sparse
    estimator.n_features_in_ = model.n_features
    estimator.shape_fit_ = (
        int(model.provenance.get("n_rows") or len(rows)),
        model.n_features,
    )
    estimator.support_ = rows.astype(np.int32)
    estimator.support_vectors_ = _with_int32(vectors) if is_sparse else vectors
    estimator.dual_coef_ = _with_zeros(coefficients) if is_sparse else coefficients
    # What LIBSVM itself is given decides for the first class where it is positive, and is what an
    # estimator of more than two classes shows.
    estimator.intercept_ = np.atleast_1d(model.intercept) * (1.0 if model.rule is None else -1.0)
    sign = -1.0 if model.classes is not None and model.rule is None else 1.0
    estimator._dual_coef_ = sign * estimator.dual_coef_
    estimator._intercept_ = sign * estimator.intercept_
    estimator._n_support = np.array(counts, np.int32)
    estimator._probA = estimator._probB = np.empty(0)
    estimator._effective_probability = False
    estimator._gamma = float(parameters.get("gamma", 0.0))
    steps = model.certificate.get("pairs", {}).get(
        "n_iter_of_pairs", [int(model.certificate.get("n_iter") or 0)]
    )
    estimator._num_iter = np.minimum(steps, np.iinfo(np.int32).max).astype(np.int32)
    estimator.n_iter_ = (
        int(estimator._num_iter[0]) if model.classes is None else estimator._num_iter
    )
    estimator.fit_status_ = 0 if model.certificate.get("converged", True) else 1
    if model.classes is not None:
        estimator.classes_ = np.asarray(model.classes)
        estimator.class_weight_ = np.ones(len(model.classes))
    if name == "one-class":
        estimator.offset_ = -estimator.intercept_
    made = estimator if model.scaler is None else _behind(model.scaler, estimator)
    if model.feature_names is not None:
        # Only the first step of a pipeline gets rows with column names.
        first = estimator if model.scaler is None else made[0]
        first.feature_names_in_ = np.array(model.feature_names, object)
    return made


def _lay_out(
    model: KernelExpansion,
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[int]]:
    """Order of the support vectors, their coefficients (k - 1, n), and how many each class has."""
    if model.rule is not None and model.classes is not None:
        rows, counts, coefficients = libsvm_coefficients(model.coefficients, len(model.classes))
        return rows, coefficients, counts.tolist()
    n_support = len(model.support)
    if model.classes is None:  # any order will do
        return np.arange(n_support), model.coefficients[None, :], [n_support] * 2
    second = model.coefficients > 0
    order = np.argsort(second, kind="stable")
    n_second = int(np.count_nonzero(second))
    return order, model.coefficients[order][None, :], [n_support - n_second, n_second]


def _with_int32(vectors: sp.csr_array) -> sp.csr_matrix:
    """CSR with the index type that scikit-learn passes to LIBSVM; loaded models have int64."""
    if max(vectors.nnz, *vectors.shape) > np.iinfo(np.int32).max:
        raise ModelError(
            f"the support vectors have {vectors.nnz} entries in {vectors.shape[1]} columns; "
            "scikit-learn's SVMs index them by int32"
        )
    arrays = vectors.data, vectors.indices.astype(np.int32), vectors.indptr.astype(np.int32)
    return sp.csr_matrix(arrays, shape=vectors.shape)


def _with_zeros(coefficients: NDArray[np.float64]) -> sp.csr_matrix:
    """CSR of all entries: scikit-learn hands its data to LIBSVM as if they were a dense matrix."""
    rows, columns = coefficients.shape
    indices = np.tile(np.arange(columns, dtype=np.int32), rows)
    starts = np.arange(rows + 1, dtype=np.int32) * columns
    return sp.csr_matrix((coefficients.ravel(), indices, starts), shape=coefficients.shape)


def _behind(scaler: Scaler, estimator: Any) -> Any:  # noqa: ANN401
    """Make a pipeline that scales rows first; it takes sparse rows if no column is shifted."""
    if scaler.n_columns > MOST_SCALED_COLUMNS:
        raise ModelError(
            f"scikit-learn's StandardScaler has several numbers for each column, and there are "
            f"{scaler.n_columns}; write_libsvm_model lists those that are scaled"
        )
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    first = StandardScaler(with_mean=bool(len(scaler.moved_columns())))
    scaler = scaler.of_all_columns()
    first.n_features_in_ = scaler.n_columns
    first.mean_ = scaler.offset
    # A column divided by infinity is 0.
    first.scale_ = np.divide(
        1, scaler.factor, where=scaler.factor != 0, out=np.full(scaler.n_columns, np.inf)
    )
    first.var_ = first.scale_**2
    first.n_samples_seen_ = estimator.shape_fit_[0]
    return make_pipeline(first, estimator)
