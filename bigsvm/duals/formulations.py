"""Formulations as data: what a training problem is, in the notation of one signed dual.

    maximise  linearᵀα − ½ αᵀKα     subject to  lower ≤ α ≤ upper,  Σ α = 0

with ``α_i = y_i a_i`` for LIBSVM's unsigned a, so that a kernel row carries no labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Selection = slice | NDArray[np.int64]


class Box(NamedTuple):
    """Linear term and bounds of some variables, each (m,) float64."""

    linear: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CSVC:
    """The soft-margin classifier (libsvm-2.2.txt, section 2.1), two classes.

    linear = y; α in [0, C_i] where y = +1 and [−C_i, 0] where y = −1;
    ``C_i = C · class weight · sample weight``. A row with C_i = 0 has no part in the problem.

    Attributes
    ----------
    sign : (n,) int8
        y, +1 or −1.
    C : float
    class_weight : tuple of float
        Of the negative and the positive class.
    sample_weight : (n,) float64 or None
    """

    name = "c-svc"

    sign: NDArray[np.int8]
    C: float
    class_weight: tuple[float, float] = (1.0, 1.0)
    sample_weight: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.C) and self.C > 0):
            raise ParameterError(f"C is {self.C!r}; it must be a finite number > 0")
        for label, weight in zip(("negative", "positive"), self.class_weight, strict=True):
            if not (np.isfinite(weight) and weight >= 0):
                raise ParameterError(f"the {label} class has weight {weight!r}; it must be >= 0")
        for label, weight, rows in zip(
            ("negative", "positive"), self.class_weight, self.movable_by_class(), strict=True
        ):
            if weight == 0 or not rows.any():
                raise DataError(
                    f"no row of the {label} class has a positive weight; two classes are needed"
                )

    def __len__(self) -> int:
        return len(self.sign)

    def movable_by_class(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows of the negative and of the positive class have a variable, (n,) each."""
        weighted = np.True_ if self.sample_weight is None else self.sample_weight > 0
        return (self.sign < 0) & weighted, (self.sign > 0) & weighted

    def take(self, rows: NDArray[np.int32] | NDArray[np.int64]) -> CSVC:
        """Restrict the problem to `rows`, in their order."""
        weights = self.sample_weight
        return replace(
            self, sign=self.sign[rows], sample_weight=None if weights is None else weights[rows]
        )

    def weighted(self, sample_weight: NDArray[np.float64]) -> CSVC:
        """Return the same problem with other weights of the rows."""
        return replace(self, sample_weight=sample_weight)

    def box(self, rows: Selection) -> Box:
        """Linear term and bounds of the variables of `rows`."""
        sign = self.sign[rows]
        bound = np.where(sign > 0, self.C * self.class_weight[1], self.C * self.class_weight[0])
        if self.sample_weight is not None:
            bound = bound * self.sample_weight[rows]
        return Box(
            linear=sign.astype(np.float64),
            lower=np.where(sign > 0, 0.0, -bound),
            upper=np.where(sign > 0, bound, 0.0),
        )
