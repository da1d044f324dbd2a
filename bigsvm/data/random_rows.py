"""Random rows of a source, one after the other, at the price of reading blocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource

ROWS_AT_ONCE = 1 << 14
"""Most rows that are given out together."""


class RandomRows:
    """An endless sequence of random rows that depends on the seed and the position alone.

    Rows in memory are drawn with replacement. Those of a store are given out block by block, the
    next block being read meanwhile: a store's rows have been shuffled, so that a block is a random
    sample; of other lazy arrays blocks come in random order, and their rows too.

    Parameters
    ----------
    source : RowSource
    block_bytes : int
        For the two blocks that exist at once.
    seed : int
    position : int
        Rows that have been given out before.
    in_order : bool
        Whether all rows are asked for anyway: those in memory come one after the other.
    weights : (n,) float64, optional
        A row in memory is drawn as often as its weight is large: one of weight 2 is two rows. Those
        of a store come once a pass.
    """

    def __init__(
        self,
        source: RowSource,
        block_bytes: int,
        seed: int,
        position: int,
        *,
        in_order: bool = False,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self._source, self._seed, self._position = source, seed, position
        self._in_order = in_order
        self._in_core = source.row_alignment <= 1
        self._shares = None if weights is None or not self._in_core else np.cumsum(weights)
        self._size = source.rows_per_block(block_bytes)
        self._reader = None if self._in_core else ThreadPoolExecutor(1, "bigsvm-read")
        self._epoch = -1
        self._blocks = self._ends = np.empty(0, np.int64)
        self._held: tuple[tuple[int, int], Rows] | None = None
        self._ahead: tuple[tuple[int, int], Future[Rows]] | None = None

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)

    def draw(self, count: int) -> Iterator[tuple[NDArray[np.int64], RowsAt]]:
        """Yield the next `count` rows and their indices, in parts."""
        n = self._source.n_rows
        while count > 0:
            if self._in_core:
                part = min(count, ROWS_AT_ONCE)
                if self._in_order:
                    first = self._position % n
                    part = min(part, n - first)
                    indices = np.arange(first, first + part)
                else:
                    rng = np.random.default_rng([self._seed, self._position])
                    indices = self._drawn(rng, part)
                yield indices, self._source.lend(indices)
            else:
                start, places, values = self._rest_of_block()
                places = places[: min(count, ROWS_AT_ONCE)]
                part = len(places)
                yield start + places, RowsAt(values, places)
            self._position += part
            count -= part

    def _drawn(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        if self._shares is None:
            return rng.integers(0, self._source.n_rows, count)
        points = rng.random(count) * self._shares[-1]
        indices: NDArray[np.int64] = np.searchsorted(self._shares, points, side="right")
        return indices

    def _rest_of_block(self) -> tuple[int, NDArray[np.int64], Rows]:
        """Read the block of the present position; say where it begins, and what is left of it."""
        n = self._source.n_rows
        epoch, rest = divmod(self._position, n)
        if epoch != self._epoch:
            self._lay_out(epoch)
        k = int(np.searchsorted(self._ends, rest, side="right"))
        start, stop = self._span(k)
        values = self._read((start, stop))
        if k + 1 < len(self._ends):
            self._read_ahead(self._span(k + 1))
        places = np.arange(stop - start)
        if not self._source.is_shuffled:
            places = np.random.default_rng([self._seed, epoch, start]).permutation(stop - start)
        given = rest - (int(self._ends[k]) - (stop - start))
        return start, places[given:], values

    def _lay_out(self, epoch: int) -> None:
        """Choose the order of the blocks of a pass."""
        n = self._source.n_rows
        n_blocks = -(-n // self._size)
        self._epoch, self._blocks = epoch, np.arange(n_blocks)
        if not self._source.is_shuffled:
            self._blocks = np.random.default_rng([self._seed, epoch]).permutation(n_blocks)
        starts = self._blocks * self._size
        self._ends = np.cumsum(np.minimum(starts + self._size, n) - starts)

    def _span(self, k: int) -> tuple[int, int]:
        start = int(self._blocks[k]) * self._size
        return start, min(start + self._size, self._source.n_rows)

    def _read(self, span: tuple[int, int]) -> Rows:
        if self._held is None or self._held[0] != span:
            self._held = None
            if self._ahead is not None and self._ahead[0] == span:
                self._held = span, self._ahead[1].result()
            else:
                self._held = span, self._source.read(*span)
            self._ahead = None
        return self._held[1]

    def _read_ahead(self, span: tuple[int, int]) -> None:
        if self._reader is not None and (self._ahead is None or self._ahead[0] != span):
            self._ahead = span, self._reader.submit(self._source.read, *span)
