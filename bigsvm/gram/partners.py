"""Partners: vectors that rows are multiplied with, prepared in tiles that stay in the cache."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.core import csr, gram, products
from bigsvm.data.kernel_matrix import row_numbers
from bigsvm.data.rows import RowsAt, rows_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I4, I8
    from bigsvm.data.rows import Rows
    from bigsvm.gram.values import KernelValues

    Floats = F4 | F8
    Bytes = NDArray[np.uint8] | NDArray[np.uint32]
    Part = tuple[int, int, I4]

PARTNERS_PER_TILE = 512
"""With 252 rows of float32 products half a megabyte: half of a second-level cache."""
SPARSE_TILE_BYTES = 4 << 20
"""A tile over many distinct features is made narrower until its vectors take no more than this."""
NARROWEST_SPARSE_TILE = 32


def in_whole_tiles(n: int) -> int:
    """Partners of a piece, n or a few less, so that sums over pieces have the bits of one product.

    Sums are added up tile by tile, and tiles begin anew in each piece. Where n partners are not
    even one tile, a piece is a tile halved once or more, and the sums depend on n.
    """
    width = PARTNERS_PER_TILE
    while width > max(n, 1):
        width //= 2
    return n // width * width if n > 1 else 1


class Tile(NamedTuple):
    """Partners ``start … stop - 1``.

    `vectors` are packed panels (dense partners) or, one after the other, the transposed vectors of
    the tiles that `parts` divides it into, over the features that occur in each, `used` (sparse
    partners); see `gram.sparse_span` and, for tiles of bytes, `gram.byte_span`. Of a kernel matrix
    there are none: `used` are the features that their values are in, and `norms` their values with
    themselves, where those are known.
    """

    start: int
    stop: int
    vectors: Floats | Bytes
    norms: Floats
    used: I4 | None = None
    parts: I8 | None = None


class _Layout(NamedTuple):
    """How tiles of sparse vectors are laid out.

    `spans` are where each tile begins and ends, and its features or, of tiles of words, its groups
    of four features; `parts` is what `gram.sparse_span` and `gram.byte_span` take.
    """

    dtype: np.dtype[Any]
    spans: list[Part]
    parts: I8

    @classmethod
    def of(cls, spans: list[Part], dtype: np.dtype[Any]) -> _Layout:
        """Lay out tiles whose features are given."""
        whole = 1 if dtype.kind == "f" else gram.CHUNK_BYTES // dtype.itemsize
        if dtype == np.uint32:
            spans = [(start, stop, np.unique(used >> 2)) for start, stop, used in spans]
        sizes = [
            (b - a, len(used), -(-(b - a) // whole) * whole * len(used)) for a, b, used in spans
        ]
        parts = np.zeros((len(spans) + 1, 3), np.int64)
        np.cumsum(np.array(sizes, np.int64).reshape(-1, 3), axis=0, out=parts[1:])
        return cls(dtype, spans, parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles."""
        return int(self.parts[-1, 2]) * self.dtype.itemsize


class Partners:
    """Vectors that kernel values are taken with: support vectors or a working set, in tiles.

    Parameters
    ----------
    values : KernelValues
        Prepares them: with its centre, in its dtype.
    rows : Rows or RowsAt
        (p, d) vectors, dense or sparse.
    for_sparse_rows : bool
        Whether the rows they will be multiplied with are sparse. Sparse vectors against dense rows
        are made dense.

    Attributes
    ----------
    n : int
        Vectors, p.
    whole : Tile
        All of them as one: what the core goes through tile by tile.
    widest : int
        Partners of the widest tile.
    """

    def __init__(self, values: KernelValues, rows: Rows | RowsAt, *, for_sparse_rows: bool) -> None:
        base, places = rows_at(rows)
        self.n = len(places)
        self.for_sparse_rows = for_sparse_rows
        make = self._sparse_tiles if for_sparse_rows else self._dense_tiles
        if values.kernel.product == "lookup":
            make = self._looked_up
        self.whole, self._tiles = make(values, base, places)
        self.widest = max((tile.stop - tile.start for tile in self._tiles), default=0)

    @classmethod
    def of_rows_like(cls, values: KernelValues, rows: RowsAt) -> Partners:
        """Prepare vectors that will be multiplied with rows of their own kind."""
        return cls(values, rows, for_sparse_rows=not isinstance(rows.rows, np.ndarray))

    def __iter__(self) -> Iterator[Tile]:
        return iter(self._tiles)

    @property
    def norms(self) -> Floats:
        """``|b|²`` or ``|b|₁`` of each vector, (p,); of a kernel matrix, its diagonal if known."""
        return self.whole.norms

    @property
    def nbytes(self) -> int:
        """Bytes they hold."""
        used = 0 if self.whole.used is None else self.whole.used.nbytes
        return self.whole.vectors.nbytes + self.norms.nbytes + used

    @staticmethod
    def _dense_tiles(wanted: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        n = len(places)
        width = gram.NR32 if wanted.dtype == np.float32 else gram.NR64
        panels = np.empty((-(-n // width), rows.shape[1], width), wanted.dtype)
        norms = np.empty(n, wanted.dtype)
        made = []
        for start in range(0, n, PARTNERS_PER_TILE):
            stop = min(start + PARTNERS_PER_TILE, n)
            values = wanted.dense(rows[places[start:stop]])
            part = panels[start // width : -(-stop // width)]
            products.pack_columns(values, part)
            norms[start:stop] = wanted.squared_norms(values)
            made.append(Tile(start, stop, part, norms[start:stop]))
        return Tile(0, n, panels, norms), made

    @staticmethod
    def _looked_up(wanted: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        n, numbers = len(places), row_numbers(rows, places).astype(np.int32)
        norms, none = np.zeros(n, wanted.dtype), np.empty(0, wanted.dtype)
        if isinstance(rows, np.ndarray):
            with np.errstate(over="ignore"):
                norms[:] = rows[places, numbers]
            wanted.check_looked_up(norms)
        edges = [*range(0, n, PARTNERS_PER_TILE), n]
        made = [Tile(a, b, none, norms[a:b], numbers[a:b]) for a, b in itertools.pairwise(edges)]
        return Tile(0, n, none, norms, numbers), made

    @staticmethod
    def _sparse_tiles(wanted: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        rows = sp.csr_array(rows)
        found = list(_sparse_spans(wanted, rows, places))
        layouts = [_Layout.of(found, dtype) for dtype in wanted.tile_dtypes(rows, places)]
        dtype, spans, parts = min(layouts, key=lambda layout: layout.nbytes)
        vectors = _zeros_at_a_vector(int(parts[-1, 2]), dtype)
        norms = np.empty(len(places), wanted.dtype)
        features = np.concatenate([np.empty(0, np.int32), *(used for _, _, used in spans)])
        place = np.empty(rows.shape[1], np.int32)
        chunk = gram.CHUNK_BYTES // dtype.itemsize
        lay_out = csr.csr_tile if dtype.kind == "f" else csr.csr_byte_tile
        made = []
        for t, (start, stop, used) in enumerate(spans):
            values, indices, indptr = wanted.taken(rows, places[start:stop])
            data = values.astype(wanted.dtype, copy=False)
            flat = vectors[parts[t, 2] : parts[t + 1, 2]]
            lay_out(data, indices, indptr, used, place, chunk, flat)
            wanted.sparse_norms(data, indptr, norms[start:stop])
            wanted.check(norms[start:stop])
            own = parts[t : t + 2] - parts[t]
            made.append(Tile(start, stop, flat, norms[start:stop], used, own))
        return Tile(0, len(places), vectors, norms, features, parts), made


def _zeros_at_a_vector(n: int, dtype: np.dtype[Any]) -> Floats | Bytes:
    """Zeros (n,) that begin where a vector may: else all loads are of two cache lines."""
    size = n * dtype.itemsize
    values = np.zeros(size + gram.VECTOR_BYTES, np.uint8)
    first = -values.ctypes.data % gram.VECTOR_BYTES
    return values[first : first + size].view(dtype)


def _sparse_spans(wanted: KernelValues, rows: sp.csr_array, places: I8) -> Iterator[Part]:
    """Yield where tiles of sparse vectors begin and end, and which features occur in each.

    A tile begins at each multiple of PARTNERS_PER_TILE, where pieces of partners begin.
    """
    start = 0
    while start < len(places):
        width = PARTNERS_PER_TILE - start % PARTNERS_PER_TILE
        _, indices, indptr = wanted.taken(rows, places[start : start + width])
        while True:
            part = indptr[: width + 1]
            occurs = np.zeros(rows.shape[1], np.bool_)
            csr.csr_features(indices, part, occurs)
            used = np.flatnonzero(occurs).astype(np.int32)
            fits = len(used) * width * wanted.dtype.itemsize <= SPARSE_TILE_BYTES
            if fits or width <= NARROWEST_SPARSE_TILE:
                break
            width = max(width // 2, NARROWEST_SPARSE_TILE)
        stop = start + len(part) - 1
        yield start, stop, used
        start = stop
