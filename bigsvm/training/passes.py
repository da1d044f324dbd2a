"""Passes over the rows that add to f, and go on where one was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.tiles import Columns
from bigsvm.tiles.functions import weighted_rows
from bigsvm.training import events
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
        outputs: NDArray[np.float64],
        *,
        stop: int,
        start: int = 0,
        at_once: int = 0,
    ) -> None:
        """Add up the rows with a weight, of (m,) the first ones, as many as fit in memory at once.

        Rows ``start … stop - 1`` of outputs, (n,) float64, are changed in place. Of k functions
        weights are (m, k), dense or CSR, and outputs (n, k). For `at_once` rows there is room in
        any case.
        """
        count, size = self._count, max(self._plan.active_rows, at_once)
        rows = weighted_rows(weights)
        pieces = [rows[a : a + size] for a in range(0, len(rows), size)]
        for piece in pieces[count.pieces_done :]:
            values = self._rows.at(piece, self._watch.look).at(np.arange(len(piece)))
            self.add(values, weights[piece], outputs, start=start, stop=stop)
            count.pieces_done += 1
            count.rows_done = 0
        count.pieces_done = 0

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
            outputs,
            block_bytes=self._plan.block_bytes,
            start=max(start, count.rows_done),
            stop=stop,
            skip=skip,
            on_progress=on_progress,
        )
