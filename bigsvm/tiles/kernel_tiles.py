"""Products of row blocks with the kernel, in tiles that stay in the second-level cache.

The two operations everything expensive is made of, for rows A (m of them) and columns B (p):

    multiply:   out += K(A, B) @ weights        a sweep, a decision function, or several at once
    evaluate:   out  = K(A, B)                  rows of the kernel row cache

Each tile is one matrix product, which becomes kernel values in place and is used while it is in the
cache. The rows of a call are shared out over threads; a kernel value has the same bits whichever
rows and columns it is computed with (see `bigsvm.core.products`), and a row's sums are added up
tile by tile in a fixed order.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from bigsvm.core import csr, gram, products
from bigsvm.core.functions import add_down
from bigsvm.data.rows import RowsAt, rows_at
from bigsvm.team import Team
from bigsvm.tiles.functions import Functions
from bigsvm.tiles.values import KernelValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.kernels import Kernel
    from bigsvm.tiles.columns import Columns, Tile
    from bigsvm.tiles.functions import Weights

    Floats = NDArray[np.float32] | NDArray[np.float64]
    Use = Callable[[slice, "Tile", Floats, Floats], None]
    Wanted = Callable[[slice, "Tile"], bool]

Part = TypeVar("Part")

ROWS_PER_TILE = 252
"""Rows of a tile: a multiple of the micro-kernel's 12 or 6."""
SUMS_PER_TILE = 1 << 19
"""Sums of several functions that a tile adds to, 4 MB: with more than 2080 functions it has fewer
rows."""
VALUES_AT_ONCE = 1 << 18
"""Kernel values of few rows with all columns, a megabyte: as much as a second-level cache."""
SPANS_AT_ONCE, SUMS_AT_ONCE = 12, 1 << 22
"""Spans of rows of a symmetric product whose sums along the columns are in memory together, and how
many of these at most, 32 MB; of two spans in any case."""
WORTH_SHARING = 2e-4
"""Seconds of work of one call below which other threads are not woken: 24 kernel rows of 6000
values took 0.10 ms in one thread and 0.12 in two (w8a), 64 of them 0.25 and 0.22."""
SECONDS_PER_VALUE = 0.3e-9
SECONDS_PER_ENTRY = {True: 0.025e-9, False: 0.008e-9}
"""Of a kernel value in one thread, and for each entry of a sparse row or column of a dense one: 0.5
ns at 12 and 14 entries, 3.7 at 150; 0.4 at 22 columns, 6.2 at 784."""


class KernelTiles:
    """Computes K(A, B) and K(A, B) @ weights on a pool of threads, and counts the evaluations.

    Parameters
    ----------
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from the rows first, where the kernel does not mind: in float32 the distance of
        two rows far from the origin would otherwise drown in the rounding of their norms. Sparse
        rows are filled in where it is not 0, so for them it should be so in few columns.
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
        centre: NDArray[np.float64] | None = None,
        threads: int = 1,
        dtype: type[np.float32] | type[np.float64] = np.float32,
        offset: float = 0.0,
    ) -> None:
        self.values = KernelValues(kernel, centre=centre, dtype=dtype, offset=offset)
        self.kernel, self.offset = kernel, offset
        self.dtype, self.centre = self.values.dtype, self.values.centre
        self.threads = threads
        self.n_evaluations = 0
        self._absolute = kernel.product == "absolute"
        self._looks_up = kernel.product == "lookup"
        self._team = Team(threads, "bigsvm-tile")

    def close(self) -> None:
        """Stop the threads."""
        self._team.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def exact(self) -> KernelTiles:
        """Make the same in float64; its evaluations are its own."""
        return KernelTiles(
            self.kernel,
            centre=self.centre,
            threads=self.threads,
            dtype=np.float64,
            offset=self.offset,
        )

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

    def prepared(self, columns: Columns, weights: Weights | Functions) -> Floats | Functions:
        """Weights as `multiply` works on them, once for many calls; (p,) are only rounded."""
        if isinstance(weights, Functions):
            return weights
        if weights.ndim == 1:
            return np.asarray(weights, self.dtype)
        return Functions(columns, weights, self.dtype)

    def multiply(
        self,
        rows: Rows | RowsAt,
        columns: Columns,
        weights: Weights | Functions,
        out: NDArray[np.float64],
    ) -> None:
        """``out += K(rows, columns) @ weights``, each kernel value being computed once.

        Parameters
        ----------
        rows : Rows or RowsAt
            (m, d).
        columns : Columns
            (p).
        weights : (p,) float64; or (p, k) of k functions, dense, CSR, or `prepared`
        out : (m,) or (m, k) float64
            Changed in place. While they are added up, those of k functions are in memory twice for
            as many rows as there are tiles at work.
        """
        rounded = self.prepared(columns, weights)
        if isinstance(rounded, Functions):
            self._multiply_functions(rows, columns, rounded, out)
            return

        def accumulate(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self.values.replace(dots, norms, tile.norms)
            gram.weighted_sums(dots, rounded[tile.start : tile.stop], out[span])

        self._for_each_tile(rows, columns, accumulate)

    def _multiply_functions(
        self,
        rows: Rows | RowsAt,
        columns: Columns,
        functions: Functions,
        out: NDArray[np.float64],
    ) -> None:
        def accumulate(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self.values.replace(dots, norms, tile.norms)
            shape = (functions.n, span.stop - span.start)
            sums = self._team.scratch("sums", shape, np.dtype(np.float64))
            if tile.start == 0:
                sums[:] = 0
            functions.add(tile, dots, sums, self._team)
            if tile.stop == columns.n:
                out[span] += sums.T

        fitting = SUMS_PER_TILE // max(functions.n, 1) // products.MR * products.MR
        most = min(ROWS_PER_TILE, max(products.MR, fitting))
        self._for_each_tile(rows, columns, accumulate, self._spans(len(rows_at(rows).places), most))

    def multiply_symmetric(
        self,
        rows: Rows | RowsAt,
        columns: Columns,
        weights: NDArray[np.float64],
        out: NDArray[np.float64],
        *,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """``out += K(rows, rows) @ weights`` with little more than half of the kernel values.

        A tile off the diagonal is used along its rows and along its columns. Each span of rows adds
        the latter up for itself, in float64, and they are put together in the order of the spans,
        so that threads do not change a bit.

        Parameters
        ----------
        rows, columns
            The same (m, d), as they are and packed.
        weights, out : (m,) or (m, k) float64
        look : callable
            Called now and then; where it raises, `out` is partly done.
        """
        rounded = self.prepared(columns, weights)
        turned = np.ascontiguousarray(np.atleast_2d(weights.T), self.dtype)
        below: dict[int, NDArray[np.float64]] = {}

        def use(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self.values.replace(dots, norms, tile.norms)
            part = slice(tile.start, tile.stop)
            if isinstance(rounded, Functions):
                shape = (rounded.n, span.stop - span.start)
                sums = self._team.scratch("sums", shape, np.dtype(np.float64))
                sums[:] = 0
                rounded.add(tile, dots, sums, self._team)
                out[span] += sums.T
            else:
                gram.weighted_sums(dots, rounded[part], out[span])
            if tile.start >= span.stop:
                down = below.setdefault(span.start, np.zeros(turned.shape))
                # Sums side by side: those of several functions in `down` are too far apart to be
                # worked on by vectors, 4.1 instead of 0.9 ns a value for ten functions.
                sums = self._team.scratch(
                    "down", (len(turned), part.stop - part.start), np.dtype(np.float64)
                )
                sums[:] = 0
                add_down(dots, turned[:, span], sums)
                down[:, part] += sums

        spans = [
            slice(a, min(a + ROWS_PER_TILE, tile.stop))
            for tile in columns
            for a in range(tile.start, tile.stop, ROWS_PER_TILE)
        ]
        at_once = max(2, min(SPANS_AT_ONCE, SUMS_AT_ONCE // max(turned.size, 1)))
        for first in range(0, len(spans), at_once):
            look()
            self._for_each_tile(
                rows, columns, use, spans[first : first + at_once],
                wanted=lambda span, tile: tile.stop > span.start,
            )  # fmt: skip
            for start in sorted(below):
                out += below[start].T.reshape(out.shape)
            below.clear()

    def evaluate(
        self,
        rows: Rows | RowsAt,
        columns: Columns,
        out: Floats,
        *,
        slots: NDArray[np.int64] | None = None,
    ) -> None:
        """``out = K(rows, columns)``, or ``out[slots] = K(rows, columns)``.

        Parameters
        ----------
        rows : Rows or RowsAt
            (m, d).
        columns : Columns
            (p).
        out : (≥ m, ≥ p) of a float dtype
            Columns past p are left as they are.
        slots : (m,) int64, optional
            Distinct rows of `out`; the first m in order, if not given.
        """

        def store(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self.values.replace(dots, norms, tile.norms)
            out[span if slots is None else slots[span], : tile.stop] = dots[:, : tile.stop]

        fitting = VALUES_AT_ONCE // max(columns.n, 1) // products.MR * products.MR
        most = min(ROWS_PER_TILE, max(products.MR, fitting))
        spans = self._spans(len(rows_at(rows).places), most)
        self._for_each_tile(rows, columns, store, spans, tiles=[columns.whole])

    def _spans(self, m: int, most: int = ROWS_PER_TILE) -> list[slice]:
        """Divide m rows into spans of at most `most`; few rows are shared out too."""
        share = -(-m // (self.threads * products.MR)) * products.MR
        step = max(1, min(most, share))
        return [slice(a, min(a + step, m)) for a in range(0, m, step)]

    def _for_each_tile(
        self,
        rows: Rows | RowsAt,
        columns: Columns,
        use: Use,
        spans: Sequence[slice] | None = None,
        *,
        tiles: Sequence[Tile] | None = None,
        wanted: Wanted = lambda span, tile: True,
    ) -> None:
        """Compute the dot products of every wanted tile and hand them to `use`, on all threads."""
        base, places = rows_at(rows)
        m = len(places)
        spans = self._spans(m) if spans is None else spans
        chosen = [tile for tile in (columns if tiles is None else tiles) if tile.stop]
        if self._looks_up:
            one = self._lookup_work(base, places, chosen, use, wanted)
        elif isinstance(base, np.ndarray):
            one = self._dense_work(base, places, chosen, use, wanted)
        else:
            one = self._sparse_work(base, places, chosen, use, wanted)
        helpers = min(self.threads, len(spans)) - 1
        entries = 0 if self._looks_up else base.size / max(base.shape[0], 1)
        each = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[columns.sparse_partners] * entries
        if m * columns.n * each < WORTH_SHARING:
            helpers = 0
        self._team.share_out(one, spans, helpers)
        self.n_evaluations += sum(
            (span.stop - span.start) * (tile.stop - tile.start)
            for span in spans
            for tile in chosen
            if wanted(span, tile)
        )

    def _dense_work(
        self,
        rows: Floats,
        places: NDArray[np.int64],
        tiles: Sequence[Tile],
        use: Use,
        wanted: Wanted,
    ) -> Callable[[slice], None]:
        centre = np.zeros(rows.shape[1]) if self.centre is None else self.centre
        multiply = products.distances_packed if self._absolute else products.multiply_packed

        def one(span: slice) -> None:
            chosen = places[span]
            groups = -(-len(chosen) // products.MR)
            packed = self._team.scratch("rows", (groups, rows.shape[1], products.MR), self.dtype)
            products.pack_rows(rows, chosen, centre, packed)
            norms = np.zeros(len(chosen), self.dtype)
            if not self._absolute:
                products.squared_norms(packed, norms)
            self.values.check(norms)
            for tile in (t for t in tiles if wanted(span, t)):
                width = tile.vectors.shape[0] * tile.vectors.shape[2]
                dots = self._team.scratch("dots", (groups * products.MR, width), self.dtype)
                multiply(packed, tile.vectors, dots)
                use(span, tile, dots[: len(chosen)], norms)

        return one

    def _lookup_work(
        self,
        rows: Floats,
        places: NDArray[np.int64],
        tiles: Sequence[Tile],
        use: Use,
        wanted: Wanted,
    ) -> Callable[[slice], None]:
        def one(span: slice) -> None:
            chosen = places[span]
            nothing = np.zeros(len(chosen), self.dtype)
            for tile in (t for t in tiles if wanted(span, t)):
                shape = (len(chosen), tile.stop - tile.start)
                values = self._team.scratch("dots", shape, self.dtype)
                gram.looked_up(rows, chosen, tile.used, values)
                self.values.check_looked_up(values)
                use(span, tile, values, nothing)

        return one

    def _sparse_work(
        self,
        rows: sp.csr_array,
        places: NDArray[np.int64],
        tiles: Sequence[Tile],
        use: Use,
        wanted: Wanted,
    ) -> Callable[[slice], None]:
        multiply = csr.csr_overlaps if self._absolute else csr.csr_products

        def one(span: slice) -> None:
            values, indices, part = self.values.taken(rows, places[span])
            data = values.astype(self.dtype, copy=False)
            norms = np.empty(span.stop - span.start, self.dtype)
            self.values.sparse_norms(data, part, norms)
            self.values.check(norms)
            place = self._team.places(rows.shape[1])
            for tile in (t for t in tiles if wanted(span, t)):
                dots = self._team.scratch("dots", (len(norms), tile.stop - tile.start), self.dtype)
                multiply(data, indices, part, tile.parts, tile.used, place, tile.vectors, dots)
                use(span, tile, dots, norms)

        return one
