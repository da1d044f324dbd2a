"""Queues: which worker does which call of a pass, and in which order."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bigsvm.executors.workforce import Call, UnitKey, Worker, Workforce

LEAST_SECONDS = 0.02
"""Calls go together in one task until they take so long: several times what a task costs Dask."""
LOOKED_AT = 8
"""Longest queues in which an idle worker looks for a call: where none of them has one, hardly any
has."""
PUT_BACK = ""
"""Instead of an address: the queue of calls that any worker may do."""


class Queues:
    """Calls that wait, each in the queue of one worker.

    A call goes to the worker that keeps its unit, else to the one with the least to do. A worker
    whose queue is empty takes the last call of one that has much more to do. The name of the rows
    is part of the names of units, and the workforce knows who keeps which.
    """

    def __init__(self, workforce: Workforce, rows: str, calls: Sequence[Call]) -> None:
        self._workforce, self._rows, self._calls = workforce, rows, calls
        self._waiting = set(range(len(calls)))
        self._queues: dict[str, deque[int]] = {}
        self._lengths: list[tuple[int, str]] = []
        self._changes, self._away = -1, list[str]()
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
            number = self._first(worker.address, limit)
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
            number = self._first(worker.address, limit)
        return numbers

    def next_of(self, address: str) -> int | None:
        """Return the first call that a worker may take next: its own, or one of those not ready."""
        queues = [self._queues.get(other) for other in (address, *self._not_ready())]
        return min((queue[0] for queue in queues if queue), default=None)

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
        queue = self._queues.setdefault(worker.address, deque())
        queue.appendleft(number)
        heapq.heappush(self._lengths, (-len(queue), worker.address))

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
        return (self._rows, -1, number) if unit is None else (self._rows, *unit[:2])

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
        least = [(n_units, place, address) for place, (address, n_units) in enumerate(load.items())]
        heapq.heapify(least)
        for number in sorted(self._waiting):
            owner = owners.get(self._key(number), "")
            if owner not in load:
                n_units, place, owner = least[0]
                heapq.heapreplace(least, (n_units + 1 / threads[owner], place, owner))
                self._own_unit(number, owner)
            self._queues[owner].append(number)
        self._lengths = [(-len(queue), address) for address, queue in self._queues.items()]
        heapq.heapify(self._lengths)

    def _first(self, address: str, limit: int) -> int | None:
        """Take the next call in the queue of a worker."""
        queue = self._queues.setdefault(address, deque())
        while queue and queue[0] not in self._waiting:
            queue.popleft()
        return queue.popleft() if queue and queue[0] < limit else None

    def _of_another(self, worker: Worker, limit: int) -> int | None:
        """Choose a call of a worker that is not ready, or the last one of one with much more to do.

        Units that take longer to read than their calls stay with a worker that is nearly done.
        """
        for address in self._not_ready():
            if (number := self._first(address, limit)) is not None:
                self._own_unit(number, worker.address)
                return number
        if self._queues.get(worker.address):
            return None  # its own are next
        for address in self._longest():
            numbers = self._queues[address]
            is_for_good = len(numbers) > 2 * worker.threads
            for place in range(len(numbers) - 1, -1, -1):
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

    def _not_ready(self) -> list[str]:
        """List workers with a queue that have gone, or are slow."""
        if self._changes != self._workforce.changes:
            self._changes = self._workforce.changes
            self._away = [
                address for address in self._queues
                if address != PUT_BACK and self._workforce.ready_at(address) is None
            ]  # fmt: skip
        return self._away

    def _longest(self) -> list[str]:
        """List the workers that are ready and have the longest queues, at most LOOKED_AT."""
        found: list[tuple[int, str]] = []
        while self._lengths and len(found) < LOOKED_AT:
            length, address = heapq.heappop(self._lengths)
            actual = -len(self._queues[address])
            if actual == length < 0:
                found.append((length, address))
            elif length < actual < 0:
                heapq.heappush(self._lengths, (actual, address))
        for entry in found:
            heapq.heappush(self._lengths, entry)
        return [address for _, address in found]

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


class Hungry:
    """Workers that may take a task: those that are to be asked, and those that wait for calls.

    A worker waits until the next call in its queue is below the limit, or is idle: it has nothing
    to do until a worker has much more to do, or a call is put back.
    """

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self._idle: dict[str, None] = {}
        self._waiting: list[tuple[int, str]] = []

    def add(self, addresses: Iterable[str]) -> None:
        """Have workers asked."""
        for address in addresses:
            self._asked[address] = None
            self._idle.pop(address, None)

    def taken(self, limit: int) -> list[str]:
        """Take out those that are to be asked, of which some have waited for this limit."""
        while self._waiting and self._waiting[0][0] < limit:
            self._asked[heapq.heappop(self._waiting)[1]] = None
        asked, self._asked = list(self._asked), {}
        return asked

    def wait(self, address: str, following: int | None, *, is_idle: bool) -> None:
        """Have a worker wait for the limit to pass its next call, or until there is one."""
        if following is not None:
            heapq.heappush(self._waiting, (following, address))
        elif is_idle:
            self._idle[address] = None

    def first_idle(self) -> str | None:
        """Take out the worker that has been idle longest; None if there is none."""
        first = next(iter(self._idle), None)
        if first is not None:
            del self._idle[first]
        return first
