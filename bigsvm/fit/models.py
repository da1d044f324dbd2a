"""Models of many classes, put together of the functions that have been trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from bigsvm.votes import pair_classes, support_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.fit.one_vs_rest import ClassFunctions
    from bigsvm.fit.setting import Setting
    from bigsvm.models import KernelExpansion
    from bigsvm.one_vs_one.joined import OneVsOne

Functions_co = TypeVar("Functions_co", covariant=True)


class Trained(NamedTuple, Generic[Functions_co]):
    """All that a model of many classes is made of.

    Attributes
    ----------
    classes : (k,) array
        Labels, sorted, of the type they were given in.
    class_weight : (k,) float64
    functions : OneVsOne, or OneVsRest
        Of pairs of places in `classes`, or of these.
    setting : Setting
        With all rows, which the support vectors are taken from.
    formulation : str
    fingerprint : dict
    """

    classes: NDArray[Any]
    class_weight: NDArray[np.float64]
    functions: Functions_co
    setting: Setting
    formulation: str
    fingerprint: dict[str, str]


def expansion_of_pairs(trained: Trained[OneVsOne], rule: str) -> KernelExpansion:
    """Make the model of functions of pairs.

    Parameters
    ----------
    trained : Trained
    rule : str
        Of `bigsvm.votes`, for pairs.
    """
    functions, k = trained.functions, len(trained.classes)
    of_class = support_classes(functions.coefficients, k)
    pairs = {**functions.pairs, **_least_sure(functions, k)}
    return _expansion(trained, of_class, rule, {"pairs": pairs})


def expansion_of_classes(trained: Trained[ClassFunctions]) -> KernelExpansion:
    """Make the model of one function for each class; it keeps how many rows of each support it."""
    of_class = trained.functions.label
    sizes = np.bincount(of_class, minlength=len(trained.classes))
    found = {"n_support_of_classes": sizes.tolist(), **_least_sure_class(trained.functions)}
    return _expansion(trained, of_class, "ovr", found)


def _expansion(
    trained: Trained[Any], of_class: NDArray[np.integer[Any]], rule: str, found: dict[str, Any]
) -> KernelExpansion:
    """Make a model whose support vectors are grouped by class, and ascending within each.

    So are LIBSVM's and scikit-learn's: that way an estimator shows the arrays of its model under
    their names.
    """
    functions = trained.functions
    order = np.argsort(of_class, kind="stable")
    return trained.setting.model(
        trained.fingerprint, trained.class_weight.tolist(), functions.support[order],
        {**functions.certificate.as_dict(), **found},
        coefficients=functions.coefficients[order], intercept=functions.intercepts,
        classes=trained.classes.tolist(), formulation=trained.formulation, rule=rule,
    )  # fmt: skip


def _least_sure(functions: OneVsOne, n_classes: int) -> dict[str, Any]:
    """Find the pair whose gap is largest beside its rho, where there are such: of nu-svc."""
    known = np.flatnonzero(np.isfinite(functions.rho) & np.isfinite(functions.gaps))
    if not len(known):
        return {}
    gaps, rho = functions.gaps[known], np.abs(functions.rho[known])
    with np.errstate(over="ignore"):  # beside no gap, any rho is sure
        worst = known[np.argmin(rho / np.maximum(gaps, np.finfo(np.float64).tiny))]
    first, second = pair_classes(n_classes)
    return {
        "least_sure": {
            "classes": [int(first[worst]), int(second[worst])],
            "gap": float(functions.gaps[worst]),
            "rho": float(functions.rho[worst]),
        }
    }


def _least_sure_class(functions: ClassFunctions) -> dict[str, Any]:
    """Find the class of the smallest rho, where there are such; the gap is that of all classes."""
    rho, gap = np.abs(functions.rho), functions.certificate.gap
    if gap is None or not np.isfinite(rho).all():
        return {}
    worst = int(np.argmin(rho))
    return {"least_sure": {"class": worst, "gap": gap, "rho": float(functions.rho[worst])}}
