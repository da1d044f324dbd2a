"""Passes over the rows: ``f += K(every row, W) Δbeta[W]``, continued where one was interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.executors.executor import WeightedRows
from bigsvm.executors.local import worth_skipping
from bigsvm.gram.partners import in_whole_tiles, weighted_rows
from bigsvm.training import events
from bigsvm.training.state import Phase
from bigsvm.working_sets.functions import moved_in

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.data.rows import RowsAt
    from bigsvm.executors.executor import Executor
    from bigsvm.executors.working_rows import WorkingRows
    from bigsvm.gram.partners import Weights
    from bigsvm.training.run import Run
    from bigsvm.working_sets.choice import Choice

SPARSE_VALUES = 1 << 16
"""Most columns counted per sparse row: a tile has only the columns that occur in it."""


class Passes:
    """The phases of a run that are passes: sweep, grow and fill; each changes the run.

    A pass says in the counters of the run how far it has got. The same call continues from there.
    The executor computes what is added, block by block. `rows` reads the rows that kernel values
    are taken with. The choice says how many rows take part.
    """

    def __init__(self, run: Run, executor: Executor, rows: WorkingRows, choice: Choice) -> None:
        self._run, self._executor, self._rows, self._choice = run, executor, rows, choice

    def sweep(self) -> None:
        """Bring f of the other rows of the scope up to date with the new alpha of active rows."""
        run, count = self._run, self._run.count
        if run.dual.functions and not len(run.state.active):
            self._sweep_functions()
        else:
            self._sweep_active()
        count.rows_swept += count.scope
        count.n_sweeps += run.has_all_rows
        count.solves += 1
        grows = not run.has_all_rows and self._choice.grows()
        count.phase = Phase.GROW if grows else Phase.SELECT

    def _sweep_active(self) -> None:
        """Add what the active rows have moved to f of the other rows."""
        state, count = self._run.state, self._run.count
        change = self._run.per_output(state.active_alpha - state.alpha[state.active])
        moved = weighted_rows(change)
        if len(moved) and len(state.active) < count.scope:
            rows = self._rows.gathered(state.active).at_places(moved)
            weighted = WeightedRows.held(rows, change[moved])
            self.add(weighted, state.outputs, stop=count.scope, skip=state.active)
        state.outputs[state.active] = state.active_outputs
        state.alpha[state.active] = state.active_alpha
        count.rows_done = 0

    def _sweep_functions(self) -> None:
        """Add what has moved in the functions' working sets to f of all rows."""
        run, working = self._run, self._run.state.working_set
        alpha, _ = run.of_scope()
        change = moved_in(working, alpha)
        # Rows in memory need no blocks; the memory of blocks is for partners.
        values = run.source.n_columns
        if run.source.is_sparse:
            values = min(values, SPARSE_VALUES)
        at_once = max(1, run.plan.block_bytes // (4 * values))
        run.make_room_for_sums()
        self.add_by_pieces(change, run.state.sums, stop=run.count.scope, at_once=at_once)
        alpha[working.rows, working.functions] = working.alpha
        run.state = run.state.with_sums().without_working_set()

    def grow(self) -> None:
        """Compute f of the next rows, and let them take part."""
        run, count = self._run, self._run.count
        stop = self._next_scope()
        beta = run.per_output(run.state.alpha[: count.scope])
        self.add_by_pieces(beta, run.state.outputs, start=count.scope, stop=stop)
        count.rows_swept += stop - count.scope
        self._choice.growing(stop)
        count.scope, count.solves = stop, 0
        count.phase = Phase.FILL

    def fill(self) -> None:
        """Make the variables of the scope add up to their constants, where these are not 0."""
        run, state, count = self._run, self._run.state, self._run.count
        alpha, outputs = run.of_scope()
        if not len(state.sums):
            start = alpha
            if run.start is not None and not alpha.any():
                start = run.start[: count.scope]
            filled = run.dual.filled(start, outputs)
            changed = (filled != alpha).reshape(len(alpha), -1).any(axis=1)
            active = np.flatnonzero(changed)
            run.state = state = state._replace(
                active=active, active_alpha=filled[active], active_outputs=outputs[active]
            ).without_working_set()
        if len(state.active):
            change = np.zeros_like(outputs)
            change[state.active] = run.per_output(state.active_alpha - alpha[state.active])
            run.make_room_for_sums()
            state = run.state
            self.add_by_pieces(change, state.sums, stop=count.scope)
            state.alpha[state.active] = state.active_alpha
            run.state = state.with_sums()
            count.rows_swept += count.scope
        count.phase = Phase.SELECT

    def first_scope(self) -> int:
        """Rows that take part first; they include all rows that the start has moved."""
        first, n = self._next_scope(), self._run.source.n_rows
        if self._run.start is None:
            return first
        first = max(first, int(weighted_rows(self._run.start).max(initial=-1)) + 1)
        return first if 2 * first < n else n

    def _next_scope(self) -> int:
        """Rows that take part next; all of them if no pair steps are left."""
        if not self._run.watch.steps_allowed():
            return self._run.source.n_rows
        return self._choice.scope_after(self._run.count.scope)

    # -- one pass ----------------------------------------------------------------------------

    def add_by_pieces(
        self, weights: Weights, sums: F8, *, stop: int, start: int = 0, at_once: int = 0
    ) -> None:
        """Add the products with all rows that have a weight, in pieces that fit in memory at once.

        Rows ``start … stop - 1`` of sums, (n,) float64, are changed in place. They are 0 at first,
        and each piece adds to them, so that their bits do not depend on the size of pieces.
        Weights, (m,), belong to the first m rows. For k functions weights are (m, k), dense or CSR,
        and sums (n, k). Memory holds at least `at_once` rows.
        """
        count, size = self._run.count, max(self._run.plan.active_rows, at_once)
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
        run, count = self._run, self._run.count
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
            run.watch.add(partial, threads=self._executor.threads)
            count.rows_done = partial.stop
            swept = events.Sweeping(count.n_sweeps + 1, partial.stop, stop, weighted.n)
            if (done := self._executor.traffic) is not None:
                swept = swept._replace(
                    tasks=done.tasks, bytes_sent=done.bytes_sent, bytes_returned=done.bytes_returned
                )
            run.listener(swept)
            run.pause()
            del partial  # its sums, before the next ones are computed
