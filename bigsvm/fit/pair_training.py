"""One against one: a problem for each pair of classes, several trained at once, and joined.

``k (k − 1) / 2`` problems of two classes each (Chang & Lin 2001, section 7), over the rows of these
two alone. They share what is opened once, and one checkpoint: a finished pair is never trained
again, and pairs in progress continue from their saved state, to the same bits.

Pair steps are one after the other, so a pair alone leaves threads idle. Where there is memory for
it pairs are therefore trained in lanes, each with its share of the threads.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.interruption import checked_by
from bigsvm.one_vs_one.joined import join
from bigsvm.one_vs_one.log import Slot
from bigsvm.training import events
from bigsvm.training.result import StopReason
from bigsvm.training.saving import Saver
from bigsvm.training.state import SURROUNDINGS_FAILED, Limits, Stopped
from bigsvm.votes import pair_classes, pair_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bigsvm.arrays import I8
    from bigsvm.fit.pair_problems import Budget, ClassPairs
    from bigsvm.fit.pair_workers import PairWorkers
    from bigsvm.fit.trainer import Trainer
    from bigsvm.one_vs_one.class_rows import Batch, ClassRows, HeldClasses, PairRows
    from bigsvm.one_vs_one.joined import OneVsOne
    from bigsvm.one_vs_one.log import PairLog, Solved
    from bigsvm.one_vs_one.small import SmallPairs
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.result import Certificate

WORTH_SENDING = 1.0
"""Estimated seconds of a pair from which on workers do its passes: to send one takes milliseconds,
and a run has tens of them."""
TOLD_AFTER = 10.0
"""Seconds after which the sweeps and steps of a pair are reported."""
UNFINISHED = (StopReason.MAX_ITER, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
"""Reasons that end the run; other reasons end one pair only."""


class PairLane(NamedTuple):
    """Trains one pair after the other, beside other lanes; its saver saves to the slot of the log.

    If it `speaks`, sweeps and steps are reported: reports of two lanes could not be told apart.
    """

    trainer: Trainer
    slot: Slot
    saver: Saver | None
    speaks: bool


@dataclass(frozen=True)
class PairLanes:
    """Lanes of pairs; each has a share of the threads and of the memory.

    With the workers of a cluster large pairs are trained in one lane, and their passes on workers.
    The trainer has all threads, and the listener of the hooks is told of what is saved.
    """

    trainer: Trainer
    problem: ClassPairs
    budget: Budget
    parameters: TrainingParameters
    log: PairLog
    hooks: events.Hooks

    def count(self, n_rows: int, row_alignment: int) -> int:
        """Count the lanes for pairs of `n_rows` rows of a source with this alignment."""
        if self._sends_passes(n_rows):
            return 1
        return self.budget.lanes(n_rows, row_alignment)

    def open(self, count: int) -> list[PairLane]:
        """Make `count` lanes."""
        threads = self.parameters.n_threads // count
        return [self._lane(i == 0, threads, copies=count > 1) for i in range(count)]

    def _lane(self, speaks: bool, threads: int, *, copies: bool) -> PairLane:
        slot = Slot(self.log, copies=copies)
        # The log has the result of a finished pair.
        saver = None
        if self.parameters.checkpoint is not None:
            saver = Saver(
                slot, every=self.parameters.checkpoint_every, listener=self.hooks.listener,
                times_asked=self.hooks.times_asked, keeps_ends=False,
            )  # fmt: skip
        return PairLane(self.trainer.with_threads(threads), slot, saver, speaks)

    def train(
        self,
        lane: PairLane,
        pair: tuple[int, int],
        rows: PairRows,
        *,
        limits: Limits,
        listener: events.Listener,
    ) -> Solved:
        """Train a pair in a lane, from its saved state if the saver has one."""
        n_rows = rows.source.n_rows
        return self.problem.solve(
            pair,
            rows,
            self.trainer if self._sends_passes(n_rows) else lane.trainer,
            self.budget.plan(n_rows, rows.source.row_alignment),
            compare=n_rows <= self.budget.most_held_rows,
            saver=lane.saver,
            limits=limits,
            listener=listener,
        )

    def _sends_passes(self, n_rows: int) -> bool:
        """Whether there are workers for the passes of a pair, and these are worth sending."""
        (seconds,) = self.budget.seconds_of_pair(np.array([n_rows], np.float64))
        return self.trainer.workforce is not None and bool(seconds >= WORTH_SENDING)


class PairTraining:
    """The loop over the pairs; the limits are those of the whole run.

    Workers train those that they take before all others; `small` solves those that it takes before
    the others of their batch are trained.
    """

    def __init__(
        self,
        classes: ClassRows,
        lanes: PairLanes,
        log: PairLog,
        *,
        most_held_rows: float,
        limits: Limits,
        listener: events.Listener,
        small: SmallPairs | None = None,
        workers: PairWorkers | None = None,
    ) -> None:
        self._small, self._workers = small, workers
        self._classes, self._lanes, self._log = classes, lanes, log
        self._most_held_rows = most_held_rows
        self._opened: dict[int, Sequence[PairLane]] = {1: lanes.open(1)}
        self._saver = self._opened[1][0].saver
        self._limits, self._listener = limits, listener
        self._reporting = threading.Lock()
        self._ended: list[StopReason] = []
        self._began = time.monotonic()
        sizes = classes.sizes.astype(np.float64)
        # Σ over pairs of (n_a + n_b)².
        self._work = (len(classes) - 2) * np.sum(sizes**2) + np.sum(sizes) ** 2
        first, second = pair_classes(len(classes))
        done = np.flatnonzero(log.records["reason"] >= 0)
        self._work_done = float(np.sum((sizes[first[done]] + sizes[second[done]]) ** 2))
        self._objective = float(np.nansum(log.records["objective"][done]))
        self._gap = float(np.fmax.reduce(log.records["gap"][done], initial=0.0))

    def run(self) -> OneVsOne:
        """Train all pairs that are not finished, or until a limit is reached."""
        reason = StopReason.CONVERGED
        self._report()
        try:
            with checked_by(self._check):
                if self._workers is not None and self._limits.max_iter < 0:
                    self._on_workers(self._workers)
                for batch in self._classes.batches(self._most_held_rows):
                    self._batch(batch)
        except Stopped as stopped:
            reason = stopped.reason
        except SURROUNDINGS_FAILED:
            self._save_log()
            raise
        self._save_log()
        return join(self._log, len(self._classes), self._classes.source.n_rows, reason)

    def _save_log(self) -> None:
        if self._saver is not None and not self._log.is_saved:
            self._saver.write({}, {})

    def _save_if_due(self) -> None:
        if self._saver is not None and self._saver.is_due():
            self._saver.write({}, {})

    def _on_workers(self, workers: PairWorkers) -> None:
        """Have workers train whole pairs; the pairs that they do not take are left."""
        for batch in workers.batches():
            numbers = pair_number(batch.pairs[:, 0], batch.pairs[:, 1], len(self._classes))
            # A pair that an earlier process began goes on from its state, which is here.
            left = np.flatnonzero(
                (self._log.records["reason"][numbers] < 0)
                & ~np.isin(numbers, self._log.in_progress)
            )
            for place, solved in workers.train(batch.held, batch.pairs[left]):
                self._finish(int(numbers[left[place]]), batch.pairs[left[place]], solved)
                self._report()
                self._save_if_due()

    def _finish(self, number: int, pair: I8, solved: Solved) -> None:
        """Take the result of a pair that was not trained in a lane."""
        self._log.finish(number, solved)
        self._count(int(self._classes.sizes[pair].sum()), solved.certificate)

    def _count(self, n_rows: int, certificate: Certificate) -> None:
        """Add what a finished pair has come to; a search alone gives it no gap."""
        self._work_done += float(n_rows) ** 2
        self._objective += certificate.objective or 0.0
        self._gap = max(self._gap, certificate.gap or 0.0)

    def _batch(self, batch: Batch) -> None:
        """Train the pairs of a batch that are not finished; its rows are released at the end."""
        numbers = pair_number(batch.pairs[:, 0], batch.pairs[:, 1], len(self._classes))
        left = np.flatnonzero(self._log.records["reason"][numbers] < 0)
        if not len(left):
            return
        # Return the memory of the batch before.
        give_back_freed_memory()
        rows = self._classes.hold(batch)
        if self._small is not None:
            self._solve_small(self._small, batch.pairs[left], numbers[left], rows)
            left = left[self._log.records["reason"][numbers[left]] < 0]
        for count, places in self._in_lanes(batch.pairs[left], numbers[left], rows):
            self._train_all(count, batch.pairs[left[places]], numbers[left[places]], rows)

    def _in_lanes(self, pairs: I8, numbers: I8, rows: HeldClasses) -> Iterator[tuple[int, I8]]:
        """Yield numbers of lanes, and the places in `pairs` of what is trained in them.

        Pairs that an earlier process began come first: their state is in memory. The longest come
        next, so that all lanes end at about the same time.
        """
        if self._limits.max_iter >= 0:
            # With a step limit one lane is used: otherwise the result would depend on timing.
            yield 1, np.arange(len(pairs))
            return
        n_rows = self._classes.sizes[pairs].sum(axis=1)
        work = n_rows.astype(np.float64) ** 2
        sizes, of_size = np.unique(n_rows, return_inverse=True)
        alignment = rows.source.row_alignment
        counts = np.array([self._lanes.count(size, alignment) for size in sizes.tolist()])[of_size]
        begun = np.isin(numbers, self._log.in_progress)
        for count in np.unique(counts).tolist():
            places = np.flatnonzero(counts == count)
            if count == 1:
                yield 1, places
                continue
            places = places[np.lexsort((-work[places], ~begun[places]))]
            # A long pair is trained alone: in a lane it would leave the other threads idle.
            total, alone = float(work[places].sum()), 0
            while alone < len(places) and count * work[places[alone]] > total:
                total -= float(work[places[alone]])
                alone += 1
            yield 1, places[:alone]
            yield count, places[alone:]

    def _train_all(self, count: int, pairs: I8, numbers: I8, rows: HeldClasses) -> None:
        """Train pairs in `count` lanes."""
        # One by one: half a million pairs as Python's lists would take 100 MB.
        waiting = iter(range(len(pairs)))

        def work(lane: PairLane) -> None:
            try:
                while (place := next(waiting, None)) is not None:
                    first, second = pairs[place].tolist()
                    self._train(
                        lane, int(numbers[place]), (first, second), rows.pair(first, second)
                    )
            except Stopped as stopped:
                self._ended.append(stopped.reason)
            except BaseException:
                self._ended.append(StopReason.INTERRUPTED)
                raise

        if count not in self._opened:
            self._opened[count] = self._lanes.open(count)
        self._lanes.trainer.tiles.share_out(
            work, self._opened[count], abandon=lambda: self._ended.append(StopReason.INTERRUPTED)
        )
        if self._ended:
            raise Stopped(self._ended[0])

    def _solve_small(self, small: SmallPairs, pairs: I8, numbers: I8, rows: HeldClasses) -> None:
        """Solve small pairs, part by part; those that stay unsolved are left to be trained."""
        for part in small.parts(pairs, rows):
            self._check()
            solved = small.solve(pairs[part], rows, max_steps=self._limits_left().max_iter)
            for place, result in zip(part.tolist(), solved, strict=True):
                if result is not None:
                    self._finish(int(numbers[place]), pairs[place], result)
            self._report()
            self._save_if_due()

    def _train(self, lane: PairLane, number: int, pair: tuple[int, int], rows: PairRows) -> None:
        """Train a pair, from its saved state if it has one."""
        self._check()
        lane.slot.begin(number)
        began = time.monotonic()

        def listener(event: events.Event) -> None:
            if isinstance(event, events.Planned):
                return  # that would be a line for each pair
            of_run = isinstance(event, events.Checkpointed)
            if of_run or (lane.speaks and time.monotonic() - began >= TOLD_AFTER):
                with self._reporting:
                    self._listener(event if of_run else events.OfPair(pair, event))

        solved = self._lanes.train(lane, pair, rows, limits=self._limits_left(), listener=listener)
        reason = solved.certificate.stop_reason
        if reason in UNFINISHED:
            lane.slot.leave(solved)
            raise Stopped(reason)
        lane.slot.finish(solved)
        with self._reporting:
            self._count(len(rows.rows), solved.certificate)
            self._report()
        if lane.saver is not None and lane.saver.is_due():
            lane.saver.write({}, {})

    def _check(self) -> None:
        """Raise `Stopped` if the run is to end before another pair."""
        left = self._limits_left()
        if left.interrupted():
            raise Stopped(StopReason.INTERRUPTED)
        if left.max_seconds <= 0:
            raise Stopped(StopReason.TIME_LIMIT)
        if left.max_iter == 0:
            raise Stopped(StopReason.MAX_ITER)

    def _limits_left(self) -> Limits:
        limits = self._limits
        steps = limits.max_iter
        if steps >= 0:
            steps = max(0, steps - self._log.total("n_iter"))
        seconds = limits.max_seconds - (time.monotonic() - self._began)
        return Limits(max_iter=steps, max_seconds=seconds, interrupted=self._is_interrupted)

    def _is_interrupted(self) -> bool:
        """Whether the run is to end, or a lane has."""
        return bool(self._ended) or self._limits.interrupted()

    def _report(self) -> None:
        log = self._log
        self._listener(
            events.PairsUnderWay(
                log.n_finished,
                len(log.records),
                self._work_done,
                float(self._work),
                self._objective,
                self._gap,
                log.total("n_support"),
                log.total("n_bounded"),
                log.seconds,
            )
        )
