"""The sweep: one streaming pass over the rows, ``f += K(every row, W) Δbeta[W]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.tiles.functions import WEIGHTS_PER_EVALUATION, Functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.tiles import Columns, KernelTiles
    from bigsvm.tiles.functions import Floats, Weights

EVALUATIONS_AT_ONCE = 2e8
"""Kernel evaluations between two looks at the clock: 0.1 to 0.8 seconds on two cores."""
VALUES_AT_ONCE = 1 << 21
"""Most sums of the rows between two looks: 16 MB, for several functions in memory twice. One row
may have more."""
WORTH_SKIPPING = 0.02
"""Share of rows left out from which taking the others out of their block costs less than they."""


def sweep(
    tiles: KernelTiles,
    source: RowSource,
    columns: Columns,
    weights: Weights,
    out: NDArray[np.float64],
    *,
    block_bytes: int,
    start: int = 0,
    stop: int | None = None,
    skip: NDArray[np.int64] | None = None,
    goes_on: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Add ``K(x, columns) @ weights`` to `out` for rows ``start … stop - 1``, read ahead in blocks.

    Each row's sum starts from 0 and is then added to `out`: its bits do not depend on `out`, nor on
    how rows are divided into blocks and parts.

    Parameters
    ----------
    tiles : KernelTiles
    source : RowSource
    columns : Columns
        (p) working-set rows or support vectors.
    weights : (p,) float64; or (p, k) of k functions, dense or CSR
    out : (n_rows,) or (n_rows, k) float64
        Changed in place; row by row, so that an interrupted sweep can go on where it was.
    block_bytes : int
        For the two blocks that exist at once.
    start, stop : int
        Rows before the one are done; those from the other on are left alone.
    skip : (s,) int64, optional
        Ascending rows that need not be done: their `out` is of no use to anybody.
    goes_on : bool
        Whether `out` has sums over earlier columns, from which sums go on instead of from 0.
    on_progress : callable, optional
        Told the rows done, several times a second; may raise to end the sweep there.
    """
    prepared = tiles.prepared(columns, weights)
    step = rows_at_once(columns, prepared)
    stop = source.n_rows if stop is None else stop
    for first, done, kept, rows in parts(source, start, stop, step, block_bytes, skip):
        added = out[first:done] if goes_on else np.zeros((len(rows.places), *out.shape[1:]))
        tiles.multiply(rows, columns, prepared, added)
        if kept is not None:
            out[first + kept] += added
        elif not goes_on:
            out[first:done] += added
        if on_progress is not None:
            on_progress(done)


def rows_at_once(columns: Columns, prepared: Floats | Functions) -> int:
    """Rows between two looks at the clock, whose sums do not fill the memory."""
    n_functions, each = 1, float(columns.n)
    if isinstance(prepared, Functions):
        n_functions = max(prepared.n, 1)
        each += prepared.n_weights / WEIGHTS_PER_EVALUATION
    return max(1, min(int(EVALUATIONS_AT_ONCE / max(each, 1)), VALUES_AT_ONCE // n_functions))


def parts(
    source: RowSource,
    start: int,
    stop: int,
    step: int,
    block_bytes: int,
    skip: NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, int, NDArray[np.int64] | None, RowsAt]]:
    """Yield parts of at most `step` rows: where they begin and end, which are kept, and these.

    Rows in memory are used where they are, those of a store read ahead in blocks.
    """
    if source.row_alignment <= 1:
        for first in range(start, stop, step):
            done = min(first + step, stop)
            kept = _kept(first, done, skip)
            places = np.arange(first, done) if kept is None else first + kept
            yield first, done, kept, source.lend(places)
        return
    for block, values in source.blocks(block_bytes, start=start, stop=stop):
        size = int(values.shape[0])
        for low in range(0, size, step):
            high = min(low + step, size)
            kept = _kept(block + low, block + high, skip)
            places = np.arange(low, high) if kept is None else low + kept
            yield block + low, block + high, kept, RowsAt(values, places)


def _kept(first: int, done: int, skip: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Places of rows ``first … done - 1`` that are not skipped; None where it is nearly all."""
    if skip is None:
        return None
    inside = skip[np.searchsorted(skip, first) : np.searchsorted(skip, done)] - first
    if len(inside) < WORTH_SKIPPING * (done - first):
        return None
    kept = np.ones(done - first, np.bool_)
    kept[inside] = False
    return np.flatnonzero(kept)
