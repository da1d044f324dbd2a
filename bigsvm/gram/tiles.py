"""KernelTiles: kernel values of rows with partners, and their products with weights.

Nearly all computing time is spent in two operations, for m rows A and p partners B:

    multiply:   out += K(A, B) @ weights        sweeps and decision functions
    evaluate:   out  = K(A, B)                  rows of the kernel row cache

The rows of a call are divided into spans (`bigsvm.gram.spans`), which the threads share. The
partners are divided into tiles (`bigsvm.gram.partners`). A span and a tile make one matrix product,
which becomes kernel values in place. These are used while they are in the second-level cache.

A kernel value has the same bits whichever rows and partners it is computed with (see
`bigsvm.core.products`). The sums of a row are added up tile by tile in a fixed order. So results do
not depend on the number of threads.
"""

from __future__ import annotations

import copy
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from bigsvm.core import functions as sums_of
from bigsvm.core import gram
from bigsvm.gram.partners import PARTNERS_PER_TILE, FunctionWeights, rows_at
from bigsvm.gram.spans import DenseSpan, LookedUpSpan, SparseSpan, Team
from bigsvm.gram.values import KernelValues
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.gram.partners import Partners, Tile, Weights
    from bigsvm.gram.spans import Span
    from bigsvm.kernels import Kernel

    Floats = F4 | F8
    Use = Callable[[slice, "Tile", Floats], None]
    Wanted = Callable[[slice, "Tile"], bool]

Task = TypeVar("Task")

EVALUATIONS_AT_ONCE = 2e8
"""Kernel evaluations between two checks of the clock."""
ROWS_PER_TILE = 252
"""Most rows of a span: a multiple of the micro-kernel's 12 or 6."""
SUMS_PER_TILE = 1 << 19
"""Most sums of several functions that a span has, 4 MB. With many functions it has fewer rows."""
SPANS_AT_ONCE = 12
"""Most spans of a symmetric product whose sums for the partners are in memory together."""
SUMS_AT_ONCE = 1 << 22
"""Most of these sums, 32 MB; those of two spans are always held."""
WORTH_SHARING = 2e-4
"""Seconds of work below which other threads are not woken."""
SECONDS_PER_VALUE = 0.3e-9
"""Seconds of a kernel value in one thread, without those for entries of rows."""
SECONDS_PER_ENTRY = {True: 0.025e-9, False: 0.008e-9}
"""Seconds for each entry of a sparse row (True), or for each feature of a dense row (False)."""


def value_seconds(source: RowSource) -> float:
    """Estimate the seconds of one thread for a kernel value of two rows of a source."""
    entries = source.bytes_per_row / (12 if source.is_sparse else source.dtype.itemsize)
    return SECONDS_PER_VALUE + SECONDS_PER_ENTRY[source.is_sparse] * entries


class KernelTiles:
    """Computes K(A, B) and K(A, B) @ weights with several threads, and counts kernel evaluations.

    `n_evaluations` kernel values were computed so far; `values` makes them of products.

    Parameters
    ----------
    centre : (d,) float64 or None
        Subtracted from all rows, if that does not change the kernel. Otherwise the distance of two
        rows far from the origin would be lost in the rounding of their norms. Sparse rows get an
        entry for each feature whose centre is not 0, so for them only few should be.
    dtype : numpy dtype
        float32; float64 for certificates and for decision values in full precision.
    offset : float
        Added to every kernel value.
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
        values = KernelValues(kernel, centre=centre, dtype=dtype, offset=offset)
        self.values = values.for_core()
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
        """Make KernelTiles in float64 for a while; these also count their evaluations."""
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
        """Make KernelTiles that use at most `threads` of these threads.

        They count their own evaluations, and end when these are closed.
        """
        some = copy.copy(self)
        some.threads, some.n_evaluations = threads, 0
        return some

    def share_out(
        self,
        work: Callable[[Task], None],
        tasks: Sequence[Task],
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `work` for each task, on the threads and the caller's; see `Team.share_out`."""
        self._team.share_out(work, tasks, min(self.threads, len(tasks)) - 1, abandon=abandon)

    # -- the two products --------------------------------------------------------------------

    def prepared(
        self, partners: Partners, weights: Weights | FunctionWeights
    ) -> F8 | FunctionWeights:
        """Round weights to `dtype` and lay them out for `multiply`, once for many calls."""
        if isinstance(weights, FunctionWeights):
            return weights
        if weights.ndim == 1:
            return np.asarray(weights, self.dtype).astype(np.float64)
        return FunctionWeights(partners, weights, self.dtype)

    def multiply(
        self, rows: Rows | RowsAt, partners: Partners, weights: Weights | FunctionWeights, out: F8
    ) -> None:
        """``out += K(rows, partners) @ weights``; each kernel value is computed once.

        Sums go on from `out`, tile by tile. So several calls with pieces of the partners, each of
        whole tiles, give the same bits as one call with all of them.

        Weights are (p,), and out (m,); or of k functions (p, k), dense, CSR or `prepared`, and (m,
        k). For k functions each thread has a copy of the sums of its span.
        """
        rounded = self.prepared(partners, weights)
        if isinstance(rounded, FunctionWeights):
            self._multiply_functions(rows, partners, rounded, out)
            return

        def add(where: slice, span: Span) -> None:
            span.add_sums(partners, rounded, out[where])

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
            functions.add(tile, values, sums, self._team.scratch)
            if tile.stop == partners.n:
                out[span] = sums.T

        fitting = SUMS_PER_TILE // max(functions.n, 1) // gram.MR * gram.MR
        most = min(ROWS_PER_TILE, max(gram.MR, fitting))
        spans = self._spans(len(rows_at(rows).places), most)
        self._for_each_tile(rows, partners, accumulate, spans)

    def multiply_symmetric(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        weights: F8,
        out: F8,
    ) -> None:
        """``out += K(rows, rows) @ weights``; little more than half of the values are computed.

        Rows and partners are the same m vectors; weights and out are (m,) or (m, k).
        """
        down = np.zeros_like(out)
        self.multiply_half(rows, partners, (weights, weights), out, down)
        out += down

    def multiply_half(
        self,
        rows: Rows | RowsAt,
        partners: Partners,
        weights: tuple[F8, F8],
        along: F8,
        down: F8,
        *,
        corner: tuple[int, int] = (0, 0),
    ) -> None:
        """Compute a piece of a product ``K @ weights`` with symmetric K.

        K is divided into blocks of PARTNERS_PER_TILE rows and partners. Values of a block above the
        diagonal are used twice: times the weights of the partners for sums of the rows (`along`),
        and times the weights of the rows for sums of the partners (`down`). Values of a block on
        the diagonal are used for sums of the rows only, and blocks below it are skipped. After all
        pieces the product is ``along + down``.

        Each span of rows has sums of its own for the partners, in float64. They are added to `down`
        in the order of the spans, so bits do not depend on threads. They do not depend on the
        pieces either, if these are of whole tiles and come in order: partner by partner and, for
        the same partners, row by row. A piece narrower than a block must lie within one block.

        Weights are those of the m rows and of the p partners, as `along` and `down` are their sums:
        (m,) and (p,), or (m, k) and (p, k). The corner has the numbers of the first row and of the
        first partner in the whole product.
        """
        rounded = self.prepared(partners, weights[1])
        row_weights = np.ascontiguousarray(np.atleast_2d(weights[0].T), self.dtype)
        down_of_spans: dict[int, F8] = {}

        def blocks_right(span: slice, tile: Tile) -> int:
            """By how many blocks the tile is to the right of the diagonal."""
            row, partner = corner[0] + span.start, corner[1] + tile.start
            return int(partner // PARTNERS_PER_TILE - row // PARTNERS_PER_TILE)

        def use(span: slice, tile: Tile, values: Floats) -> None:
            of_tile = slice(tile.start, tile.stop)
            if isinstance(rounded, FunctionWeights):
                shape = (rounded.n, span.stop - span.start)
                sums = self._team.scratch("sums", shape, np.dtype(np.float64))
                sums[:] = 0
                rounded.add(tile, values, sums, self._team.scratch)
                along[span] += sums.T
            else:
                gram.weighted_sums(values, rounded[of_tile], along[span])
            if blocks_right(span, tile) > 0:
                k = len(row_weights)
                down_of_span = down_of_spans.setdefault(span.start, np.zeros((k, partners.n)))
                # In an array of its own, as sums of several functions in `down_of_span` are too far
                # apart for vector instructions.
                shape = k, tile.stop - tile.start
                sums = self._team.scratch("down", shape, np.dtype(np.float64))
                sums[:] = 0
                # One layout, for which alone it is compiled.
                sums_of.add_down(values, np.ascontiguousarray(row_weights[:, span]), sums)
                down_of_span[:, of_tile] += sums

        m = len(rows_at(rows).places)
        edges = [
            0,
            *range(PARTNERS_PER_TILE - corner[0] % PARTNERS_PER_TILE, m, PARTNERS_PER_TILE),
            m,
        ]
        spans = [
            slice(a, min(a + ROWS_PER_TILE, stop))
            for start, stop in itertools.pairwise(edges)
            for a in range(start, stop, ROWS_PER_TILE)
        ]
        at_once = max(2, min(SPANS_AT_ONCE, SUMS_AT_ONCE // max(len(row_weights) * partners.n, 1)))
        for first in range(0, len(spans), at_once):
            check_interrupt()
            self._for_each_tile(
                rows, partners, use, spans[first : first + at_once],
                wanted=lambda span, tile: blocks_right(span, tile) >= 0,
            )  # fmt: skip
            for start in sorted(down_of_spans):
                down += down_of_spans[start].T.reshape(down.shape)
            down_of_spans.clear()

    def evaluate(
        self, rows: Rows | RowsAt, partners: Partners, out: Floats, *, slots: I8 | None = None
    ) -> int:
        """``out = K(rows, partners)``, or ``out[slots] = K(rows, partners)`` with m distinct slots.

        `out` is (≥ m, ≥ p); only the first p values of its first m rows, or of the rows `slots`,
        are changed. Returns the number of rows that were not computed: none here.
        """
        rows_of_out = np.arange(len(rows_at(rows).places)) if slots is None else slots

        def store(where: slice, span: Span) -> None:
            span.store(partners, out, rows_of_out[where])

        m = len(rows_of_out)
        self._for_each_span(rows, partners, store, self._spans(m), m * partners.n)
        return 0

    def _spans(self, m: int, most: int | None = None) -> list[slice]:
        """Divide m rows into spans of at most `most` rows, so that every thread has some."""
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

        def all_tiles(where: slice, span: Span) -> None:
            for tile in partners:
                if wanted(where, tile):
                    use(where, tile, span.kernel_values(tile))

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

        def do(where: slice) -> None:
            use(where, kind(self.values, self._team, base, places[where]))

        helpers = min(self.threads, len(spans)) - 1
        entries = 0 if self._looks_up else base.size / max(base.shape[0], 1)
        seconds = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[partners.for_sparse_rows] * entries
        if len(places) * partners.n * seconds < WORTH_SHARING:
            helpers = 0
        self._team.share_out(do, spans, helpers)
        self.n_evaluations += n_evaluations
