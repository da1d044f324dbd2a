"""Products: sums over kernel values of rows that are gathered in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.gram import Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.gram.tiles import EVALUATIONS_AT_ONCE
from bigsvm.gram.weights import weighted_rows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.working_rows import Gathered
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.weights import Weights

    Gather: TypeAlias = Callable[[I8], Rows]

EVALUATIONS_PER_CHECK = 10**8
"""Kernel values between two checks for an interruption: a second in one thread, for 200 columns."""


class Products:
    """Computes products among rows on the threads of this process.

    Parameters
    ----------
    source : RowSource
    """

    def __init__(self, source: RowSource) -> None:
        self.source = source

    def wait_until_ready(self) -> None:
        """Wait until it can compute: this process can."""

    def take(self, indices: I8) -> Rows:
        """Rows at `indices`, (m,) int64 in any order, in that order."""
        return self.source.take(indices)

    def among(
        self, rows: Gathered, at: I8, places: I8, weights: Weights, *, tiles: KernelTiles
    ) -> F8:
        """``K(at, places) @ weights`` among gathered rows.

        Parameters
        ----------
        rows : Gathered
            b rows; those of several calls that belong together are the same object.
        at, places : (m,), (p,) int64
            Places among them.
        weights : (p,) or (p, k) float64
        tiles : KernelTiles

        Returns
        -------
        (m,) or (m, k) float64
        """
        moved = weighted_rows(weights)
        sums = np.zeros((len(at), *weights.shape[1:]))
        if len(moved) and len(at):
            partners = Partners.of_rows_like(tiles.values, rows.at_places(places[moved]))
            prepared = tiles.prepared(partners, weights[moved])
            step = max(1, int(EVALUATIONS_AT_ONCE / partners.n))
            for low in range(0, len(at), step):
                check_interrupt()
                part = slice(low, low + step)
                tiles.multiply(rows.at_places(at[part]), partners, prepared, sums[part])
        return sums

    def exact_at(
        self, rows: I8, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(rows, support) @ weights`` in float64, (m,) or (m, k).

        Parameters
        ----------
        rows, support : (m,), (p,) int64
            Numbers of rows, ascending.
        weights : (p,) or (p, k) float64
        gather : callable
            Reads rows by their numbers.
        tiles : KernelTiles
            float64.
        step : int
            Most rows that are gathered together: whole tiles.
        """
        sums = np.zeros((len(rows), *weights.shape[1:]))
        for low in range(0, len(support), step):
            chosen = slice(low, low + step)
            partners = self._partners(gather(support[chosen]), tiles)
            at_once = max(1, min(step, EVALUATIONS_PER_CHECK // max(partners.n, 1)))
            for first in range(0, len(rows), at_once):
                check_interrupt()
                part = slice(first, first + at_once)
                tiles.multiply(gather(rows[part]), partners, weights[chosen], sums[part])
        return sums

    def exact_halves(
        self, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(support, support) @ weights`` from half of the kernel values; see `exact_at`."""
        along, down = np.zeros_like(weights), np.zeros_like(weights)
        for low in range(0, len(support), step):
            part = slice(low, low + step)
            gathered = gather(support[part])
            partners = self._partners(gathered, tiles)
            # Rows to the end of the last column's block on the diagonal.
            stop = -(-(low + partners.n) // PARTNERS_PER_TILE) * PARTNERS_PER_TILE
            for first in range(0, min(stop, len(support)), step):
                some = slice(first, first + step)
                tiles.multiply_half(
                    gathered if first == low else gather(support[some]), partners,
                    (weights[some], weights[part]), along[some], down[part],
                    corner=(first, low),
                )  # fmt: skip
        along += down
        return along

    def _partners(self, rows: Rows, tiles: KernelTiles) -> Partners:
        return Partners(tiles.values, rows, for_sparse_rows=self.source.is_sparse)
