"""ClusterExecutor: passes over the rows, and products among some of them, by a cluster."""

from __future__ import annotations

import itertools
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.rows import bytes_of, stack_rows
from bigsvm.executors import tasks
from bigsvm.executors.audit import Auditor, RowsAudit, SumsAudit
from bigsvm.executors.executor import Executor, Partial, WeightedRows
from bigsvm.executors.messages import Ascending, Chosen, Job, Unit
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import Expected
from bigsvm.executors.sizing import SENT_UNIT_BYTES, SHARE_MOVED, UNIT_BYTES, rows_of_units
from bigsvm.executors.workforce import Call
from bigsvm.gram.partners import PARTNERS_PER_TILE, in_whole_tiles, rows_at, weighted_rows
from bigsvm.gram.tiles import value_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.workforce import Workforce
    from bigsvm.executors.working_rows import Gather, Gathered
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.partners import Weights

EVALUATIONS_PER_TASK = 2 * 10**9
"""Most kernel values of a task: some seconds, after which it is late if its worker is silent."""
SUMS_PER_TASK = 1 << 20
"""Most sums of a task, 8 MB, as Dask sends them in one message."""
LATENCY = 5e-3
"""Seconds from sending a task to having its result, without its work."""
BANDWIDTH = 1e9
"""Bytes a second between the coordinator and its workers."""
READ_RATE = 1e8
"""Bytes a second that a worker reads: object storage and compressed chunks are not faster."""
LAST_UNITS, LAST_PARTS = 1, 4
"""Units for each thread at the end of a pass that are divided into tasks, and into how many: so all
workers end at about the same time."""


class ClusterExecutor(Executor):
    """Computes passes on workers, which read the rows themselves.

    Parameters
    ----------
    workforce : Workforce
    source : RowSource
        Rows to compute sums for. Workers open them again if they can, else units are sent.
    tiles : KernelTiles
        Their kernel, centre and offset are used, and their dtype in `run`; evaluations on workers
        are added to their count by `at_rows` and `exact_halves`.
    block_bytes : int
        Bytes for results that wait for an earlier one.
    name : str
        What the tasks of `run` are called on Dask's dashboard.
    """

    def __init__(
        self,
        workforce: Workforce,
        source: RowSource,
        tiles: KernelTiles,
        *,
        block_bytes: int,
        name: str = "bigsvm-pass",
    ) -> None:
        super().__init__(source)
        self._name = name
        self._force, self.tiles, self.traffic = workforce, tiles, workforce.traffic
        self._auditor = Auditor(source, tiles, lambda: workforce.n_threads)
        self._block_bytes, self.is_sparse = block_bytes, source.is_sparse
        portable = source.portable()
        self._blocks = None if portable is not None else source.remote_blocks()
        convert = None if self._blocks is None else self._blocks.convert
        self._sent = workforce.open_job(
            Job(portable, tiles.kernel, tiles.centre, tiles.offset, source.is_sparse, convert)
        )
        self._fill = self._with_rows if portable is None else None
        self._unit_bytes = UNIT_BYTES if portable is not None else SENT_UNIT_BYTES
        self._align = max(1, (portable or source).row_alignment)
        if self._blocks is not None:
            for start, address in self._blocks.holders().items():
                (unit,) = self._units(start, start + 1)
                workforce.owners[self._sent.name, unit.start, unit.stop] = address
        self._seconds = value_seconds(source)

    def wait_until_ready(self) -> None:
        """Wait for the first workers; see `Workforce.wait_for_workers`."""
        self._force.wait_for_workers()

    def among(
        self, rows: Gathered, at: I8, places: I8, weights: Weights, *, tiles: KernelTiles
    ) -> F8:
        """``K(at, places) @ weights`` among gathered rows; see `Products.among`."""
        moved = weighted_rows(weights)
        if not self.is_worth_sending(len(at), len(moved)):
            return super().among(rows, at, places, weights, tiles=tiles)
        held = WeightedRows.held(rows.at_places(places[moved]), weights[moved])
        exact = bool(tiles.dtype == np.float64)
        return self.at_rows(rows.indices[at], held, exact=exact)

    def exact_at(
        self, rows: I8, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(rows, support) @ weights`` in float64; see `Products.exact_at`."""
        if not self.is_worth_sending(len(rows), len(support), exact=True):
            return super().exact_at(rows, support, weights, gather, tiles=tiles, step=step)
        return self.at_rows(rows, _gathered(support, weights, gather, step), exact=True)

    def exact_halves(
        self, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(support, support) @ weights`` in float64; see `Products.exact_halves`."""
        # A task needs all support vectors: where they do not fit, this process takes part by part.
        fits = len(support) <= self.partners_at_once
        if not fits or not self.is_worth_sending(len(support), len(support), exact=True):
            return super().exact_halves(support, weights, gather, tiles=tiles, step=step)
        weighted = _gathered(support, weights, gather, step)
        width = EVALUATIONS_PER_TASK // max(4 * weighted.n, 1)
        each = max(PARTNERS_PER_TILE, in_whole_tiles(max(width, PARTNERS_PER_TILE)))
        spans = [
            (low, min(low + each, stop))
            for start, stop in weighted.spans()
            for low in range(start, stop, each)
        ]
        calls = [
            Call(tasks.add_up_halves, None, span, _sums(span[1] - span[0], weighted))
            for span in spans
        ]
        audit = SumsAudit(
            self._auditor, weighted, [stop - start for start, stop in spans],
            lambda number: np.arange(*spans[number]), exact=True, among=support,
        )  # fmt: skip
        return self._sums_of(weighted.n, calls, weighted, "bigsvm-certificate", audit)

    @cached_property
    def _edges(self) -> I8:
        """First row of each unit, then the number of rows; by the workers there are at first."""
        if self._blocks is not None:
            return self._blocks.edges
        n_rows = self.source.n_rows
        size = rows_of_units(
            self.source, self._force.n_threads, most_bytes=self._unit_bytes, align=self._align
        )
        return np.append(np.arange(0, n_rows, size), n_rows)

    @cached_property
    def unit_rows(self) -> int:
        """Most rows of a unit."""
        return int(np.diff(self._edges).max())

    @property
    def threads(self) -> int:
        """Threads of all workers."""
        return self._force.n_threads

    @property
    def partners_at_once(self) -> int:
        """Weighted rows that every worker has memory for."""
        return max(
            PARTNERS_PER_TILE,
            int(self._force.memory / SHARE_MOVED / max(self.source.bytes_per_row, 1.0)),
        )

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
        """Yield the sums of rows ``start … stop - 1``; see `Executor.run`."""
        *others, last = weighted.parts(self.partners_at_once)
        for part in others:
            sums = np.zeros((self.source.n_rows, *weighted.sums_shape))
            for partial in self._run_part(part, start=start, stop=stop, skip=skip, initial=initial):
                rows: Any = slice(partial.start, partial.stop)
                if partial.kept is not None:
                    rows = partial.start + partial.kept
                sums[rows] = partial.added
            initial = sums
        yield from self._run_part(last, start=start, stop=stop, skip=skip, initial=initial)

    def _run_part(
        self, weighted: WeightedRows, *, start: int, stop: int, skip: I8 | None, initial: F8 | None
    ) -> Iterator[Partial]:
        """Yield the sums over weighted rows for which every worker has memory."""
        calls: list[Call] = []
        spans, sizes, step = [], [], self._rows_per_task(weighted)
        exact = bool(self.tiles.dtype == np.float64)
        units = list(self._units(start, stop))
        for number, unit in enumerate(units):
            if number >= len(units) - LAST_UNITS * self.threads:
                step = min(step, -(-self.unit_rows // LAST_PARTS))
            for low in range(max(unit.start, start), min(unit.stop, stop), step):
                high = min(low + step, unit.stop, stop)
                inside = np.empty(0, np.int64) if skip is None else _between(skip, low, high)
                if len(inside) == high - low:
                    continue
                skipped = Ascending.of(inside - low) if len(inside) else None
                chosen = Chosen(low, high, skipped=skipped)
                first = initial
                if initial is not None and len(initial) > 1:
                    first = np.delete(initial[low:high], inside - low, axis=0)
                seconds = self._seconds_of(high - low - len(inside), weighted, exact=exact)
                calls.append(
                    Call(
                        tasks.add_up, unit, (chosen, first, exact),
                        _sums(high - low - len(inside), weighted), seconds=seconds,
                        may_move=seconds > self._seconds_to_read(unit),
                    )
                )  # fmt: skip
                spans.append((low, high, chosen))
                sizes.append(high - low - len(inside))
        wall = time.monotonic()

        def probes(number: int) -> I8:
            low, high, chosen = spans[number]
            inside = _between(self._auditor.probes, low, high)
            return np.flatnonzero(np.isin(chosen.kept(), inside)) if len(inside) else inside

        audit = SumsAudit(
            self._auditor, weighted, sizes,
            lambda number: spans[number][2].kept(), exact=exact,
            initial_of=lambda number: calls[number].arguments[1], preferred=probes,
        )  # fmt: skip
        results = self._run(calls, weighted, self._name, audit)
        for (low, high, some), done in zip(spans, results, strict=True):
            kept = None if some.skipped is None else some.kept() - low
            spent = time.monotonic() - wall
            self._force.traffic.rows_swept += high - low
            self._force.traffic.bytes_swept += done.values.nbytes
            yield Partial(low, high, kept, done.values, done.evaluations, spent, done.cpu_seconds)
            wall = time.monotonic()

    def _seconds_of(self, n_rows: int, weighted: WeightedRows, *, exact: bool) -> float:
        """Seconds of a product in one thread, about."""
        return n_rows * weighted.n * self._seconds * (2 if exact else 1)

    def _seconds_to_read(self, unit: Unit) -> float:
        return (unit.stop - unit.start) * self.source.bytes_per_row / READ_RATE

    def is_worth_sending(self, n_rows: int, n_partners: int, *, exact: bool = False) -> bool:
        """Whether workers have a product of so many rows and partners sooner than this process."""
        each = self._seconds * (2 if exact else 1)
        here = n_rows * n_partners * each / self.tiles.threads
        moved = n_partners * (self.source.bytes_per_row + 8) * len(self._force.ready())
        there = 2 * LATENCY + moved / BANDWIDTH + n_rows * n_partners * each / self.threads
        return n_rows > 0 and here > there

    def at_rows(self, rows: I8, weighted: WeightedRows, *, exact: bool) -> F8:
        """``K(rows, weighted) @ weights`` at ascending rows, (m,) or (m, k); float64 if `exact`."""
        sums: F8 | None = None
        for part in weighted.parts(self.partners_at_once):
            sums = self._at_rows(rows, part, sums, exact=exact)
        assert sums is not None
        return sums

    def _at_rows(self, rows: I8, weighted: WeightedRows, initial: F8 | None, *, exact: bool) -> F8:
        """Go on with sums over weighted rows for which every worker has memory."""
        asked: list[I8] = []
        calls: list[Call] = []
        begun = 0
        step = self._rows_per_task(weighted)
        for unit, some in self._by_unit(rows, step):
            seconds = self._seconds_of(len(some), weighted, exact=exact)
            first = None if initial is None else initial[begun : begun + len(some)]
            given, expected = (_chosen(some), first, exact), _sums(len(some), weighted)
            calls.append(Call(tasks.add_up, unit, given, expected, seconds=seconds))
            asked.append(some)
            begun += len(some)
        name = "bigsvm-certificate" if exact else "bigsvm-active"
        audit = SumsAudit(
            self._auditor, weighted, [len(some) for some in asked], asked.__getitem__, exact=exact,
            initial_of=lambda number: calls[number].arguments[1],
        )  # fmt: skip
        return self._sums_of(len(rows), calls, weighted, name, audit)

    def take(self, indices: I8) -> Rows:
        """Rows at `indices` (any order), in that order; workers read them."""
        order = np.argsort(indices, kind="stable")
        source, first = self.source, 0
        most = max(1, int(SENT_UNIT_BYTES / max(source.bytes_per_row, 1.0)))
        asked: list[I8] = []
        calls = []
        for unit, some in self._by_unit(indices[order], most):
            seconds = len(some) * source.bytes_per_row / BANDWIDTH
            expected = Expected((len(some), source.n_columns), source.dtype, source.is_sparse)
            calls.append(Call(tasks.take_rows, unit, (_chosen(some),), expected, seconds=seconds))
            asked.append(some)
        audit = RowsAudit(self._auditor, asked)
        if source.is_sparse:
            results = [done.values for done in self._run(calls, None, "bigsvm-take", audit)]
            back = np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
            return sp.csr_array(
                stack_rows(results, source.n_columns, source.dtype, sparse=True)[back]
            )
        rows = np.empty((len(indices), source.n_columns), source.dtype)
        for done in self._run(calls, None, "bigsvm-take", audit):
            rows[order[first : first + len(done.values)]] = done.values
            first += len(done.values)
        return rows

    # -- in between ------------------------------------------------------------------------------

    def _run(
        self,
        calls: list[Call],
        weighted: WeightedRows | None,
        name: str,
        audit: SumsAudit | RowsAudit,
    ) -> Iterator[Any]:
        n_functions = 1 if weighted is None else max(weighted.n_functions, 1)
        each = 8 * n_functions * min(self.unit_rows, SUMS_PER_TASK // n_functions + 1)
        ahead = max(self._block_bytes // each, 2 * self.threads)
        shared = audit.sent if isinstance(audit, SumsAudit) else None
        under_way = Pass(
            self._force, self._sent, calls, shared, name=name, fill=self._fill, audit=audit
        )
        return under_way.in_order(ahead=ahead)

    def _sums_of(
        self, n_rows: int, calls: list[Call], weighted: WeightedRows, name: str, audit: SumsAudit
    ) -> F8:
        """Put the sums of all calls in one array."""
        sums, first = np.empty((n_rows, *weighted.sums_shape)), 0
        for done in self._run(calls, weighted, name, audit):
            sums[first : first + len(done.values)] = done.values
            first += len(done.values)
            self.tiles.n_evaluations += done.evaluations
        return sums

    def _with_rows(self, unit: Unit) -> tuple[Unit, int]:
        """Return a unit with its rows, or with Dask's future of them; and the bytes to send."""
        if self._blocks is not None:
            return unit._replace(rows=self._blocks.future(unit.start)), 0
        rows = self.source.read(unit.start, unit.stop)
        return unit._replace(rows=rows), bytes_of(rows)

    def _units(self, start: int, stop: int) -> Iterator[Unit]:
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        for low, high in itertools.pairwise(self._edges[first:].tolist()):
            if low >= stop:
                return
            yield Unit(low, high)

    def _by_unit(self, rows: I8, most: int) -> Iterator[tuple[Unit, I8]]:
        """Yield each unit that has some of the ascending rows, and at most `most` that it has."""
        places = np.searchsorted(rows, self._edges)
        for k in np.flatnonzero(np.diff(places)).tolist():
            unit = Unit(int(self._edges[k]), int(self._edges[k + 1]))
            for low in range(places[k], places[k + 1], most):
                yield unit, rows[low : min(low + most, places[k + 1])]

    def _rows_per_task(self, weighted: WeightedRows) -> int:
        by_values = EVALUATIONS_PER_TASK // max(weighted.n, 1)
        return max(1, min(by_values, SUMS_PER_TASK // max(weighted.n_functions, 1)))


def _sums(n_rows: int, weighted: WeightedRows) -> Expected:
    """Return what is expected of a task that adds up products for some rows."""
    return Expected((n_rows, *weighted.sums_shape), may_overflow=True)


def _between(numbers: I8, start: int, stop: int) -> I8:
    """Ascending numbers that are in ``start … stop - 1``."""
    return numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)]


def _chosen(numbers: I8) -> Chosen:
    """Choose rows by ascending numbers."""
    first, stop = int(numbers[0]), int(numbers[-1]) + 1
    if stop - first == len(numbers):
        return Chosen(first, stop)
    return Chosen(first, stop, listed=Ascending.of(numbers))


def _gathered(support: I8, weights: F8, gather: Gather, at_once: int) -> WeightedRows:
    return WeightedRows(weights, lambda places: rows_at(gather(support[places])), at_once=at_once)
