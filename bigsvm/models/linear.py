"""Linear functions by the weights of columns instead of by support vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.gram.weights import Weights

ROWS_AT_ONCE = 1 << 12
"""Support vectors that are float64 together."""


def weight_vectors(support_vectors: Rows, coefficients: Weights) -> NDArray[np.float64]:
    """``coefficientsᵀ support_vectors``: w of each function, (n_functions, d) float64.

    Parameters
    ----------
    support_vectors : (p, d) array or CSR
    coefficients : (p,) float64 or (p, n_functions) CSR
    """
    n_functions = 1 if coefficients.ndim == 1 else coefficients.shape[1]
    found = np.zeros((n_functions, support_vectors.shape[1]))
    for start in range(0, support_vectors.shape[0], ROWS_AT_ONCE):
        rows = support_vectors[start : start + ROWS_AT_ONCE].astype(np.float64)
        part = coefficients[start : start + ROWS_AT_ONCE]
        product = part.T @ rows
        found += product if isinstance(product, np.ndarray) else product.toarray()
    return found
