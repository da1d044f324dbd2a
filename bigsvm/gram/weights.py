"""The weights of several functions over the same partners, prepared tile by tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.core.functions import TRANSPOSED_STRIDE, add_all, add_some

if TYPE_CHECKING:
    from bigsvm.arrays import F4, F8, I4, I8
    from bigsvm.gram.partners import Partners, Tile
    from bigsvm.gram.team import Team

    Floats: TypeAlias = F4 | F8
    Weights: TypeAlias = F8 | sp.csr_array

WEIGHTS_PER_EVALUATION = 8
"""Weights that are added in about the time of one kernel value of rows with few features."""
ALL_PER_WEIGHT = 5
"""Weights, zeros included, that `add_all` adds while `add_some` adds one nonzero weight."""
ALL_PER_TURN = 8
"""Weights, zeros included, that `add_all` adds while `add_some` transposes one value."""


def weighted_rows(weights: Weights) -> I8:
    """Numbers of the rows that are not all 0, ascending; weights are (m,) or (m, k)."""
    if not isinstance(weights, np.ndarray):
        return np.flatnonzero(np.diff(weights.indptr))
    return np.flatnonzero(weights if weights.ndim == 1 else weights.any(axis=1))


class AllWeights(NamedTuple):
    """All weights of some functions in one tile, zeros included; see `add_all`."""

    functions: I8
    weights: Floats

    def add(self, values: Floats, out: F8, team: Team) -> None:
        """Add the kernel values (m, ≥ p) times the weights to the sums of functions, out (k, m)."""
        add_all(values, self.functions, self.weights, out)


class NonzeroWeights(NamedTuple):
    """The nonzero weights of one tile, function by function; see `add_some`."""

    functions: I8
    starts: I8
    places: I4
    weights: Floats
    n_partners: int

    def add(self, values: Floats, out: F8, team: Team) -> None:
        """Add the kernel values (m, ≥ p) times the weights to the sums of functions, out (k, m)."""
        transposed = team.scratch(
            "turned", (self.n_partners, TRANSPOSED_STRIDE), np.dtype(np.float64)
        )
        add_some(values, self.functions, self.starts, self.places, self.weights, transposed, out)


class FunctionWeights:
    """Weights (p, k) of k functions over p partners.

    If nearly all weights of a tile are zero, only the nonzero weights are kept and multiplied.
    Otherwise all are kept, as multiplying by zeros is faster than skipping them.

    Parameters
    ----------
    partners : Partners
    weights : (p, k) float64, or CSR
        CSR if most are zero, as for one against one: a support vector has weights in c - 1 of the
        c (c - 1) / 2 functions of c classes.
    dtype : numpy dtype
        Dtype of the kernel values. Weights are rounded to it.

    Attributes
    ----------
    n : int
        Number of functions, k.
    n_weights : int
        Number of nonzero weights.
    """

    def __init__(self, partners: Partners, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.n = int(weights.shape[1])
        self.n_weights = 0
        self._weights_of_tile: dict[int, AllWeights | NonzeroWeights] = {}
        for tile in partners:
            of_tile = sp.csc_array(weights[tile.start : tile.stop])
            self.n_weights += of_tile.nnz
            self._weights_of_tile[tile.start] = _prepared(of_tile.astype(dtype))

    def add(self, tile: Tile, values: Floats, out: F8, team: Team) -> None:
        """Add kernel values (m, ≥ p) of a tile times its weights to the sums, out (k, m)."""
        self._weights_of_tile[tile.start].add(values, out, team)


def _prepared(weights: sp.csc_array) -> AllWeights | NonzeroWeights:
    """Choose how the weights (p, k) of a tile are kept."""
    p = weights.shape[0]
    # With very many functions only few have weights in a tile.
    counts = np.diff(weights.indptr)
    functions = np.flatnonzero(counts)
    if len(functions) * p <= ALL_PER_TURN * p + ALL_PER_WEIGHT * weights.nnz:
        return AllWeights(functions, np.ascontiguousarray(weights[:, functions].toarray().T))
    starts = np.zeros(len(functions) + 1, np.int64)
    np.cumsum(counts[functions], out=starts[1:])
    return NonzeroWeights(functions, starts, weights.indices.astype(np.int32), weights.data, p)
