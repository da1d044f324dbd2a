"""What a search or cross-validation keeps in files: types, sizes and ranges of all of it.

A hash proves that a file is unchanged, not that bigsvm wrote it. So everything that is read is
checked before it is used, and sizes are known before an array is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names

from bigsvm.declared import AMOUNT, LARGEST, REALS, Kept, check_arrays, check_fields
from bigsvm.files import open_regular
from bigsvm.fit.folds_in_one_run import PointOfFits
from bigsvm.models.certificate import check_certificate
from bigsvm.models.files import read_tensors, write_tensors
from bigsvm.training.result import KnownPoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FIELDS = {
    **dict.fromkeys(("scores", "train_scores", "certificate"), dict),
    **dict.fromkeys(("fit_seconds", "score_seconds"), AMOUNT),
}
"""Fields of the result of a fit."""
OF_CERTIFICATES = ("converged", "stop_reason", "n_iter", "n_support")
"""Fields of certificates that are read later."""
ROUNDING = 1e-6
"""By how much a score may be beyond its range: it is a sum of rounded numbers."""
_SHARES = (
    "accuracy", "average_precision", "balanced_accuracy", "completeness_score", "f1",
    "fowlkes_mallows_score", "homogeneity_score", "jaccard", "normalized_mutual_info_score",
    "precision", "rand_score", "recall", "roc_auc", "top_k_accuracy", "v_measure_score",
)  # fmt: skip
_AT_MOST_1 = ("adjusted_", "d2_", "explained_variance", "r2")
_MAY_BE_UNDEFINED = ("d2_", "explained_variance", "neg_negative_", "positive_", "r2", "roc_auc")
"""Starts of the names of scores that may be NaN, as where there is one class."""
_POINT = "point of several fits, format 1"
POINT = {
    "alpha": Kept(REALS, ("rows", "fits", "variables")),
    "outputs": Kept(REALS, ("rows", "fits")),
    "C": Kept(REALS, ("one",)),
}
"""Arrays of a point."""
_HEADER_BYTES = 1 << 12
"""Room for the header of the file of a point."""


def metric_of(scoring: Any) -> str | None:
    """Name of scikit-learn's score that a scorer computes; None of others."""
    if scoring is None or isinstance(scoring, str):
        return scoring
    function = getattr(scoring, "_score_func", None)
    for name in get_scorer_names() if function is not None else ():
        known: Any = get_scorer(name)
        if known._score_func is function and repr(known) == repr(scoring):
            return str(name)
    return None


def range_of(metric: str | None) -> tuple[float, float]:
    """Return the smallest and the largest value of a score, without rounding."""
    name = metric or ""
    if name.startswith(_SHARES):
        return 0.0, 1.0
    if name == "matthews_corrcoef":
        return -1.0, 1.0
    if name.startswith(_AT_MOST_1):
        return -math.inf, 1.0
    return (-math.inf, 0.0) if name.startswith("neg_") else (-math.inf, math.inf)


class FitContent:
    """Contents of the results of fits.

    `metrics` has the metric of each score by the score's name, None of one's own. It is None if the
    names are not known; they are those of the first result then.
    """

    def __init__(
        self, metrics: Mapping[str, str | None] | None, *, with_train_scores: bool
    ) -> None:
        self._metrics, self._with_train_scores = metrics, with_train_scores

    def check(self, values: Any) -> None:
        """Check the values of a result; ValueError says what is wrong."""
        if not isinstance(values, dict) or set(values) != set(FIELDS):
            raise ValueError(f"its fields are not {', '.join(FIELDS)}")
        check_fields("the result", values, FIELDS)
        metrics = self.metrics_like(values["scores"])
        _check_scores("scores", values["scores"], metrics)
        of_training = metrics if self._with_train_scores else {}
        _check_scores("train_scores", values["train_scores"], of_training)
        check_certificate(values["certificate"], n_classes=None, required=OF_CERTIFICATES)

    def metrics_like(self, scores: Any) -> Mapping[str, str | None]:
        """Return the metric of each score; names that are not known are those of `scores`."""
        if self._metrics is None and isinstance(scores, dict) and scores:
            self._metrics = dict.fromkeys(scores)
        metrics = self._metrics or {}
        if not metrics or not isinstance(scores, dict) or set(scores) != set(metrics):
            raise ValueError(f"scores are not those of {', '.join(metrics)}")
        return metrics


def _check_scores(what: str, scores: Any, metrics: Mapping[str, str | None]) -> None:
    if not isinstance(scores, dict) or set(scores) != set(metrics):
        raise ValueError(f"{what} are not those of {', '.join(metrics) or 'nothing'}")
    for name, score in scores.items():
        low, high = range_of(metrics[name])
        is_bounded = math.isfinite(low) or math.isfinite(high)
        may_be_nan = not is_bounded or str(metrics[name]).startswith(_MAY_BE_UNDEFINED)
        is_known = type(score) is float and (
            low - ROUNDING <= score <= high + ROUNDING or (may_be_nan and math.isnan(score))
        )
        if not is_known:
            raise ValueError(f"{what} has {name} {str(score)[:40]}, which no such score can be")


def write_point(path: Path, point: PointOfFits) -> None:
    """Write where a run of several fits ended, whole or not at all.

    Raises
    ------
    OSError, SafetensorError
    """
    known = point.known
    tensors = {"alpha": known.alpha, "outputs": known.outputs, "C": np.array([float(point.C)])}
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_tensors(path, _POINT, tensors)


def read_point(path: Path, *, n_rows: int, n_fits: int) -> PointOfFits:
    """Read a point of `n_fits` fits of at most `n_rows` rows.

    Raises
    ------
    OSError, SafetensorError, ValueError
    """
    # A row has one variable in each fit, or two in a regression.
    most = 8 * 3 * n_rows * n_fits + _HEADER_BYTES
    with open_regular(path, follow_links=False) as plain:
        n_bytes = plain.seek(0, 2)
    if n_bytes > most:
        raise ValueError(f"it has {n_bytes} bytes; there can be {most}")
    text, tensors = read_tensors(path)
    if text != _POINT:
        raise ValueError("it is no point of several fits")
    variables = (2,) if np.ndim(tensors.get("alpha", 0)) == 3 else ()
    check_arrays(tensors, POINT, {"fits": (n_fits,), "variables": variables, "one": (1,)})
    alpha, outputs, C = (tensors[name] for name in POINT)
    if not 0 < len(outputs) <= n_rows:
        raise ValueError(f"alpha and outputs have the shapes {alpha.shape} and {outputs.shape}")
    if not 1 / LARGEST < C[0]:
        raise ValueError(f"C is {C[0]:.3g}")
    return PointOfFits(KnownPoint(alpha, outputs, computed_here=False), float(C[0]))
