"""Products of row blocks with the kernel, in tiles that stay in the second-level cache.

The two operations everything expensive is made of, for rows A (m of them) and columns B (p):

    multiply:   out += K(A, B) @ weights        a sweep, a decision function
    evaluate:   out  = K(A, B)                  rows of the kernel row cache

Each tile is one matrix product and one fused pass over its result. The rows of a call are shared
out over threads; a kernel value has the same bits whichever rows and columns it is computed with
(see `bigsvm.core.products`), and a row's sums are added up tile by tile in a fixed order.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigsvm.core import gram, products
from bigsvm.errors import DataError
from bigsvm.kernels import KernelCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.kernels import Kernel

    Floats = NDArray[np.float32] | NDArray[np.float64]
    Use = Callable[[slice, "Tile", Floats, Floats], None]
    Wanted = Callable[[slice, "Tile"], bool]

ROWS_PER_TILE = 252
"""Rows of a tile: a multiple of the micro-kernel's 12 or 6."""
COLUMNS_PER_TILE = 512
"""With 252 rows of float32 products half a megabyte: half of a second-level cache."""
WORTH_SHARING = 3e-4
"""Seconds of work of one call below which other threads are not woken: 24 kernel rows of 6000
values took 0.20 ms in one thread and 0.34 in two (w8a), 64 of them 0.39 and 0.36."""
SECONDS_PER_VALUE = 0.5e-9
SECONDS_PER_ENTRY = {True: 0.045e-9, False: 0.01e-9}
"""Of a kernel value in one thread, and for each entry of a sparse row or column of a dense one: 0.9
to 1.1 ns at 12 and 14 entries, 7 at 150; 0.8 at 22 columns, 8 at 784."""
SPARSE_TILE_BYTES = 4 << 20
"""A tile over many distinct features is made narrower until its vectors take no more than this."""
NARROWEST_SPARSE_TILE = 32


class Tile(NamedTuple):
    """Columns ``start … stop - 1``, prepared.

    `vectors` are packed panels (dense partners) or the transposed vectors over the features that
    occur in them, `used` (sparse partners).
    """

    start: int
    stop: int
    vectors: Floats
    norms: Floats
    used: NDArray[np.int32] | None


class Columns:
    """Vectors that kernel values are taken with: support vectors or a working set, in tiles.

    Parameters
    ----------
    tiles : KernelTiles
        Whose dtype and centre they are prepared for.
    rows : Rows
        (p, d) vectors, dense or sparse.
    sparse_partners : bool
        Whether the rows they will be multiplied with are sparse. Sparse vectors against dense rows
        are made dense.
    """

    def __init__(self, tiles: KernelTiles, rows: Rows, *, sparse_partners: bool) -> None:
        self.n = rows.shape[0]
        self.sparse_partners = sparse_partners
        make = self._sparse_tiles if sparse_partners else self._dense_tiles
        self._tiles = list(make(tiles, rows))

    def __iter__(self) -> Iterator[Tile]:
        return iter(self._tiles)

    @property
    def nbytes(self) -> int:
        """Bytes the tiles hold."""
        return sum(t.vectors.nbytes + t.norms.nbytes for t in self._tiles) + sum(
            t.used.nbytes for t in self._tiles if t.used is not None
        )

    @staticmethod
    def _dense_tiles(tiles: KernelTiles, rows: Rows) -> Iterator[Tile]:
        width = products.NR32 if tiles.dtype == np.float32 else products.NR64
        for start in range(0, rows.shape[0], COLUMNS_PER_TILE):
            stop = min(start + COLUMNS_PER_TILE, rows.shape[0])
            values = tiles.dense(rows[start:stop])
            panels = np.empty((-(-(stop - start) // width), values.shape[1], width), tiles.dtype)
            products.pack_columns(values, panels)
            yield Tile(start, stop, panels, tiles.squared_norms(values), None)

    @staticmethod
    def _sparse_tiles(tiles: KernelTiles, rows: Rows) -> Iterator[Tile]:
        rows = sp.csr_array(rows)
        data = rows.data.astype(tiles.dtype, copy=False)
        place = np.empty(rows.shape[1], np.int32)
        start = 0
        while start < rows.shape[0]:
            width = COLUMNS_PER_TILE
            while True:
                part = rows.indptr[start : start + width + 1]
                occurs = np.zeros(rows.shape[1], np.bool_)
                gram.csr_features(rows.indices, part, occurs)
                used = np.flatnonzero(occurs).astype(np.int32)
                fits = len(used) * width * tiles.dtype.itemsize <= SPARSE_TILE_BYTES
                if fits or width <= NARROWEST_SPARSE_TILE:
                    break
                width //= 2
            vectors = np.zeros((len(used), len(part) - 1), tiles.dtype)
            gram.csr_tile(data, rows.indices, part, used, place, vectors)
            norms = np.empty(len(part) - 1, tiles.dtype)
            gram.csr_squared_norms(data, part, norms)
            tiles.check(norms)
            yield Tile(start, start + len(part) - 1, vectors, norms, used)
            start += len(part) - 1


class KernelTiles:
    """Computes K(A, B) and K(A, B) @ weights on a pool of threads, and counts the evaluations.

    Parameters
    ----------
    kernel : Kernel
    centre : (d,) float64 or None
        Subtracted from dense rows first, where the kernel does not mind: in float32 the distance of
        two rows far from the origin would otherwise drown in the rounding of their norms. Sparse
        rows are never centred, as that would fill them.
    threads : int
    dtype : numpy dtype
        float32, or float64 for certificates and decision values in full precision.

    Attributes
    ----------
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
    ) -> None:
        self.kernel = kernel
        self.dtype = np.dtype(dtype)
        self.threads = threads
        self.n_evaluations = 0
        self.centre = centre if kernel.is_shift_invariant else None
        self._parameters = kernel.core_parameters
        self._largest_norm = kernel.largest_norm(float(np.finfo(dtype).max))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bigsvm-tile")
        self._local = threading.local()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- preparing rows ----------------------------------------------------------------------

    def dense(self, rows: Rows) -> Floats:
        """Rows (m, d) as a dense block, centred in float64 before they are rounded to `dtype`."""
        values = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if self.centre is not None:
            values = values - self.centre
        return np.ascontiguousarray(values, dtype=self.dtype)

    def squared_norms(self, rows: Rows) -> Floats:
        """``|a|²`` of prepared rows, (m,) in `dtype`.

        Raises
        ------
        DataError
            Where kernel values of a row would overflow `dtype`, or are not numbers.
        """
        norms = np.empty(rows.shape[0], self.dtype)
        if isinstance(rows, np.ndarray):
            packed = np.empty(
                (-(-len(rows) // products.MR), rows.shape[1], products.MR), self.dtype
            )
            products.pack_rows(rows, packed)
            products.squared_norms(packed, norms)
        else:
            data = rows.data.astype(self.dtype, copy=False)
            gram.csr_squared_norms(data, rows.indptr, norms)
        self.check(norms)
        return norms

    def check(self, norms: Floats) -> None:
        """Refuse squared lengths whose kernel values leave the dtype.

        Raises
        ------
        DataError
        """
        largest = norms.max(initial=0)
        if not largest <= self._largest_norm:
            raise DataError(
                f"a row has the squared length {largest:.4g}, and {self.kernel.name} kernel values "
                f"in {self.dtype} need at most {self._largest_norm:.4g}; scale the features"
            )

    def diagonal(self, rows: Rows) -> NDArray[np.float64]:
        """k(a, a) of raw rows, (m,) float64, with the bits that `evaluate` gives it.

        Pair steps take curvatures from both: of rows that nearly agree they are differences as
        small as the rounding of the values.
        """
        prepared = self.dense(rows) if isinstance(rows, np.ndarray) else rows
        norms = self.squared_norms(prepared)
        dots = np.zeros_like(norms) if self.kernel.is_shift_invariant else norms
        values, nothing = dots[None, :].copy(), np.zeros(len(norms) + 1, norms.dtype)
        self._map(values, nothing[:1], nothing[1:])
        diagonal: NDArray[np.float64] = values[0].astype(np.float64)
        return diagonal

    # -- the two products --------------------------------------------------------------------

    def multiply(
        self,
        rows: Rows,
        columns: Columns,
        weights: NDArray[np.float64],
        out: NDArray[np.float64],
    ) -> None:
        """``out += K(rows, columns) @ weights``; weights (p,), out (m,) float64."""
        rounded = np.asarray(weights, self.dtype)
        fused = self._parameters.code == KernelCode.RBF and self.dtype == np.float32

        def accumulate(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            part = rounded[tile.start : tile.stop]
            if fused:
                gamma = self._parameters.gamma
                gram.rbf_sums32(dots, norms, tile.norms, part, gamma, out[span])
            else:
                self._map(dots, norms, tile.norms)
                gram.weighted_sums(dots, part, out[span])

        self._for_each_tile(rows, columns, accumulate)

    def multiply_symmetric(
        self, rows: Rows, columns: Columns, weights: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """``out += K(rows, rows) @ weights`` with little more than half of the kernel values.

        `columns` are the same rows packed; weights, out (m,) float64. A tile off the diagonal is
        used along its rows and along its columns. Each span of rows adds the latter up for itself,
        in float64, and they are put together in the order of the spans, so that threads do not
        change a bit.
        """
        rounded = np.asarray(weights, self.dtype)
        below: dict[int, NDArray[np.float64]] = {}

        def use(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self._map(dots, norms, tile.norms)
            part = slice(tile.start, tile.stop)
            if tile.start < span.stop:
                gram.weighted_sums(dots, rounded[part], out[span])
                return
            sums = below.setdefault(span.start, np.zeros(columns.n))
            gram.weighted_sums_both_ways(dots, rounded[part], rounded[span], out[span], sums[part])

        spans = [
            slice(a, min(a + ROWS_PER_TILE, tile.stop))
            for tile in columns
            for a in range(tile.start, tile.stop, ROWS_PER_TILE)
        ]
        self._for_each_tile(rows, columns, use, spans, lambda span, tile: tile.stop > span.start)
        for start in sorted(below):
            out += below[start]

    def evaluate(self, rows: Rows, columns: Columns, out: Floats) -> None:
        """``out = K(rows, columns)``; out (m, ≥ p) of a float dtype, further columns untouched."""

        def store(span: slice, tile: Tile, dots: Floats, norms: Floats) -> None:
            self._map(dots, norms, tile.norms)
            out[span, tile.start : tile.stop] = dots

        self._for_each_tile(rows, columns, store)

    def _map(self, dots: Floats, norms_rows: Floats, norms_columns: Floats) -> None:
        values = gram.kernel_values32 if self.dtype == np.float32 else gram.kernel_values64
        values(dots, norms_rows, norms_columns, *self._parameters)

    def _for_each_tile(
        self,
        rows: Rows,
        columns: Columns,
        use: Use,
        spans: Sequence[slice] | None = None,
        wanted: Wanted = lambda span, tile: True,
    ) -> None:
        """Compute the dot products of every wanted tile and hand them to `use`, on all threads."""
        m = rows.shape[0]
        if spans is None:
            # Few rows are shared out too: a batch of 256 would be one tile of 252 and one of 4.
            share = -(-m // (self.threads * products.MR)) * products.MR
            step = max(1, min(ROWS_PER_TILE, share))
            spans = [slice(a, min(a + step, m)) for a in range(0, m, step)]
        if columns.sparse_partners:
            one = self._sparse_work(sp.csr_array(rows), columns, use, wanted)
        else:
            one = self._dense_work(rows, columns, use, wanted)
        helpers = min(self.threads, len(spans)) - 1
        entries = rows.size / max(m, 1)
        each = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[columns.sparse_partners] * entries
        if m * columns.n * each < WORTH_SHARING:
            helpers = 0
        self._share_out(one, deque(spans), helpers)
        self.n_evaluations += sum(
            (span.stop - span.start) * (tile.stop - tile.start)
            for span in spans
            for tile in columns
            if wanted(span, tile)
        )

    def _share_out(self, one: Callable[[slice], None], spans: deque[slice], n_helpers: int) -> None:
        """Do all spans, in this thread and in `n_helpers` of the pool.

        This thread works too, because another one takes 0.1 to 0.3 ms to wake up: as long as a
        batch of kernel rows.
        """

        def work() -> None:
            while spans:
                try:
                    span = spans.popleft()
                except IndexError:  # another thread was faster
                    return
                one(span)

        helpers = [self._pool.submit(work) for _ in range(n_helpers)]
        try:
            work()
        finally:
            spans.clear()
            awake = [helper for helper in helpers if not helper.cancel()]
            wait(awake)
        for helper in awake:
            helper.result()

    def _dense_work(
        self, rows: Rows, columns: Columns, use: Use, wanted: Wanted
    ) -> Callable[[slice], None]:
        def one(span: slice) -> None:
            values = self.dense(rows[span])
            groups = -(-len(values) // products.MR)
            packed = self._buffer("rows", (groups, values.shape[1], products.MR))
            products.pack_rows(values, packed)
            norms = np.empty(len(values), self.dtype)
            products.squared_norms(packed, norms)
            self.check(norms)
            for tile in (t for t in columns if wanted(span, t)):
                width = tile.vectors.shape[0] * tile.vectors.shape[2]
                dots = self._buffer("dots", (groups * products.MR, width))
                products.multiply_packed(packed, tile.vectors, dots)
                use(span, tile, dots[: len(values), : tile.stop - tile.start], norms)

        return one

    def _sparse_work(
        self, rows: sp.csr_array, columns: Columns, use: Use, wanted: Wanted
    ) -> Callable[[slice], None]:
        # Spans by their part of indptr: slicing a scipy matrix takes as long as half of a tile.
        data, indices, indptr = rows.data.astype(self.dtype, copy=False), rows.indices, rows.indptr
        n_features = rows.shape[1]

        def one(span: slice) -> None:
            part = indptr[span.start : span.stop + 1]
            norms = np.empty(span.stop - span.start, self.dtype)
            gram.csr_squared_norms(data, part, norms)
            self.check(norms)
            place = self._feature_places(n_features)
            for tile in (t for t in columns if wanted(span, t)):
                dots = self._buffer("dots", (len(norms), tile.stop - tile.start))
                gram.csr_products(data, indices, part, tile.used, place, tile.vectors, dots)
                use(span, tile, dots, norms)

        return one

    def _buffer(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Give a scratch array of this thread: fresh pages would cost as much as the product."""
        size = math.prod(shape)
        held: Floats | None = self._local.__dict__.get(name)
        if held is None or held.size < size:
            held = np.empty(size, self.dtype)
            self._local.__dict__[name] = held
        return held[:size].reshape(shape)

    def _feature_places(self, n_features: int) -> NDArray[np.int32]:
        """Give this thread's array of −1 for every feature; `csr_products` leaves it as it was."""
        held: NDArray[np.int32] | None = self._local.__dict__.get("places")
        if held is None or held.size < n_features:
            held = np.full(n_features, -1, np.int32)
            self._local.__dict__["places"] = held
        return held
