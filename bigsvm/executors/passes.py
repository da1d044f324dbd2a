"""Pass: some tasks under way on the workers of a cluster.

Each worker that is ready gets what all tasks share first, such as the weighted rows, and then its
tasks: those whose units it keeps, and later those of workers that have much more to do, are late,
or have gone.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.errors import BigsvmError, ClusterError
from bigsvm.executors import replies, tasks
from bigsvm.executors.flights import Flight, Flights
from bigsvm.executors.messages import NotKept
from bigsvm.executors.queues import Hungry, Queues
from bigsvm.executors.replies import ReplyError
from bigsvm.executors.sharing import Sharing
from bigsvm.executors.workforce import ResultLostError, SchedulerLostError
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from bigsvm.executors.audit import Audit
    from bigsvm.executors.messages import Done, SentJob, Unit
    from bigsvm.executors.sharing import Sent
    from bigsvm.executors.workforce import Call, Worker, Workforce

TASKS_PER_THREAD = 2
"""Tasks that a thread of a worker has at a time: one is computed, one waits for it."""
LATE = 4.0
"""A worker is late after this many times the median of its tasks, and LATE_SECONDS."""
LATE_SECONDS = 1.5
FIRST_SECONDS = 2.0
"""What a task is expected to take while none has been done."""
SILENT_SECONDS = 10.0
"""A worker with long tasks is late after so many seconds without a sign of life; Dask's come every
half second from ten workers, and every six seconds from a thousand."""
LOOK_SECONDS = 0.1
"""Between two looks at all workers and all their tasks, if none joins or leaves."""
MOST_LOSSES = 4
"""Workers that may die over one task before the run ends: it is what kills them."""
MOST_FAULTS = 2
"""Workers on which a task may fail before its error ends the run."""
SHARED_JOB_BYTES = 100_000
"""A job that is larger is sent to each worker once, not with each task."""


class Pass:
    """Some calls under way on workers; take their results `in_order` or `as_done`.

    Parameters
    ----------
    shared : callable, optional
        Given a name, yields what is sent to every worker before its first task, piece by piece;
        tasks have the list of it as their second argument.
    name : str
        What the tasks are called on Dask's dashboard.
    fill : callable, optional
        Returns a unit with its rows, and the bytes of these that are sent from here; for jobs
        without a source.
    audit : Audit, optional
        Computes some of the results again.

    Attributes
    ----------
    results : dict
        Results by the numbers of their calls; those that have been taken are gone.
    """

    def __init__(
        self,
        workforce: Workforce,
        sent: SentJob,
        calls: Sequence[Call],
        shared: Callable[[str], Iterator[Sent]] | None = None,
        *,
        name: str,
        fill: Callable[[Unit], tuple[Unit, int]] | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._audit, self._fill = audit, fill
        self._workforce, self._sent, self._calls = workforce, sent, calls
        self._to_share, self._name = shared, name
        self._ahead, self._are_long = len(calls), True
        # Workers keep what they make of pieces by their names; `id` may be that of an earlier pass.
        self._unique = f"{name}-{uuid.uuid4().hex}"
        self._shares_job = len(sent.pickled) > SHARED_JOB_BYTES
        self._arrived: set[int] = set()
        self.results: dict[int, Done] = {}
        self._queues = Queues(workforce, sent.rows, calls)
        self._flights = Flights()
        self._losses: dict[int, int] = {}
        self._in_full: set[int] = set()
        self._filling: dict[tuple[int, int, str], int] = {}
        self._held_back: dict[int, list[tuple[int, Worker]]] = {}
        shares = shared is not None or self._shares_job
        self._sharing = Sharing(workforce, self._pieces if shares else None)
        self._error: BaseException | None = None
        self._n_counted = 0
        self._seconds: deque[float] = deque(maxlen=50)
        self._hungry = Hungry()
        self._changes, self._looked = -1, 0.0

    def in_order(self, *, ahead: int) -> Iterator[Done]:
        """Yield the results of the calls, in their order.

        At most `ahead` results, and tasks, wait for an earlier result.
        """
        self._ahead, self._are_long = max(ahead, 1), False
        with closing(self):
            for number in range(len(self._calls)):
                self.top_up(number)
                while number not in self.results:
                    self._workforce.step()
                    self.top_up(number)
                yield self.results.pop(number)
            if self._audit is not None:
                self._audit.finish()

    def as_done(self) -> Iterator[tuple[int, Done]]:
        """Yield the number of each call and its result as soon as there is one.

        The tasks may be long: a worker is late if it gives no sign of life for SILENT_SECONDS,
        however long its tasks take.
        """
        left = len(self._calls)
        with closing(self):
            while left:
                self.top_up(0)
                if not self.results:
                    self._workforce.step()
                while self.results:
                    left -= 1
                    yield self.results.popitem()
                if left:
                    check_interrupt()  # also where there always is one; none is lost if it raises

    def top_up(self, following: int) -> None:
        """Give workers what they can do now; `following` is the first call without a result.

        Raises
        ------
        ClusterError
            A task has killed MOST_LOSSES workers.
        BigsvmError
            A task has failed on MOST_FAULTS workers.
        """
        force, now = self._workforce, time.monotonic()
        force.handle_events()
        if self._error is not None:
            raise self._error
        if force.changes != self._changes or now - self._looked > LOOK_SECONDS:
            self._changes, self._looked = force.changes, now
            self._give_up_lost(self._sharing.take_back(now))
            self._give_up_late(now)
            self._sharing.begin(force.ready())
            self._hungry.add(self._sharing.held)
            force.want(max(1, len(self._queues)), self._name)
        self._hungry.add(self._sharing.advance())
        limit = following + self._ahead
        for address in self._hungry.taken(limit):
            self._feed(address, limit)
        while (idle := self._hungry.first_idle()) is not None and self._feed(idle, limit):
            pass  # what the first one does not find is not there for the others either

    def close(self) -> None:
        """Give up what is under way."""
        if self._audit is not None:
            self._workforce.traffic.evaluations_checked += self._audit.n_evaluations
        for flight in self._flights:
            self._flights.drop(flight)
        self._sharing.close()

    # -- tasks -----------------------------------------------------------------------------------

    def _feed(self, address: str, limit: int) -> bool:
        """Give a worker as many tasks as it takes; returns whether it was given any."""
        worker = self._workforce.ready_at(address)
        if worker is None or address not in self._sharing.held:
            return False
        at_a_time = TASKS_PER_THREAD
        if self._are_long and len(self._queues) <= self._workforce.n_threads:
            at_a_time = 1  # a task that waits for a long one could be done by another worker
        first = self._flights.of_worker(address)
        for place in range(first, at_a_time * worker.threads):
            is_idle = place < worker.threads
            numbers = self._queues.choose(worker, limit, is_idle=is_idle)
            if not numbers:
                self._hungry.wait(address, self._queues.next_of(address), is_idle=is_idle)
                return place > first
            self._submit(numbers, worker)
        return True

    def _put_back(self, number: int) -> None:
        """Queue a call again for the first worker that is free."""
        if number not in self._arrived and self._queues.put_back(number):
            self._workforce.traffic.tasks_again += 1
            self._hungry.add(self._sharing.held)

    def _submit(self, numbers: list[int], worker: Worker) -> None:
        force, sent = self._workforce, self._sent
        shared: list[Any] | None = list(self._sharing.held[worker.address])
        if self._shares_job and shared:
            sent = shared.pop(0)
        if self._to_share is None:
            shared = None
        given = [self._given(number) for number in numbers]
        function = self._calls[numbers[0]].function
        future = force.submit(worker, self._name, tasks.each, function, sent, shared, given)
        flight = Flight(numbers, worker, future, time.monotonic(), self._in_full & {*numbers})
        self._flights.add(flight)
        force.when_done(future, lambda reply: self._finished(flight, reply), worker)

    def _given(self, number: int) -> list[Any]:
        """Return the unit and the arguments of a call, and count their bytes."""
        call, traffic = self._calls[number], self._workforce.traffic
        unit, given, n_bytes = call.unit, list(call.arguments), call.nbytes
        if unit is not None:
            if number in self._in_full and self._fill is not None:
                unit, more = self._fill(unit)
                n_bytes += more
            given.insert(0, unit)
        traffic.bytes_sent += n_bytes
        return given

    def _finished(self, flight: Flight, reply: Future[Any]) -> None:
        if flight not in self._flights:
            return  # the pass has ended, or the worker has gone
        self._flights.drop(flight)
        worker = flight.worker
        self._hungry.add([worker.address])
        self._read(flight, reply)
        for number in flight.in_full:
            self._go_on_after(number)

    def _read(self, flight: Flight, reply: Future[Any]) -> None:
        """Take the results of a task that has ended, or have its calls done again."""
        worker = flight.worker
        if self._workforce.workers.get(worker.address) is not worker:
            # It was refused for another reply meanwhile, and only its first one was checked.
            for number in flight.numbers:
                self._put_back(number)
            return
        error = None if reply.cancelled() else reply.exception()
        if reply.cancelled() or isinstance(error, ResultLostError):
            # What the worker was sent may be lost as well, and Dask cannot make it again.
            self._sharing.held.pop(worker.address, None)
            self._changes = -1  # look at all workers
            are_blamed = not isinstance(error, SchedulerLostError)
            self._lose(worker, flight.numbers, are_blamed=are_blamed)
            return
        self._workforce.hear(worker)
        if error is not None:
            for number in flight.numbers:
                self._fail(number, worker, error)
            return
        try:
            answers = replies.answers_in(reply.result(), len(flight.numbers))
            for number, done in zip(flight.numbers, answers, strict=True):
                if number not in self._arrived:  # else another worker was faster
                    self._take(number, flight, done)
        except ReplyError as error:
            self._workforce.refuse(worker, str(error))
            for number in flight.numbers:
                self._put_back(number)
            return
        # Release tasks that a worker was late with: they end where they look for that.
        others = [other for number in flight.numbers for other in self._flights.of_call(number)]
        for other in others:
            if self._arrived.issuperset(other.numbers):
                self._flights.drop(other)
                self._hungry.add([other.worker.address])

    def _take(self, number: int, flight: Flight, answer: Any) -> None:
        """Keep a result until its turn comes, or ask again with all that was not kept.

        Raises
        ------
        ReplyError
            It is none, or wrong.
        """
        done, worker = replies.checked(answer, self._calls[number].expected), flight.worker
        if isinstance(done, NotKept):
            if number in flight.in_full:
                raise ReplyError("returned that it does not keep what it was just sent")
            self._send_in_full(number, worker)
            return
        if self._audit is not None:
            sound = self._audit.verify(
                number, worker.address, done.values, exactly=worker.has_same_bits
            )
            worker.n_unchecked = 0 if sound else worker.n_unchecked + 1
        self._arrived.add(number)
        self.results[number] = done
        self._queues.withdraw(number)
        self._go_on_after(number)
        self._seconds.append(done.seconds)
        self._workforce.note(done, worker)

    def _send_in_full(self, number: int, worker: Worker) -> None:
        """Do a call again with the rows of its unit, unless these are on their way already.

        Then it is done once they have arrived: a unit is sent to a worker once, not once a call.
        """
        if number in self._held_back:
            return  # as another worker was asked as well
        unit = self._calls[number].unit
        assert unit is not None
        first = self._filling.setdefault((*unit[:2], worker.address), number)
        if first != number:
            self._held_back[first].append((number, worker))
            return
        self._held_back[number] = []
        self._in_full.add(number)
        self._queues.repeat(number, worker)
        self._hungry.add([worker.address])

    def _go_on_after(self, number: int) -> None:
        """Have the calls done that wait for the rows of another one, which go to no worker now."""
        if number not in self._held_back:
            return
        self._filling = {key: first for key, first in self._filling.items() if first != number}
        for waiting, worker in self._held_back.pop(number):
            if waiting in self._arrived:
                continue
            if self._workforce.ready_at(worker.address) is worker:
                self._queues.repeat(waiting, worker)
                self._hungry.add([worker.address])
            else:
                self._put_back(waiting)

    def _fail(self, number: int, worker: Worker, error: BaseException) -> None:
        """Try a failed call once more on another worker, then end the run."""
        if number in self._arrived:
            return
        if self._queues.note_fault(number, worker) < MOST_FAULTS:
            self._put_back(number)
            return
        if isinstance(error, MemoryError) and not isinstance(error, BigsvmError):
            self._error = ClusterError(
                f"worker {worker.address}{_limit_of(worker)} has no memory left for a task; give "
                "workers more memory, or lower worker_memory"
            )
            return
        if isinstance(error, BigsvmError):
            self._error = type(error)(f"worker {worker.address}: {error}")
            return
        self._error = ClusterError(
            f"worker {worker.address} failed ({type(error).__name__}: {error}); see its log, and "
            "resume the run from its checkpoint"
        )
        self._error.__cause__ = error

    def _give_up_lost(self, waiting: set[str]) -> None:
        """Have the tasks of workers that have gone, or wait for what tasks share, done again."""
        workers = self._workforce.workers
        lost: dict[int, tuple[Worker, set[int]]] = {}
        for flight in self._flights:
            worker = flight.worker
            has_gone = workers.get(worker.address) is not worker
            if not has_gone and worker.address not in waiting:
                continue
            self._flights.drop(flight)
            for number in flight.in_full:
                self._go_on_after(number)
            if has_gone:
                lost.setdefault(id(worker), (worker, set()))[1].update(flight.numbers)
            elif not flight.is_given_up:
                for number in flight.numbers:
                    self._put_back(number)
        for worker, numbers in lost.values():
            self._lose(worker, sorted(numbers), are_blamed=not worker.went_with_scheduler)

    def _lose(self, worker: Worker, numbers: list[int], *, are_blamed: bool) -> None:
        """Have calls done again whose worker has gone, unless many have gone over them.

        Calls are not blamed for what ends with a scheduler.
        """
        for number in numbers:
            self._losses[number] = self._losses.get(number, 0) + are_blamed
            if self._losses[number] >= MOST_LOSSES:
                self._error = ClusterError(
                    f"{MOST_LOSSES} workers were lost over the same task, the last one at "
                    f"{worker.address}{_limit_of(worker)}; give workers more memory, or lower "
                    "worker_memory"
                )
            self._put_back(number)

    def _give_up_late(self, now: float) -> None:
        """Have the tasks of workers that do not answer done by others."""
        force = self._workforce
        expected = float(np.median(self._seconds)) if self._seconds else FIRST_SECONDS
        for flight in self._flights:
            worker = flight.worker
            allowed = LATE * expected * len(flight.numbers) + LATE_SECONDS
            late = now - max(worker.heard, flight.began) > allowed
            if self._are_long:
                late = now - max(worker.alive, flight.began) > SILENT_SECONDS
            if late and not worker.is_slow and len(force.ready()) > 1:
                force.suspect(worker)
            if worker.is_slow and not flight.is_given_up:
                flight.is_given_up = True
                for number in flight.in_full:
                    self._go_on_after(number)
                for number in flight.numbers:
                    self._put_back(number)

    def _pieces(self) -> Iterator[Sent]:
        if self._shares_job:
            yield self._sent
        if self._to_share is None:
            return
        for number, piece in enumerate(self._to_share(self._unique)):
            if number >= self._n_counted:
                self._n_counted = number + 1
                self._workforce.traffic.bytes_moved += piece.nbytes
            yield piece


def _limit_of(worker: Worker) -> str:
    """Describe the memory limit of a worker, in brackets."""
    opened = worker.opened
    return f" (limit {opened.limit} bytes)" if opened and opened.limit else ""
