"""Flights: the tasks of a pass that are under way, found by worker and by call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.executors.workforce import Worker


@dataclass(eq=False)
class Flight:
    """A task on its way with some calls; once given up, other workers do these too.

    `in_full` are the calls that were sent with the rows of their units.
    """

    numbers: list[int]
    worker: Worker
    future: Any
    began: float
    in_full: set[int]
    is_given_up: bool = False


class Flights:
    """Tasks under way; none of its methods takes longer where there are more workers."""

    def __init__(self) -> None:
        self._flights: dict[Flight, None] = {}
        self._counts: dict[str, int] = {}
        self._of_call: dict[int, list[Flight]] = {}

    def __iter__(self) -> Iterator[Flight]:
        """Iterate over a copy."""
        return iter(list(self._flights))

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self._flights)

    def __contains__(self, flight: Flight) -> bool:
        """Tell whether a task is under way."""
        return flight in self._flights

    def of_worker(self, address: str) -> int:
        """Count the tasks of a worker."""
        return self._counts.get(address, 0)

    def of_call(self, number: int) -> list[Flight]:
        """List the tasks that have a call."""
        return list(self._of_call.get(number, ()))

    def add(self, flight: Flight) -> None:
        """Note a task that has been sent."""
        self._flights[flight] = None
        address = flight.worker.address
        self._counts[address] = self._counts.get(address, 0) + 1
        for number in flight.numbers:
            self._of_call.setdefault(number, []).append(flight)

    def drop(self, flight: Flight) -> None:
        """Let Dask forget a task, and its worker the result; one that has begun may notice.

        The callback of a future holds it, so that it is not released before it is done.
        """
        flight.future.release()
        if self._flights.pop(flight, flight) is not None:
            return  # it was dropped before
        self._counts[flight.worker.address] -= 1
        for number in flight.numbers:
            self._of_call[number].remove(flight)
            if not self._of_call[number]:
                del self._of_call[number]
