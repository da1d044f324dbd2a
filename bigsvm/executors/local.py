"""Passes on the threads of this process, and what all executors share: blocks and their sums."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.gram.tiles import EVALUATIONS_AT_ONCE
from bigsvm.gram.weights import WEIGHTS_PER_EVALUATION, FunctionWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.gram import KernelTiles, Partners
    from bigsvm.gram.weights import Floats, Weights

VALUES_AT_ONCE = 1 << 21
"""Most sums of a block, 16 MB; a single row may have more."""
WORTH_SKIPPING = 0.02
"""Share of skipped rows from which it is cheaper to leave them out of their block."""


class Block(NamedTuple):
    """Rows ``start … stop - 1`` of a source, or those of them at the places `kept`."""

    start: int
    stop: int
    kept: I8 | None
    rows: RowsAt


class Partial(NamedTuple):
    """What a pass adds to the rows of a block, and what computing it has cost.

    Attributes
    ----------
    start, stop : int
        Rows of the block.
    kept : (m,) int64 or None
        Places of the rows with sums, counted from `start`; None for all rows of the block.
    added : (m,) or (m, k) float64
        Sums over the kernel values of each row.
    evaluations : int
        Kernel values computed.
    seconds, cpu_seconds : float
        Since the last block: reading and computing, and the CPU time of all threads meanwhile.
    """

    start: int
    stop: int
    kept: I8 | None
    added: F8
    evaluations: int
    seconds: float
    cpu_seconds: float


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


class LocalExecutor:
    """Computes passes on the threads of this process; the next block is read ahead.

    Parameters
    ----------
    tiles : KernelTiles
        Its count of evaluations does not change: each `Partial` has its own.
    block_bytes : int
        Bytes for the two blocks that exist at once.

    Attributes
    ----------
    is_sparse : bool
        Whether rows are sparse.
    """

    def __init__(self, source: RowSource, tiles: KernelTiles, *, block_bytes: int) -> None:
        self._source, self._block_bytes = source, block_bytes
        self._tiles = tiles.with_threads(tiles.threads)
        self.threads, self.is_sparse = tiles.threads, source.is_sparse

    def run(
        self,
        partners: Partners,
        weights: Weights,
        *,
        start: int,
        stop: int,
        skip: I8 | None = None,
        initial: F8 | None = None,
    ) -> Iterator[Partial]:
        """Yield ``K(rows, partners) @ weights`` for rows ``start … stop - 1``, block by block.

        Parameters
        ----------
        partners : Partners
            (p) working-set rows or support vectors.
        weights : (p,) float64; or (p, k) of k functions, dense or CSR
        skip : (s,) int64, optional
            Ascending rows that may be left out.
        initial : (n_rows,) or (n_rows, k) float64, optional
            Sums to start from; 0 if not given. Excludes `skip`.
        """
        prepared = self._tiles.prepared(partners, weights)
        step = rows_at_once(partners, prepared)
        wall, cpu = time.monotonic(), time.process_time()
        for block in blocks(self._source, start, stop, step, self._block_bytes, skip):
            initial_of_block = None if initial is None else initial[block.start : block.stop]
            before = self._tiles.n_evaluations
            yield Partial(
                block.start,
                block.stop,
                block.kept,
                partial_sums(self._tiles, block, partners, prepared, initial_of_block),
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


def _kept(first: int, done: int, skip: I8 | None) -> I8 | None:
    """Places of rows ``first … done - 1`` that are not skipped; None where it is nearly all."""
    if skip is None:
        return None
    inside = skip[np.searchsorted(skip, first) : np.searchsorted(skip, done)] - first
    if len(inside) < WORTH_SKIPPING * (done - first):
        return None
    kept = np.ones(done - first, np.bool_)
    kept[inside] = False
    return np.flatnonzero(kept)
