"""Passes on the threads of this process, and what all executors share: blocks and their sums."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.executors.executor import Executor, Partial
from bigsvm.gram import Partners
from bigsvm.gram.partners import WEIGHTS_PER_EVALUATION, FunctionWeights
from bigsvm.gram.tiles import EVALUATIONS_AT_ONCE
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.executor import Piece, WeightedRows
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.partners import Floats

VALUES_AT_ONCE = 1 << 21
"""Most sums of a block, 16 MB; a single row may have more."""
WORTH_SKIPPING = 0.02
"""Share of skipped rows from which it is cheaper to leave them out of a pass."""


class Block(NamedTuple):
    """Rows ``start … stop - 1`` of a source, or those of them at the places `kept`."""

    start: int
    stop: int
    kept: I8 | None
    rows: RowsAt


def partial_sums(
    tiles: KernelTiles,
    block: Block,
    partners: Partners,
    prepared: Floats | FunctionWeights,
    initial: F8 | None,
) -> F8:
    """Return ``initial + K(rows of the block, partners) @ weights``; see `KernelTiles.multiply`.

    Sums begin at 0 where `initial` is None. The bits of a row's sum depend on the row, the partners
    and `initial` alone.
    """
    shape = (prepared.n,) if isinstance(prepared, FunctionWeights) else ()
    sums = np.zeros((len(block.rows.places), *shape)) if initial is None else initial.copy()
    tiles.multiply(block.rows, partners, prepared, sums)
    return sums


class LocalExecutor(Executor):
    """Computes passes on the threads of this process; the next block is read ahead.

    Parameters
    ----------
    tiles : KernelTiles
        Its count of evaluations does not change: each `Partial` has its own.
    block_bytes : int
        Bytes for the two blocks that exist at once, and for the sums of one pass over several
        pieces.
    """

    def __init__(self, source: RowSource, tiles: KernelTiles, *, block_bytes: int) -> None:
        super().__init__(source)
        self._block_bytes = block_bytes
        self._tiles = tiles.with_threads(tiles.threads)
        self.is_sparse = source.is_sparse

    @property
    def threads(self) -> int:
        """Threads of the tiles."""
        return self._tiles.threads

    def run(
        self,
        weighted: WeightedRows,
        *,
        start: int,
        stop: int,
        skip: I8 | None = None,
        initial: F8 | None = None,
        sums_bytes: int = 0,
    ) -> Iterator[Partial]:
        """Yield the sums of rows ``start … stop - 1``, block by block; see `Executor.run`."""
        if initial is not None and len(initial) == 1:
            initial = np.broadcast_to(initial, (stop, *initial.shape[1:]))
        if weighted.is_one_piece:
            (piece,) = weighted.pieces()
            yield from self._add_piece(piece, start, stop, skip, initial)
            return
        # All pieces for some rows, then for the next ones: what is yielded is complete.
        each = 8 * max(1, weighted.n_functions)
        step = max(1, max(self._block_bytes, sums_bytes) // each)
        for low in range(start, stop, step):
            high = min(low + step, stop)
            sums = np.zeros((high - low, *weighted.sums_shape))
            if initial is not None:
                sums[:] = initial[low:high]
            cost = np.zeros(3)
            for piece in weighted.pieces():
                for partial in self._add_piece(piece, low, high, None, sums, first=low):
                    sums[partial.start - low : partial.stop - low] = partial.added
                    cost += partial.evaluations, partial.seconds, partial.cpu_seconds
                    check_interrupt()
            kept = _kept(low, high, skip)
            added = sums if kept is None else sums[kept]
            yield Partial(low, high, kept, added, int(cost[0]), float(cost[1]), float(cost[2]))

    def _add_piece(
        self,
        piece: Piece,
        start: int,
        stop: int,
        skip: I8 | None,
        initial: F8 | None,
        *,
        first: int = 0,
    ) -> Iterator[Partial]:
        """Compute the sums of one piece; `initial` begins with row `first`."""
        partners = Partners(self._tiles.values, piece.rows, for_sparse_rows=self.is_sparse)
        prepared = self._tiles.prepared(partners, piece.weights)
        step = rows_at_once(partners, prepared)
        wall, cpu = time.monotonic(), time.process_time()
        for block in blocks(self.source, start, stop, step, self._block_bytes, skip):
            begin = None
            if initial is not None:
                begin = initial[block.start - first : block.stop - first]
            before = self._tiles.n_evaluations
            yield Partial(
                block.start,
                block.stop,
                block.kept,
                partial_sums(self._tiles, block, partners, prepared, begin),
                self._tiles.n_evaluations - before,
                time.monotonic() - wall,
                time.process_time() - cpu,
            )
            wall, cpu = time.monotonic(), time.process_time()


def rows_at_once(partners: Partners, prepared: Floats | FunctionWeights) -> int:
    """Rows between two looks at the clock, whose sums do not fill the memory."""
    n_functions, each = 1, float(partners.n)
    if isinstance(prepared, FunctionWeights):
        n_functions = max(prepared.n, 1)
        each += prepared.n_weights / WEIGHTS_PER_EVALUATION
    return max(1, min(int(EVALUATIONS_AT_ONCE / max(each, 1)), VALUES_AT_ONCE // n_functions))


def blocks(
    source: RowSource, start: int, stop: int, step: int, block_bytes: int, skip: I8 | None = None
) -> Iterator[Block]:
    """Divide rows ``start … stop - 1`` into blocks of at most `step` rows.

    Rows in memory are used where they are, those of a store read ahead.
    """
    if source.row_alignment <= 1:
        for first in range(start, stop, step):
            done = min(first + step, stop)
            kept = _kept(first, done, skip)
            places = np.arange(first, done) if kept is None else first + kept
            yield Block(first, done, kept, source.lend(places))
        return
    for block, values in source.blocks(block_bytes, start=start, stop=stop):
        size = int(values.shape[0])
        for low in range(0, size, step):
            high = min(low + step, size)
            kept = _kept(block + low, block + high, skip)
            places = np.arange(low, high) if kept is None else low + kept
            yield Block(block + low, block + high, kept, RowsAt(values, places))


def worth_skipping(skip: I8 | None, n_rows: int) -> I8 | None:
    """Return the rows to skip in a pass over `n_rows`; None where they are too few."""
    return None if skip is None or len(skip) < WORTH_SKIPPING * n_rows else skip


def _kept(first: int, done: int, skip: I8 | None) -> I8 | None:
    """Places of rows ``first … done - 1`` that are not skipped; None for all of them."""
    if skip is None:
        return None
    inside = skip[np.searchsorted(skip, first) : np.searchsorted(skip, done)] - first
    if not len(inside):
        return None
    kept = np.ones(done - first, np.bool_)
    kept[inside] = False
    return np.flatnonzero(kept)
