"""Functions: the weights of several functions over the same partners, prepared tile by tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.core.functions import TURNED_STRIDE, add_all, add_some

if TYPE_CHECKING:
    from bigsvm.arrays import F4, F8, I4, I8
    from bigsvm.gram.partners import Partners, Tile
    from bigsvm.gram.team import Team

    Floats: TypeAlias = F4 | F8
    Weights: TypeAlias = F8 | sp.csr_array

WEIGHTS_PER_EVALUATION = 8
"""Weights that take about as long as one kernel value of rows with few features."""
ALL_PER_WEIGHT = 5
"""Weights, zeros included, that `add_all` adds while `add_some` adds one that is not zero."""
ALL_PER_TURN = 8
"""Weights, zeros included, that `add_all` adds while `add_some` turns a value round."""


def weighted_rows(weights: Weights) -> I8:
    """Rows of (m,) or (m, k), dense or CSR, with anything but 0, ascending."""
    if not isinstance(weights, np.ndarray):
        return np.flatnonzero(np.diff(weights.indptr))
    return np.flatnonzero(weights if weights.ndim == 1 else weights.any(axis=1))


class AllWeights(NamedTuple):
    """All weights that functions have in one tile; see `add_all`."""

    functions: I8
    weights: Floats

    def add(self, values: Floats, out: F8, team: Team) -> None:
        """Add what kernel values (m, ≥ p) contribute to the functions' sums, out (k, m)."""
        add_all(values, self.functions, self.weights, out)


class NonzeroWeights(NamedTuple):
    """The weights other than zero of one tile, function by function; see `add_some`."""

    functions: I8
    starts: I8
    places: I4
    weights: Floats
    n_partners: int

    def add(self, values: Floats, out: F8, team: Team) -> None:
        """Add what kernel values (m, ≥ p) contribute to the functions' sums, out (k, m)."""
        turned = team.scratch("turned", (self.n_partners, TURNED_STRIDE), np.dtype(np.float64))
        add_some(values, self.functions, self.starts, self.places, self.weights, turned, out)


class FunctionWeights:
    """Weights (p, k) of k functions over p partners, of which most may be zero.

    Where nearly all weights of a tile are zero the others alone take time and memory; elsewhere it
    is faster to add zeros up than to look for the others.

    Parameters
    ----------
    partners : Partners
        The p partners.
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

    def __init__(self, partners: Partners, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.n = int(weights.shape[1])
        self.n_weights = 0
        self._parts: dict[int, AllWeights | NonzeroWeights] = {}
        for tile in partners:
            part = sp.csc_array(weights[tile.start : tile.stop])
            self.n_weights += part.nnz
            self._parts[tile.start] = _prepared(part.astype(dtype))

    def add(self, tile: Tile, values: Floats, out: F8, team: Team) -> None:
        """Add what the tile has with kernel values (m, ≥ p) to the functions' sums, out (k, m)."""
        self._parts[tile.start].add(values, out, team)


def _prepared(part: sp.csc_array) -> AllWeights | NonzeroWeights:
    p = part.shape[0]
    # Of 499 500 functions few have a weight in a tile.
    counts = np.diff(part.indptr)
    functions = np.flatnonzero(counts)
    if len(functions) * p <= ALL_PER_TURN * p + ALL_PER_WEIGHT * part.nnz:
        return AllWeights(functions, np.ascontiguousarray(part[:, functions].toarray().T))
    starts = np.zeros(len(functions) + 1, np.int64)
    np.cumsum(counts[functions], out=starts[1:])
    return NonzeroWeights(functions, starts, part.indices.astype(np.int32), part.data, p)
