"""The gap of the minimal enclosing ball of a working set whose variables are signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F8: TypeAlias = NDArray[np.float64]


@compiled
def gap_of_signed(alpha: F8, gradient: F8, lower: F8, upper: F8) -> float:
    """Compute ``max y g − Σ α g / Σ |α|`` of signed variables with one bound: the gap of these.

    y is the side that a variable lies on; one without bounds is left out.
    """
    best, product, mass = 0.0, 0.0, 0.0
    for t in range(alpha.shape[0]):
        rises, falls = upper[t] == np.inf, lower[t] == -np.inf
        if rises == falls:
            continue
        best = max(best, gradient[t] if rises else -gradient[t])
        product += alpha[t] * gradient[t]
        mass += abs(alpha[t])
    return best - product / mass if mass > 0.0 else np.inf
