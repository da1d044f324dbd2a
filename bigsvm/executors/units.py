"""Units: how the rows of a source are divided among workers, and how a worker gets them."""

from __future__ import annotations

import itertools
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.rows import bytes_of, stack_rows
from bigsvm.data.wrappers import ChosenRows
from bigsvm.executors import tasks
from bigsvm.executors.audit import RowsAudit, RowsReadAgain
from bigsvm.executors.messages import Ascending, Chosen, Job, Unit
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import Expected
from bigsvm.executors.sizing import SENT_UNIT_BYTES, UNIT_BYTES, rows_of_units
from bigsvm.executors.workforce import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.messages import SentJob
    from bigsvm.executors.workforce import Workforce
    from bigsvm.gram import KernelTiles

UNITS_OF_MEMORY = 32
"""Units that a worker has room for at least: it keeps whole ones, and reads one beside them."""
BANDWIDTH = 1e9
"""Bytes a second between the coordinator and its workers."""


class Units:
    """The units of the rows of a source, which workers read, have, or are sent.

    Attributes
    ----------
    source : RowSource
        It is not one whose rows workers send: this process reads it itself.
    is_sent : bool
        Whether units are sent from here.
    again : RowsReadAgain
        The rows as this process reads them to check workers.
    """

    def __init__(self, workforce: Workforce, source: RowSource) -> None:
        self._force, self.source, self._name = workforce, source, uuid.uuid4().hex
        self._portable = source.portable()
        self._blocks = None if self._portable is not None else source.remote_blocks()
        self.is_sent = self._portable is None and self._blocks is None
        self.again = RowsReadAgain(source, workforce.traffic, lambda: workforce.n_threads)
        self._align = max(1, (self._portable or source).row_alignment)
        if self._blocks is not None:
            for start, address in self._blocks.holders().items():
                (unit,) = self.between(start, start + 1)
                workforce.owners[self._name, unit.start, unit.stop] = address

    def open_job(self, tiles: KernelTiles | None = None) -> SentJob:
        """Describe the rows, and a kernel, for workers."""
        convert = None if self._blocks is None else self._blocks.convert
        kernel, centre, offset = None, None, 0.0
        if tiles is not None:
            kernel, centre, offset = tiles.kernel, tiles.centre, tiles.offset
        job = Job(self._portable, kernel, centre, offset, self.source.is_sparse, convert)
        return self._force.open_job(job, rows=self._name)

    @property
    def fill(self) -> Callable[[Unit], tuple[Unit, int]] | None:
        """Give a unit its rows, where workers do not read them; see `Pass`."""
        return self._with_rows if self._portable is None else None

    def _with_rows(self, unit: Unit) -> tuple[Unit, int]:
        """Return a unit with its rows, or with Dask's future of them; and the bytes to send."""
        if self._blocks is not None:
            return unit._replace(rows=self._blocks.future(unit.start)), 0
        rows = self.source.read(unit.start, unit.stop)
        return unit._replace(rows=rows), bytes_of(rows)

    @cached_property
    def edges(self) -> I8:
        """First row of each unit, then the number of rows; by the workers there are at first."""
        if self._blocks is not None:
            return self._blocks.edges
        n_rows, unit_bytes = self.source.n_rows, SENT_UNIT_BYTES if self.is_sent else UNIT_BYTES
        if self._force.memory:
            unit_bytes = min(unit_bytes, self._force.memory // UNITS_OF_MEMORY)
        size = rows_of_units(
            self.source, self._force.n_threads, most_bytes=unit_bytes, align=self._align
        )
        return np.append(np.arange(0, n_rows, size), n_rows)

    @cached_property
    def most_rows(self) -> int:
        """Most rows of a unit."""
        return int(np.diff(self.edges).max())

    def between(self, start: int, stop: int) -> Iterator[Unit]:
        """Yield the units that have rows ``start … stop - 1``."""
        first = int(np.searchsorted(self.edges, start, side="right")) - 1
        for low, high in itertools.pairwise(self.edges[first:].tolist()):
            if low >= stop:
                return
            yield Unit(low, high)

    def of_rows(self, rows: I8, most: int) -> Iterator[tuple[Unit, I8]]:
        """Yield each unit that has some of the ascending rows, and at most `most` that it has."""
        places = np.searchsorted(rows, self.edges)
        for k in np.flatnonzero(np.diff(places)).tolist():
            unit = Unit(int(self.edges[k]), int(self.edges[k + 1]))
            for low in range(places[k], places[k + 1], most):
                yield unit, rows[low : min(low + most, places[k + 1])]

    # -- what they tell this process ---------------------------------------------------------------

    def take(self, indices: I8) -> Rows:
        """Rows at `indices` (any order), in that order; workers read them and send them here."""
        order, source = np.argsort(indices, kind="stable"), self.source
        most = max(1, int(SENT_UNIT_BYTES / max(source.bytes_per_row, 1.0)))
        asked: list[I8] = []
        calls = []
        for unit, some in self.of_rows(indices[order], most):
            seconds = len(some) * source.bytes_per_row / BANDWIDTH
            expected = Expected((len(some), source.n_columns), source.dtype, source.is_sparse)
            calls.append(Call(tasks.take_rows, unit, (chosen(some),), expected, seconds=seconds))
            asked.append(some)
        results, pieces = self._results(calls, "bigsvm-take", RowsAudit(self.again, asked)), []
        rows = np.empty((0 if source.is_sparse else len(indices), source.n_columns), source.dtype)
        first = 0
        for values in results:
            self._force.traffic.bytes_fetched += bytes_of(values)
            if source.is_sparse:
                pieces.append(values)
            else:
                rows[order[first : first + len(values)]] = values
                first += len(values)
        if not source.is_sparse:
            return rows
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return sp.csr_array(stack_rows(pieces, source.n_columns, source.dtype, sparse=True)[back])

    def values(
        self, function: Callable[[Rows], NDArray[Any]], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Return a function of all rows, (n,), with a value for each that depends on it alone."""
        units = list(self.between(0, self.source.n_rows))
        calls = [
            Call(
                tasks.values_of_rows, unit, (function,), Expected((unit.stop - unit.start,), dtype)
            )
            for unit in units
        ]
        audit = RowsAudit(self.again, [np.arange(*unit[:2]) for unit in units], function)
        return np.concatenate(list(self._results(calls, "bigsvm-rows", audit)))

    @cached_property
    def _job(self) -> SentJob:
        return self.open_job()

    def _results(self, calls: list[Call], name: str, audit: RowsAudit) -> Iterator[Any]:
        under_way = Pass(self._force, self._job, calls, name=name, fill=self.fill, audit=audit)
        for done in under_way.in_order(ahead=2 * self._force.n_threads):
            yield done.values


def units_of(workforce: Workforce, source: RowSource) -> tuple[Units, I8 | None]:
    """Return the units of what workers read for the rows of a source, and the place of each row.

    The places are None where the rows are those of the units. They are not where the source has
    them in another order: a block of random rows is in all chunks of a store.
    """
    base, chosen_rows = source.placed()
    places = None if chosen_rows is None else chosen_rows.astype(np.int64)
    if not _are_elsewhere(base):
        base, places = source, None  # they are sent in the order of the source
    elif places is not None and base.portable() is not None:
        ascending = np.sort(places)
        is_in_order = np.array_equal(ascending, places)
        places = None if is_in_order else np.searchsorted(ascending, places)
        if len(ascending) < base.n_rows:
            base = ChosenRows(base, ascending)
    known = workforce.units.get(id(base))
    if known is None or known.source is not base:
        known = workforce.units[id(base)] = Units(workforce, base)
    return known, places


def _are_elsewhere(source: RowSource) -> bool:
    """Whether workers read the rows of a source, or have them."""
    return source.portable() is not None or source.remote_blocks() is not None


def chosen(numbers: I8) -> Chosen:
    """Choose rows by ascending numbers."""
    first, stop = int(numbers[0]), int(numbers[-1]) + 1
    if stop - first == len(numbers):
        return Chosen(first, stop)
    return Chosen(first, stop, listed=Ascending.of(numbers))
