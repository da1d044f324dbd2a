"""What ``bigsvm train`` can be told: words of its options, and which of these mean something."""

from enum import StrEnum
from pathlib import Path

import typer

from bigsvm.cli.inputs import check_text_options
from bigsvm.cli.options import is_given
from bigsvm.cli.runs import Run
from bigsvm.errors import ParameterError
from bigsvm.estimators.names import BALLS, USED_IN


class KernelName(StrEnum):
    """Kernels, as scikit-learn spells them."""

    RBF = "rbf"
    LINEAR = "linear"
    POLY = "poly"
    SIGMOID = "sigmoid"
    LAPLACIAN = "laplacian"
    PRECOMPUTED = "precomputed"


class FormulationName(StrEnum):
    """What is trained, as LIBSVM calls it."""

    C_SVC = "c-svc"
    NU_SVC = "nu-svc"
    L2_SVC = "l2-svc"
    ONE_CLASS = "one-class"
    L2_ONE_CLASS = "l2-one-class"
    EPS_SVR = "eps-svr"
    NU_SVR = "nu-svr"
    CRAMMER_SINGER = "crammer-singer"


class Loss(StrEnum):
    """What C-SVC pays for a row on the wrong side of its margin."""

    HINGE = "hinge"
    SQUARED_HINGE = "squared_hinge"


class SolverName(StrEnum):
    """How l2-svc and l2-one-class find their ball from samples."""

    PAIRWISE = "pairwise"
    MFW = "mfw"
    FW = "fw"
    CVM = "cvm"


class FirstPointsName(StrEnum):
    """The points of the first ball of l2-svc and l2-one-class."""

    RANDOM = "random"
    PAIR = "pair"


class Multiclass(StrEnum):
    """How more than two classes are told apart by functions of two."""

    OVO = "ovo"
    DDAG = "ddag"
    OVR = "ovr"


class Subproblem(StrEnum):
    """How crammer-singer solves for the variables of a row."""

    EXACT = "exact"
    FIXED_POINT = "fixed-point"


class OrderName(StrEnum):
    """Which row crammer-singer solves for next."""

    AUTO = "auto"
    WORST = "worst"
    ACTIVE = "active"
    SEQUENTIAL = "sequential"
    RANDOM = "random"


class CoolingName(StrEnum):
    """How crammer-singer lowers the level of the order `active`."""

    LOG = "log"
    NONE = "none"


class CalibrationMethod(StrEnum):
    """How decision values become probabilities."""

    SIGMOID = "sigmoid"
    ISOTONIC = "isotonic"


class WorkingSet(StrEnum):
    """What pair steps are taken over."""

    AUTO = "auto"
    ALL = "all"


class Selection(StrEnum):
    """How the solver chooses a pair of variables."""

    AUTO = "auto"
    HMG = "hmg"
    SECOND_ORDER = "second-order"
    MVP = "mvp"


PARAMETERS = {
    "formulation": "formulation",
    "loss": "loss",
    "c": "C",
    "nu": "nu",
    "epsilon": "epsilon",
    "solver": "solver",
    "sampling": "sampling",
    "empty_samples": "empty_samples",
    "first_points": "first_points",
    "ball_tol": "ball_tol",
    "certify": "certify",
    "subproblem": "subproblem",
    "order": "order",
    "cooling": "cooling",
    "fit_intercept": "fit_intercept",
    "gamma": "gamma",
    "kernel": "kernel",
    "degree": "degree",
    "coef0": "coef0",
    "tol": "tol",
    "class_weight": "class_weight",
    "multiclass": "multiclass",
    "calibration": "calibration",
    "selection": "selection",
    "working_set": "working_set",
    "shrinking": "shrinking",
    "rows_at_once": "rows_at_once",
    "disk_cache": "disk_cache",
    "seed": "seed",
    "memory": "memory",
    "threads": "threads",
    "checkpoint_every": "checkpoint_every",
    "max_time": "max_seconds",
    "max_iter": "max_iter",
    "cache_dir": "cache_dir",
    "zero_based": "zero_based",
}
"""Options of the command, and what `Run` calls them."""

USED_BY = {
    option: USED_IN[parameter] for option, parameter in PARAMETERS.items() if parameter in USED_IN
}
"""Formulations in which an option means something."""


USED_WITH = {
    "gamma": ("rbf", "poly", "sigmoid", "laplacian"),
    "degree": ("poly",),
    "coef0": ("poly", "sigmoid"),
}
"""Kernels that use an option."""


def check_used(context: typer.Context, run: Run, checkpoint: Path | None) -> None:
    """Refuse options that this run would ignore; LIBSVM ignores them silently.

    Raises
    ------
    ParameterError
    """
    parameters = run.parameters
    for used, what in (
        (USED_BY, parameters["formulation"]),
        (USED_WITH, parameters.get("kernel", "rbf")),
    ):
        for option, names in used.items():
            if is_given(context, option) and what not in names:
                raise ParameterError(
                    f"--{PARAMETERS[option].replace('_', '-')} is for {', '.join(names)}, and "
                    f"means nothing for {what}; leave it out"
                )
    if is_given(context, "checkpoint_every") and checkpoint is None:
        raise ParameterError(
            "--checkpoint-every is the time between two saves; name a --checkpoint to save to"
        )
    searches = parameters["formulation"] in BALLS and not parameters.get("certify", True)
    if is_given(context, "selection") and searches:
        raise ParameterError(
            "--selection is for pair steps, and a search for a ball with --no-certify needs none; "
            "leave it out"
        )
    if is_given(context, "shrinking") and parameters.get("working_set", "auto") != "all":
        raise ParameterError(
            "--shrinking is for --working-set all, and other runs always leave out rows that need "
            "not move; give that too, or leave it out"
        )
    has_rows_on_disk = str(parameters.get("disk_cache", 0)) != "0"
    check_text_options(context, run.source, *(() if has_rows_on_disk else ("cache_dir",)))
