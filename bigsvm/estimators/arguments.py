"""Arguments of the estimators, in groups that they inherit, and the documentation made from them.

Those that training uses are declared in `bigsvm.parameters`; here are those that only the
estimators have, and those that have another name or default as scikit-learn calls them.
"""

import inspect
import os
import warnings
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

import numpy as np

from bigsvm.errors import brief
from bigsvm.parameters.declaration import Kind, Rule, documentation, parameter
from bigsvm.parameters.groups import KernelParameters, PairStepParameters, Resources
from bigsvm.parameters.names import CalibrationName, MulticlassName
from bigsvm.parameters.training import again

IGNORED: dict[str, tuple[tuple[Any, ...], str]] = {
    "cache_size": ((200,), "memory, the bytes of all arrays together"),
    "probability": ((False, True, "deprecated"), "calibration='sigmoid'"),
}
"""Parameters of scikit-learn's estimators that training does not know: values that are not ignored,
and what to use instead of others."""
_ACCEPTED = """
    Accepted for compatibility with scikit-learn and ignored; a value other than its default causes
    a warning that names what to use instead.
    """


@dataclass(kw_only=True, eq=False, repr=False)
class SharedArguments(KernelParameters, Resources):
    """Arguments of every estimator."""

    calibration: CalibrationName | None = again("calibration")
    warm_start: bool = parameter(
        False,
        """
        Whether `fit` starts from the model of the last one.

        It must be of the same rows and classes: after a change of C, of a weight or of epsilon
        training takes fewer steps. Or of a store before `append` or `drop` changed its rows. Not
        with more than two classes, save for `CrammerSingerSVC`.
        """,
    )
    verbose: int = parameter(
        0,
        """
        1 shows progress on standard error, as the command ``bigsvm train`` does; 0 is silent.

        Whatever its value, the logger ``"bigsvm"`` has one line for each sweep, at level INFO.
        """,
        rule=Rule(lambda value: value in (0, 1), "0 or 1"),
    )
    cache_dir: str | os.PathLike[str] | None = again("cache_dir")
    checkpoint: str | os.PathLike[str] | None = again("checkpoint")
    checkpoint_copy: str | None = again("checkpoint_copy")
    exact_objective: bool = again("exact_objective")
    max_time: float | None = again("max_seconds", default=None)
    n_jobs: int | None = again("threads")
    random_state: int | np.random.RandomState | None = again("seed", default=None)


@dataclass(kw_only=True, eq=False, repr=False)
class ClassArguments(PairStepParameters):
    """Arguments of the classifiers that are of two classes, or of several problems of two."""

    certify: bool = again("certify")
    class_weight: dict[Any, float] | str | None = again("class_weight")
    multiclass: MulticlassName = again("multiclass")
    decision_function_shape: Literal["ovr", "ovo"] = parameter(
        "ovr",
        """
        What `decision_function` is of more than two classes: a value for each class, or for each
        pair.
        """,
    )
    break_ties: bool = parameter(
        False,
        "Whether of classes with as many votes the one with the largest value wins, not the first.",
    )


@dataclass(kw_only=True, eq=False, repr=False)
class IgnoredArguments:
    """Arguments of scikit-learn's estimators without a meaning here."""

    cache_size: float = parameter(200, _ACCEPTED)


@dataclass(kw_only=True, eq=False, repr=False)
class IgnoredClassArguments(IgnoredArguments):
    """The same, of classifiers."""

    probability: bool | str = parameter(
        False,
        """
        Accepted for compatibility with scikit-learn: True is ``calibration="sigmoid"``, where no
        calibration is given, and causes a warning that says so.
        """,
        kind=Kind((), "", "bool"),
    )


def calibration_in(given: dict[str, Any]) -> CalibrationName | None:
    """Return the calibration among the parameters of an estimator, a sigmoid by `probability`."""
    chosen: CalibrationName | None = given.get("calibration")
    return "sigmoid" if chosen is None and given.get("probability") in (True,) else chosen


def warn_of_ignored(name: str, given: dict[str, Any]) -> None:
    """Warn once about all parameters of scikit-learn's that are ignored, or mean another one."""
    changed = [
        f"{parameter}={brief(given[parameter])} (use {instead})"
        for parameter, (defaults, instead) in IGNORED.items()
        if parameter in given and given[parameter] not in defaults
    ]
    if given.get("shrinking") in (False,) and given["working_set"] != "all":
        changed.append("shrinking=False (only working_set='all' can do without)")
    said = [f"ignores {', '.join(changed)}"] if changed else []
    if calibration_in(given) != given.get("calibration"):
        said.append(
            "takes probability=True as calibration='sigmoid', which a tenth of the rows is held "
            "out for; write that instead"
        )
    if said:
        warnings.warn(f"{name} {', and '.join(said)}", UserWarning, stacklevel=4)


KKT_GAP = "KKT gap over all rows at which training has converged."
HELD_OUT = """
        Which rows are held out depends on the data alone. None is no probabilities, and all rows
        are trained on.
        """
"""Text of `tol`, and the end of that of `calibration`."""
Estimator = TypeVar("Estimator", bound=type)
_ORDER = (
    "nu C kernel degree gamma coef0 shrinking probability tol cache_size class_weight verbose "
    "max_iter decision_function_shape break_ties random_state"
)
_KERNEL_FIRST = (
    "kernel degree gamma coef0 tol nu C epsilon shrinking cache_size verbose max_iter random_state"
)


def documented(estimator: Estimator) -> Estimator:
    """Put the parameters of an estimator, a dataclass, into order, and document them.

    Those of scikit-learn come first, as it has them, then those of the class itself and those of
    the groups it names. Their section is written before the Attributes, if any.
    """
    order = _KERNEL_FIRST if estimator.__name__ in ("SVR", "OneClassSVM") else _ORDER
    names = order.split()
    names += [name for kind in estimator.__mro__ for name in vars(kind).get("__annotations__", ())]
    declared = sorted(fields(estimator), key=lambda field: names.index(field.name))
    # mypy knows no `__init__` of a class that is a type variable.
    signature = inspect.signature(estimator.__init__)  # type: ignore[misc]
    taken = [signature.parameters[name] for name in ("self", *(each.name for each in declared))]
    estimator.__init__.__signature__ = signature.replace(parameters=taken)  # type: ignore[misc]
    section = f"Parameters\n----------\n{documentation(declared)}"
    if estimator.__doc__ is not None:  # there is none with -OO
        summary, attributes, rest = inspect.cleandoc(estimator.__doc__).partition(
            "\n\nAttributes\n"
        )
        estimator.__doc__ = f"{summary}\n\n{section}{attributes}{rest}"
    return estimator
