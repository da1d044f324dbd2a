"""Passes over the rows that add to f, and go on where one was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.tiles import Columns
from bigsvm.tiles.columns import in_whole_tiles
from bigsvm.tiles.functions import weighted_rows
from bigsvm.training import events
from bigsvm.training.saving import check_room
from bigsvm.training.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import RowsAt, RowSource
    from bigsvm.tiles import KernelTiles
    from bigsvm.tiles.functions import Weights
    from bigsvm.training.state import Counters
    from bigsvm.training.watch import Watch
    from bigsvm.training.working_rows import WorkingRows


class Passes:
    """Adds ``K(rows, some) @ weights`` to f of the rows of a span.

    Parameters
    ----------
    source : RowSource
    tiles : KernelTiles
    plan : TrainingPlan
    rows : WorkingRows
        Brings the rows that it is with.
    count : Counters
        Where a pass is, kept up to date: whoever calls again with the same goes on from there.
    watch : Watch
    listener, pause : callable
        Told, and called, several times a second; `pause` may raise.
    """

    def __init__(
        self,
        source: RowSource,
        tiles: KernelTiles,
        plan: TrainingPlan,
        rows: WorkingRows,
        count: Counters,
        *,
        watch: Watch,
        listener: events.Listener,
        pause: Callable[[], None],
    ) -> None:
        self._source, self._tiles, self._plan = source, tiles, plan
        self._rows, self._count, self._watch = rows, count, watch
        self._listener, self._pause = listener, pause

    def add_by_pieces(
        self,
        weights: Weights,
        sums: NDArray[np.float64],
        *,
        stop: int,
        start: int = 0,
        at_once: int = 0,
    ) -> None:
        """Add up the rows with a weight, of (m,) the first ones, as many as fit in memory at once.

        Rows ``start … stop - 1`` of sums, (n,) float64, are changed in place. They are 0 at first
        and go on from piece to piece, so that their bits do not depend on how large pieces are. Of
        k functions weights are (m, k), dense or CSR, and sums (n, k). For `at_once` rows there is
        room in any case.

        Raises
        ------
        MemoryBudgetError
            An earlier process was interrupted in the middle of a larger piece.
        """
        count, size = self._count, max(self._plan.active_rows, at_once)
        rows = weighted_rows(weights)
        while count.columns_done < len(rows):
            if not count.rows_done:
                count.columns_end = min(count.columns_done + in_whole_tiles(size), len(rows))
            piece = rows[count.columns_done : count.columns_end]
            check_room(len(piece), size)
            values = self._rows.at(piece, self._watch.look).at(np.arange(len(piece)))
            self._pass(values, weights[piece], sums, start=start, stop=stop, goes_on=True)
            count.columns_done, count.rows_done = count.columns_end, 0
        count.columns_done = count.columns_end = 0

    def add(
        self,
        rows: RowsAt,
        weights: Weights,
        outputs: NDArray[np.float64],
        *,
        stop: int,
        start: int = 0,
        skip: NDArray[np.int64] | None = None,
    ) -> None:
        """Add up rows (p) by weights (p,) or (p, k), for all rows of the span but those to skip."""
        self._pass(rows, weights, outputs, start=start, stop=stop, skip=skip)

    def _pass(
        self,
        rows: RowsAt,
        weights: Weights,
        out: NDArray[np.float64],
        *,
        stop: int,
        start: int,
        skip: NDArray[np.int64] | None = None,
        goes_on: bool = False,
    ) -> None:
        """Add to f or, where a sum `goes_on`, add up to sums of earlier pieces."""
        count = self._count
        columns = Columns(self._tiles, rows, sparse_partners=self._source.is_sparse)

        def on_progress(rows_done: int) -> None:
            self._watch.end_lap()
            count.rows_done = rows_done
            self._listener(events.Sweeping(count.n_sweeps + 1, rows_done, stop, columns.n))
            self._pause()
            self._watch.start_lap()

        self._watch.start_lap()
        sweep(
            self._tiles,
            self._source,
            columns,
            weights,
            out,
            block_bytes=self._plan.block_bytes,
            start=max(start, count.rows_done),
            stop=stop,
            skip=skip,
            goes_on=goes_on,
            on_progress=on_progress,
        )
