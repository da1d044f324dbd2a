"""Models for rows with more columns than the training data had, as LIBSVM predicts them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.statistics import may_be_listed
from bigsvm.kernels import RBFByColumn

if TYPE_CHECKING:
    from bigsvm.models.expansion import KernelExpansion


def widened(model: KernelExpansion, n_columns: int) -> KernelExpansion:
    """Give the support vectors of a model the columns after their last; they are 0 there.

    The values of rows in these columns count in the kernel, as in LIBSVM: they are part of the
    distance to a support vector. If the model scales rows, it sets these columns to 0, as
    ``svm-scale -r`` does; so do they where each column has a gamma, and they have none. The columns
    of a kernel matrix are counted without the numbers in front; fewer than those of the model
    change nothing.
    """
    more = n_columns - model.n_features
    if more <= 0:
        return model
    vectors: Any = model.support_vectors
    if sp.issparse(vectors):
        parts = vectors.data, vectors.indices, vectors.indptr
        vectors = sp.csr_matrix(parts, shape=(vectors.shape[0], vectors.shape[1] + more))
    else:
        vectors = np.pad(vectors, ((0, 0), (0, more)))
    centre = model.centre
    if centre is not None:
        listed = may_be_listed(n_columns, sparse=sp.issparse(vectors))
        centre = None if listed else np.pad(centre, (0, more))
    scaler = None if model.scaler is None else model.scaler.widened(more)
    kernel = model.kernel
    if isinstance(kernel, RBFByColumn):
        kernel = RBFByColumn(gamma=(*kernel.gamma, *[0.0] * more))
    return replace(model, kernel=kernel, support_vectors=vectors, centre=centre, scaler=scaler)
