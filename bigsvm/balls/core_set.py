"""The core set: points a ball is found from, their Gram matrix, and steps on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from bigsvm.core import smo
from bigsvm.data.rows import rows_at
from bigsvm.gram import Partners

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.duals.ball import BallDual
    from bigsvm.gram import KernelTiles
    from bigsvm.training.saving import SearchState

REPACKED = 0.25
"""Share of new points from which all are packed again for products; below it, only the new ones."""
WORTH_DROPPING = 0.25
"""Share of points without weight from which these are removed."""


class CoreSet:
    """Points with weights a on the unit simplex, ``K̃`` among them, and ``g = −K̃a``.

    Parameters
    ----------
    dual : BallDual
    tiles : KernelTiles
        With the offset of the dual's formulation.
    capacity : int
        Most points.
    is_sparse : bool
        Whether rows are.

    Attributes
    ----------
    indices : (p,) int64
        Rows of the training set.
    weights, gradient : (p,) float64
        a, and g of exactly these but for rounding; see `recompute`.
    """

    def __init__(
        self, dual: BallDual, tiles: KernelTiles, *, capacity: int, is_sparse: bool
    ) -> None:
        self._dual, self._tiles, self._is_sparse = dual, tiles, is_sparse
        self.capacity = capacity
        self.indices = np.empty(0, np.int64)
        self.weights, self.gradient = np.empty(0), np.empty(0)
        self._signs, self._ridge, self._diagonal = np.empty(0), np.empty(0), np.empty(0)
        self._rows: list[Rows] = []
        self._packed: list[Partners] = []
        self._n_packed = 0
        # The system gives memory only once it is written to.
        self._gram = np.zeros((capacity, smo.row_width(capacity)), np.float32)

    def __len__(self) -> int:
        return len(self.indices)

    def holds(self, indices: I8) -> Mask:
        """Which of `indices`, (m,), are in the set."""
        return np.isin(indices, self.indices)

    def products(self, indices: I8) -> F8:
        """``(K̃a)_i`` of `indices`, (m,), that are in the set."""
        order = np.argsort(self.indices)
        return -self.gradient[order[np.searchsorted(self.indices, indices, sorter=order)]]

    @property
    def energy(self) -> float:
        """``R = aᵀK̃a``."""
        return -float(self.weights @ self.gradient)

    @property
    def beta(self) -> F8:
        """``y a``, (p,): what kernel rows are weighted by."""
        return self._signs * self.weights

    def outputs(self, rows: Rows | RowsAt) -> F8:
        """``Σ a_t y_t (k(x_t, x) + 1)`` of each row x, (m,)."""
        beta, out, first = self.beta, np.zeros(len(rows_at(rows).places)), 0
        for partners in self._packed:
            self._tiles.multiply(rows, partners, beta[first : first + partners.n], out)
            first += partners.n
        return out

    def add(self, indices: I8, rows: Rows) -> None:
        """Add points, without weight; rows (q, d) at (q,) `indices` that are not in the set."""
        p, q = len(self), len(indices)
        formulation = self._dual.formulation
        (segment,) = formulation.segments(indices)
        self.indices = np.append(self.indices, indices)
        self._signs = np.append(self._signs, segment.box.linear)
        self._ridge = np.append(self._ridge, np.broadcast_to(segment.ridge, q))
        self._rows.append(rows)
        fresh = Partners(self._tiles.values, rows, for_sparse_rows=self._is_sparse)
        self._diagonal = np.append(self._diagonal, self._tiles.values.diagonal(fresh.norms))
        block, first = np.empty((q, p + q), np.float32), 0
        for partners in [*self._packed, fresh]:
            self._tiles.evaluate(rows, partners, block[:, first : first + partners.n])
            first += partners.n
        block *= self._signs[p:, None].astype(np.float32)
        block *= self._signs[: p + q].astype(np.float32)
        # Each pair by the newer point's row, so that the matrix is the same when made at once.
        among_new = block[:, p:]
        among_new[:] = np.tril(among_new) + np.tril(among_new, -1).T
        self._gram[p : p + q, : p + q] = block
        self._gram[:p, p : p + q] = block[:, :p].T
        self.gradient = np.append(self.gradient, -(block[:, :p].astype(np.float64) @ self.weights))
        self.weights = np.append(self.weights, np.zeros(q))
        self._pack(fresh)

    def _pack(self, fresh: Partners) -> None:
        """Keep points ready for products: most of them together, the newest in few parts."""
        self._packed.append(fresh)
        p = len(self)
        if p - self._n_packed <= REPACKED * p and len(self._packed) <= 4:
            return
        keep = [] if p - self._n_packed > REPACKED * p else self._packed[:1]
        first = keep[0].n if keep else 0
        rows = self.rows()
        rest = Partners(self._tiles.values, rows[first:], for_sparse_rows=self._is_sparse)
        self._packed = [*keep, rest]
        if not keep:
            self._n_packed = p

    def rows(self) -> Rows:
        """All rows, (p, d), in the order of `indices`."""
        if len(self._rows) > 1:
            joined = sp.vstack(self._rows, "csr") if self._is_sparse else np.vstack(self._rows)
            self._rows = [sp.csr_array(joined) if self._is_sparse else joined]
        return self._rows[0]

    def advance(self, *, tol: float, max_steps: int) -> int:
        """Take pair steps until the ball of the points is within tol; returns how many."""
        if not max_steps:
            return 0
        p = len(self)
        state = smo.make_state(
            self.weights, self.gradient, np.zeros(p), np.full(p, np.inf), self._diagonal,
            ridge=self._ridge,
        )  # fmt: skip
        slots = np.full(max(p, state.alpha.shape[0]), -1, np.int32)
        slots[:p] = np.arange(p)
        self._dual.advance_on_simplex(
            state, self._gram, slots, np.zeros(len(self._gram), np.int64), tol, max_steps
        )
        self.weights, self.gradient = state.alpha[:p].copy(), state.gradient[:p].copy()
        return int(state.counters[0])

    def recompute(self) -> float:
        """Compute g from scratch; returns by how much it was off, at most, relative to R."""
        p = len(self)
        exact = np.empty(p)
        for first in range(0, p, 1024):
            part = self._gram[first : first + 1024, :p][: p - first]
            exact[first : first + 1024] = part.astype(np.float64) @ self.weights
        exact = -(exact + self._ridge * self.weights)
        drift = float(np.abs(exact - self.gradient).max(initial=0.0))
        # After many steps the weights add up to 1 up to rounding.
        total = self.weights.sum()
        self.weights, self.gradient = self.weights / total, exact / total
        return drift / max(abs(self.energy), np.finfo(np.float64).tiny)

    @property
    def parts(self) -> I8:
        """Points of each part that is packed together; the last bit of sums depends on it."""
        return np.array([partners.n for partners in self._packed], np.int64)

    def restore(self, source: RowSource, saved: SearchState) -> None:
        """Restore a saved core set, to the same bits."""
        indices, weights, gradient, parts = saved
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(parts)])
        for first, stop in itertools.pairwise(edges):
            self.add(indices[first:stop], source.take(indices[first:stop]))
        if not len(self):
            return
        rows = self.rows()
        self._packed = [
            Partners(self._tiles.values, rows[first:stop], for_sparse_rows=self._is_sparse)
            for first, stop in itertools.pairwise(edges)
        ]
        self._n_packed = int(edges[1])
        self.weights, self.gradient = weights, gradient

    def drop_weightless(self) -> None:
        """Remove the points without weight if they are many."""
        kept = np.flatnonzero(self.weights)
        p = len(self)
        if p - len(kept) <= WORTH_DROPPING * p:
            return
        rows = self.rows()[kept]
        for name in ("indices", "weights", "gradient", "_signs", "_ridge", "_diagonal"):
            setattr(self, name, getattr(self, name)[kept])
        q = len(kept)
        for k, place in enumerate(kept):  # in place: rows move up
            self._gram[k, :q] = self._gram[place, kept]
            self._gram[k, q:p] = 0
        self._gram[q:p] = 0
        self._rows = [rows]
        self._packed, self._n_packed = [], 0
        self._pack(Partners(self._tiles.values, rows, for_sparse_rows=self._is_sparse))
