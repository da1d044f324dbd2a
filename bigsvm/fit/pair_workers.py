"""PairWorkers: whole pairs of classes as tasks for the workers of a cluster.

A pair is a task where its rows and its plan fit the memory that a worker has for a task. Its plan
is that of one machine, so that it has the same bits wherever it is trained. Other pairs are trained
here, and workers do their passes.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.executors.audit import SHARE, Audit
from bigsvm.executors.messages import Ascending
from bigsvm.executors.passes import Pass
from bigsvm.executors.replies import Listed, ReplyError
from bigsvm.executors.shared import PART_BYTES, buffers_of, split
from bigsvm.executors.workforce import Call
from bigsvm.fit.pair_problems import HELD_SHARE
from bigsvm.fit.pair_tasks import PairGroup, SentBatch, SmallClasses, train_pairs
from bigsvm.one_vs_one.entries import read_entry
from bigsvm.one_vs_one.log import Solved, parts_of
from bigsvm.votes import pair_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.executors.shared import Part
    from bigsvm.fit.log_check import LogCheck
    from bigsvm.fit.pair_problems import Budget, ClassPairs
    from bigsvm.fit.trainer import Trainer
    from bigsvm.one_vs_one.class_rows import Batch, ClassRows
    from bigsvm.one_vs_one.entries import LogEntry
    from bigsvm.one_vs_one.small import SmallPairs
    from bigsvm.parameters import TrainingParameters

MOST_ROWS = 1 << 19
"""Most rows of the pairs of a task: its result has 16 bytes a row at most, 8 MB in one message."""
TASK_SECONDS = 0.3
"""Estimated seconds from which on a task is long beside what it takes to send it."""
LONG_SECONDS = 60.0
"""Estimated seconds of a pair that is a task only if all workers have such: it is lost with its
worker, or with this process, while a pair that is trained here is saved."""
DESCRIBED_ROW_BYTES = 24
"""Bytes of a row of a batch here, while it is described: numbers and classes, and their order."""
TRAITS = ("bytes_per_row", "is_shuffled", "share_drawn")
"""Attributes of a source that rows of it have to have on a worker."""


def trains_whole_pairs(trainer: Trainer, parameters: TrainingParameters) -> bool:
    """Whether there is a cluster, and it can train whole pairs of such problems."""
    keeps_rows_on_disk = parameters.disk_cache != 0 and parameters.disk_cache_bytes() > 0
    without = parameters.takes_kernel_matrix or keeps_rows_on_disk
    return trainer.workforce is not None and not without


class PairWorkers:
    """Has workers train pairs, where `trains_whole_pairs`.

    Those that `small` takes are solved together on workers, too; `check` checks results.
    """

    def __init__(
        self,
        trainer: Trainer,
        rows: ClassRows,
        problem: ClassPairs,
        budget: Budget,
        parameters: TrainingParameters,
        small: SmallPairs | None,
        check: LogCheck,
    ) -> None:
        assert trainer.workforce is not None
        job = trainer.job(rows.source)
        self._check = check
        self._force, self._job, self._rows = (
            trainer.workforce,
            trainer.workforce.open_job(job),
            rows,
        )
        self._sends_rows = job.source is None
        self._problem, self._budget, self._small = problem, budget, small
        # Workers have one thread for a task, and no files of this machine.
        self._parameters = replace(parameters, threads=1, checkpoint=None)
        self._plan = functools.cache(lambda n_rows: budget.plan(n_rows, 1))

    def batches(self) -> Iterator[Batch]:
        """Divide pairs into batches of classes whose rows a worker can hold together."""
        self._force.wait_for_workers()
        return self._rows.held_batches(self._most_rows())

    def _most_rows(self) -> float:
        """Rows that each worker can hold, and that can be described here."""
        here = HELD_SHARE * parse_bytes(self._parameters.memory) / DESCRIBED_ROW_BYTES
        each = self._rows.source.bytes_per_row + DESCRIBED_ROW_BYTES
        return min(here, HELD_SHARE * self._force.memory / each)

    def train(self, held: I8, pairs: I8) -> Iterator[tuple[int, Solved]]:
        """Train those of some pairs, (m, 2), that fit a worker, in any order.

        `held` are their classes. Yields places in `pairs` and results.
        """
        groups = self._groups(pairs)
        if not groups:
            return
        first, second = pairs.T
        all_numbers = pair_number(first, second, len(self._problem.classes))
        numbers = [all_numbers[places] for places, _ in groups]
        calls = [
            Call(
                train_pairs, None, (self._group(pairs[places], are_small=are_small),),
                Listed(len(places), functools.partial(self._fault, of_group)),
            )
            for (places, are_small), of_group in zip(groups, numbers, strict=True)
        ]  # fmt: skip
        shared = functools.partial(self._parts, held)
        audit = PairsAudit(self._check, numbers, all_tasks=self._sends_rows)
        under_way = Pass(self._force, self._job, calls, shared, name="bigsvm-pairs", audit=audit)
        for number, done in under_way.as_done():
            yield from zip(groups[number][0].tolist(), done.values, strict=True)

    def _fault(self, numbers: I8, place: int, solved: Any) -> str:
        """Return what is wrong with a result by itself."""
        try:
            assert type(solved) is Solved
            entry_of(int(numbers[place]), solved, self._rows.source.n_rows)
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
            return f"returned a wrong result of a pair ({error or type(solved).__name__})"
        return ""

    # -- which pairs, in which tasks -------------------------------------------------------------

    def _groups(self, pairs: I8) -> list[tuple[I8, bool]]:
        """Divide the pairs that are tasks into groups; says of each whether its pairs are small."""
        small = np.empty(0, np.int64) if self._small is None else self._small.taken(pairs)
        n_rows = self._rows.sizes[pairs].sum(axis=1)
        seconds = self._budget.seconds_of_pair(n_rows.astype(np.float64))
        is_small = np.zeros(len(pairs), np.bool_)
        is_small[small] = True
        # Besides the rows of a batch and their copies.
        room = self._force.memory_of_task(share=1 - 2 * HELD_SHARE)
        others = np.flatnonzero(~is_small & self._fits(n_rows, room))
        others = others[np.argsort(-seconds[others], kind="stable")]
        long = int(np.count_nonzero(seconds[others] > LONG_SECONDS))
        if long < 2 * self._force.n_threads:
            others = others[long:]
        groups = [(places, False) for places in _grouped(others, seconds, n_rows)]
        if self._small is not None and self._small.n_bytes <= room:
            # Kernel values are computed anew in each task, and solving takes as long.
            groups += [(places, True) for places in _grouped(small, seconds, n_rows)]
        return groups

    def _fits(self, n_rows: I8, room: float) -> Mask:
        """Whether pairs of so many rows are held on one machine, and fit a worker, (m,) bool."""
        sizes, of_size = np.unique(n_rows, return_inverse=True)
        is_held = self._rows.source.row_alignment <= 1
        most_here = np.inf if is_held else self._budget.most_held_rows
        fits = [
            size <= min(MOST_ROWS, most_here) and self._budget.bytes_of_pair(size) <= room
            for size in sizes.tolist()
        ]
        return np.array(fits, np.bool_)[of_size]

    def _group(self, pairs: I8, *, are_small: bool) -> PairGroup:
        sizes = np.unique(self._rows.sizes[pairs].sum(axis=1)).tolist()
        return PairGroup(pairs, are_small, {size: self._plan(size) for size in sizes})

    # -- what is sent ----------------------------------------------------------------------------

    def _parts(self, held: I8, name: str) -> Iterator[Part]:
        """Yield the problems, and the rows of some classes, ascending."""
        small, source, weights = self._small, self._rows.source, self._problem.weights
        numbers = np.concatenate([self._rows.of(one) for one in held.tolist()])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order].astype(np.int64)
        codes: Any = held.astype(np.min_scalar_type(int(held.max())))
        codes = np.repeat(codes, self._rows.sizes[held])[order]
        del order
        batch = SentBatch(
            self._problem.among(None if weights is None else weights[numbers]), self._parameters,
            self._budget.most_held_rows,
            None if small is None else SmallClasses(self._budget.small_bytes, small.most_rows),
            Ascending.of(numbers), codes, {name: getattr(source, name) for name in TRAITS},
        )  # fmt: skip
        step = max(1, int(PART_BYTES / max(source.bytes_per_row, 1.0)))
        spans = range(0, len(numbers), step) if self._sends_rows else range(0)
        rows = (source.take(numbers[low : low + step]) for low in spans)
        yield from split(name, buffers_of(batch), rows)


class PairsAudit(Audit):
    """Computes outputs of some results again; see `LogCheck`.

    `numbers` are the pairs of each task. A pair of every task is checked, or without `all_tasks` of
    some tasks only, and of the first one of each worker.
    """

    def __init__(self, check: LogCheck, numbers: list[I8], *, all_tasks: bool) -> None:
        most = len(numbers) if all_tasks else int(SHARE * len(numbers))
        super().__init__([len(some) for some in numbers], most)
        self._check, self._numbers = check, numbers

    def verify(self, number: int, worker: str, values: Any, *, exactly: bool) -> bool:
        """Check a pair of a reply; see `Audit`."""
        place = self.place(number, worker)
        if place is None:
            return False
        entry = entry_of(int(self._numbers[number][place]), values[place], sys.maxsize)
        if fault := self._check.fault_of(entry, samples=True):
            raise ReplyError(f"returned a wrong result of a pair: {fault}")
        return True


def entry_of(number: int, solved: Solved, n_rows: int) -> LogEntry:
    """Return a result as an entry of the log; ValueError says why it cannot be one."""
    record, rows, values = parts_of(number, solved)
    return read_entry(record.tobytes() + rows + values, n_pairs=number + 1, n_rows=n_rows)


def _grouped(places: I8, seconds: F8, n_rows: I8) -> Iterator[I8]:
    """Divide pairs, in their order, into groups that are worth a task; yield their places."""
    spent = np.concatenate([[0.0], np.cumsum(seconds[places])])
    rows = np.concatenate([[0], np.cumsum(n_rows[places])])
    start = 0
    while start < len(places):
        enough = int(np.searchsorted(spent, spent[start] + TASK_SECONDS))
        most = int(np.searchsorted(rows, rows[start] + MOST_ROWS, side="right")) - 1
        end = max(start + 1, min(enough, most, len(places)))
        yield places[start:end]
        start = end
