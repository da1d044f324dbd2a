"""Functions: the weights of several functions over the same columns, prepared tile by tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.core.functions import ROWS_AT_ONCE, add_functions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.team import Team
    from bigsvm.tiles.columns import Columns, Tile

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Weights: TypeAlias = NDArray[np.float64] | sp.csr_array

WEIGHTS_PER_EVALUATION = 8
"""Weights that take as long as a kernel value: one instruction each for as many rows."""


class Part(NamedTuple):
    """The weights of the columns of one tile, function by function; see `add_functions`."""

    functions: NDArray[np.int64]
    starts: NDArray[np.int64]
    places: NDArray[np.int32]
    weights: Floats


class Functions:
    """Weights (p, k) of k functions over p columns, of which zeros take neither time nor memory.

    Parameters
    ----------
    columns : Columns
        The p columns.
    weights : (p, k) float64, or CSR
        CSR where most are zero, as in a vote of pairs of classes: a support vector has a part in
        k - 1 of k (k - 1) / 2 functions.
    dtype : numpy dtype
        That of the kernel values, to which weights are rounded.

    Attributes
    ----------
    n : int
        Functions, k.
    n_weights : int
        Weights other than zero.
    """

    def __init__(self, columns: Columns, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.n = int(weights.shape[1])
        self._parts: dict[int, Part] = {}
        for tile in columns:
            part = sp.csc_array(weights[tile.start : tile.stop])
            # Of 499 500 functions few have a weight in a tile.
            counts = np.diff(part.indptr)
            functions = np.flatnonzero(counts)
            starts = np.zeros(len(functions) + 1, np.int64)
            np.cumsum(counts[functions], out=starts[1:])
            self._parts[tile.start] = Part(
                functions, starts, part.indices.astype(np.int32), part.data.astype(dtype)
            )
        self.n_weights = sum(len(part.weights) for part in self._parts.values())

    def add(self, tile: Tile, values: Floats, out: NDArray[np.float64], team: Team) -> None:
        """Add what the tile has with kernel values (m, ≥ p) to the functions' sums, out (k, m)."""
        shape = (tile.stop - tile.start, ROWS_AT_ONCE)
        turned = team.scratch("turned", shape, np.dtype(np.float64))
        add_functions(values, *self._parts[tile.start], turned, out)
