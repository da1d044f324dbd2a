"""Products of row blocks with the kernel, in tiles that stay in the second-level cache.

The two operations everything expensive is made of, for rows A (m of them) and partners B (p):

    multiply:   out += K(A, B) @ weights        a sweep, a decision function, or several at once
    evaluate:   out  = K(A, B)                  rows of the kernel row cache

Each tile is one matrix product, which becomes kernel values in place and is used while it is in the
cache. The rows of a call are shared out over threads; a kernel value has the same bits whichever
rows and partners it is computed with (see `bigsvm.core.products`), and a row's sums are added up
tile by tile in a fixed order.
"""

from __future__ import annotations

import copy
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from bigsvm.core import gram
from bigsvm.core.functions import add_down
from bigsvm.data.rows import RowsAt, rows_at
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.gram.spans import DenseSpan, LookedUpSpan, SparseSpan
from bigsvm.gram.team import Team
from bigsvm.gram.values import KernelValues
from bigsvm.gram.weights import FunctionWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.data.rows import Rows
    from bigsvm.gram.partners import Partners, Tile
    from bigsvm.gram.spans import Span
    from bigsvm.gram.weights import Weights
    from bigsvm.kernels import Kernel

    Floats = F4 | F8
    Use = Callable[[slice, "Tile", Floats], None]
    Wanted = Callable[[slice, "Tile"], bool]

Part = TypeVar("Part")

EVALUATIONS_AT_ONCE = 2e8
"""Kernel evaluations between two looks at the clock: 0.1 to 0.8 seconds on two cores."""
ROWS_PER_TILE = 252
"""Rows of a tile: a multiple of the micro-kernel's 12 or 6."""
SUMS_PER_TILE = 1 << 19
"""Sums of several functions that a tile adds to, 4 MB: with more than 2080 functions it has fewer
rows."""
SPANS_AT_ONCE = 12
"""Most spans of rows of a symmetric product whose sums for the partners are held together."""
SUMS_AT_ONCE = 1 << 22
"""Most of these sums, 32 MB; those of two spans are in any case."""
WORTH_SHARING = 2e-4
"""Seconds of work below which waking other threads takes longer than it saves."""
SECONDS_PER_VALUE = 0.3e-9
"""Seconds of a kernel value in one thread, without its entries."""
SECONDS_PER_ENTRY = {True: 0.025e-9, False: 0.008e-9}
"""Seconds for each entry of a sparse row (True), or for each feature of a dense one (False)."""


class KernelTiles:
    """Computes K(A, B) and K(A, B) @ weights on a pool of threads, and counts the evaluations.

    Parameters
    ----------
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from the rows first, where the kernel does not mind: in float32 the distance of
        two rows far from the origin would otherwise drown in the rounding of their norms. Sparse
        rows are filled in where it is not 0, so for them it should be so in few features.
    threads : int
    dtype : numpy dtype
        float32, or float64 for certificates and decision values in full precision.
    offset : float
        Added to every kernel value.

    Attributes
    ----------
    values : KernelValues
        What the products become.
    n_evaluations : int
        Kernel values computed so far.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        centre: F8 | None = None,
        threads: int = 1,
        dtype: type[np.float32] | type[np.float64] = np.float32,
        offset: float = 0.0,
    ) -> None:
        self.values = KernelValues(kernel, centre=centre, dtype=dtype, offset=offset)
        self.kernel, self.offset = kernel, offset
        self.dtype, self.centre = self.values.dtype, self.values.centre
        self.threads = threads
        self.n_evaluations = 0
        self._looks_up = kernel.product == "lookup"
        self._team = Team(threads, "bigsvm-tile")

    def close(self) -> None:
        """Stop the threads."""
        self._team.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def exact(self) -> Iterator[KernelTiles]:
        """Make the same in float64 for a while; its evaluations are added to these in the end."""
        with KernelTiles(
            self.kernel,
            centre=self.centre,
            threads=self.threads,
            dtype=np.float64,
            offset=self.offset,
        ) as exact:
            try:
                yield exact
            finally:
                self.n_evaluations += exact.n_evaluations

    def with_threads(self, threads: int) -> KernelTiles:
        """Make the same with some of the threads, for one of several that work at once.

        It counts for itself, and is closed with these.
        """
        some = copy.copy(self)
        some.threads, some.n_evaluations = threads, 0
        return some

    def share_out(
        self,
        one: Callable[[Part], None],
        parts: Sequence[Part],
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Do all parts of other work on the threads, the caller's among them: `Team.share_out`."""
        self._team.share_out(one, parts, min(self.threads, len(parts)) - 1, abandon=abandon)

    # -- the two products --------------------------------------------------------------------

    def prepared(
        self, partners: Partners, weights: Weights | FunctionWeights
    ) -> F8 | FunctionWeights:
        """Weights as `multiply` works on them, once for many calls: of the precision of dtype."""
        if isinstance(weights, FunctionWeights):
            return weights
        if weights.ndim == 1:
            return np.asarray(weights, self.dtype).astype(np.float64)
        return FunctionWeights(partners, weights, self.dtype)

    def multiply(
        self, rows: Rows | RowsAt, partners: Partners, weights: Weights | FunctionWeights, out: F8
    ) -> None:
        """``out += K(rows, partners) @ weights``, each kernel value being computed once.

        Sums go on from `out`, tile by tile: piece after piece of the partners, each of whole tiles,
        gives the same bits as all at once.

        Parameters
        ----------
        rows : Rows or RowsAt
            (m, d).
        partners : Partners
            (p).
        weights : (p,) float64; or (p, k) of k functions, dense, CSR, or `prepared`
        out : (m,) or (m, k) float64
            Changed in place. While they are added up, those of k functions are in memory twice for
            as many rows as there are tiles at work.
        """
        rounded = self.prepared(partners, weights)
        if isinstance(rounded, FunctionWeights):
            self._multiply_functions(rows, partners, rounded, out)
            return

        def add(part: slice, span: Span) -> None:
            span.add_sums(partners, rounded, out[part])

        m = len(rows_at(rows).places)
        self._for_each_span(rows, partners, add, self._spans(m), m * partners.n)

    def _multiply_functions(
        self, rows: Rows | RowsAt, partners: Partners, functions: FunctionWeights, out: F8
    ) -> None:
        def accumulate(span: slice, tile: Tile, values: Floats) -> None:
            shape = (functions.n, span.stop - span.start)
            sums = self._team.scratch("sums", shape, np.dtype(np.float64))
            if tile.start == 0:
                sums[:] = out[span].T
            functions.add(tile, values, sums, self._team)
            if tile.stop == partners.n:
                out[span] = sums.T

        fitting = SUMS_PER_TILE // max(functions.n, 1) // gram.MR * gram.MR
        most = min(ROWS_PER_TILE, max(gram.MR, fitting))
        self._for_each_tile(
            rows, partners, accumulate, self._spans(len(rows_at(rows).places), most)
        )

    def multiply_symmetric(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        weights: F8,
        out: F8,
        *,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """``out += K(rows, rows) @ weights`` with little more than half of the kernel values.

        Parameters
        ----------
        rows, partners
            The same (m, d), as they are and packed.
        weights, out : (m,) or (m, k) float64
        look : callable
            Called now and then; where it raises, `out` is partly done.
        """
        down = np.zeros_like(out)
        self.multiply_half(rows, partners, (weights, weights), out, down, look=look)
        out += down

    def multiply_half(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        weights: tuple[F8, F8],
        along: F8,
        down: F8,
        *,
        at: tuple[int, int] = (0, 0),
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Do some rows and partners of a product of symmetric kernel values.

        What is above the diagonal, in blocks of PARTNERS_PER_TILE, is used along its rows and down
        its partners; what is in a block on the diagonal, along its rows. Each span of rows adds up
        for itself what goes down, in float64, and these sums are put together in the order of the
        spans, so that threads do not change a bit. Nor does it matter how the product is divided
        into pieces of whole tiles: partners in order and, for each of their pieces, rows in order.
        No piece narrower than a block may reach into two of them. The product is ``along + down``
        in the end.

        Parameters
        ----------
        rows, partners
            (m, d) and (p, d).
        weights : (m,) and (p,) float64, or (m, k) and (p, k)
            Of the rows and of the partners.
        along, down : (m,) and (p,) float64, or (m, k) and (p, k)
            Changed in place.
        at : tuple of int
            Which row and partner of the whole product the first ones are.
        look : callable
            Called now and then; may raise.
        """
        rounded = self.prepared(partners, weights[1])
        turned = np.ascontiguousarray(np.atleast_2d(weights[0].T), self.dtype)
        below: dict[int, F8] = {}

        def side(span: slice, tile: Tile) -> int:
            """By how many blocks the tile is to the right of the diagonal."""
            row, partner = at[0] + span.start, at[1] + tile.start
            return int(partner // PARTNERS_PER_TILE - row // PARTNERS_PER_TILE)

        def use(span: slice, tile: Tile, values: Floats) -> None:
            part = slice(tile.start, tile.stop)
            if isinstance(rounded, FunctionWeights):
                shape = (rounded.n, span.stop - span.start)
                sums = self._team.scratch("sums", shape, np.dtype(np.float64))
                sums[:] = 0
                rounded.add(tile, values, sums, self._team)
                along[span] += sums.T
            else:
                gram.weighted_sums(values, rounded[part], along[span])
            if side(span, tile) > 0:
                own = below.setdefault(span.start, np.zeros((len(turned), partners.n)))
                # Sums side by side: those of several functions in `own` are too far apart to be
                # worked on by vectors, 4.1 instead of 0.9 ns a value for ten functions.
                sums = self._team.scratch(
                    "down", (len(turned), part.stop - part.start), np.dtype(np.float64)
                )
                sums[:] = 0
                add_down(values, turned[:, span], sums)
                own[:, part] += sums

        m = len(rows_at(rows).places)
        edges = [0, *range(PARTNERS_PER_TILE - at[0] % PARTNERS_PER_TILE, m, PARTNERS_PER_TILE), m]
        spans = [
            slice(a, min(a + ROWS_PER_TILE, stop))
            for start, stop in itertools.pairwise(edges)
            for a in range(start, stop, ROWS_PER_TILE)
        ]
        at_once = max(2, min(SPANS_AT_ONCE, SUMS_AT_ONCE // max(len(turned) * partners.n, 1)))
        for first in range(0, len(spans), at_once):
            look()
            self._for_each_tile(
                rows, partners, use, spans[first : first + at_once],
                wanted=lambda span, tile: side(span, tile) >= 0,
            )  # fmt: skip
            for start in sorted(below):
                down += below[start].T.reshape(down.shape)
            below.clear()

    def evaluate(
        self, rows: Rows | RowsAt, partners: Partners, out: Floats, *, slots: I8 | None = None
    ) -> None:
        """``out = K(rows, partners)``, or ``out[slots] = K(rows, partners)``.

        Parameters
        ----------
        rows : Rows or RowsAt
            (m, d).
        partners : Partners
            (p).
        out : (≥ m, ≥ p) of a float dtype
            Values past p are left as they are.
        slots : (m,) int64, optional
            Distinct rows of `out`; the first m in order, if not given.
        """
        into = np.arange(len(rows_at(rows).places)) if slots is None else slots

        def store(part: slice, span: Span) -> None:
            span.store(partners, out, into[part])

        spans = self._spans(len(into))
        self._for_each_span(rows, partners, store, spans, len(into) * partners.n)

    def _spans(self, m: int, most: int | None = None) -> list[slice]:
        """Divide m rows into spans of at most `most` or a tile's; few are shared out too."""
        share = -(-m // (self.threads * gram.MR)) * gram.MR
        step = max(1, min(ROWS_PER_TILE if most is None else most, share))
        return [slice(a, min(a + step, m)) for a in range(0, m, step)]

    def _for_each_tile(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        use: Use,
        spans: Sequence[slice],
        *,
        wanted: Wanted = lambda span, tile: True,
    ) -> None:
        """Compute the kernel values of every wanted tile and hand them to `use`, on all threads."""

        def all_tiles(part: slice, span: Span) -> None:
            for tile in partners:
                if wanted(part, tile):
                    use(part, tile, span.kernel_values(tile))

        n_evaluations = sum(
            (span.stop - span.start) * (tile.stop - tile.start)
            for span in spans
            for tile in partners
            if wanted(span, tile)
        )
        self._for_each_span(rows, partners, all_tiles, spans, n_evaluations)

    def _for_each_span(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        use: Callable[[slice, Span], None],
        spans: Sequence[slice],
        n_evaluations: int,
    ) -> None:
        """Prepare the rows of each span and hand them to `use`, on all threads."""
        base, places = rows_at(rows)
        kind: type[LookedUpSpan | DenseSpan | SparseSpan] = SparseSpan
        if self._looks_up or isinstance(base, np.ndarray):
            kind = LookedUpSpan if self._looks_up else DenseSpan

        def one(part: slice) -> None:
            use(part, kind(self.values, self._team, base, places[part]))

        helpers = min(self.threads, len(spans)) - 1
        entries = 0 if self._looks_up else base.size / max(base.shape[0], 1)
        each = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[partners.for_sparse_rows] * entries
        if len(places) * partners.n * each < WORTH_SHARING:
            helpers = 0
        self._team.share_out(one, spans, helpers)
        self.n_evaluations += n_evaluations
