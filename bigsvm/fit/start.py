"""The point that a model of the same rows, trained with other parameters, gives a run to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.duals.problem import EarlierModel
from bigsvm.errors import DataError, ParameterError
from bigsvm.training.check_saved import LARGEST, is_number

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.crammer_singer import CrammerSinger
    from bigsvm.models import KernelExpansion


class StartError(DataError, ParameterError):
    """A model that a run cannot start from."""


def alpha_of(
    model: KernelExpansion,
    problem: Formulation | CrammerSinger,
    *,
    rule: str | None = None,
    classes: list[Any] | None = None,
) -> F8:
    """Return alpha of all rows that a model of them leads to.

    Parameters
    ----------
    model : KernelExpansion
    problem : Formulation or CrammerSinger
    rule : str, optional
        Rule that the model must have.
    classes : list, optional
        Classes that the model must have.

    Raises
    ------
    StartError
        The model has another formulation, rule or classes, was trained on other rows, or has
        coefficients that training does not leave.
    """
    if model.formulation != problem.name:
        raise StartError(
            f"the model to start from is a {model.formulation}, this one a {problem.name}"
        )
    if model.rule != rule:
        raise StartError(
            "the model to start from is one of many classes, which have no two to start from; set "
            "warm_start to False"
        )
    n_rows = len(problem)
    trained_on = model.provenance.get("n_rows", n_rows)
    if trained_on != n_rows:
        raise StartError(f"the model to start from was trained on {trained_on} rows, not {n_rows}")
    if classes is not None and model.classes != classes:
        raise StartError("the model to start from has other classes; start anew")
    coefficients: Any = model.coefficients
    C = model.provenance.get("parameters", {}).get("C")
    earlier = EarlierModel(
        model.support,
        coefficients if rule is None else coefficients.toarray(),
        C if is_number(C) and 0 < C < LARGEST else None,
        model.certificate.get("rho"),
        model.bounds,
    )
    alpha = problem.zeros(n_rows)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        alpha[model.support] = problem.alpha_from(earlier)
    if not bool((np.abs(alpha) < LARGEST).all()):  # comparisons with NaN are False
        raise StartError("the model to start from has coefficients beyond all bounds; start anew")
    return alpha
