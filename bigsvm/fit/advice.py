"""Advice: what makes a model useless although its training converged, and what to change.

No row is read for it. Labels of a sample of rows are kept during the run. Where the support vectors
raise a suspicion, those of the sample are predicted, and a sentence is said only if that confirms
it: the other rows are where they should be, or they would be support vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm import votes
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.statistics import MOST_DENSE, statistics_of_rows
from bigsvm.parameters.formulations import traits_of
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.fit.problem import Given
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters

FAR_APART = 100.0
"""Ratio of ranges from which scales are very different: of squared distances, the narrower columns
then have a ten thousandth part, which is next to nothing."""
SHARE = 0.25
"""Share of the columns that are at most as wide as the smaller scale. A few narrow columns are
common, such as pixels at the border, and harmless."""


def scaling_hint(model: KernelExpansion) -> str | None:
    """Say that columns have very different scales, and what to do; None if they do not.

    The scale of a column is its range over the support vectors, which are rows of the training
    data. Columns with one value do not count, nor do scales if the kernel has a number for each
    column, or is for counts and histograms, whose columns belong together.

    Returns
    -------
    str or None
        Scales are very different if the largest is at least 100 times the one that a quarter of
        the columns do not exceed.
    """
    vectors = model.support_vectors
    kernel = model.kernel
    scales_count = kernel.takes_negative and kernel.column_factors is None
    if kernel.product == "lookup" or not scales_count or not vectors.shape[0]:
        return None
    if isinstance(vectors, np.ndarray):
        ranges = vectors.max(axis=0).astype(np.float64) - vectors.min(axis=0)
    else:
        statistics = statistics_of_rows(vectors)
        ranges = statistics.maximum - statistics.minimum
    ranges = np.sort(ranges[ranges > 0])
    if not len(ranges):
        return None
    small, large = float(ranges[int(SHARE * (len(ranges) - 1))]), float(ranges[-1])
    if large < FAR_APART * small:
        return None
    return (
        f"the columns have very different scales, ranges from {small:.2g} to {large:.2g}: scale "
        "them (bigsvm.scale_store, `bigsvm scale`, or StandardScaler of scikit-learn)"
    )


RANDOM, OTHERS = 128, 64
"""Rows of the sample: any rows, and rows of other classes than the most frequent one."""
LEAST_ROWS, LEAST_OTHERS = 50, 10
"""Fewer rows, or rows of other classes, say too little."""
MOST_VALUES = 1 << 21
"""Most decision values of the sample: nothing is said of over 150 classes in pairs."""
MOST_SENTENCES = 2
POOR, BAD = 0.65, 0.4
"""`Facts.skill` below which scaling the columns may help much, and below which a model is bad."""
FLAT = 0.25
"""Range of decision values below which C or gamma holds them back: a margin is 2 wide."""
SMALL = 0.02
"""Ratio of C to the standard deviation of the targets below which C holds predictions back."""
ALONE = 0.1
"""`Facts.alone` below which rows have no neighbours."""
NARROW, WIDE = 0.05, 5.0
"""Gamma times the median distance: below the first all rows look alike, above the second none."""
RARE = 0.2
"""Share of the other classes below which weights of the classes help more than C."""
MANY, ALL = 0.75, 0.95
"""Share of the rows that are support vectors, and of these that are bounded, to be suspicious."""


class Sample(NamedTuple):
    """Rows to look at when a run has ended.

    Attributes
    ----------
    rows : (m,) int64
        Ascending, with a weight.
    truth : (m,) array or None
        Labels or targets.
    weights : (m,) float64
    frequent : label or None
        The class of most weight.
    others : float
        Share of the weight that is of other classes; of these there are more rows in the sample.
    n_rows : int
        Number of all rows with a weight.
    """

    rows: I8
    truth: NDArray[Any] | None
    weights: F8
    frequent: Any
    others: float
    n_rows: int


class Facts(NamedTuple):
    """What is known of a model that may be useless; NaN or ∞ where it means nothing.

    Attributes
    ----------
    learns : {"classes", "targets", "rows"}
    bounded : float
        Share of the coefficients that are at their bound.
    skill : float
        Share of the errors of the best constant prediction that the model removes; R² of targets.
    others : float
        As `Sample` has it.
    one_class : bool
        Whether one class is predicted for the whole sample.
    spread, target_spread : float
        Largest range of a decision function; standard deviation of the targets.
    alone : float
        What other rows add to the value of a support vector, relative to its own part: a median;
        of a kernel so narrow that it may be little.
    scales : str or None
        What `scaling_hint` says.
    distance : float
        Median distance of two support vectors, in the form that gamma multiplies.
    """

    learns: str
    kernel: str = "rbf"
    gamma: float = np.nan
    C: float = np.nan
    tol: float = 1e-3
    n_rows: int = 0
    n_support: int = 1
    bounded: float = 0.0
    skill: float = np.nan
    others: float = np.nan
    one_class: bool = False
    spread: float = np.inf
    target_spread: float = np.nan
    alone: float = np.inf
    scales: str | None = None
    distance: float = np.nan


def sample_of(given: Given) -> Sample | None:
    """Choose the rows to look at after the run; None if there are too few."""
    source, labels, weights, parameters, *_ = given
    weighted = None if weights is None else np.flatnonzero(weights)
    n_rows = source.n_rows if weighted is None else len(weighted)
    if n_rows < LEAST_ROWS:
        return None
    rows = source.sample_indices(RANDOM, seed=parameters.seed, candidates=weighted)
    frequent, share = None, 0.0
    if labels is not None and traits_of(parameters.formulation).learns == "classes":
        classes, codes = np.unique(labels[rows], return_inverse=True)
        of_rows = None if weights is None else weights[rows]
        frequent = classes[np.bincount(codes, of_rows).argmax()]
        is_other = labels != frequent
        share = float(is_other.mean() if weights is None else is_other @ weights / weights.sum())
        if len(rows) < n_rows:
            others = np.flatnonzero(is_other if weights is None else is_other * weights)
            others = source.sample_indices(OTHERS, seed=parameters.seed, candidates=others)
            is_chosen = np.zeros(source.n_rows, np.bool_)
            is_chosen[rows] = is_chosen[others] = True
            rows = np.flatnonzero(is_chosen)
    return Sample(
        rows,
        None if labels is None else labels[rows],
        np.ones(len(rows)) if weights is None else weights[rows],
        frequent,
        share,
        n_rows,
    )


def advised(
    model: KernelExpansion, sample: Sample | None, parameters: TrainingParameters
) -> KernelExpansion:
    """Add ``"advice"`` to the certificate of a model, a list of sentences.

    A run that has not converged gets none: its stop reason says what to change.
    """
    certificate, said = model.certificate, list[str]()
    ended = certificate["converged"] or StopReason(certificate["stop_reason"]).is_uncertified
    if sample is not None and ended and model.kernel.product != "lookup":
        scales = scaling_hint(model) if model.n_features <= MOST_DENSE else None
        if scales is not None or _is_suspicious(model, sample):
            said = sentences(_facts_of(model, sample, parameters, scales))
    return replace(model, certificate={**certificate, "advice": said})


def advice_of_known(
    model: KernelExpansion, sizes: Sequence[int], values: F8, given: Given
) -> list[str]:
    """Return the sentences of `advised` for a model of few rows, of which all values are known.

    Parameters
    ----------
    sizes : sequence of int
        Rows with a weight of each class; of all, where there are no classes.
    values : (n,) or (n, k) float64
        Decision values of all rows.

    A sample is chosen only where it could say something, as that takes longer than other looks.
    """
    n_rows = sum(sizes)
    n_others = min(OTHERS, n_rows - max(sizes))
    is_matrix = model.kernel.product == "lookup"
    if n_rows < LEAST_ROWS or is_matrix or not model.certificate["converged"]:
        return []
    scales = scaling_hint(model) if model.n_features <= MOST_DENSE else None
    n_support = len(model.support)
    # The sample would have as many rows of other classes, at least.
    may_be = 0 < n_others <= n_support or n_support >= MANY * n_rows
    if scales is None and not may_be and _share_bounded(model) < ALL:
        return []
    sample = sample_of(given)
    if sample is None or not (scales is not None or _is_suspicious(model, sample)):
        return []
    return sentences(_facts_of(model, sample, given.parameters, scales, known=values))


def _is_suspicious(model: KernelExpansion, sample: Sample) -> bool:
    """Whether it is worth while to predict the sample."""
    if len(sample.rows) * model.n_functions > MOST_VALUES:
        return False
    if len(model.support) >= MANY * sample.n_rows or _share_bounded(model) >= ALL:
        return True
    # An error is a support vector: where one class is predicted, all rows of others are.
    others = sample.rows[sample.truth != sample.frequent] if sample.others else sample.rows[:0]
    return len(others) > 0 and bool(np.isin(others, model.support).all())


def _share_bounded(model: KernelExpansion) -> float:
    coefficients: Any = model.coefficients
    several = sp.issparse(coefficients) and model.bounds is None
    n = coefficients.nnz if several else len(model.support)
    return float(model.certificate["n_bounded"] / n) if n else 1.0


def _facts_of(
    model: KernelExpansion,
    sample: Sample,
    parameters: TrainingParameters,
    scales: str | None,
    *,
    known: F8 | None = None,
) -> Facts:
    here, places = _met(sample.rows, model.support)
    formulation, kernel = parameters.formulation, model.kernel.name
    gamma = model.kernel.describe().get("gamma", np.nan)
    facts = Facts(
        traits_of(formulation).learns,
        kernel,
        gamma=np.nan if isinstance(gamma, tuple) else float(gamma),
        C=np.nan if formulation == "nu-svc" else parameters.C,
        tol=parameters.tol,
        n_rows=sample.n_rows,
        n_support=len(model.support),
        bounded=_share_bounded(model),
        scales=scales,
    )
    values = np.empty(0)
    if len(here):
        vectors: Any = model.support_vectors[places]
        if known is not None:
            values = known[model.support[places]]
        else:
            # They are scaled already, and finite.
            unscaled = model if model.scaler is None else replace(model, scaler=None)
            values = unscaled.decision_function(ArrayRows(vectors))
        facts = facts._replace(spread=float(np.ptp(values, axis=0).max()))
        if kernel in ("rbf", "laplacian"):
            if _are_all(facts):
                facts = facts._replace(alone=_alone(model, places, values))
            # It takes longer than the other facts, and is looked at beside these only.
            if facts.alone < ALONE or _is_flat(facts):
                facts = facts._replace(distance=_median_distance(vectors, kernel))
    if facts.learns == "targets":
        return facts._replace(**_of_targets(sample, here, values))
    # Weights that somebody gives to classes may be meant to lead to one of them.
    if facts.learns == "rows" or not len(here) or isinstance(parameters.class_weight, Mapping):
        return facts
    if parameters.class_weight is not None:  # balanced
        sample = sample._replace(others=1 - 1 / len(model.classes or (0, 1)))
    return facts._replace(**_of_classes(model, sample, here, values))


def _met(rows: I8, support: I8) -> tuple[I8, I8]:
    """Return where rows, which ascend, are that are in `support`, and where these are in it."""
    order = np.argsort(support)
    places = np.searchsorted(support, rows, sorter=order)
    here = np.flatnonzero(places < len(support))
    places = order[places[here]]
    is_met = support[places] == rows[here]
    return here[is_met], places[is_met]


def _of_targets(sample: Sample, here: I8, values: F8) -> dict[str, Any]:
    """Return facts on the predictions of the rows of a sample at `here`; others fit."""
    truth = np.asarray(sample.truth, np.float64)
    left = np.zeros(len(truth))
    left[here] = truth[here] - values
    deviation = truth - np.average(truth, weights=sample.weights)
    total = float(np.average(deviation**2, weights=sample.weights))
    unexplained = float(np.average(left**2, weights=sample.weights))
    skill = 1 - unexplained / total if total > 0 else 1.0
    return {"skill": skill, "target_spread": float(np.sqrt(total))}


def _of_classes(model: KernelExpansion, sample: Sample, here: I8, values: F8) -> dict[str, Any]:
    """Return facts on the predictions of the rows of a sample at `here`; others are right."""
    is_other = np.asarray(sample.truth != sample.frequent)
    if is_other.sum() < LEAST_OTHERS:
        return {}
    classes, rule = np.asarray(model.classes), model.rule
    truth = np.searchsorted(classes, np.asarray(sample.truth))
    predicted = truth.copy()
    predicted[here] = values > 0 if rule is None else votes.decide(values, rule, len(classes))
    of_others, of_frequent = (
        _least_share((predicted != truth)[rows], sample.weights[rows])
        for rows in (is_other, ~is_other)
    )
    wrong = sample.others * of_others + (1 - sample.others) * of_frequent
    return {
        "skill": 1 - wrong / sample.others,
        "others": sample.others,
        "one_class": bool((predicted == predicted[0]).all()),
    }


def _least_share(is_wrong: Mask, weights: F8) -> float:
    """Share of the weight that is wrong, less its standard error: chance leads to no advice."""
    share = float(is_wrong @ weights) / float(weights.sum())
    return max(0.0, share - math.sqrt(share * max(1 - share, 0.0) / len(is_wrong)))


def _alone(model: KernelExpansion, places: I8, values: F8) -> float:
    """Return `Facts.alone`; the kernel value of a row and itself is 1."""
    own: Any = model.coefficients[places]
    own = own.toarray() if sp.issparse(own) else own
    others = (values - model.intercept - own)[own != 0]
    return float(_median(abs(others)) / _median(abs(own[own != 0])))


def _median_distance(rows: Any, kernel: str) -> float:
    """Return `Facts.distance`."""
    values = rows.astype(np.float64)
    differences = abs(values - values[np.random.default_rng(0).permutation(rows.shape[0])])
    if kernel == "rbf":
        differences = differences * differences
    return _median(differences.sum(axis=1))


def _median(values: F8) -> float:
    """Return the median of some values, (m,), faster than NumPy of few."""
    ordered = np.sort(values, axis=None)
    m = len(ordered)
    return float(0.5 * (ordered[(m - 1) // 2] + ordered[m // 2]))


# -- what is said ------------------------------------------------------------------------------


def sentences(facts: Facts) -> list[str]:
    """Say what is wrong and what to change, what helps most first."""
    looks = (_epsilon, _columns, _gamma_too_large, _held_back, _one_class)
    return [said for look in looks if (said := look(facts)) is not None][:MOST_SENTENCES]


def _epsilon(facts: Facts) -> str | None:
    if facts.n_support or not facts.target_spread > 0:
        return None
    return (
        "no target is farther than epsilon from one number, which is predicted everywhere: lower "
        f"epsilon, as the standard deviation of the targets is {facts.target_spread:.2g}"
    )


def _columns(facts: Facts) -> str | None:
    """With the linear kernel wide columns hide no others, once training has converged."""
    hides = facts.kernel != "linear" and (facts.learns == "rows" or facts.skill < POOR)
    return facts.scales if hides else None


def _gamma_too_large(facts: Facts) -> str | None:
    is_alone = _are_all(facts) and facts.alone < ALONE
    if not (is_alone and facts.gamma * facts.distance > WIDE):
        return None
    return (
        f"gamma is {facts.gamma:.2g}, so large that no row is near another one and every row is "
        f"learned by heart: lower gamma; {_usual(facts)}"
    )


def _usual(facts: Facts) -> str:
    what = "sum of differences" if facts.kernel == "laplacian" else "squared distance"
    return f"1 / the median {what} of two support vectors is {1 / facts.distance:.2g}"


def _held_back(facts: Facts) -> str | None:
    """Coefficients are at their bounds, or near 0, and fit nothing."""
    C, spread = facts.C, facts.target_spread
    is_bad = facts.skill < BAD and facts.scales is None and facts.n_support > 0
    if not _is_flat(facts) or not (is_bad or facts.learns == "rows") or _is_rare(facts):
        return None
    if facts.distance > 0 and facts.gamma * facts.distance < NARROW:
        too_small = f"gamma is {facts.gamma:.2g}, so small that all rows look alike"
        return f"{too_small}: raise gamma; {_usual(facts)}"
    if facts.learns == "targets" and C < SMALL * spread:
        return (
            f"C is {C:.2g}, small beside the targets, whose standard deviation is {spread:.2g}, "
            "and most coefficients are at their bound: standardise the targets, or raise C to "
            f"about {spread:.1g}"
        )
    if facts.learns == "classes" and C > 0 and facts.spread > 0:
        return (
            f"C is {C:.2g}, so small that decision values differ by {facts.spread:.2g} at most, "
            f"far less than a margin: raise C to about {2 * C / facts.spread:.1g} or more"
        )
    return None


def _are_all(facts: Facts) -> bool:
    return facts.n_support >= MANY * facts.n_rows


def _is_flat(facts: Facts) -> bool:
    if facts.learns == "targets":
        return facts.bounded >= ALL
    return facts.spread < (10 * facts.tol if facts.learns == "rows" else FLAT)


def _is_rare(facts: Facts) -> bool:
    return facts.one_class and facts.others < RARE


def _one_class(facts: Facts) -> str | None:
    is_said = facts.scales is not None or (facts.spread < FLAT and not _is_rare(facts))
    if is_said or not (facts.one_class and facts.C > 0):
        return None
    weigh, C = "give the classes weights (class_weight='balanced')", "raise C"
    first, second = (weigh, C) if _is_rare(facts) else (C, weigh)
    return f"one of several classes is predicted for every row of a sample: {first}, or {second}"
