"""The words that parameters may be, except names of formulations. Light to import."""

from typing import Literal

LossName = Literal["hinge", "squared_hinge"]
KernelName = Literal[
    "rbf", "linear", "poly", "sigmoid", "laplacian", "matern32", "matern52", "cosine", "tanimoto",
    "intersection", "chi2", "precomputed",
]  # fmt: skip
SolverName = Literal["pairwise", "mfw", "fw", "cvm"]
FirstPointsName = Literal["random", "pair"]
SubproblemName = Literal["exact", "fixed_point"]
OrderName = Literal["auto", "worst", "active", "sequential", "random"]
CoolingName = Literal["log", "none"]
MulticlassName = Literal["ovo", "ddag", "ovr"]
CalibrationName = Literal["sigmoid", "isotonic", "density", "laplace"]
ClassCalibration = Literal["sigmoid", "isotonic"]
SelectionName = Literal["auto", "hmg", "second-order", "mvp"]
WorkingSetName = Literal["auto", "all"]

KERNEL_PARAMETERS: dict[str, tuple[str, ...]] = {
    "rbf": ("gamma",),
    "linear": (),
    "poly": ("gamma", "coef0", "degree"),
    "sigmoid": ("gamma", "coef0"),
    "laplacian": ("gamma",),
    "matern32": ("gamma",),
    "matern52": ("gamma",),
    "cosine": (),
    "tanimoto": (),
    "intersection": (),
    "chi2": ("gamma",),
    "precomputed": (),
}
"""Parameters of each kernel of `KernelName`."""


def kernels_with(parameter: str) -> tuple[str, ...]:
    """Return the kernels that have a parameter."""
    return tuple(kernel for kernel, names in KERNEL_PARAMETERS.items() if parameter in names)
