"""From the values of several functions to classes: votes of pairs, a decision graph, the largest.

Classes are codes from 0, in the order that the model has them. Class pairs of k classes are (0, 1),
(0, 2), …, (0, k - 1), (1, 2), …: LIBSVM's and scikit-learn's order. The function of a pair is
**positive for its second class**, as a decision value of two classes is everywhere in bigsvm.
LIBSVM's, and the "ovo" values of scikit-learn, are positive for the first; functions below that
speak of LIBSVM turn the sign round. Rules:

    ovo             each pair of classes has a vote; ties go to the first class, as LIBSVM's do
    ovo-break-ties  ties go to the class that the pairs are surest of: scikit-learn's `break_ties`
    ddag            a list of classes; the pair of its first and last strikes one of them off, until
                    one is left (Platt, Cristianini and Shawe-Taylor 2000)
    ovr, crammer-singer
                    each class has a function, and the largest value wins; ties go to the first

A value of exactly 0 is for the first class, as it is where there are two classes only (LIBSVM: the
second).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8

OF_PAIRS = ("ovo", "ovo-break-ties", "ddag")
OF_CLASSES = ("ovr", "crammer-singer")
RULES = OF_PAIRS + OF_CLASSES


def n_functions(rule: str, n_classes: int) -> int:
    """How many functions a rule looks at."""
    if rule not in RULES:
        raise ParameterError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
    return n_classes * (n_classes - 1) // 2 if rule in OF_PAIRS else n_classes


def decide(values: F8, rule: str, n_classes: int) -> I8:
    """Classes, (n,) int64 codes, by one of `RULES` from values (n, n_functions)."""
    wanted = n_functions(rule, n_classes)
    if values.shape[1] != wanted:
        raise ParameterError(
            f"the rule {rule} of {n_classes} classes takes {wanted} functions, there are "
            f"{values.shape[1]}"
        )
    if rule == "ddag":
        return _along_graph(values, n_classes)
    if rule == "ovo":
        values = count_votes(values, n_classes)
    elif rule == "ovo-break-ties":
        values = one_vs_rest_values(values, n_classes)
    codes: I8 = np.argmax(values, axis=1)
    return codes


def count_votes(values: F8, n_classes: int) -> F8:
    """How many pairs each class wins, (n, k) float64; values (n, k (k - 1) / 2)."""
    votes = np.zeros((len(values), n_classes))
    for first, pairs in _pairs_by_first(n_classes):
        won = values[:, pairs] > 0
        votes[:, first + 1 :] += won
        votes[:, first] += n_classes - 1 - first - won.sum(axis=1)
    return votes


def one_vs_rest_values(values: F8, n_classes: int) -> F8:
    """F8 of classes from those of pairs: `decision_function_shape="ovr"` of scikit-learn.

    The number of votes, and something below 1 / 2 in size that grows with the sum of the values in
    favour of the class, so that it breaks ties: ``s / (3 (|s| + 1))``. (n, k) float64.
    """
    sums = np.zeros((len(values), n_classes))
    for first, pairs in _pairs_by_first(n_classes):
        part = values[:, pairs]
        sums[:, first] -= part.sum(axis=1)
        sums[:, first + 1 :] += part
    shaped: F8 = count_votes(values, n_classes) + sums / (3 * (np.abs(sums) + 1))
    return shaped


def _pairs_by_first(n_classes: int) -> Iterator[tuple[int, slice]]:
    """Yield every class that is the first of some pairs, and where these are."""
    start = 0
    for first in range(n_classes - 1):
        stop = start + n_classes - 1 - first
        yield first, slice(start, stop)
        start = stop


def _along_graph(values: F8, n_classes: int) -> I8:
    """Classes by the decision graph."""
    rows = np.arange(len(values))
    first = np.zeros(len(values), np.int64)
    last = np.full(len(values), n_classes - 1)
    for _ in range(n_classes - 1):
        last_wins = values[rows, pair_number(first, last, n_classes)] > 0
        first += last_wins
        last -= ~last_wins
    return first


def pair_number(first: Any, second: Any, n_classes: int) -> Any:  # noqa: ANN401 (int or array)
    """Place of the pair (first, second), first < second, in their order; ints or int64 arrays."""
    return first * (2 * n_classes - first - 1) // 2 + second - first - 1


def pair_classes(n_classes: int) -> tuple[I8, I8]:
    """First and second class of every pair, in their order."""
    first = np.repeat(np.arange(n_classes), np.arange(n_classes - 1, -1, -1))
    # `pair_number`, solved for the second class.
    second = np.arange(len(first)) - first * (2 * n_classes - first - 1) // 2 + first + 1
    return first, second


def pair_functions(dual_coefficients: F8, counts: NDArray[np.integer]) -> sp.csr_array:
    """Coefficients of all pairs from LIBSVM's ``sv_coef``, scikit-learn's ``dual_coef_``.

    These are (k - 1, n_support): support vectors are ordered by class, and each has one coefficient
    for every other class. `counts`, (k,), are the support vectors of each class. The result is CSR,
    (n_support, k (k - 1) / 2), with k - 1 entries in a row, sign turned round.
    """
    n_classes = len(counts)
    classes = np.repeat(np.arange(n_classes), counts)[:, None]
    others = np.arange(n_classes - 1)[None, :]
    others = others + (others >= classes)
    pairs = pair_number(np.minimum(classes, others), np.maximum(classes, others), n_classes)
    starts = np.arange(len(classes) + 1) * (n_classes - 1)
    shape = (len(classes), n_classes * (n_classes - 1) // 2)
    data = -np.ascontiguousarray(dual_coefficients.T, np.float64)
    functions = sp.csr_array((data.ravel(), pairs.ravel(), starts), shape=shape)
    functions.sort_indices()
    return functions


def pairs_in_order(functions: sp.csr_array, intercepts: F8, places: I8) -> tuple[sp.csr_array, F8]:
    """Functions of the pairs of the same classes in another order.

    The functions are CSR, (n_support, k (k - 1) / 2), the intercepts (k (k - 1) / 2,). `places`,
    (k,), are those of the classes in the order that they have now. Those returned are positive for
    the second class of each pair.
    """
    first, second = pair_classes(len(places))
    low, high = places[first], places[second]
    pairs = pair_number(np.minimum(low, high), np.maximum(low, high), len(places))
    signs = np.where(low < high, 1.0, -1.0)
    ordered = sp.csr_array(functions.tocsc()[:, pairs].multiply(signs))
    return ordered, intercepts[pairs] * signs


def support_classes(functions: sp.csr_array, n_classes: int) -> I8:
    """Class of each support vector, (n_support,) int64: the one its first coefficient pulls to.

    The functions are (n_support, k (k - 1) / 2), and no row of them is 0.
    """
    first, second = pair_classes(n_classes)
    entry = functions.indptr[:-1]
    pair = functions.indices[entry]
    classes: I8 = np.where(functions.data[entry] > 0, second[pair], first[pair])
    return classes


def libsvm_coefficients(functions: sp.csr_array, n_classes: int) -> tuple[I8, I8, F8]:
    """Lay out coefficients of pairs, (n_support, k (k - 1) / 2), as LIBSVM does.

    A support vector belongs to the class that its coefficients pull to. It is listed once for each
    such class: there are several where training has merged equal rows with different labels.

    Returns
    -------
    rows : (q,) int64
        Places of the support vectors, ordered by class.
    counts : (k,) int64
        Number of them in each class.
    dual_coefficients : (k - 1, q) float64
        Sign turned round: positive for the first class of a pair.
    """
    first, second = pair_classes(n_classes)
    entries = functions.tocoo()
    used = entries.data != 0
    row, pair, data = entries.coords[0][used], entries.coords[1][used], entries.data[used]
    towards = np.where(data > 0, second[pair], first[pair]).astype(np.int64)
    other = np.where(data > 0, first[pair], second[pair])
    n_support = functions.shape[0]
    lines, line = np.unique(towards * n_support + row, return_inverse=True)
    rows, classes = lines % max(n_support, 1), lines // max(n_support, 1)
    dual_coefficients = np.zeros((n_classes - 1, len(lines)))
    dual_coefficients[other - (other > towards), line] = -data
    return rows, np.bincount(classes, minlength=n_classes), dual_coefficients
