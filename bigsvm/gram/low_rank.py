"""Approximate and exact factors of a kernel matrix.

`LowRank` approximates K among rows by a product ``G Gᵀ`` of low rank and a diagonal. `factor`
returns L with ``L Lᵀ = K`` where feature space has few dimensions.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dsyrk, ssyrk

from bigsvm.data.rows import RowsAt
from bigsvm.gram.partners import Partners
from bigsvm.interruption import check_interrupt
from bigsvm.kernels import KernelCode

if TYPE_CHECKING:
    from bigsvm.arrays import F4, F8, I8
    from bigsvm.gram.tiles import KernelTiles

LARGEST_RANK = 768
"""A model of higher rank takes longer than it saves."""
ADDED = 1e-6
"""Share of the largest K_ii that is added to each K_ii of landmarks: the precision of float32."""
ROWS_AT_ONCE = 1024
"""Rows that are multiplied, weighted or made dense together."""
LARGEST_TRACE = 1e6
"""Largest sum of weighted squares in float32: the rounding of a larger one may reach 1."""
PARTS = 4
"""Parts of a sum, for any number of threads, so that its bits do not depend on the threads."""
SMALLEST_RANK = 64
"""A model of lower rank is of no use."""
SQUARES = 2 * PARTS + 4
"""Arrays (rank, rank) of float32 that are in memory beside the model."""
NOTHING_LEFT = 1e-14
"""Share of the largest K_ii: a factor that leaves less of each K_ii is complete in float64."""


class LowRank:
    """``K ≈ G Gᵀ + diag(rest)`` among rows (m, d), exact on the diagonal; float32.

    G is the Nyström approximation with landmarks among the rows (Williams & Seeger 2001, "Using the
    Nyström method to speed up kernel machines"). The diagonal is corrected as in Snelson &
    Ghahramani 2006, "Sparse Gaussian processes using pseudo-inputs"; `rest`, (m,), is 0 or more.

    `landmarks`, (r,), are places among the rows, and `out`, (m, r), is memory for G.
    numpy.linalg.LinAlgError is raised if K is not positive semidefinite among the landmarks.
    """

    def __init__(
        self,
        tiles: KernelTiles,
        rows: RowsAt,
        landmarks: I8,
        out: F4,
    ) -> None:
        self._tiles, self._factor = tiles, out
        chosen = RowsAt(rows.rows, rows.places[landmarks])
        partners = Partners.of_rows_like(tiles.values, chosen)
        # Products with the inverse are faster than solving for the rows.
        lower = cholesky(_among(tiles, chosen), lower=True)
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True).T.astype(np.float32)

        def solve(span: slice) -> None:
            out[span] = out[span] @ inverse

        for first in range(0, len(out), PARTS * ROWS_AT_ONCE):
            check_interrupt()
            span = slice(first, min(first + PARTS * ROWS_AT_ONCE, len(out)))
            tiles.evaluate(RowsAt(rows.rows, rows.places[span]), partners, out[span])
            tiles.share_out(solve, _spans(span.start, span.stop))
        diagonal = tiles.values.diagonal(Partners.of_rows_like(tiles.values, rows).norms)
        self._norms = np.einsum("ij,ij->i", out, out).astype(np.float64)
        self.rest = np.maximum(diagonal - self._norms, 0.0)
        edges = np.linspace(0, len(out), PARTS + 1).astype(int)
        self._parts = [slice(*pair) for pair in itertools.pairwise(edges)]

    @property
    def rank(self) -> int:
        """Columns of G, r."""
        return int(self._factor.shape[1])

    def times(self, v: F8) -> F8:
        """``G v``, (m,)."""
        product, rounded = np.empty(len(self._factor)), v.astype(np.float32)

        def multiply(span: slice) -> None:
            product[span] = self._factor[span] @ rounded

        self._tiles.share_out(multiply, self._parts)
        return product

    def transposed_times(self, x: F8) -> F8:
        """``Gᵀ x``, (r,)."""
        sums, rounded = np.zeros((PARTS, self.rank)), x.astype(np.float32)

        def multiply(span: slice) -> None:
            sums[self._parts.index(span)] = rounded[span] @ self._factor[span]

        self._tiles.share_out(multiply, self._parts)
        total: F8 = sums.sum(axis=0)
        return total

    def squared(self, places: I8, weights: F8) -> F8:
        """``Gᵀ diag(weights) G`` for q rows, (r, r); only the lower triangle is filled.

        Weights (q,) are 0 or more.
        """
        parts = [part for part in np.array_split(np.arange(len(places)), PARTS) if len(part)]
        sums: dict[int, F4 | F8] = {}
        is_large = float(weights @ self._norms[places]) > LARGEST_TRACE
        dtype = np.dtype(np.float64 if is_large else np.float32)
        syrk = dsyrk if is_large else ssyrk

        def add_up(number: int) -> None:
            part = parts[number]
            total = np.zeros((self.rank, self.rank), dtype, order="F")
            for span in _spans(0, len(part)):
                chosen = part[span]
                weighted = np.sqrt(weights[chosen]).astype(dtype)[:, None]
                weighted = np.multiply(weighted, self._factor[places[chosen]], dtype=dtype)
                total = syrk(1.0, weighted.T, beta=1.0, c=total, lower=1, overwrite_c=1)
            sums[number] = total

        self._tiles.share_out(add_up, range(len(parts)))
        product = np.zeros((self.rank, self.rank), order="F")
        for number in range(len(parts)):
            product += sums[number]
        return product


def _among(tiles: KernelTiles, landmarks: RowsAt) -> F8:
    """Kernel values of landmarks with one another, (r, r), with a little added to the diagonal.

    In float64, as rounded values of rows close together are not positive definite.
    """
    r = len(landmarks.places)
    values = np.empty((r, r))
    with tiles.exact() as exact:
        exact.evaluate(landmarks, Partners.of_rows_like(exact.values, landmarks), values)
    values[np.diag_indices(r)] += ADDED * float(values.diagonal().max())
    return values


def lack(tiles: KernelTiles, rows: RowsAt, rank: int) -> F8:
    """Mean of ``K_ii - (G Gᵀ)_ii`` for models of rank 1 to `rank`, (rank,).

    The landmarks are the first rows. Infinite if K is not positive semidefinite.
    """
    factor = np.empty((len(rows.places), rank), np.float32)
    try:
        model = LowRank(tiles, rows, np.arange(rank), factor)
    except np.linalg.LinAlgError:
        return np.full(rank, np.inf)
    # A column of G does not depend on those after it.
    squares = np.square(factor[rank:], dtype=np.float64).mean(axis=0)
    after = np.cumsum(squares[::-1])[::-1] - squares
    lacking: F8 = after + float(model.rest[rank:].mean())
    return lacking


def _spans(start: int, stop: int) -> list[slice]:
    edges = range(start, stop, ROWS_AT_ONCE)
    return [slice(a, min(a + ROWS_AT_ONCE, stop)) for a in edges]


def rank_of_model(n_rows: int, gram_bytes: int, *, wanted: int) -> int:
    """Largest rank up to `wanted` that memory permits; 0 if it is too small to be of use."""
    # The largest rank with (n_rows · rank + SQUARES · rank²) · 4 bytes of kernel rows.
    root = math.sqrt(n_rows**2 + SQUARES * gram_bytes)
    rank = min(wanted, n_rows // 2, int((root - n_rows) / (2 * SQUARES)))
    return rank if rank >= SMALLEST_RANK else 0


def factor(tiles: KernelTiles, rows: RowsAt) -> F8:
    """Factorise K among rows: L (m, r) with ``L Lᵀ = K``; r is at most `KernelValues.factor_width`.

    That must be finite; the tiles are of float64. For the linear kernel L is the rows. For other
    kernels it is a Cholesky factor with pivots (Fine & Scheinberg 2001, figure 2), for which r
    columns of K are computed. An indefinite K has no such factor; the result then is not
    meaningful.
    """
    m, width = len(rows.places), int(tiles.values.factor_width(rows))
    L = np.zeros((m, width))
    if tiles.kernel.code == KernelCode.LINEAR:
        d = rows.rows.shape[1]
        for start in range(0, m, ROWS_AT_ONCE):
            check_interrupt()
            part = rows.places[start : start + ROWS_AT_ONCE]
            L[start : start + len(part), :d] = tiles.values.dense(rows.rows[part])
        L[:, d:] = math.sqrt(tiles.offset)
        return L
    remaining = tiles.values.diagonal(Partners.of_rows_like(tiles.values, rows).norms)
    least, kernel_column = NOTHING_LEFT * remaining.max(), np.empty((m, 1))
    for c in range(width):
        pivot = int(remaining.argmax())
        if not remaining[pivot] > least:
            return L[:, :c]
        check_interrupt()
        row = RowsAt(rows.rows, rows.places[pivot : pivot + 1])
        tiles.evaluate(rows, Partners.of_rows_like(tiles.values, row), kernel_column)
        L[:, c] = kernel_column[:, 0] - L[:, :c] @ L[pivot, :c]
        L[:, c] /= math.sqrt(remaining[pivot])
        remaining -= L[:, c] ** 2
        remaining[pivot] = 0.0
    return L
