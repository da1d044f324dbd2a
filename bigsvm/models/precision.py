"""Whether float32 is enough for a decision function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.gram import KernelTiles, Partners
    from bigsvm.gram.weights import Weights

ENOUGH = 1e-3
"""Largest error of a decision value in single precision: the usual tolerance of training."""


def rounding(tiles: KernelTiles, columns: Partners, coefficients: Weights) -> float:
    """Estimate how far decision values are off, summed up of kernel values in the tiles' dtype.

    Each term is rounded by half a unit in its last place, to either side, and kernel values of a
    row like the support vectors are as large as theirs with themselves: one standard deviation of
    the function where it is largest.

    Parameters
    ----------
    tiles : KernelTiles
    columns : Partners
        The support vectors, (p).
    coefficients : (p,) float64 or (p, n_functions) CSR
    """
    return rounding_of(tiles.values.diagonal(columns.norms), coefficients, tiles.dtype)


def rounding_of(
    diagonal: NDArray[np.float64], coefficients: Weights, dtype: np.dtype[Any]
) -> float:
    """Estimate as `rounding` does, given the kernel values of the vectors with themselves, (p,)."""
    if len(diagonal) == 0:
        return 0.0
    own = np.abs(diagonal)
    squared = coefficients**2 if isinstance(coefficients, np.ndarray) else coefficients.power(2)
    spread = float(np.sqrt((own @ squared).max(initial=0.0) * own.mean()))
    half_a_unit: float = 0.5 * float(np.spacing(np.ones((), dtype)))
    return half_a_unit * spread
