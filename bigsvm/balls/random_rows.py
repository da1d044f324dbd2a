"""Random rows of a source, in any order of its rows and from any kind of storage.

The probability of a row is proportional to its weight. The sequence depends only on the seed, the
position and the sizes of blocks and memory, so that a resumed run draws the same rows. There are
three ways to draw:

* rows in memory are drawn one by one, with replacement;
* rows in random order come block by block, in a random order of the blocks;
* other rows are drawn with replacement too, for one pass at a time up to the memory limit, and one
  pass reads them. A block of them is not a random sample: they may be sorted by class.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt, stack_rows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any, TypeAlias

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows

    Part: TypeAlias = tuple[I8, RowsAt]
    """Indices of some rows, and these rows."""

ROWS_AT_ONCE = 1 << 14
"""Most rows that are given out together."""
DRAWN_BYTES = 40
"""Bytes per row drawn in a pass, besides the row: its index, its place in the random order, and
room for sorting them."""


def random_rows(
    source: RowSource,
    block_bytes: int,
    seed: int,
    position: int,
    *,
    sample: int,
    most_held: int = 0,
    weights: F8 | None = None,
) -> RandomRows:
    """Make an endless sequence of random rows.

    Parameters
    ----------
    block_bytes : int
        For the two blocks that exist at once.
    position : int
        Rows that have been given out before.
    sample : int
        Number of rows that are used together, in any order. If it is the number of all rows, the
        rows come in their own order.
    most_held : int
        Most rows that are held between two passes over rows in no random order.
    weights : (n,) float64, optional
        0 or more; a row of weight 2 counts as two rows, one of weight 0 is never drawn. Ignored if
        all rows come in order.
    """
    in_order = sample >= source.n_rows
    kind: type[RandomRows] = _ByPasses
    if source.row_alignment <= 1:
        kind = _InMemory
    elif in_order or source.is_shuffled:
        kind = _ByBlocks
    return kind(
        source, block_bytes, seed, position,
        in_order=in_order, weights=None if in_order else weights,
        most_held=most_held, size=max(sample, most_held),
    )  # fmt: skip


class RandomRows(ABC):
    """An endless sequence of random rows, or of rows in their own order; see `random_rows`.

    `size` rows are drawn together, of which at most `most_held` are held.
    """

    def __init__(
        self,
        source: RowSource,
        block_bytes: int,
        seed: int,
        position: int,
        *,
        in_order: bool,
        weights: F8 | None,
        most_held: int,
        size: int,
    ) -> None:
        self._source, self._block_bytes = source, block_bytes
        self._seed, self._position = seed, position
        self._in_order, self._weights = in_order, weights
        self._most_held, self._size = most_held, size
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare to draw."""

    def draw(self, count: int) -> Iterator[Part]:
        """Yield the next `count` rows and their indices, in parts."""
        while count > 0:
            part = self._next(min(count, ROWS_AT_ONCE))
            drawn = len(part[0])
            yield part
            del part  # free these rows before the next are read
            self._position += drawn
            count -= drawn

    @abstractmethod
    def _next(self, most: int) -> Part:
        """Rows from the current position on, at least one."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading."""


class _InMemory(RandomRows):
    """Rows in memory, drawn one by one, or in order from the position on."""

    def _prepare(self) -> None:
        self._shares = _shares(self._weights)

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
        """Do nothing: no thread reads."""


class _Streamed(RandomRows):
    """Rows that must be read: parts of any size, which are split into smaller ones."""

    def _prepare(self) -> None:
        self._parts = self._read()
        self._rest: Part | None = None

    @abstractmethod
    def _read(self) -> Generator[Part, None, None]:
        """Yield rows from the current position on, without end."""

    def _next(self, most: int) -> Part:
        part, self._rest = self._rest or next(self._parts), None
        indices, rows = part
        if len(indices) > most:
            self._rest = indices[most:], RowsAt(rows.rows, rows.places[most:])
        return indices[:most], RowsAt(rows.rows, rows.places[:most])

    def close(self) -> None:
        """Release the rows and the reading thread."""
        self._rest = None
        self._parts.close()


class _ByBlocks(_Streamed):
    """Rows of a source in random order, block by block, with blocks and their rows shuffled.

    The number of draws of a pass is the number of rows with a weight. A row is drawn in proportion
    to its weight, rounded up or down at random; with weights 0 and 1, each row of weight 1 once.
    """

    def _prepare(self) -> None:
        super()._prepare()
        weights, n = self._weights, self._source.n_rows
        size = self._source.rows_per_block(self._block_bytes)
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
        """Blocks from the current position on, their pass, its shift, and draws already given."""
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

    def _places(self, k: int, epoch: int, shift: float) -> I8:
        """Places in a block of the rows that a pass draws from it, in the order of the draws."""
        start, stop = self._edges[k : k + 2].tolist()
        places = np.arange(stop - start)
        if self._weights is not None:
            weights = self._weights[start:stop]
            first, last = np.floor(self._before[k : k + 2] + shift).tolist()
            drawn = np.floor(self._before[k] + np.cumsum(weights) * self._scale + shift)
            drawn = np.clip(drawn, first, last)
            # The sums over blocks are rounded differently, so the last draw is set.
            drawn[np.flatnonzero(weights)[-1] :] = last
            places = np.repeat(places, np.diff(drawn, prepend=first).astype(np.int64))
        if self._in_order:
            return places
        return np.random.default_rng([self._seed, epoch, start]).permutation(places)


class _ByPasses(_Streamed):
    """Rows in any order: drawn before a pass, read by it, and given out in random order.

    If all rows fit in memory, one pass reads them. If not even one sample fits, each sample is
    drawn separately, and its rows are given out in the order in which the pass reads them.
    """

    def _read(self) -> Generator[Part, None, None]:
        shares = _shares(self._weights)
        n, rows = self._source.n_rows, None
        if self._most_held >= n:
            rows = self._brought(np.arange(n))
        number, given = divmod(self._position, self._size)
        as_read = self._size > self._most_held
        if as_read and given:  # a part of a sample in reading order is not a random sample
            number, given = number + 1, 0
        while True:
            rng = np.random.default_rng([self._seed, number])
            indices = np.sort(_drawn(rng, self._size, n, shares))
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

    def _as_read(self, indices: I8) -> Iterator[Part]:
        """Yield rows at ascending `indices` as a pass reads them."""
        for block, held in self._source.blocks_with(indices, self._block_bytes):
            check_interrupt()
            part = held, RowsAt(block.values, held - block.start)
            del block
            yield part
            del part

    def _brought(self, indices: I8) -> Rows:
        """Rows at ascending `indices`, read in one pass."""
        source, done = self._source, 0
        pieces: list[Any] = []
        out = np.empty((0 if source.is_sparse else len(indices), source.n_columns), source.dtype)
        for held, rows in self._as_read(indices):
            if source.is_sparse:
                pieces.append(rows.rows[rows.places])
            else:
                part = out[done : done + len(held)]
                # Without mode="clip" NumPy makes another copy.
                np.take(rows.rows, rows.places, axis=0, out=part, mode="clip")
            done += len(held)
            del rows
        if source.is_sparse:
            return stack_rows(pieces, source.n_columns, source.dtype, sparse=True)
        return out


def most_rows_in(source: RowSource, n_bytes: float) -> int:
    """Count the rows that `n_bytes` can hold between two passes."""
    # Sparse rows are in memory twice while they are joined.
    copies = 2 if source.is_sparse else 1
    return int(n_bytes / (copies * source.bytes_per_row + DRAWN_BYTES))


def _shares(weights: F8 | None) -> F8 | None:
    return None if weights is None else np.cumsum(weights)


def _drawn(rng: np.random.Generator, count: int, n_rows: int, shares: F8 | None) -> I8:
    """Draw rows with replacement, by cumulative weights if there are any."""
    if shares is None:
        return rng.integers(0, n_rows, count)
    points = rng.random(count) * shares[-1]
    indices: I8 = np.searchsorted(shares, points, side="right")
    return indices
