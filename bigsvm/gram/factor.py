"""A narrow factor L of a kernel matrix, ``L Lᵀ = K``, where feature space has few dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.gram.partners import Partners
from bigsvm.kernels import KernelCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8
    from bigsvm.gram.tiles import KernelTiles

NOTHING_LEFT = 1e-14
"""Of the largest K_ii: a factor that leaves no more of any is complete, as far as float64 goes."""
ROWS_AT_ONCE = 1024
"""That are taken and made dense together."""


def factor_width(tiles: KernelTiles, rows: RowsAt) -> float:
    """Columns that `factor` has at most; infinite where it would not be narrower than long."""
    width = tiles.kernel.dimensions(rows.rows.shape[1]) + (tiles.offset > 0)
    return width if width < len(rows.places) else math.inf


def factor(tiles: KernelTiles, rows: RowsAt, *, look: Callable[[], None] = lambda: None) -> F8:
    """Factorise K among rows: (m, r), r at most `factor_width`, which has to be finite.

    Of the linear kernel these are the rows; of others a Cholesky factor with pivots (Fine &
    Scheinberg 2001, figure 2), for which r columns of K are computed. An indefinite K has none, and
    what is returned says little of it.

    Parameters
    ----------
    tiles : KernelTiles
        float64.
    rows : RowsAt
        (m, d).
    look : callable
        Called before each column; may raise.
    """
    m, width = len(rows.places), int(factor_width(tiles, rows))
    found = np.zeros((m, width))
    if tiles.kernel.code == KernelCode.LINEAR:
        d = rows.rows.shape[1]
        for start in range(0, m, ROWS_AT_ONCE):
            look()
            part = rows.places[start : start + ROWS_AT_ONCE]
            found[start : start + len(part), :d] = tiles.values.dense(rows.rows[part])
        found[:, d:] = math.sqrt(tiles.offset)
        return found
    left = tiles.values.diagonal(Partners.of_rows_like(tiles.values, rows).norms)
    least, column = NOTHING_LEFT * left.max(), np.empty((m, 1))
    for c in range(width):
        pivot = int(left.argmax())
        if not left[pivot] > least:
            return found[:, :c]
        look()
        one = RowsAt(rows.rows, rows.places[pivot : pivot + 1])
        tiles.evaluate(rows, Partners.of_rows_like(tiles.values, one), column)
        found[:, c] = column[:, 0] - found[:, :c] @ found[pivot, :c]
        found[:, c] /= math.sqrt(left[pivot])
        left -= found[:, c] ** 2
        left[pivot] = 0.0
    return found
