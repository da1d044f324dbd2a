"""Passes over the rows: ``f += K(every row, W) Δbeta[W]``, continued where one was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigsvm.executors.local import worth_skipping
from bigsvm.executors.weighted import WeightedRows
from bigsvm.gram.partners import in_whole_tiles
from bigsvm.gram.weights import weighted_rows
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import RowsAt
    from bigsvm.executors.executor import Executor
    from bigsvm.executors.working_rows import WorkingRows
    from bigsvm.gram.weights import Weights
    from bigsvm.training.state import Counters
    from bigsvm.training.watch import Watch


class Passes:
    """Adds ``K(rows, some) @ weights`` to f of the rows of a span.

    Parameters
    ----------
    executor : Executor
        Computes what is added, block by block.
    rows : WorkingRows
        Reads the rows that kernel values are taken with.
    count : Counters
        How far a pass has got, kept up to date: a call with the same weights continues from there.
    listener, pause : callable
        Told, and called, several times a second; `pause` may raise.
    """

    def __init__(
        self,
        executor: Executor,
        plan: TrainingPlan,
        rows: WorkingRows,
        count: Counters,
        *,
        watch: Watch,
        listener: events.Listener,
        pause: Callable[[], None],
    ) -> None:
        self._executor, self._plan = executor, plan
        self._rows, self._count, self._watch = rows, count, watch
        self._listener, self._pause = listener, pause

    def add_by_pieces(
        self, weights: Weights, sums: F8, *, stop: int, start: int = 0, at_once: int = 0
    ) -> None:
        """Add the products with all rows that have a weight, in pieces that fit in memory at once.

        Rows ``start … stop - 1`` of sums, (n,) float64, are changed in place. They are 0 at first,
        and each piece adds to them, so that their bits do not depend on the size of pieces.
        Weights, (m,), belong to the first m rows. For k functions weights are (m, k), dense or CSR,
        and sums (n, k). Memory holds at least `at_once` rows.
        """
        count, size = self._count, max(self._plan.active_rows, at_once)
        rows = weighted_rows(weights)
        while count.columns_done < len(rows):
            if not count.rows_done:
                most = max(size, self._executor.partners_at_once)
                count.columns_end = min(count.columns_done + in_whole_tiles(most), len(rows))
            some = rows[count.columns_done : count.columns_end]

            def gather(places: I8, some: I8 = some) -> RowsAt:
                return self._rows.gathered(some[places]).everything()

            weighted = WeightedRows(weights[some], gather, at_once=size)
            self.add(weighted, sums, start=start, stop=stop, continues=True)
            count.columns_done, count.rows_done = count.columns_end, 0
        count.columns_done = count.columns_end = 0

    def add(
        self,
        weighted: WeightedRows,
        out: F8,
        *,
        stop: int,
        start: int = 0,
        skip: I8 | None = None,
        continues: bool = False,
    ) -> None:
        """Add ``K(row, weighted) @ weights`` to `out` for each row of the span not skipped.

        The span is ``start … stop - 1``.

        Each row's sum starts from 0 and is then added to `out`: its bits depend neither on `out`
        nor on how rows are divided into blocks. If it `continues`, the sum starts from `out`, which
        has the sums of earlier pieces.
        """
        count = self._count
        for partial in self._executor.run(
            weighted,
            start=max(start, count.rows_done),
            stop=stop,
            skip=worth_skipping(skip, stop),
            # They are 0 before the first piece, and need not be sent.
            initial=out if continues and count.columns_done else None,
        ):
            block = slice(partial.start, partial.stop)
            if continues:
                out[block] = partial.added
            elif partial.kept is None:
                out[block] += partial.added
            else:
                out[partial.start + partial.kept] += partial.added
            self._watch.add(partial, threads=self._executor.threads)
            count.rows_done = partial.stop
            self._listener(events.Sweeping(count.n_sweeps + 1, partial.stop, stop, weighted.n))
            self._pause()
            del partial  # its sums, before the next ones are computed
