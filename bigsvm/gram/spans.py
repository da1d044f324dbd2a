"""Spans: a few rows, prepared once, and what is computed of their kernel values with partners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.core import gram, products

if TYPE_CHECKING:
    import scipy.sparse as sp

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.gram.partners import Partners, Tile
    from bigsvm.gram.team import Team
    from bigsvm.gram.values import KernelValues

    Floats = F4 | F8

NOTHING, NO_SLOTS = np.empty(0), np.empty(0, np.int64)


class Span(ABC):
    """Rows at some places (m,) of others, on the thread that made it.

    What a thread computes lasts until it computes the next.

    Parameters
    ----------
    values : KernelValues
    team : Team
        Whose scratch memory is used.
    """

    def __init__(self, values: KernelValues, team: Team) -> None:
        self._values, self._team = values, team

    @abstractmethod
    def kernel_values(self, tile: Tile) -> Floats:
        """Kernel values with the partners of a tile, (m, ≥ p), in scratch memory."""

    def add_sums(self, partners: Partners, weights: F8, sums: F8) -> None:
        """Add ``K @ weights`` to sums (m,), tile by tile; weights (p,)."""
        for tile in partners:
            gram.weighted_sums(self.kernel_values(tile), weights[tile.start : tile.stop], sums)

    def store(self, partners: Partners, out: Floats, slots: I8) -> None:
        """Write the kernel values of row i to row slots_i of out (n_slots, ≥ p)."""
        for tile in partners:
            values = self.kernel_values(tile)[:, : tile.stop - tile.start]
            out[slots, tile.start : tile.stop] = values


class ComputedSpan(Span):
    """Kernel values from products, in one call for all tiles where the core knows the kernel."""

    norms: Floats

    @abstractmethod
    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        """Call the core with these rows; `tile` may be all partners, `block` is as wide as one."""

    def _block(self, width: int) -> Floats:
        """Scratch memory for the products with a tile."""
        rows = -(-len(self.norms) // gram.MR) * gram.MR
        panel = gram.NR32 if self._values.dtype == np.float32 else gram.NR64
        return self._team.scratch("dots", (rows, -(-width // panel) * panel), self._values.dtype)

    def _no_rows(self) -> Floats:
        return np.empty((0, 0), self._values.dtype)

    def kernel_values(self, tile: Tile) -> Floats:
        """Compute the products of one tile, and kernel values of these."""
        block = self._block(tile.stop - tile.start)
        self._run(tile, block, NOTHING, NOTHING, self._no_rows(), NO_SLOTS)
        found = block[: len(self.norms)]
        if not self._values.is_compiled:
            self._values.replace(found, self.norms, tile.norms)
        return found

    def add_sums(self, partners: Partners, weights: F8, sums: F8) -> None:
        """Do all tiles in one call."""
        if not self._values.is_compiled:
            super().add_sums(partners, weights, sums)
        elif partners.n:
            block, out = self._block(partners.widest), self._no_rows()
            self._run(partners.whole, block, weights, sums, out, NO_SLOTS)

    def store(self, partners: Partners, out: Floats, slots: I8) -> None:
        """Do all tiles in one call."""
        if not self._values.is_compiled or out.dtype != self._values.dtype:
            super().store(partners, out, slots)
        elif partners.n:
            block = self._block(partners.widest)
            self._run(partners.whole, block, NOTHING, NOTHING, out, slots)


class DenseSpan(ComputedSpan):
    """Dense rows, packed."""

    def __init__(self, values: KernelValues, team: Team, rows: Floats, places: I8) -> None:
        super().__init__(values, team)
        centre = np.zeros(rows.shape[1]) if values.centre is None else values.centre
        shape = -(-len(places) // gram.MR), rows.shape[1], gram.MR
        self._packed = team.scratch("rows", shape, values.dtype)
        products.pack_rows(rows, places, centre, self._packed)
        self.norms = values.packed_norms(self._packed, len(places))

    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        gram.dense_span(
            self._packed, self.norms, tile.vectors, tile.norms,
            self._values.product, self._values.formula, block, weights, sums, out, slots,
        )  # fmt: skip


class SparseSpan(ComputedSpan):
    """Sparse rows."""

    def __init__(self, values: KernelValues, team: Team, rows: sp.csr_array, places: I8) -> None:
        super().__init__(values, team)
        data, indices, indptr = values.taken(rows, places)
        self._rows = data.astype(values.dtype, copy=False), indices, indptr
        self.norms = np.empty(len(places), values.dtype)
        values.sparse_norms(self._rows[0], indptr, self.norms)
        values.check(self.norms)
        self._place = team.places(rows.shape[1])

    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        of_bytes = tile.vectors.dtype != self._values.dtype
        (gram.byte_span if of_bytes else gram.sparse_span)(
            *self._rows, self.norms, self._place, tile.vectors, tile.used, tile.parts, tile.norms,
            self._values.product, self._values.formula, block, weights, sums, out, slots,
        )  # fmt: skip


class LookedUpSpan(Span):
    """Rows that bring their kernel values with them."""

    def __init__(self, values: KernelValues, team: Team, rows: Floats, places: I8) -> None:
        super().__init__(values, team)
        self._rows, self._places = rows, places

    def kernel_values(self, tile: Tile) -> Floats:
        """Copy the values."""
        shape = len(self._places), tile.stop - tile.start
        found = self._team.scratch("dots", shape, self._values.dtype)
        gram.looked_up(self._rows, self._places, tile.used, found)
        self._values.check_looked_up(found)
        self._values.replace(found, np.zeros(len(found), found.dtype), tile.norms)
        return found
