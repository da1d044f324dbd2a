"""What can be trained: formulations by name, and the parameters of their problems.

Light to import, as the command line asks before it does any work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bigsvm.parameters.declaration import NOT_NEGATIVE, PROBLEM, Kind, Rule, parameter
from bigsvm.parameters.names import CalibrationName, LossName

FormulationName = Literal[
    "c-svc",
    "nu-svc",
    "l2-svc",
    "one-class",
    "l2-one-class",
    "eps-svr",
    "nu-svr",
    "crammer-singer",
]


class Traits(NamedTuple):
    """What is known of a formulation by name.

    `learns` says what its rows have, and its predictions are: classes, numbers, or nothing. Of two
    classes more become several problems if it `is_reduced`. If it `is_ball`, its rows are points of
    a minimal enclosing ball. `gap` is what a run brings down to its tolerance.
    """

    learns: Literal["classes", "targets", "rows"]
    is_reduced: bool = False
    is_ball: bool = False
    gap: str = "KKT gap"


TRAITS: dict[str, Traits] = {
    "c-svc": Traits("classes", is_reduced=True),
    "nu-svc": Traits("classes", is_reduced=True),
    "l2-svc": Traits("classes", is_reduced=True, is_ball=True),
    "one-class": Traits("rows"),
    "l2-one-class": Traits("rows", is_ball=True),
    "eps-svr": Traits("targets"),
    "nu-svr": Traits("targets"),
    "crammer-singer": Traits("classes", gap="largest violation"),
}
FORMULATIONS = tuple(TRAITS)
BALLS = tuple(name for name, traits in TRAITS.items() if traits.is_ball)
WITH_CLASSES = tuple(name for name, traits in TRAITS.items() if traits.is_reduced)
"""Formulations of two classes, or of pairs of them."""
CLASSIFIERS = tuple(name for name, traits in TRAITS.items() if traits.learns == "classes")
REGRESSIONS = tuple(name for name, traits in TRAITS.items() if traits.learns == "targets")
CALIBRATIONS: dict[str, tuple[CalibrationName, ...]] = {
    "classes": ("sigmoid", "isotonic"),
    "rows": ("density",),
    "targets": ("laplace",),
}
"""Calibrations by what a formulation learns."""


def traits_of(formulation: str) -> Traits:
    """Return the traits of the formulation that a model or a run names."""
    # The squared hinge is a loss of c-svc, and a formulation of its own in models.
    return TRAITS[formulation.removesuffix(" squared hinge")]


def gap_name(formulation: str) -> str:
    """Name what a run brings down to its tolerance: `gap` of a certificate."""
    return traits_of(formulation).gap if formulation in TRAITS else "KKT gap"


def all_but(*names: str) -> tuple[str, ...]:
    """Return the formulations without those that are named."""
    return tuple(name for name in FORMULATIONS if name not in names)


OTHERS = all_but("crammer-singer")
"""Formulations that are solved by pair steps."""


@dataclass(kw_only=True, eq=False, repr=False)
class ProblemParameters:
    """What a problem is, beside its rows and its kernel."""

    formulation: FormulationName = parameter(
        "c-svc", "What is trained.", recorded=True, panel=PROBLEM
    )
    loss: LossName = parameter(
        "hinge",
        """
        What a row on the wrong side of its margin costs.

        ``C Σ ξ``, or ``C Σ ξ²``.
        """,
        recorded=True,
        panel=PROBLEM,
        formulations=("c-svc",),
    )
    C: float = parameter(
        1.0,
        """
        Penalty of the loss; > 0.

        ``inf`` allows no loss: the hard margin of c-svc with the loss ``"hinge"``, and of eps-svr a
        tube that has all targets inside. Where there is no such function, training ends unconverged
        and says so.
        """,
        recorded=True,
        panel=PROBLEM,
        formulations=all_but("nu-svc", "one-class"),
        rule=Rule(lambda value: value > 0, "a number > 0"),
    )
    nu: float = parameter(
        0.5,
        """
        Share of support vectors; more than 0 and at most 1.

        At most this share of the rows (by weight) is on the wrong side of its margin, outside of
        the tube or outside of the class; at least this share are support vectors. For
        classification it is at most twice the share of the smaller class.
        """,
        recorded=True,
        panel=PROBLEM,
        formulations=("nu-svc", "one-class", "nu-svr"),
        rule=Rule(lambda value: 0 < value <= 1, "more than 0 and at most 1"),
    )
    epsilon: float = parameter(
        0.1,
        """
        Half-width of the tube.

        Within it nothing is lost; in units of y, >= 0.
        """,
        recorded=True,
        panel=PROBLEM,
        formulations=("eps-svr",),
        rule=NOT_NEGATIVE,
    )
    class_weight: Mapping[float, float] | str | None = parameter(
        None,
        """
        Factor of C for a class.

        ``"balanced"`` is that of scikit-learn. For `NuSVC` the factor is one of the rows' weights.
        """,
        recorded=True,
        panel=PROBLEM,
        formulations=CLASSIFIERS,
        metavar="balanced|LABEL:WEIGHT",
        kind=Kind((Mapping, str), "'balanced', a dictionary", 'dict or "balanced"'),
    )
