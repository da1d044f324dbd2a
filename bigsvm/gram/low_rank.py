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
from bigsvm.kernels import KernelCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.gram.tiles import KernelTiles

LARGEST_RANK = 768
"""A model of higher rank takes longer than it saves."""
ADDED = 1e-6
"""To the kernel values of landmarks with themselves, of the largest: those with other rows, in
float32, have no more digits."""
ROWS_AT_ONCE = 1024
"""That are weighted together."""
LARGEST_TRACE = 1e6
"""Of weighted squares that are summed up in float32: what it rounds of more is as much as 1."""
PARTS = 4
"""Parts of a sum of products, however many threads there are; they are added up afterwards."""
SMALLEST_RANK = 64
"""A model of lower rank is of no use."""
SQUARES = 2 * PARTS + 4
"""Squares of the rank, of 4 bytes each, in memory at once beside the model."""
NOTHING_LEFT = 1e-14
"""Share of the largest K_ii: a factor that leaves less of each K_ii is complete in float64."""


class LowRank:
    """``K ≈ G Gᵀ + diag(rest)`` among rows, exact on the diagonal.

    G is Nyström's, from landmarks among the rows (Williams & Seeger 2001, "Using the Nyström method
    to speed up kernel machines"); the diagonal is that of Snelson & Ghahramani 2006, "Sparse
    Gaussian processes using pseudo-inputs".

    Parameters
    ----------
    tiles : KernelTiles
        float32.
    rows : RowsAt
        (m, d).
    landmarks : (r,) int64
        Their places among the rows.
    out : (m, r) float32
        Memory for G.
    look : callable
        Called now and then; may raise.

    Attributes
    ----------
    rest : (m,) float64
        0 or more.

    Raises
    ------
    numpy.linalg.LinAlgError
        K is not positive semidefinite among the landmarks.
    """

    def __init__(
        self,
        tiles: KernelTiles,
        rows: RowsAt,
        landmarks: I8,
        out: F4,
        *,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._tiles, self._factor = tiles, out
        chosen = RowsAt(rows.rows, rows.places[landmarks])
        partners = Partners.of_rows_like(tiles.values, chosen)
        # Products with the inverse take less than half the time of solving for the rows.
        lower = cholesky(_among(tiles, chosen), lower=True)
        turned = solve_triangular(lower, np.eye(len(lower)), lower=True).T.astype(np.float32)

        def solve(span: slice) -> None:
            out[span] = out[span] @ turned

        for first in range(0, len(out), PARTS * ROWS_AT_ONCE):
            look()
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
        found, rounded = np.empty(len(self._factor)), v.astype(np.float32)

        def one(span: slice) -> None:
            found[span] = self._factor[span] @ rounded

        self._tiles.share_out(one, self._parts)
        return found

    def transposed_times(self, x: F8) -> F8:
        """``Gᵀ x``, (r,)."""
        found, rounded = np.zeros((PARTS, self.rank)), x.astype(np.float32)

        def one(span: slice) -> None:
            found[self._parts.index(span)] = rounded[span] @ self._factor[span]

        self._tiles.share_out(one, self._parts)
        total: F8 = found.sum(axis=0)
        return total

    def squared(self, places: I8, weights: F8) -> F8:
        """``Gᵀ diag(weights) G`` of some rows, (r, r), of which the lower triangle is meant.

        Parameters
        ----------
        places : (q,) int64
        weights : (q,) float64
            0 or more.
        """
        parts = [part for part in np.array_split(np.arange(len(places)), PARTS) if len(part)]
        sums: dict[int, F4 | F8] = {}
        is_large = float(weights @ self._norms[places]) > LARGEST_TRACE
        dtype = np.dtype(np.float64 if is_large else np.float32)
        syrk = dsyrk if is_large else ssyrk

        def one(number: int) -> None:
            part = parts[number]
            total = np.zeros((self.rank, self.rank), dtype, order="F")
            for span in _spans(0, len(part)):
                chosen = part[span]
                weighted = np.sqrt(weights[chosen]).astype(dtype)[:, None]
                weighted = np.multiply(weighted, self._factor[places[chosen]], dtype=dtype)
                total = syrk(1.0, weighted.T, beta=1.0, c=total, lower=1, overwrite_c=1)
            sums[number] = total

        self._tiles.share_out(one, range(len(parts)))
        found = np.zeros((self.rank, self.rank), order="F")
        for number in range(len(parts)):
            found += sums[number]
        return found


def _among(tiles: KernelTiles, landmarks: RowsAt) -> F8:
    """Kernel values of landmarks with one another, (r, r), with a little added to the diagonal.

    In float64: of rows close together, float32 leaves none that are positive definite.
    """
    r = len(landmarks.places)
    values = np.empty((r, r))
    with tiles.exact() as exact:
        exact.evaluate(landmarks, Partners.of_rows_like(exact.values, landmarks), values)
    values[np.diag_indices(r)] += ADDED * float(values.diagonal().max())
    return values


def lack(tiles: KernelTiles, rows: RowsAt, rank: int) -> F8:
    """Mean of what models of rank 1 to `rank` lack of K_ii, (rank,); landmarks are the first rows.

    Infinite where K is not positive semidefinite.
    """
    factor = np.empty((len(rows.places), rank), np.float32)
    try:
        model = LowRank(tiles, rows, np.arange(rank), factor)
    except np.linalg.LinAlgError:
        return np.full(rank, np.inf)
    # Columns of G do not hang on those after them.
    squares = np.square(factor[rank:], dtype=np.float64).mean(axis=0)
    after = np.cumsum(squares[::-1])[::-1] - squares
    found: F8 = after + float(model.rest[rank:].mean())
    return found


def _spans(start: int, stop: int) -> list[slice]:
    edges = range(start, stop, ROWS_AT_ONCE)
    return [slice(a, min(a + ROWS_AT_ONCE, stop)) for a in edges]


def rank_of_model(n_rows: int, gram_bytes: int, *, wanted: int) -> int:
    """Rank that there is memory for, of the one `wanted`; 0 where it is too small to be of use."""
    # The largest with (n_rows · rank + SQUARES · rank²) · 4 bytes of kernel rows.
    root = math.sqrt(n_rows**2 + SQUARES * gram_bytes)
    rank = min(wanted, n_rows // 2, int((root - n_rows) / (2 * SQUARES)))
    return rank if rank >= SMALLEST_RANK else 0


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
