"""Exact: outputs in float64 at chosen rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.executors.executor import Products
from bigsvm.gram import Partners
from bigsvm.gram.partners import in_whole_tiles
from bigsvm.gram.weights import weighted_rows

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.working_rows import Gather
    from bigsvm.gram import KernelTiles

ROWS_AT_ONCE = 1 << 14
"""Most vectors whose products with the support rows are summed up together."""


class Exact:
    """Float64 outputs at chosen rows, a bounded number of rows at a time.

    Parameters
    ----------
    tiles : KernelTiles
        float64.
    gather : callable
        Reads rows by their indices.
    rows_at_once : int
        Most rows together.
    executor : Products, optional
        Computes the products; by default this process does.
    """

    def __init__(
        self,
        source: RowSource,
        tiles: KernelTiles,
        gather: Gather,
        *,
        rows_at_once: int,
        executor: Products | None = None,
    ) -> None:
        self._executor = executor or Products(source)
        self.source, self.tiles, self._gather = source, tiles, gather
        self._step = in_whole_tiles(min(rows_at_once, ROWS_AT_ONCE))
        self._gram_rows, self._gram = np.empty(0, np.int64), np.empty((0, 0))

    def gram(self, rows: I8, /) -> F8:
        """Kernel values among rows (m,), (m, m); not computed again for the rows of the last call.

        One function after the other often asks for the same rows.
        """
        if not np.array_equal(rows, self._gram_rows):
            gathered, gram = self._gather(rows), np.empty((len(rows), len(rows)))
            sparse = self.source.is_sparse
            partners = Partners(self.tiles.values, gathered, for_sparse_rows=sparse)
            self.tiles.evaluate(gathered, partners, gram)
            self._gram_rows, self._gram = rows, gram
        return self._gram

    def outputs(self, rows: I8, beta: F8) -> F8:
        """``K(rows, all) @ beta``; rows (m,) int64 ascending, beta (n,) or (n, k).

        Bits do not depend on `rows_at_once`, if it is at least a tile.
        """
        support = weighted_rows(beta)
        how: dict[str, Any] = {"tiles": self.tiles, "step": self._step}
        if np.array_equal(rows, support):
            return self._executor.exact_halves(support, beta[support], self._gather, **how)
        return self._executor.exact_at(rows, support, beta[support], self._gather, **how)
