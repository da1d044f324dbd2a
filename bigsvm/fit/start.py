"""The point that a model of the same rows, trained with other parameters, gives a run to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsvm.duals.problem import EarlierModel
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from bigsvm.arrays import F8
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.crammer_singer import CrammerSinger
    from bigsvm.models import KernelExpansion


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
    ParameterError, DataError
        The model has another formulation, rule or classes, or was trained on other rows.
    """
    if model.formulation != problem.name:
        raise ParameterError(
            f"the model to start from is a {model.formulation}, this one a {problem.name}"
        )
    if model.rule != rule:
        raise ParameterError(
            "the model to start from is one of many classes, which have no two to start from; set "
            "warm_start to False"
        )
    n_rows = len(problem)
    trained_on = model.provenance.get("n_rows", n_rows)
    if trained_on != n_rows:
        raise DataError(f"the model to start from was trained on {trained_on} rows, not {n_rows}")
    if classes is not None and model.classes != classes:
        raise DataError("the model to start from has other classes; start anew")
    coefficients: Any = model.coefficients
    C = model.provenance.get("parameters", {}).get("C")
    earlier = EarlierModel(
        model.support,
        coefficients if rule is None else coefficients.toarray(),
        C if isinstance(C, int | float) else None,
        model.certificate.get("rho"),
        model.bounds,
    )
    alpha = problem.zeros(n_rows)
    alpha[model.support] = problem.alpha_from(earlier)
    return alpha
