"""What can be trained, by name; light to import, as the command asks before it does any work."""

FORMULATIONS = (
    "c-svc", "nu-svc", "l2-svc", "one-class", "l2-one-class", "eps-svr", "nu-svr",
    "crammer-singer",
)  # fmt: skip
BALLS = ("l2-svc", "l2-one-class")
"""Those whose tolerance is that of a ball."""
WITH_CLASSES = ("c-svc", "nu-svc", "l2-svc")
"""Of two classes, or of pairs of them."""
CLASSIFIERS = (*WITH_CLASSES, "crammer-singer")
REDUCTIONS = ("ovo", "ddag", "ovr")
"""Of many classes to two: rules of `bigsvm.votes` whose functions can be trained."""
USED_IN = {
    "C": ("c-svc", *BALLS, "eps-svr", "nu-svr", "crammer-singer"),
    "nu": ("nu-svc", "one-class", "nu-svr"),
    "epsilon": ("eps-svr",),
    "loss": ("c-svc",),
    "class_weight": CLASSIFIERS,
    "multiclass": WITH_CLASSES,
    "tol": ("c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr", "crammer-singer"),
    **dict.fromkeys(
        ("selection", "shrinking", "rows_at_once"),
        ("c-svc", "nu-svc", *BALLS, "one-class", "eps-svr", "nu-svr"),
    ),
    **dict.fromkeys(("subproblem", "order", "cooling", "fit_intercept"), ("crammer-singer",)),
    **dict.fromkeys(("solver", "sampling", "empty_samples", "first_points", "ball_tol"), BALLS),
    "certify": (*CLASSIFIERS, "l2-one-class"),
}
"""Formulations that use each parameter that not all of them have."""
_GAPS = dict.fromkeys(BALLS, "gap of the ball") | {"crammer-singer": "largest violation"}


def gap_name(formulation: str) -> str:
    """Name what a run brings down to its tolerance: `gap` of a certificate."""
    return _GAPS.get(formulation, "KKT gap")
