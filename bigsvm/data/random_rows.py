"""Random rows of a source, one after the other, whatever the order of its rows and their costs.

Every row with a weight is as likely to come next as its weight says, wherever the source is read
from. What comes depends on the seed, the position and the sizes of blocks and memory, so that a
resumed run draws the rows that it would have drawn. There are three ways to draw:

* rows in memory are drawn one by one, with replacement;
* rows in random order come block by block, in a random order of the blocks;
* other rows are drawn with replacement as well, as many at once as there is memory for, and brought
  in one pass. A block of them is no random sample: rows that are sorted by class come together.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.blocks import stack_rows
from bigsvm.data.rows import RowsAt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource

    Part: TypeAlias = tuple[NDArray[np.int64], RowsAt]
    """Indices of some rows, and these rows."""

ROWS_AT_ONCE = 1 << 14
"""Most rows that are given out together."""
DRAWN_BYTES = 40
"""Of a row that is drawn in a pass, besides itself: its index, its place in the random order, and
room for sorting them."""


def random_rows(
    source: RowSource,
    block_bytes: int,
    seed: int,
    position: int,
    *,
    sample: int,
    room: int = 0,
    weights: NDArray[np.float64] | None = None,
    look: Callable[[], None] = lambda: None,
) -> RandomRows:
    """Make an endless sequence of random rows.

    Parameters
    ----------
    source : RowSource
    block_bytes : int
        For the two blocks that exist at once.
    seed : int
    position : int
        Rows that have been given out before.
    sample : int
        Rows that are used together, in any order. Where they are all rows, these come in order.
    room : int
        Rows that may be held between two passes over rows in no random order.
    weights : (n,) float64, optional
        0 or more; a row of weight 2 is two rows, one of weight 0 is none. Ignored where all rows
        come in order.
    look : callable
        Called before each block of a pass; where it raises, the rows are given up.
    """
    in_order = sample >= source.n_rows
    if source.row_alignment <= 1:
        return _InMemory(source, seed, position, in_order=in_order, weights=weights)
    if in_order or source.is_shuffled:
        weights = None if in_order else weights
        return _ByBlocks(source, block_bytes, seed, position, in_order=in_order, weights=weights)
    return _ByPasses(
        source, block_bytes, seed, position, sample=sample, room=room, weights=weights, look=look
    )


class RandomRows(ABC):
    """An endless sequence of random rows; see `random_rows`."""

    def __init__(self, source: RowSource, seed: int, position: int) -> None:
        self._source, self._seed, self._position = source, seed, position

    def draw(self, count: int) -> Iterator[Part]:
        """Yield the next `count` rows and their indices, in parts."""
        while count > 0:
            part = self._next(min(count, ROWS_AT_ONCE))
            drawn = len(part[0])
            yield part
            del part  # what was read makes room for what is read next
            self._position += drawn
            count -= drawn

    @abstractmethod
    def _next(self, most: int) -> Part:
        """Rows from the present position on, at least one."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading."""


class _InMemory(RandomRows):
    """Rows in memory, drawn one by one; or one after the other from the position on."""

    def __init__(
        self,
        source: RowSource,
        seed: int,
        position: int,
        *,
        in_order: bool,
        weights: NDArray[np.float64] | None,
    ) -> None:
        super().__init__(source, seed, position)
        self._in_order, self._shares = in_order, _shares(weights)

    def _next(self, most: int) -> Part:
        n = self._source.n_rows
        if self._in_order:
            first = self._position % n
            indices = np.arange(first, min(first + most, n))
        else:
            rng = np.random.default_rng([self._seed, self._position])
            indices = _drawn(rng, most, n, self._shares)
        return indices, self._source.lend(indices)

    def close(self) -> None:
        """Nothing is read."""


class _Streamed(RandomRows):
    """Rows that cost reading: parts of any size, which are given out in smaller ones."""

    def __init__(self, source: RowSource, block_bytes: int, seed: int, position: int) -> None:
        super().__init__(source, seed, position)
        self._block_bytes = block_bytes
        self._parts = self._read()
        self._rest: Part | None = None

    @abstractmethod
    def _read(self) -> Generator[Part, None, None]:
        """Yield all rows from the present position on, for ever."""

    def _next(self, most: int) -> Part:
        part, self._rest = self._rest or next(self._parts), None
        indices, rows = part
        if len(indices) > most:
            self._rest = indices[most:], RowsAt(rows.rows, rows.places[most:])
        return indices[:most], RowsAt(rows.rows, rows.places[:most])

    def close(self) -> None:
        """Let the rows and the reading thread go."""
        self._rest = None
        self._parts.close()


class _ByBlocks(_Streamed):
    """Rows in random order, block by block: in a random order of the blocks and of their rows.

    A pass has as many draws as there are rows with a weight. It draws a row as often as the share
    of its weight says, rounded up or down at random: each row once, where weights are 1 or 0.
    """

    def __init__(
        self,
        source: RowSource,
        block_bytes: int,
        seed: int,
        position: int,
        *,
        in_order: bool,
        weights: NDArray[np.float64] | None,
    ) -> None:
        super().__init__(source, block_bytes, seed, position)
        self._in_order, self._weights = in_order, weights
        n, size = source.n_rows, source.rows_per_block(block_bytes)
        self._edges = np.append(np.arange(0, n, size), n)
        self._length, self._scale = n, 1.0
        self._before = self._edges.astype(np.float64)
        if weights is not None:
            sums = np.cumsum(np.add.reduceat(weights, self._edges[:-1]))
            self._length = int(np.count_nonzero(weights))
            self._scale = self._length / float(sums[-1])
            self._before = np.concatenate([[0.0], sums * self._scale])
            self._before[-1] = self._length

    def _read(self) -> Generator[Part, None, None]:
        steps, planned = itertools.tee(self._steps())
        edges = self._edges.tolist()
        for block in self._source.read_ahead((edges[k], edges[k + 1]) for k, _, _, _ in planned):
            k, epoch, shift, given = next(steps)
            places = self._places(k, epoch, shift)[given:]
            part = block.start + places, RowsAt(block.values, places)
            del block
            yield part
            del part

    def _steps(self) -> Iterator[tuple[int, int, float, int]]:
        """Blocks from the present position on, their pass, its shift, and draws given already."""
        epoch, given = divmod(self._position, self._length)
        while True:
            rng = np.random.default_rng([self._seed, epoch])
            n_blocks = len(self._edges) - 1
            order = np.arange(n_blocks) if self._in_order else rng.permutation(n_blocks)
            shift = float(rng.random()) if self._weights is not None else 0.0
            counts = np.diff(np.floor(self._before + shift)).astype(np.int64)[order]
            ends = np.cumsum(counts)
            for step in np.flatnonzero((ends > given) & (counts > 0)).tolist():
                begin = int(ends[step] - counts[step])
                yield int(order[step]), epoch, shift, max(given - begin, 0)
            epoch, given = epoch + 1, 0

    def _places(self, k: int, epoch: int, shift: float) -> NDArray[np.int64]:
        """Places in a block of the rows that a pass draws from it, in their order."""
        start, stop = self._edges[k : k + 2].tolist()
        places = np.arange(stop - start)
        if self._weights is not None:
            weights = self._weights[start:stop]
            first, last = np.floor(self._before[k : k + 2] + shift).tolist()
            drawn = np.floor(self._before[k] + np.cumsum(weights) * self._scale + shift)
            drawn = np.clip(drawn, first, last)
            # Sums of the blocks are rounded in another way.
            drawn[np.flatnonzero(weights)[-1] :] = last
            places = np.repeat(places, np.diff(drawn, prepend=first).astype(np.int64))
        if self._in_order:
            return places
        return np.random.default_rng([self._seed, epoch, start]).permutation(places)


class _ByPasses(_Streamed):
    """Rows in no random order: drawn before a pass, brought by it, given out in random order.

    Where there is room for all rows, one pass brings them. Where there is not even room for the
    rows that are used together, they are drawn for themselves and given out as the pass reads them.
    """

    def __init__(
        self,
        source: RowSource,
        block_bytes: int,
        seed: int,
        position: int,
        *,
        sample: int,
        room: int,
        weights: NDArray[np.float64] | None,
        look: Callable[[], None],
    ) -> None:
        super().__init__(source, block_bytes, seed, position)
        self._room, self._size = room, max(sample, room)
        self._shares, self._look = _shares(weights), look

    def _read(self) -> Generator[Part, None, None]:
        n, rows = self._source.n_rows, None
        if self._room >= n:
            rows = self._brought(np.arange(n))
        number, given = divmod(self._position, self._size)
        as_read = self._size > self._room
        if as_read and given:  # a part of them, in their own order, is no random sample
            number, given = number + 1, 0
        while True:
            rng = np.random.default_rng([self._seed, number])
            indices = np.sort(_drawn(rng, self._size, n, self._shares))
            if as_read:
                yield from self._as_read(indices)
            else:
                order = rng.permutation(self._size)[given:]
                if rows is None:
                    part = indices[order], RowsAt(self._brought(indices), order)
                else:
                    part = indices[order], RowsAt(rows, indices[order])
                yield part
                del part
            number, given = number + 1, 0

    def _as_read(self, indices: NDArray[np.int64]) -> Iterator[Part]:
        """Yield rows at ascending `indices` as a pass reads them."""
        for block, held in self._source.blocks_with(indices, self._block_bytes):
            self._look()
            part = held, RowsAt(block.values, held - block.start)
            del block
            yield part
            del part

    def _brought(self, indices: NDArray[np.int64]) -> Rows:
        """Rows at ascending `indices`, read in one pass."""
        source, done = self._source, 0
        pieces: list[Any] = []
        out = np.empty((0 if source.is_sparse else len(indices), source.n_columns), source.dtype)
        for held, rows in self._as_read(indices):
            if source.is_sparse:
                pieces.append(rows.rows[rows.places])
            else:
                part = out[done : done + len(held)]
                # Without "clip" it would be copied once more.
                np.take(rows.rows, rows.places, axis=0, out=part, mode="clip")
            done += len(held)
            del rows
        found: Rows = out
        if source.is_sparse:
            found = stack_rows(pieces, source.n_columns, source.dtype, sparse=True)
        return found


def room_for(source: RowSource, n_bytes: float) -> int:
    """Rows that may be held between two passes in so many bytes."""
    # Sparse ones are in memory twice while they are joined.
    copies = 2 if source.is_sparse else 1
    return int(n_bytes / (copies * source.bytes_per_row + DRAWN_BYTES))


def _shares(weights: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if weights is None else np.cumsum(weights)


def _drawn(
    rng: np.random.Generator, count: int, n_rows: int, shares: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Draw rows with replacement, by weights where there are sums of them."""
    if shares is None:
        return rng.integers(0, n_rows, count)
    points = rng.random(count) * shares[-1]
    indices: NDArray[np.int64] = np.searchsorted(shares, points, side="right")
    return indices
