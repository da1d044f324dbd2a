"""ClusterExecutor: passes over the rows, and products among some of them, by a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.executors import tasks
from bigsvm.executors.audit import Auditor, SumsAudit
from bigsvm.executors.executor import Executor, Partial, WeightedRows
from bigsvm.executors.messages import Ascending, Chosen
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import Expected
from bigsvm.executors.sizing import SHARE_MOVED
from bigsvm.executors.units import BANDWIDTH, chosen, units_of
from bigsvm.executors.workforce import Call
from bigsvm.gram.partners import PARTNERS_PER_TILE, in_whole_tiles, rows_at, weighted_rows
from bigsvm.gram.tiles import value_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.messages import Unit
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
        Rows to compute sums for. Workers open them again if they can, else units are sent. Where
        the source has them in another order than workers read them in, its order is that of the
        results.
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
        self._units, self._places = units_of(workforce, source)
        self._auditor = Auditor(self._units.again, tiles)
        self._block_bytes, self.is_sparse = block_bytes, source.is_sparse
        self._sent = self._units.open_job(tiles)
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
            lambda number: np.arange(*spans[number]), exact=True,
            among=support if self._places is None else self._places[support],
        )  # fmt: skip
        summed = self._summed(weighted.n, calls, weighted, "bigsvm-certificate", audit)
        self.tiles.n_evaluations += summed.evaluations
        return summed.sums

    @property
    def unit_rows(self) -> int:
        """Most rows of a unit."""
        return self._units.most_rows

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
        run = self._run_units if self._places is None else self._run_anywhere
        wall, traffic = time.monotonic(), self._force.traffic
        for partial in run(weighted, start=start, stop=stop, skip=skip, initial=initial):
            traffic.rows_swept += partial.stop - partial.start
            traffic.bytes_swept += partial.added.nbytes
            yield partial._replace(seconds=time.monotonic() - wall)
            wall = time.monotonic()

    def _run_anywhere(
        self, weighted: WeightedRows, *, start: int, stop: int, skip: I8 | None, initial: F8 | None
    ) -> Iterator[Partial]:
        """Yield the sums of rows that may be in any units, as many at a time as there is room."""
        exact = bool(self.tiles.dtype == np.float64)
        step = max(self.unit_rows, self._block_bytes // (8 * max(weighted.n_functions, 1)))
        for low in range(start, stop, step):
            high = min(low + step, stop)
            rows, kept = np.arange(low, high), None
            if skip is not None and len(inside := _between(skip, low, high)):
                rows = np.delete(rows, inside - low)
                kept = rows - low
            if not len(rows):
                continue
            first = initial if initial is None or len(initial) == 1 else initial[rows]
            summed = self._at_rows(rows, weighted, first, exact=exact, is_pass=True)
            yield Partial(low, high, kept, *summed[:2], 0.0, summed.cpu_seconds)

    def _run_units(
        self, weighted: WeightedRows, *, start: int, stop: int, skip: I8 | None, initial: F8 | None
    ) -> Iterator[Partial]:
        """Yield the sums of rows that are in one unit after the other."""
        calls: list[Call] = []
        spans, sizes, step = [], [], self._rows_per_task(weighted)
        exact = bool(self.tiles.dtype == np.float64)
        units = list(self._units.between(start, stop))
        for number, unit in enumerate(units):
            if number >= len(units) - LAST_UNITS * self.threads:
                step = min(step, -(-self.unit_rows // LAST_PARTS))
            for low in range(max(unit.start, start), min(unit.stop, stop), step):
                high = min(low + step, unit.stop, stop)
                inside = np.empty(0, np.int64) if skip is None else _between(skip, low, high)
                if len(inside) == high - low:
                    continue
                skipped = Ascending.of(inside - low) if len(inside) else None
                some = Chosen(low, high, skipped=skipped)
                first = initial
                if initial is not None and len(initial) > 1:
                    first = np.delete(initial[low:high], inside - low, axis=0)
                seconds = self._seconds_of(high - low - len(inside), weighted, exact=exact)
                calls.append(
                    Call(
                        tasks.add_up, unit, (some, first, exact),
                        _sums(high - low - len(inside), weighted), seconds=seconds,
                        may_move=seconds > self._seconds_to_read(unit),
                    )
                )  # fmt: skip
                spans.append(some)
                sizes.append(high - low - len(inside))
        audit = self._audit(
            calls, weighted, sizes, lambda number: spans[number].kept(), exact, True
        )
        results = self._run(calls, weighted, self._name, audit)
        for some, done in zip(spans, results, strict=True):
            kept = None if some.skipped is None else some.kept() - some.start
            yield Partial(*some[:2], kept, done.values, done.evaluations, 0.0, done.cpu_seconds)

    def _audit(
        self, calls: list[Call], weighted: WeightedRows, sizes: list[int],
        rows_of: Callable[[int], I8], exact: bool, is_pass: bool,
    ) -> SumsAudit:  # fmt: skip
        """Choose sums that are computed again; those of a pass are of the same rows in each."""

        def probes(number: int) -> I8:
            rows, among = rows_of(number), self._units.again.probes
            inside = _between(among, int(rows[0]), int(rows[-1]) + 1)
            return np.flatnonzero(np.isin(rows, inside)) if len(inside) else inside

        return SumsAudit(
            self._auditor, weighted, sizes, rows_of, exact=exact,
            initial_of=lambda number: calls[number].arguments[1],
            preferred=probes if is_pass else None,
        )  # fmt: skip

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
            summed = self._at_rows(rows, part, sums, exact=exact)
            self.tiles.n_evaluations += summed.evaluations
            sums = summed.sums
        assert sums is not None
        return sums

    def _at_rows(
        self, rows: I8, weighted: WeightedRows, initial: F8 | None, *, exact: bool,
        is_pass: bool = False,
    ) -> _Summed:  # fmt: skip
        """Go on with sums over weighted rows for which every worker has memory."""
        order: I8 | None = None
        if self._places is not None:
            numbers = self._places[rows]
            order = np.argsort(numbers)
            rows = numbers[order]
            if initial is not None and len(initial) > 1:
                initial = initial[order]
        asked: list[I8] = []
        calls: list[Call] = []
        begun = 0
        step = self._rows_per_task(weighted)
        for unit, some in self._units.of_rows(rows, step):
            seconds = self._seconds_of(len(some), weighted, exact=exact)
            first = initial
            if initial is not None and len(initial) > 1:
                first = initial[begun : begun + len(some)]
            given, expected = (chosen(some), first, exact), _sums(len(some), weighted)
            calls.append(Call(tasks.add_up, unit, given, expected, seconds=seconds))
            asked.append(some)
            begun += len(some)
        name = "bigsvm-certificate" if exact else "bigsvm-active"
        sizes = [len(some) for some in asked]
        audit = self._audit(calls, weighted, sizes, asked.__getitem__, exact, is_pass)
        return self._summed(
            len(rows), calls, weighted, self._name if is_pass else name, audit, order
        )

    def take(self, indices: I8) -> Rows:
        """Rows at `indices` (any order), in that order; workers read them."""
        return self._units.take(indices if self._places is None else self._places[indices])

    # -- in between ------------------------------------------------------------------------------

    def _run(
        self, calls: list[Call], weighted: WeightedRows, name: str, audit: SumsAudit
    ) -> Iterator[Any]:
        n_functions = max(weighted.n_functions, 1)
        each = 8 * n_functions * min(self.unit_rows, SUMS_PER_TASK // n_functions + 1)
        ahead = max(self._block_bytes // each, 2 * self.threads)
        under_way = Pass(
            self._force, self._sent, calls, audit.sent, name=name, fill=self._units.fill,
            audit=audit,
        )  # fmt: skip
        return under_way.in_order(ahead=ahead)

    def _summed(
        self, n_rows: int, calls: list[Call], weighted: WeightedRows, name: str, audit: SumsAudit,
        order: I8 | None = None,
    ) -> _Summed:  # fmt: skip
        """Put the sums of all calls in one array, at these places if given."""
        sums, first = np.empty((n_rows, *weighted.sums_shape)), 0
        evaluations, cpu_seconds = 0, 0.0
        for done in self._run(calls, weighted, name, audit):
            sums[first : first + len(done.values)] = done.values
            first += len(done.values)
            evaluations += done.evaluations
            cpu_seconds += done.cpu_seconds
        if order is not None:
            found, sums = sums, np.empty_like(sums)
            sums[order] = found
        return _Summed(sums, evaluations, cpu_seconds)

    def _rows_per_task(self, weighted: WeightedRows) -> int:
        by_values = EVALUATIONS_PER_TASK // max(weighted.n, 1)
        return max(1, min(by_values, SUMS_PER_TASK // max(weighted.n_functions, 1)))


class _Summed(NamedTuple):
    """Sums of some rows, and what they have cost."""

    sums: F8
    evaluations: int
    cpu_seconds: float


def _sums(n_rows: int, weighted: WeightedRows) -> Expected:
    """Return what is expected of a task that adds up products for some rows."""
    return Expected((n_rows, *weighted.sums_shape), may_overflow=True)


def _between(numbers: I8, start: int, stop: int) -> I8:
    """Ascending numbers that are in ``start … stop - 1``."""
    return numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)]


def _gathered(support: I8, weights: F8, gather: Gather, at_once: int) -> WeightedRows:
    return WeightedRows(weights, lambda places: rows_at(gather(support[places])), at_once=at_once)
