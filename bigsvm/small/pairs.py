"""The pairs of some classes as functions that are certified together, from LIBSVM's one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.duals.box_problem import Box
from bigsvm.small.certify import Variables, at_bounds
from bigsvm.votes import pair_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.svm._base import BaseLibSVM

    from bigsvm.arrays import F8, I8


class PairVariables(NamedTuple):
    """Variables of all pairs, (v,), as LIBSVM has solved them, and rows of each pair, (n_pairs,).

    A variable is positive where it pulls towards the second class of its pair.
    """

    variables: Variables
    at: F8
    n_rows: I8


def pairs_of(
    solved: BaseLibSVM, codes: NDArray[np.integer], bounds: F8, nu: float | None
) -> PairVariables:
    """Take the variables of all pairs from scikit-learn's estimator.

    Parameters
    ----------
    solved : scikit-learn estimator
    codes : (n,) integers
        Classes of the rows, 0 … k − 1.
    bounds : (n,) float64
        Largest variable of each row.
    nu : float or None
        That of ν-SVC, whose variables LIBSVM divides by ρ; None for others.
    """
    coefficients = np.asarray(solved.dual_coef_)
    k, n = len(coefficients) + 1, len(codes)
    # scikit-learn's are positive for the first class of a pair, but for the second of two classes.
    given = np.zeros((k - 1, n))
    given[:, solved.support_] = coefficients if k == 2 else -coefficients
    first, second = pair_classes(k)
    of_pair = (codes == first[:, None]) | (codes == second[:, None])
    pairs, rows = np.nonzero(of_pair)
    is_second = codes[rows] == second[pairs]
    groups, sums = pairs, np.zeros(len(first))
    if nu is not None:
        groups = 2 * pairs + is_second
        order = np.argsort(groups, kind="stable")
        groups, pairs, rows, is_second = (part[order] for part in (groups, pairs, rows, is_second))
        sums = _sums(np.bincount(groups, bounds[rows], 2 * len(first)).astype(np.float64), nu)
    bound, sign = bounds[rows], np.where(is_second, 1.0, -1.0)
    at = given[np.where(is_second, first[pairs], second[pairs] - 1), rows]
    box = Box(
        sign if nu is None else np.zeros(len(sign)),
        np.where(is_second, 0.0, -bound),
        np.where(is_second, bound, 0.0),
    )
    variables = Variables(box, groups, rows * len(first) + pairs, sums, n, len(first))
    if nu is not None:
        totals = np.bincount(groups, at, len(sums))
        at = at * np.divide(sums, totals, out=np.ones_like(sums), where=totals != 0)[groups]
    return PairVariables(variables, at_bounds(box, at), of_pair.sum(axis=1))


def _sums(totals: F8, nu: float) -> F8:
    """Return what the variables of each class of each pair add up to, from all their bounds."""
    of_pairs = totals.reshape(-1, 2)
    each = np.minimum(0.5 * nu * of_pairs.sum(axis=1), of_pairs.min(axis=1))
    return np.stack([-each, each], axis=1).ravel()


def compressed(coefficients: F8) -> sp.csr_array:
    """Compress coefficients, (p, n_pairs)."""
    rows, pairs = np.nonzero(coefficients)
    ends = np.zeros(len(coefficients) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(coefficients)), out=ends[1:])
    made = sp.csr_array(coefficients.shape)
    # scipy would look through arrays that it is given.
    made.data, made.indices, made.indptr = coefficients[rows, pairs], pairs.astype(np.int32), ends
    return made
