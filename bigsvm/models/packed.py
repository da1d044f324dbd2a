"""Support vectors prepared for products with rows: all at once, or group by group.

The layout of a tile of sparse vectors has all features that occur in the tile. It takes up to a
hundred times the size of the vectors if they share few features.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import packed_bytes
from bigsvm.data.rows import RowsAt, is_sparse
from bigsvm.gram import Partners
from bigsvm.models.precision import rounding_of
from bigsvm.training.executors import Block, blocks, rows_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.weights import Weights

LEAST_BYTES = 16 << 20
"""Bytes of sparse vectors that may always be laid out together: some tiles, to multiply fast."""
ROWS_BETWEEN = 1 << 17
VALUES_BETWEEN = 1 << 23
"""Most rows, and decision values, computed before the vectors are laid out again."""
FEWEST_ROWS = 1 << 14
"""Fewest rows per layout: for fewer rows the layout would cost more than the products."""


class Packed:
    """Vectors and coefficients of a decision function.

    Parameters
    ----------
    tiles : KernelTiles
    vectors : (p, d)
    coefficients : (p,) float64 or (p, n_functions) CSR
    sparse_partners : bool
        Whether the rows to multiply with are sparse.
    most_bytes : int
        Most bytes of sparse vectors that are laid out together, at least `LEAST_BYTES`.
    """

    def __init__(
        self,
        tiles: KernelTiles,
        vectors: Rows,
        coefficients: Weights,
        *,
        sparse_partners: bool,
        most_bytes: int,
    ) -> None:
        self._tiles, self._coefficients = tiles, coefficients
        self._vectors, self._sparse_partners = vectors, sparse_partners
        n_functions = 1 if coefficients.ndim == 1 else coefficients.shape[1]
        self._rows_between = min(ROWS_BETWEEN, VALUES_BETWEEN // max(n_functions, 1))
        n, groups = vectors.shape[0], 1
        if sparse_partners and is_sparse(vectors) and self._rows_between >= FEWEST_ROWS:
            entries = vectors.nnz / max(n, 1)
            each = packed_bytes(vectors.shape[1], 8 * entries) * tiles.dtype.itemsize / 4
            groups = max(1, int(-(-n * each // max(most_bytes, LEAST_BYTES))))
        edges = np.linspace(0, n, groups + 1).astype(np.int64)
        self._spans = [slice(a, b) for a, b in itertools.pairwise(edges)]
        self._only: tuple[Partners, Any] | None = None
        if groups == 1:
            columns = self._columns(self._spans[0])
            self._only = columns, tiles.prepared(columns, coefficients)

    def _columns(self, span: slice) -> Partners:
        rows = RowsAt(self._vectors, np.arange(span.start, span.stop))
        return Partners(self._tiles.values, rows, sparse_partners=self._sparse_partners)

    def rounding(self) -> float:
        """Estimate the error of decision values; see `bigsvm.models.precision.rounding`."""
        values = self._tiles.values
        if self._only is not None:
            own = [values.diagonal(self._only[0].norms)]
        else:
            own = [values.diagonal(self._columns(span).norms) for span in self._spans]
        return rounding_of(np.concatenate(own), self._coefficients, self._tiles.dtype)

    def blocks(self, source: RowSource, block_bytes: int) -> Iterator[Block]:
        """Divide all rows of a source into blocks for `add`."""
        step = self._rows_between if self._only is None else rows_at_once(*self._only)
        return blocks(source, 0, source.n_rows, step, block_bytes)

    def add(self, rows: RowsAt, out: NDArray[np.float64], *, look: Callable[[float], None]) -> None:
        """``out += K(rows, vectors) @ coefficients``.

        Parameters
        ----------
        rows : (m, d)
        out : (m,) or (m, n_functions) float64
        look : callable
            Called now and then with the share that is done; may raise.
        """
        if self._only is not None:
            self._tiles.multiply(rows, *self._only, out)
            return
        m, base = len(rows.places), rows.rows
        for group, span in enumerate(self._spans):
            columns = self._columns(span)
            weights = self._tiles.prepared(columns, self._coefficients[span])
            step = rows_at_once(columns, weights)
            for low in range(0, m, step):
                part = slice(low, min(low + step, m))
                some = RowsAt(base, rows.places[part])
                self._tiles.multiply(some, columns, weights, out[part])
                look((group + part.stop / m) / len(self._spans))
            # Free this group before the next one is laid out.
            del columns, weights
