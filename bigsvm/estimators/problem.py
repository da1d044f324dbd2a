"""From labels or targets and weights to a formulation, everything checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.duals.ball import L2SVC, L2OneClass
from bigsvm.duals.formulations import (
    CSVC,
    EpsilonSVR,
    Formulation,
    NuSVC,
    NuSVR,
    OneClass,
    SquaredHingeSVC,
)
from bigsvm.errors import DataError, ParameterError
from bigsvm.kernels import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.estimators.parameters import TrainingParameters

LARGEST_TARGET = LARGEST / 8
"""Sums of kernel values reach it, and the difference of any two residuals, in float32."""


def make_problem(
    parameters: TrainingParameters,
    n_rows: int,
    labels: NDArray[Any] | None,
    sample_weight: NDArray[np.float64] | None,
) -> tuple[list[Any] | None, Formulation]:
    """Make the dual problem, and the two classes where there are classes.

    Raises
    ------
    ParameterError, DataError
    """
    p = parameters
    weights = check_weights(sample_weight, n_rows)
    classes: list[Any] | None = None
    problem: Formulation
    if p.formulation == "one-class":
        problem = OneClass(nu=p.nu, n_rows=n_rows, sample_weight=weights)
    elif p.formulation == "l2-one-class":
        problem = L2OneClass(C=p.C, n_rows=n_rows, sample_weight=weights)
    elif labels is None:
        raise DataError(f"{p.formulation} needs a label or a target for each row")
    elif p.formulation == "eps-svr":
        target = check_targets(labels, n_rows)
        problem = EpsilonSVR(target=target, C=p.C, epsilon=p.epsilon, sample_weight=weights)
    elif p.formulation == "nu-svr":
        target = check_targets(labels, n_rows)
        problem = NuSVR(target=target, C=p.C, nu=p.nu, sample_weight=weights)
    else:
        found, codes = encode_labels(labels, n_rows)
        classes = found.tolist()
        given: dict[str, Any] = {
            "sign": np.where(codes == 1, np.int8(1), np.int8(-1)),
            "class_weight": class_weights(
                p.class_weight, found, codes if weights is None else codes[weights > 0]
            ),
            "sample_weight": weights,
        }
        if p.formulation == "nu-svc":
            problem = NuSVC(nu=p.nu, **given)
        elif p.formulation == "l2-svc":
            problem = L2SVC(C=p.C, **given)
        else:
            kind = CSVC if p.loss == "hinge" else SquaredHingeSVC
            problem = kind(C=p.C, **given)
    problem.check()
    return classes, problem


def check_targets(targets: NDArray[Any], n_rows: int) -> NDArray[np.float64]:
    """Refuse targets that kernel values in float32 cannot reach, or not one a row.

    Returns
    -------
    (n_rows,) float64, contiguous
    """
    if targets.shape != (n_rows,):
        raise DataError(
            f"y has shape {targets.shape}; there are {n_rows} rows, so it must be ({n_rows},)"
        )
    try:
        values = np.ascontiguousarray(targets, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"y must be numbers, for a regression: {error}") from None
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST_TARGET))
    if len(wrong):
        raise DataError(
            f"y of row {wrong[0]} is {values[wrong[0]]}; targets must be finite numbers of at most "
            f"{LARGEST_TARGET:.3g}, as kernel values are computed in float32: scale the targets"
        )
    return values


def encode_labels(labels: NDArray[Any], n_rows: int) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """Find the two classes, sorted, and which of them each row has, (n,) int8.

    Raises
    ------
    DataError
        One class only, more than two, or another number of labels than rows.
    """
    if labels.shape != (n_rows,):
        raise DataError(
            f"y has shape {labels.shape}; there are {n_rows} rows, so it must be ({n_rows},)"
        )
    classes = np.unique(labels)
    if len(classes) != 2:
        listed = ", ".join(str(label) for label in classes[:5])
        raise DataError(
            f"Only binary classification is supported. The type of the target is "
            f"{'one class' if len(classes) == 1 else 'multiclass'}: y has {len(classes)} class(es) "
            f"({listed}{', …' if len(classes) > 5 else ''}); two are needed"
        )
    return classes, (labels == classes[1]).astype(np.int8)


def check_weights(weights: NDArray[np.float64] | None, n_rows: int) -> NDArray[np.float64] | None:
    """Refuse weights that are negative, not finite, all zero, or not one a row.

    Returns
    -------
    (n_rows,) float64, contiguous, or None
    """
    if weights is None:
        return None
    if weights.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weights.shape}; it must be ({n_rows},)")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"sample_weight of row {wrong[0]} is {weights[wrong[0]]}; weights must be finite and "
            ">= 0 (Negative values in data passed to `sample_weight`)"
        )
    if not weights.any():
        raise DataError("sample_weight is zero for every row; at least one must be positive")
    return np.ascontiguousarray(weights, np.float64)


def class_weights(
    given: Mapping[float, float] | str | None, classes: NDArray[Any], codes: NDArray[np.int8]
) -> tuple[float, float]:
    """Weight of the negative and the positive class; ``"balanced"`` as in scikit-learn.

    `codes` are those of the rows with a weight: one without is not there.
    """
    if given is None:
        return 1.0, 1.0
    if isinstance(given, str):
        if given != "balanced":
            raise ParameterError(
                f"class_weight is {given!r}; it must be 'balanced', a dictionary or None"
            )
        # By scikit-learn's formula; to import it takes a command longer than all else it imports.
        negative, positive = len(codes) / np.maximum(2 * np.bincount(codes, minlength=2), 1)
        return float(negative), float(positive)
    labels = classes.tolist()
    unknown = [label for label in given if label not in labels]
    if unknown:
        raise ParameterError(
            f"class_weight names {unknown[0]!r}, which is no class; the classes are {labels}"
        )
    return float(given.get(labels[0], 1.0)), float(given.get(labels[1], 1.0))
