"""From the values of several functions to probabilities of the classes, and how these are fitted.

Of class pairs, a calibration gives the probability of the second class of each pair, and the
probabilities of the classes are those that fit them best (`couple`). All pairs share one
calibration, as a pair alone has too few rows that were held out: it is fitted on the values of all
pairs that the class of a row is in, each turned to the side of that class.

Of functions of one class each, a sigmoid is ``softmax(a v)``: `a` is fitted by maximum likelihood
(temperature scaling; Guo, Pleiss, Sun and Weinberger 2017). An isotonic calibration gives the
probability of each class against the rest; they are divided by their sum.

The largest probability is that of the predicted class. A softmax keeps the order of the values.
Coupled probabilities are moved as little as it takes (`raise_predicted`) in the few rows where that
is needed, such as those with tied votes, and isotonic ones where they are equal. LIBSVM, and so
models read from its files, have the coupled probabilities as they are.

A softmax is monotone: a probability rises with the value of its class. Coupled ones are not always.
Where the probabilities of all pairs agree with one another, p_i rises with each r_ij: there the
matrix of the problem, scaled by p, is the Laplacian of a graph, of which one edge is pulled apart.
Where pairs contradict one another, it may fall, and so may one that is moved. The first approach of
Wu, Lin and Weng (the stationary distribution of a Markov chain) and that of Hastie and Tibshirani
(1998) are monotone throughout, but LIBSVM's programs would compute other probabilities from the
same file. ``python -m tools.benchmarks probabilities`` prints how often a probability falls, and by
how much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.calibration import (
    SAME_VALUES,
    SMALLEST_VALUE,
    Calibration,
    check_values,
    fit_calibration,
    platt_targets,
)
from bigsvm.votes import OF_PAIRS, decide, pair_classes, pair_number

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from bigsvm.arrays import F8

    Codes = NDArray[np.integer[Any]]

LEAST_PROBABILITY = 1e-7
"""Least probability of a class of a pair, as in LIBSVM: 0 would make the system singular."""
VALUES_AT_ONCE = 1 << 21
"""Numbers of the systems that are solved together: 16 MB."""
LARGEST_SLOPE = 1e12
"""Bounds the search for the slope, in units of the inverse spread of the values."""


def class_probabilities(calibration: Calibration, values: F8, rule: str | None, k: int) -> F8:
    """Probabilities of classes, (n, k) float64 in [0, 1]; the sum of each row is 1.

    The decision values are (n,), or (n, n_functions). The rule is that of the model; None of one
    function, whose positive values are of the second class.
    """
    if rule is None:
        second = calibration.probability(values)
        return np.stack([1 - second, second], axis=1)
    if rule in OF_PAIRS:
        probabilities = couple(calibration.probability(values), k)
        if calibration.method == "sigmoid" and calibration.numbers.shape[1] > 1:
            return probabilities  # of LIBSVM
    else:
        probabilities = _of_classes(calibration, values, k)
    return raise_predicted(probabilities, decide(values, rule, k))


def _of_classes(calibration: Calibration, values: F8, k: int) -> F8:
    """Probabilities of classes by functions of one class each, (n, k)."""
    if calibration.method == "sigmoid":
        # Differences that overflow are cut, so that they can be multiplied by a slope of 0.
        with np.errstate(over="ignore"):
            most = np.finfo(np.float64).max
            below = np.maximum(values - values.max(axis=1, keepdims=True), -most)
            powers = np.exp(calibration.numbers[0] * below)
        probabilities: F8 = powers / powers.sum(axis=1, keepdims=True)
        return probabilities
    each = calibration.probability(values)
    total = each.sum(axis=1, keepdims=True)
    # Where no class is likely, all are as likely.
    probabilities = np.divide(each, total, out=np.full_like(each, 1 / k), where=total > 0)
    return probabilities


def couple(second: F8, k: int) -> F8:
    """Probabilities of classes that fit those of all pairs best, (n, k) float64.

    They minimise ``Σ_i Σ_{j≠i} (r_ji p_i − r_ij p_j)²`` where ``Σ p = 1``, and r_ij is the
    probability of class i in the pair (i, j): the second approach of Wu, Lin and Weng 2004,
    equations 18 to 21, which LIBSVM has too. The linear system is solved as it is. `second`, (n, k
    (k - 1) / 2), are the probabilities of the second class of each pair, in the order of
    `votes.pair_classes`.
    """
    probabilities = np.empty((len(second), k))
    step = max(1, VALUES_AT_ONCE // (k + 1) ** 2)
    for start in range(0, len(second), step):
        part = slice(start, start + step)
        probabilities[part] = _coupled(second[part], k)
    return probabilities


def _coupled(second: F8, k: int) -> F8:
    first, last = pair_classes(k)
    classes = np.arange(k)
    of_second = np.clip(second, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    pairwise = np.zeros((len(second), k, k))
    pairwise[:, last, first] = of_second
    pairwise[:, first, last] = 1 - of_second
    # The conditions of optimality, with the multiplier of Σ p = 1 as the last unknown.
    system = np.zeros((len(second), k + 1, k + 1))
    system[:, :k, :k] = -pairwise * pairwise.transpose(0, 2, 1)
    system[:, classes, classes] = (pairwise**2).sum(axis=1)
    system[:, :k, k] = system[:, k, :k] = 1
    right = np.zeros((k + 1, 1))
    right[k] = 1
    solved = np.linalg.solve(system, np.broadcast_to(right, (len(second), k + 1, 1)))
    probabilities: F8 = np.maximum(solved[:, :k, 0], 0.0)  # below 0 by rounding only
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def raise_predicted(probabilities: F8, codes: Codes) -> F8:
    """Give the nearest probabilities, in squares, of which those of given classes are the largest.

    There is a class for each row of the probabilities, (n, k). Classes with a larger probability
    and the given one share theirs equally; the given one gets one unit in the last place more, so
    that there are no ties. The sums of rows stay, but for rounding.
    """
    rows = np.flatnonzero(probabilities.argmax(axis=1) != codes)
    if not len(rows):
        return probabilities
    raised, codes, places = probabilities.copy(), codes[rows], np.arange(len(rows))
    some = probabilities[rows]
    others = some.copy()
    others[places, codes] = np.inf  # the first, when they descend
    descending = -np.sort(-others, axis=1)
    descending[:, 0] = some[places, codes]
    means = np.cumsum(descending, axis=1) / np.arange(1, some.shape[1] + 1)
    # The mean grows as long as classes above it come in.
    level = means.max(axis=1)
    some = np.minimum(some, level[:, None])
    some[places, codes] = np.nextafter(level, 1)
    raised[rows] = some
    return raised


def values_per_row(rule: str, k: int) -> int:
    """Count the values of a row that `values_to_fit` gives."""
    return k - 1 if rule in OF_PAIRS else k


def values_to_fit(values: F8, codes: Codes, rule: str, k: int) -> F8:
    """Give what a calibration is fitted to, of the values of all functions of some rows.

    The values are (m, n_functions), and `codes` the classes of the rows. Of class pairs the result
    is (m, k - 1), values of the pairs that the class of a row is in, positive for this class. Of
    functions of one class each it is `values`, (m, k).
    """
    if rule not in OF_PAIRS:
        return values
    own = np.arange(k)[:, None]
    others = np.arange(k - 1) + (np.arange(k - 1) >= own)
    pairs = pair_number(np.minimum(own, others), np.maximum(own, others), k)
    margins = np.take_along_axis(values, pairs[codes], axis=1)
    return np.where(own > others, 1.0, -1.0)[codes] * margins


def fit_classes(
    method: str, values: F8, codes: Codes, weights: F8 | None, *, rule: str, k: int
) -> Calibration:
    """Fit the calibration of a model of several functions to rows that it was not trained on.

    Values are from `values_to_fit`, and `codes` are the classes of the rows. A weight is positive;
    2 is the row twice.
    """
    check_values(values)
    weights = np.ones(len(values)) if weights is None else weights
    if rule in OF_PAIRS:
        # Turned both ways, as it means nothing which class of a pair is the second.
        margins, halves = values.ravel(), np.repeat(weights / 2, values.shape[1])
        both = np.concatenate([margins, -margins])
        positive = np.arange(len(both)) < len(margins)
        numbers = fit_calibration(method, both, positive, np.tile(halves, 2)).numbers
        if method == "sigmoid":
            numbers[1] = 0.0  # as it is up to rounding
    elif method == "sigmoid":
        numbers = np.array([[_slope(values, codes, weights, k)], [0.0]])
    else:
        of_class = codes[:, None] == np.arange(k)
        each = np.repeat(weights, k)
        numbers = fit_calibration(method, values.ravel(), of_class.ravel(), each).numbers
    return Calibration(method=method, numbers=numbers, n_rows=len(values))


def _slope(values: F8, codes: Codes, weights: F8, k: int) -> float:
    """Fit a of ``softmax(a v)``, (m, k) values: maximum likelihood of targets as Platt's.

    The class of a row has the target of Platt's method, from the rows held out of this class; the
    others share the rest. This keeps `a` finite where the values separate the classes.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    largest = float(np.abs(values).max())
    if largest < SMALLEST_VALUE:
        return 0.0
    scaled = values / largest
    spread = float(np.std(scaled - scaled.mean(axis=1, keepdims=True)))
    if spread <= SAME_VALUES:
        return 0.0
    scaled /= spread
    of_true = platt_targets(np.bincount(codes, weights, minlength=k).astype(np.float64))[codes]
    rest = (scaled.sum(axis=1) - scaled[np.arange(len(codes)), codes]) / (k - 1)
    aimed = of_true * scaled[np.arange(len(codes)), codes] + (1 - of_true) * rest
    share = weights / weights.sum()

    def loss(logarithm: float) -> float:
        a = np.exp(logarithm)
        return float(share @ (logsumexp(a * scaled, axis=1) - a * aimed))

    # The loss is convex in a, and so has one minimum in its logarithm.
    most = np.log(LARGEST_SLOPE)
    found = minimize_scalar(loss, bounds=(-most, most), method="bounded", options={"xatol": 1e-9})
    return float(np.exp(found.x) / spread / largest)
