"""Scores of fits: those of scikit-learn, and the consistency of one-class models without labels.

Consistency is the criterion of Tax and Müller, "A consistency-based model selection for one-class
classification", ICPR 2004. A model is consistent if the share of held-out rows that are outside
is what it was asked for, within the error of counting. Of all consistent models the most complex
one is chosen: it draws the narrowest boundary that still holds for new rows. Their complexity is
the parameter of a sequence of models; here it is the number of support vectors, which any
parameter can be compared by.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.metrics import check_scoring, get_scorer_names

from bigsvm.errors import ParameterError, brief
from bigsvm.selection.saved import metric_of

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.estimators.base import KernelMachine

SCORE = "score"
"""Name of the only score of a fit."""
CONSISTENCY = "consistency"
"""Name of the score of one-class models without labels."""
DEVIATIONS = 3.0
"""Standard deviations of a share that are error. dd_tools, Tax's own program, has 2 for all folds
together; here each fold must pass, and with 3 of five right folds one fails in 150 searches."""
ONE_CLASS = "one-class"
"""The formulation that is told which share of the rows may be outside: nu."""


def consistency(machine: Any, X: Any, y: Any = None) -> float:
    """Score a one-class model by rows that it was not trained on: its number of support vectors.

    It is NaN, no score, where the share of rows that are outside is too large::

        share > nu + 3 sqrt(nu (1 - nu) (1 / n + 1 / m))

    The error is that of n rows which are counted, and of m rows from which the boundary comes.

    Parameters
    ----------
    machine : OneClassSVM
        Fitted, to rows of weight 1.
    X : RowSource or container
        (n, d); labels are not looked at.

    Returns
    -------
    float
    """
    predicted = np.asarray(machine.predict(X))
    nu, n = float(machine.nu), len(predicted)
    m = float(machine.dual_coef_.sum()) / nu  # which is the constraint of the dual
    share = float(np.mean(predicted < 0))
    if share > nu + DEVIATIONS * math.sqrt(nu * (1 - nu) * (1 / n + 1 / m)):
        return math.nan
    return float(len(machine.support_))


def check_weights_count(names: list[Any], weights: F8 | None) -> None:
    """Refuse weights other than 0 and 1, ParameterError, where consistency counts rows."""
    if CONSISTENCY in names and weights is not None and (weights[weights > 0] != 1).any():
        raise ParameterError(
            f"{CONSISTENCY} counts rows, and sample_weight has values other than 0 and 1; leave it "
            "out, or give another score"
        )


def names_in(scoring: Any, machine: KernelMachine) -> list[Any]:
    """List the scores that `scoring` names, or functions; the usual one where it is None."""
    if scoring is None and machine._formulation == ONE_CLASS and not hasattr(machine, "score"):
        return [CONSISTENCY]
    if isinstance(scoring, dict):
        return list(scoring.values())
    return list(scoring) if isinstance(scoring, list | tuple | set) else [scoring]


def scorer_of(scoring: Any, machine: KernelMachine) -> Any:
    """Return what scores a fitted estimator, as scikit-learn's `check_scoring` does.

    Raises
    ------
    ParameterError
        There is no such score, or not of this estimator.
    """
    names = names_in(scoring, machine)
    if CONSISTENCY in names:
        if machine._formulation != ONE_CLASS:
            raise ParameterError(
                f"scoring is {CONSISTENCY!r}, which compares rows outside with the nu of "
                f"{ONE_CLASS}; {machine._formulation} has none; give another score"
            )
        known = {CONSISTENCY: consistency}
        if isinstance(scoring, dict):
            scoring = {name: known.get(each, each) for name, each in scoring.items()}
        elif isinstance(scoring, list | tuple | set):
            scoring = {name: known.get(name, name) for name in scoring}
        else:
            scoring = consistency
    try:
        return check_scoring(machine, scoring=scoring)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"scoring is {brief(scoring)}: {error}") from None


def metrics_of(scoring: Any, machine: KernelMachine) -> dict[str, str | None] | None:
    """Metric of each score by its name, None of one's own; None if names are not known."""
    if isinstance(scoring, dict):
        return {name: metric_of(scorer) for name, scorer in scoring.items()}
    if isinstance(scoring, list | tuple | set):
        return {name: metric_of(name) for name in scoring}
    if scoring is None and names_in(None, machine) == [None]:
        score: Any = getattr(type(machine), "score", None)
        is_own = not getattr(score, "__module__", "").startswith(("bigsvm.", "sklearn."))
        usual = "r2" if is_regressor(machine) else "accuracy"
        return {SCORE: None if is_own else usual}
    metric = metric_of(names_in(scoring, machine)[0])
    return None if metric is None else {SCORE: metric}


def check_metrics(scoring: Any) -> None:
    """Refuse names that are no score, before any data are read.

    Raises
    ------
    ParameterError
        It names the scores that are spelled much like it.
    """
    if isinstance(scoring, dict):
        scoring = list(scoring.values())
    names = scoring if isinstance(scoring, list | tuple | set) else [scoring]
    known = [*get_scorer_names(), CONSISTENCY]
    for name in names:
        if isinstance(name, str) and name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            remedy = f"did you mean {' or '.join(near)}? " if near else ""
            raise ParameterError(
                f"scoring is {brief(name)}, which is no score; {remedy}all of them are "
                f"{CONSISTENCY!r} of one class, and those in sklearn.metrics.get_scorer_names()"
            )
