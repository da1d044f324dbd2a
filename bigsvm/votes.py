"""From the values of several functions to classes: votes of pairs, a decision graph, the largest.

Classes are codes from 0, in the order that the model has them. Rules:

    ovo             each pair of classes has a vote; ties go to the first class, as LIBSVM's do
    ovo-break-ties  ties go to the class that the pairs are surest of: scikit-learn's `break_ties`
    ddag            a list of classes; the pair of its first and last strikes one of them off, until
                    one is left (Platt, Cristianini and Shawe-Taylor 2000)
    ovr, crammer-singer
                    each class has a function, and the largest value wins; ties go to the first

Values of pairs are in the order of `bigsvm.pairs`, and positive ones are for the second class. A
value of exactly 0 is for the first, as it is where there are two classes only (LIBSVM: the second).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.errors import ParameterError
from bigsvm.pairs import pair_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

OF_PAIRS = ("ovo", "ovo-break-ties", "ddag")
OF_CLASSES = ("ovr", "crammer-singer")
RULES = OF_PAIRS + OF_CLASSES


def n_functions(rule: str, n_classes: int) -> int:
    """How many functions a rule looks at.

    Raises
    ------
    ParameterError
        No such rule.
    """
    if rule not in RULES:
        raise ParameterError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")
    return n_classes * (n_classes - 1) // 2 if rule in OF_PAIRS else n_classes


def decide(values: Values, rule: str, n_classes: int) -> NDArray[np.int64]:
    """Classes, (n,) int64 codes.

    Parameters
    ----------
    values : (n, n_functions) float64
    rule : str
        One of `RULES`.
    n_classes : int

    Raises
    ------
    ParameterError
        No such rule, or it takes another number of functions.
    """
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
    codes: NDArray[np.int64] = np.argmax(values, axis=1)
    return codes


def count_votes(values: Values, n_classes: int) -> Values:
    """How many pairs each class wins, (n, k) float64; values (n, k (k - 1) / 2)."""
    votes = np.zeros((len(values), n_classes))
    for first, pairs in _pairs_by_first(n_classes):
        won = values[:, pairs] > 0
        votes[:, first + 1 :] += won
        votes[:, first] += n_classes - 1 - first - won.sum(axis=1)
    return votes


def one_vs_rest_values(values: Values, n_classes: int) -> Values:
    """Values of classes from those of pairs: `decision_function_shape="ovr"` of scikit-learn.

    The number of votes, and something below 1 / 2 in size that grows with the sum of the values in
    favour of the class, so that it breaks ties: ``s / (3 (|s| + 1))``. (n, k) float64.
    """
    sums = np.zeros((len(values), n_classes))
    for first, pairs in _pairs_by_first(n_classes):
        part = values[:, pairs]
        sums[:, first] -= part.sum(axis=1)
        sums[:, first + 1 :] += part
    shaped: Values = count_votes(values, n_classes) + sums / (3 * (np.abs(sums) + 1))
    return shaped


def _pairs_by_first(n_classes: int) -> Iterator[tuple[int, slice]]:
    """Yield every class that is the first of some pairs, and where these are."""
    start = 0
    for first in range(n_classes - 1):
        stop = start + n_classes - 1 - first
        yield first, slice(start, stop)
        start = stop


def _along_graph(values: Values, n_classes: int) -> NDArray[np.int64]:
    rows = np.arange(len(values))
    first = np.zeros(len(values), np.int64)
    last = np.full(len(values), n_classes - 1)
    for _ in range(n_classes - 1):
        last_wins = values[rows, pair_number(first, last, n_classes)] > 0
        first += last_wins
        last -= ~last_wins
    return first
