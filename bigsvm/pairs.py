"""Pairs of classes: the order of their functions, and LIBSVM's way to lay out coefficients.

Of k classes the pairs are (0, 1), (0, 2), …, (0, k - 1), (1, 2), …: LIBSVM's and scikit-learn's
order. The function of a pair is **positive for its second class**, as a decision value of two
classes is everywhere in bigsvm; LIBSVM's, and the "ovo" values of scikit-learn, are positive for
the first. The functions below that speak of LIBSVM turn the sign round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


def pair_number(first: Any, second: Any, n_classes: int) -> Any:  # noqa: ANN401 (int or array)
    """Place of the pair (first, second), first < second, in their order; ints or int64 arrays."""
    return first * (2 * n_classes - first - 1) // 2 + second - first - 1


def pair_functions(
    dual_coefficients: NDArray[np.float64], counts: NDArray[np.integer]
) -> sp.csr_array:
    """Coefficients of all pairs from LIBSVM's ``sv_coef``, scikit-learn's ``dual_coef_``.

    Parameters
    ----------
    dual_coefficients : (k - 1, n_support) float64
        Support vectors ordered by class; each has one coefficient for every other class.
    counts : (k,) integers
        Support vectors of each class; `n_support` together.

    Returns
    -------
    (n_support, k (k - 1) / 2) CSR float64
        With k - 1 entries in a row, sign turned round.
    """
    n_classes = len(counts)
    own = np.repeat(np.arange(n_classes), counts)[:, None]
    others = np.arange(n_classes - 1)[None, :]
    others = others + (others >= own)
    columns = pair_number(np.minimum(own, others), np.maximum(own, others), n_classes)
    starts = np.arange(len(own) + 1) * (n_classes - 1)
    shape = (len(own), n_classes * (n_classes - 1) // 2)
    data = -np.ascontiguousarray(dual_coefficients.T, np.float64)
    made = sp.csr_array((data.ravel(), columns.ravel(), starts), shape=shape)
    made.sort_indices()
    return made


def support_classes(functions: sp.csr_array, n_classes: int) -> Integers:
    """Class of each support vector, (n_support,) int64: the one its first coefficient pulls to.

    Parameters
    ----------
    functions : (n_support, k (k - 1) / 2) CSR float64
        Not 0 in every row.
    n_classes : int
    """
    first, second = np.triu_indices(n_classes, 1)
    entry = functions.indptr[:-1]
    pair = functions.indices[entry]
    classes: Integers = np.where(functions.data[entry] > 0, second[pair], first[pair])
    return classes


def libsvm_coefficients(
    functions: sp.csr_array, n_classes: int
) -> tuple[Integers, Integers, NDArray[np.float64]]:
    """Lay out coefficients of pairs as LIBSVM does.

    A support vector belongs to the class that its coefficients pull to. One that pulls to several,
    as equal rows with different labels do that training has made one, is there once for each.

    Parameters
    ----------
    functions : (n_support, k (k - 1) / 2) CSR float64
    n_classes : int

    Returns
    -------
    rows : (q,) int64
        Which support vectors, ordered by class.
    counts : (k,) int64
        How many are of each class.
    dual_coefficients : (k - 1, q) float64
        Sign turned round: positive for the first class of a pair.
    """
    first, second = np.triu_indices(n_classes, 1)
    entries = functions.tocoo()
    used = entries.data != 0
    row, pair, data = entries.coords[0][used], entries.coords[1][used], entries.data[used]
    own = np.where(data > 0, second[pair], first[pair]).astype(np.int64)
    other = np.where(data > 0, first[pair], second[pair])
    n_support = functions.shape[0]
    lines, line = np.unique(own * n_support + row, return_inverse=True)
    rows, classes = lines % max(n_support, 1), lines // max(n_support, 1)
    dual_coefficients = np.zeros((n_classes - 1, len(lines)))
    dual_coefficients[other - (other > own), line] = -data
    return rows, np.bincount(classes, minlength=n_classes), dual_coefficients
