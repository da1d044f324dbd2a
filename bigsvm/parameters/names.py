"""What can be trained, by name, and the words that parameters may be. Light to import."""

from typing import Literal, NamedTuple, get_args

FormulationName = Literal[
    "c-svc", "nu-svc", "l2-svc", "one-class", "l2-one-class", "eps-svr", "nu-svr", "crammer-singer"
]
LossName = Literal["hinge", "squared_hinge"]
KernelName = Literal["rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"]
SolverName = Literal["pairwise", "mfw", "fw", "cvm"]
FirstPointsName = Literal["random", "pair"]
SubproblemName = Literal["exact", "fixed_point"]
OrderName = Literal["auto", "worst", "active", "sequential", "random"]
CoolingName = Literal["log", "none"]
MulticlassName = Literal["ovo", "ddag", "ovr"]
CalibrationName = Literal["sigmoid", "isotonic"]
SelectionName = Literal["auto", "hmg", "second-order", "mvp"]
WorkingSetName = Literal["auto", "all"]


class Traits(NamedTuple):
    """What is known of a formulation by name.

    Attributes
    ----------
    learns : {"classes", "targets", "rows"}
        What its rows have, and its predictions are: classes, numbers, or nothing.
    is_reduced : bool
        Whether it is of two classes, so that more become several problems.
    is_ball : bool
        Whether its tolerance is that of a minimal enclosing ball.
    gap : str
        What a run brings down to its tolerance.
    """

    learns: Literal["classes", "targets", "rows"]
    is_reduced: bool = False
    is_ball: bool = False
    gap: str = "KKT gap"


TRAITS: dict[str, Traits] = {
    "c-svc": Traits("classes", is_reduced=True),
    "nu-svc": Traits("classes", is_reduced=True),
    "l2-svc": Traits("classes", is_reduced=True, is_ball=True, gap="gap of the ball"),
    "one-class": Traits("rows"),
    "l2-one-class": Traits("rows", is_ball=True, gap="gap of the ball"),
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
REDUCTIONS = get_args(MulticlassName)
"""Rules of `bigsvm.votes` whose functions can be trained."""
