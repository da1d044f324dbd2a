"""Partners: vectors that rows are multiplied with, prepared in tiles that stay in the cache.

`FunctionWeights` are the weights of several functions over the same partners.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.core import csr, gram, products
from bigsvm.core import functions as sums
from bigsvm.data.kernel_matrix import row_numbers
from bigsvm.data.rows import RowsAt
from bigsvm.gram.lists import lists_of, share_few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I4, I8
    from bigsvm.data.rows import Rows
    from bigsvm.gram.values import KernelValues

    Floats: TypeAlias = F4 | F8
    Weights: TypeAlias = F8 | sp.csr_array
    Scratch: TypeAlias = Callable[[str, tuple[int, ...], np.dtype[Any]], NDArray[Any]]
    Bytes = NDArray[np.uint8] | NDArray[np.uint32]
    Bounds = tuple[int, int, I4, bool]

PARTNERS_PER_TILE = 512
"""Partners of a tile: with 252 rows, its float32 products fill half of a second-level cache."""
SPARSE_TILE_BYTES = 4 << 20
"""Most bytes of a tile of sparse partners. One with too many features is laid out in lists or made
narrower."""
NARROWEST_SPARSE_TILE = 32
"""Fewest partners that such a tile has."""
WEIGHTS_PER_EVALUATION = 8
"""Weights that are added in about the time of one kernel value of rows with few features."""
ALL_PER_WEIGHT = 5
"""Weights, zeros included, that `add_all` adds while `add_some` adds one nonzero weight."""
ALL_PER_TURN = 8
"""Weights, zeros included, that `add_all` adds while `add_some` transposes one value."""


def in_whole_tiles(n: int) -> int:
    """Round n down to whole tiles, so that sums over pieces have the bits of one product.

    Sums are added up tile by tile, and the first tile of each piece begins with the piece. If n is
    less than a tile, a piece is a tile halved once or more, and the bits of sums depend on n.
    """
    width = PARTNERS_PER_TILE
    while width > max(n, 1):
        width //= 2
    return n // width * width if n > 1 else 1


class Tile(NamedTuple):
    """Partners ``start … stop - 1``.

    For dense rows `vectors` are packed panels. For sparse rows they are the transposed vectors of
    one or several tiles, one tile after the other; `used` are the features that occur in each tile
    and `edges` where each one begins, as `gram.sparse_span` and `gram.byte_span` take them. If they
    are `listed`, they are the lists of `gram.listed_span`.

    For a kernel matrix `vectors` is empty, `used` are the features that hold the kernel values with
    the partners, and `norms` the diagonal, or 0 where it is not known.
    """

    start: int
    stop: int
    vectors: Floats | Bytes
    norms: Floats
    used: I4 | None = None
    edges: I8 | None = None
    listed: bool = False


class _Layout(NamedTuple):
    """How tiles of sparse vectors are laid out.

    `tiles` are where each one begins and ends, and its features or, for tiles of words, its groups
    of four features. `edges` is what `gram.sparse_span` and `gram.byte_span` take.
    """

    dtype: np.dtype[Any]
    tiles: list[Bounds]
    edges: I8

    @classmethod
    def of(cls, tiles: list[Bounds], dtype: np.dtype[Any]) -> _Layout:
        """Lay out tiles with these bounds and features."""
        chunk = 1 if dtype.kind == "f" else gram.CHUNK_BYTES // dtype.itemsize
        if dtype == np.uint32:
            tiles = [(a, b, np.unique(used >> 2), listed) for a, b, used, listed in tiles]
        sizes = [
            (b - a, len(used), -(-(b - a) // chunk) * chunk * len(used)) for a, b, used, _ in tiles
        ]
        edges = np.zeros((len(tiles) + 1, 3), np.int64)
        np.cumsum(np.array(sizes, np.int64).reshape(-1, 3), axis=0, out=edges[1:])
        return cls(dtype, tiles, edges)

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles."""
        return int(self.edges[-1, 2]) * self.dtype.itemsize


def rows_at(rows: Rows | RowsAt) -> RowsAt:
    """Name the places of rows, which are all of them where they have none."""
    return rows if isinstance(rows, RowsAt) else RowsAt(rows, np.arange(rows.shape[0]))


class Partners:
    """Vectors that rows are multiplied with, such as support vectors or a working set, in tiles.

    They are p vectors (p, d), dense or sparse, prepared by `values`, which has the centre and the
    dtype. Sparse vectors are made dense unless they are for sparse rows.

    Attributes
    ----------
    n : int
        Number of vectors, p.
    whole : Tile
        All tiles as one, which the core goes through tile by tile.
    widest : int
        Number of partners of the widest tile.
    numbered : object
        What `KernelValues.numbering` makes of the vectors; None without one.
    """

    def __init__(self, values: KernelValues, rows: Rows | RowsAt, *, for_sparse_rows: bool) -> None:
        base, places = rows_at(rows)
        self.n = len(places)
        self.for_sparse_rows = for_sparse_rows
        self.numbered = values.numbered and values.numbered(RowsAt(base, places))
        make = self._sparse_tiles if for_sparse_rows else self._dense_tiles
        if values.kernel.product == "lookup":
            make = self._looked_up
        self.whole, self._tiles = make(values, base, places)
        self.widest = max((tile.stop - tile.start for tile in self._tiles), default=0)

    @classmethod
    def of_rows_like(cls, values: KernelValues, rows: RowsAt) -> Partners:
        """Prepare vectors for rows that are sparse if and only if the vectors are."""
        return cls(values, rows, for_sparse_rows=not isinstance(rows.rows, np.ndarray))

    def __iter__(self) -> Iterator[Tile]:
        return iter(self._tiles)

    @property
    def norms(self) -> Floats:
        """``|b|²`` or ``|b|₁`` of each vector, (p,); of a kernel matrix, its diagonal if known."""
        return self.whole.norms

    @property
    def nbytes(self) -> int:
        """Bytes of the prepared vectors."""
        used = 0 if self.whole.used is None else self.whole.used.nbytes
        return self.whole.vectors.nbytes + self.norms.nbytes + used

    @staticmethod
    def _dense_tiles(prepare: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        n = len(places)
        width = gram.NR32 if prepare.dtype == np.float32 else gram.NR64
        panels = np.empty((-(-n // width), rows.shape[1], width), prepare.dtype)
        norms = np.empty(n, prepare.dtype)
        tiles = []
        for start in range(0, n, PARTNERS_PER_TILE):
            stop = min(start + PARTNERS_PER_TILE, n)
            values = prepare.dense(rows[places[start:stop]])
            packed = panels[start // width : -(-stop // width)]
            products.pack_partners(values, packed)
            norms[start:stop] = prepare.squared_norms(values)
            tiles.append(Tile(start, stop, packed, norms[start:stop]))
        return Tile(0, n, panels, norms), tiles

    @staticmethod
    def _looked_up(prepare: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        n, numbers = len(places), row_numbers(rows, places).astype(np.int32)
        norms, none = np.zeros(n, prepare.dtype), np.empty(0, prepare.dtype)
        if isinstance(rows, np.ndarray):
            with np.errstate(over="ignore"):
                norms[:] = rows[places, numbers]
            prepare.check_looked_up(norms)
        edges = [*range(0, n, PARTNERS_PER_TILE), n]
        tiles = [Tile(a, b, none, norms[a:b], numbers[a:b]) for a, b in itertools.pairwise(edges)]
        return Tile(0, n, none, norms, numbers), tiles

    @staticmethod
    def _sparse_tiles(prepare: KernelValues, rows: Rows, places: I8) -> tuple[Tile, list[Tile]]:
        rows = sp.csr_array(rows)
        bounds = list(_sparse_bounds(prepare, rows, places))
        if any(listed for *_, listed in bounds):
            return Partners._listed_tiles(prepare, rows, places, bounds)
        layouts = [_Layout.of(bounds, dtype) for dtype in prepare.tile_dtypes(rows, places)]
        dtype, bounds, edges = min(layouts, key=lambda layout: layout.nbytes)
        vectors = _aligned_zeros(int(edges[-1, 2]), dtype)
        norms = np.empty(len(places), prepare.dtype)
        features = np.concatenate([np.empty(0, np.int32), *(used for _, _, used, _ in bounds)])
        place = np.empty(rows.shape[1], np.int32)
        chunk = gram.CHUNK_BYTES // dtype.itemsize
        lay_out = csr.csr_tile if dtype.kind == "f" else csr.csr_byte_tile
        tiles = []
        for t, (start, stop, used, _) in enumerate(bounds):
            values, indices, indptr = prepare.taken(rows, places[start:stop])
            data = values.astype(prepare.dtype, copy=False)
            flat = vectors[edges[t, 2] : edges[t + 1, 2]]
            lay_out(data, indices, indptr, used, place, chunk, flat)
            prepare.sparse_norms(data, indptr, norms[start:stop])
            prepare.check(norms[start:stop])
            own_edges = edges[t : t + 2] - edges[t]
            tiles.append(Tile(start, stop, flat, norms[start:stop], used, own_edges))
        return Tile(0, len(places), vectors, norms, features, edges), tiles

    @staticmethod
    def _listed_tiles(
        prepare: KernelValues, rows: sp.csr_array, places: I8, bounds: list[Bounds]
    ) -> tuple[Tile, list[Tile]]:
        norms = np.empty(len(places), prepare.dtype)
        place, edges = np.empty(rows.shape[1], np.int32), np.zeros((len(bounds) + 1, 3), np.int64)
        lists = []
        for t, (start, stop, used, _) in enumerate(bounds):
            values, indices, indptr = prepare.taken(rows, places[start:stop])
            data = values.astype(prepare.dtype, copy=False)
            prepare.sparse_norms(data, indptr, norms[start:stop])
            prepare.check(norms[start:stop])
            lists.append(lists_of(data, indices, indptr, used, place))
            edges[t + 1] = edges[t] + (stop - start, *map(len, lists[-1]))
        features = np.concatenate([part for part, _ in lists])
        vectors = np.concatenate([part for _, part in lists])
        tiles = []
        for t, (start, stop, *_) in enumerate(bounds):
            _, of_used, of_vectors = map(slice, edges[t], edges[t + 1])
            parts = vectors[of_vectors], norms[start:stop], features[of_used]
            tiles.append(Tile(start, stop, *parts, edges[t : t + 2] - edges[t], listed=True))
        return Tile(0, len(places), vectors, norms, features, edges, listed=True), tiles


def _aligned_zeros(n: int, dtype: np.dtype[Any]) -> Floats | Bytes:
    """Zeros (n,) aligned to vectors of the processor, so that no load crosses a cache line."""
    size = n * dtype.itemsize
    values = np.zeros(size + gram.VECTOR_BYTES, np.uint8)
    first = -values.ctypes.data % gram.VECTOR_BYTES
    return values[first : first + size].view(dtype)


def _sparse_bounds(prepare: KernelValues, rows: sp.csr_array, places: I8) -> Iterator[Bounds]:
    """Yield where tiles of sparse vectors begin and end, the features in each, and if it is listed.

    A tile begins at each multiple of PARTNERS_PER_TILE, where pieces of partners begin. Its bounds
    depend on the partners up to the next multiple alone, so that sums do not depend on pieces.
    """
    start = 0
    while start < len(places):
        width = PARTNERS_PER_TILE - start % PARTNERS_PER_TILE
        _, indices, indptr = prepare.taken(rows, places[start : start + width])
        while True:
            in_tile = indptr[: width + 1]
            occurs = np.zeros(rows.shape[1], np.bool_)
            csr.csr_features(indices, in_tile, occurs)
            used = np.flatnonzero(occurs).astype(np.int32)
            fits = len(used) * width * prepare.dtype.itemsize <= SPARSE_TILE_BYTES
            listed = not fits and prepare.can_be_listed and share_few(indices, in_tile, len(occurs))
            if fits or listed or width <= NARROWEST_SPARSE_TILE:
                break
            width = max(width // 2, NARROWEST_SPARSE_TILE)
        stop = start + len(in_tile) - 1
        yield start, stop, used, listed
        start = stop


def weighted_rows(weights: Weights) -> I8:
    """Numbers of the rows that are not all 0, ascending; weights are (m,) or (m, k)."""
    if not isinstance(weights, np.ndarray):
        return np.flatnonzero(np.diff(weights.indptr))
    return np.flatnonzero(weights if weights.ndim == 1 else weights.any(axis=1))


class AllWeights(NamedTuple):
    """All weights of some functions in one tile, zeros included; see `add_all`."""

    functions: I8
    weights: Floats

    def add(self, values: Floats, out: F8, scratch: Scratch) -> None:
        """Add the kernel values (m, ≥ p) times the weights to the sums of functions, out (k, m)."""
        sums.add_all(values, self.functions, self.weights, out)


class NonzeroWeights(NamedTuple):
    """The nonzero weights of one tile, function by function; see `add_some`."""

    functions: I8
    starts: I8
    places: I4
    weights: Floats
    n_partners: int

    def add(self, values: Floats, out: F8, scratch: Scratch) -> None:
        """Add the kernel values (m, ≥ p) times the weights to the sums of functions, out (k, m)."""
        transposed = scratch(
            "turned", (self.n_partners, sums.TRANSPOSED_STRIDE), np.dtype(np.float64)
        )
        sums.add_some(
            values, self.functions, self.starts, self.places, self.weights, transposed, out
        )


class FunctionWeights:
    """Weights (p, k) of k functions over p partners, rounded to the dtype of the kernel values.

    If nearly all weights of a tile are zero, only the nonzero weights are kept and multiplied.
    Otherwise all are kept, as multiplying by zeros is faster than skipping them.

    They come as CSR if most are zero, as for one against one: a support vector has weights in c - 1
    of the c (c - 1) / 2 functions of c classes. `n` is k, and `n_weights` counts the nonzero
    weights.
    """

    def __init__(self, partners: Partners, weights: Weights, dtype: np.dtype[Any]) -> None:
        self.n = int(weights.shape[1])
        self.n_weights = 0
        self._weights_of_tile: dict[int, AllWeights | NonzeroWeights] = {}
        for tile in partners:
            of_tile = sp.csc_array(weights[tile.start : tile.stop])
            self.n_weights += of_tile.nnz
            self._weights_of_tile[tile.start] = _prepared(of_tile.astype(dtype))

    def add(self, tile: Tile, values: Floats, out: F8, scratch: Scratch) -> None:
        """Add kernel values (m, ≥ p) of a tile times its weights to the sums, out (k, m)."""
        self._weights_of_tile[tile.start].add(values, out, scratch)


def _prepared(weights: sp.csc_array) -> AllWeights | NonzeroWeights:
    """Choose how the weights (p, k) of a tile are kept."""
    p = weights.shape[0]
    # With very many functions only few have weights in a tile.
    counts = np.diff(weights.indptr)
    functions = np.flatnonzero(counts)
    if len(functions) * p <= ALL_PER_TURN * p + ALL_PER_WEIGHT * weights.nnz:
        return AllWeights(functions, np.ascontiguousarray(weights[:, functions].toarray().T))
    starts = np.zeros(len(functions) + 1, np.int64)
    np.cumsum(counts[functions], out=starts[1:])
    return NonzeroWeights(functions, starts, weights.indices.astype(np.int32), weights.data, p)
