"""Queues: which worker does which call of a pass, and in which order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.executors.workforce import Call, UnitKey, Worker, Workforce

LEAST_SECONDS = 0.02
"""Calls go together in one task until they take so long: several times what a task costs Dask."""
PUT_BACK = ""
"""Instead of an address: the queue of calls that any worker may do."""


class Queues:
    """Calls that wait, each in the queue of one worker.

    A call goes to the worker that keeps its unit, else to the one with the least to do. A worker
    whose queue is empty takes the last call of one that has much more to do. The name of the job is
    part of the names of units, and the workforce knows who keeps which.
    """

    def __init__(self, workforce: Workforce, job: str, calls: Sequence[Call]) -> None:
        self._workforce, self._job, self._calls = workforce, job, calls
        self._waiting = set(range(len(calls)))
        self._queues: dict[str, deque[int]] = {}
        self._failed_on: dict[int, list[str]] = {}

    def __len__(self) -> int:
        """Count the calls that wait."""
        return len(self._waiting)

    def choose(self, worker: Worker, limit: int, *, is_idle: bool) -> list[int]:
        """Take the next call of a worker out of the queues, or several that take little time.

        A call that was put back is first; others are below `limit`. Calls of other workers are for
        one that is idle. Empty if there is none.
        """
        if not self._queues:
            self._place_all()
        number = self._put_back_for(worker)
        if number is None:
            number = self._own(worker, limit)
        if number is None and is_idle:
            number = self._of_another(worker, limit)
        most = 1 + len(self._queues.get(worker.address, ())) // worker.threads
        numbers: list[int] = []
        seconds = 0.0
        while number is not None:
            self._waiting.discard(number)
            numbers.append(number)
            seconds += self._calls[number].seconds
            if seconds >= LEAST_SECONDS or len(numbers) == most:
                break  # each thread of the worker has its share
            number = self._own(worker, limit)
        return numbers

    def put_back(self, number: int) -> bool:
        """Have any worker do a call again; returns whether it was not waiting yet."""
        if number in self._waiting:
            return False
        self._waiting.add(number)
        self._queues.setdefault(PUT_BACK, deque()).append(number)
        return True

    def repeat(self, number: int, worker: Worker) -> None:
        """Have a worker do a call again, before all others."""
        self._waiting.add(number)
        self._queues.setdefault(worker.address, deque()).appendleft(number)

    def withdraw(self, number: int) -> None:
        """Take a call out: its result has arrived."""
        self._waiting.discard(number)

    def note_fault(self, number: int, worker: Worker) -> int:
        """Keep a call that failed from this worker; returns on how many it has failed."""
        failed_on = self._failed_on.setdefault(number, [])
        failed_on.append(worker.address)
        self._workforce.owners.pop(self._key(number), None)
        return len(failed_on)

    def _key(self, number: int) -> UnitKey:
        unit = self._calls[number].unit
        return (self._job, -1, number) if unit is None else (self._job, *unit[:2])

    def _own_unit(self, number: int, address: str) -> None:
        """Note that a worker will keep the unit of a call."""
        if self._calls[number].unit is not None:
            self._workforce.owners[self._key(number)] = address

    def _place_all(self) -> None:
        """Divide the calls among workers: to the owner of the unit, else to the least loaded."""
        owners = self._workforce.owners
        threads = {worker.address: worker.threads for worker in self._workforce.ready()}
        load = dict.fromkeys(threads, 0.0)
        for owner in owners.values():
            if owner in load:
                load[owner] += 1 / threads[owner]
        self._queues = {address: deque() for address in load}
        for number in sorted(self._waiting):
            owner = owners.get(self._key(number), "")
            if owner not in load:
                owner = min(load, key=lambda address: load[address])
                load[owner] += 1 / threads[owner]
                self._own_unit(number, owner)
            self._queues[owner].append(number)

    def _own(self, worker: Worker, limit: int) -> int | None:
        """Choose the next call in the queue of a worker."""
        queue = self._queues.setdefault(worker.address, deque())
        while queue and queue[0] not in self._waiting:
            queue.popleft()
        return queue.popleft() if queue and queue[0] < limit else None

    def _of_another(self, worker: Worker, limit: int) -> int | None:
        """Choose the last call of a worker that has much more to do, or is slower with its own.

        Units that take longer to read than their calls stay with a worker that is nearly done.
        """
        if self._queues.get(worker.address):
            return None  # its own are next
        ready = {worker.address for worker in self._workforce.ready()}
        others = [
            (len(numbers), address)
            for address, numbers in self._queues.items()
            if numbers and address != PUT_BACK
        ]
        for length, address in sorted(others, reverse=True):
            is_for_good = address not in ready or length > 2 * worker.threads
            numbers = self._queues[address]
            for place in range(length - 1, -1, -1):
                last = numbers[place]
                if (
                    last < limit
                    and last in self._waiting
                    and (is_for_good or self._calls[last].may_move)
                ):
                    del numbers[place]
                    if is_for_good:
                        self._own_unit(last, worker.address)
                    return last
        return None

    def _put_back_for(self, worker: Worker) -> int | None:
        """Choose a call that was put back; one that has failed here is for others, if there are."""
        alone = len(self._workforce.workers) == 1
        for number in list(self._queues.get(PUT_BACK, ())):
            if number not in self._waiting:
                self._queues[PUT_BACK].remove(number)
            elif alone or worker.address not in self._failed_on.get(number, ()):
                self._queues[PUT_BACK].remove(number)
                self._own_unit(number, worker.address)
                return number
        return None
