"""Sharing: what all tasks of a pass share, such as the weighted rows, on its way to workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from bigsvm.executors import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from bigsvm.executors.messages import SentJob, SentPiece
    from bigsvm.executors.shared import Part
    from bigsvm.executors.workforce import Worker, Workforce

    Sent: TypeAlias = Part | SentPiece | SentJob

LATE_SECONDS = 1.5
"""A worker takes what is sent to it within so many seconds, and those of SLOW_LINK."""
SLOW_LINK = 20e6
"""Bytes a second that a worker takes at least; one that takes fewer is late."""


class _Delivery:
    """What all tasks share on its way to some workers, piece by piece.

    `kept` has Dask's futures of each worker's own copies, which have `seconds` to get there.
    """

    def __init__(self, workers: list[Worker], pieces: Iterator[Sent], patience: float) -> None:
        self.workers, self._pieces, self._patience = workers, pieces, patience
        self.kept: dict[str, list[Any]] = {worker.address: [] for worker in workers}
        self.seconds = 0.0
        self._reply: Future[Any] | None = None
        self._deadline = 0.0

    def advance(self, workforce: Workforce) -> bool | None:
        """Go on; returns whether all has arrived, or None where it failed or is late."""
        while True:
            if self._reply is not None:
                if not self._reply.done():
                    return None if time.monotonic() > self._deadline else False
                if self._reply.cancelled() or self._reply.exception() is not None:
                    return None
                # At once: Dask drops copies that nothing needs every two seconds.
                for worker in self.workers:
                    copy = workforce.submit(worker, "bigsvm-keep", tasks.keep, self._reply.result())
                    self.kept[worker.address].append(copy)
            piece = next(self._pieces, None)
            if piece is None:
                return True
            traffic, copies = workforce.traffic, len(self.workers)
            traffic.bytes_sent += piece.nbytes * copies
            self._reply = workforce.scatter("bigsvm-rows", piece, self.workers)
            seconds = self._patience * (LATE_SECONDS + copies * piece.nbytes / SLOW_LINK)
            self.seconds += seconds
            self._deadline = time.monotonic() + seconds

    def cancel(self) -> None:
        """Give up."""
        if self._reply is not None:
            self._reply.cancel()


class Sharing:
    """Sends what all tasks share to each worker that is ready.

    Parameters
    ----------
    pieces : callable, optional
        Yields what is sent to every worker before its first task, piece by piece; None if tasks
        share nothing.

    Attributes
    ----------
    held : dict
        By addresses, Dask's futures of the pieces, for workers that have all of them.
    """

    def __init__(self, workforce: Workforce, pieces: Callable[[], Iterator[Sent]] | None) -> None:
        self._workforce, self._pieces = workforce, pieces
        self.held: dict[str, list[Any]] = {}
        self._under_way: list[_Delivery] = []
        self._patience: dict[str, float] = {}
        self._unkept: dict[str, float] = {}

    def begin(self, ready: Iterable[Worker]) -> None:
        """Begin to send to the workers that have nothing; forget those that have gone."""
        for address in [address for address in self.held if address not in self._workforce.workers]:
            del self.held[address]
        if self._pieces is None:
            for worker in ready:
                self.held.setdefault(worker.address, [])
            return
        busy = {worker.address for delivery in self._under_way for worker in delivery.workers}
        fresh = [w for w in ready if w.address not in self.held and w.address not in busy]
        if fresh and self._is_copying_late():
            for worker in fresh:
                self._send_to([worker])
        elif fresh:
            self._send_to(fresh)

    def advance(self) -> list[str]:
        """Go on sending; returns the addresses of workers that have all since the last time."""
        arrived: list[str] = []
        for delivery in list(self._under_way):
            state = delivery.advance(self._workforce)
            if state is False:
                continue
            self._under_way.remove(delivery)
            if state:
                self.held.update(delivery.kept)
                deadline = time.monotonic() + delivery.seconds
                self._unkept.update(dict.fromkeys(delivery.kept, deadline))
                arrived.extend(delivery.kept)
            else:
                delivery.cancel()
                self._send_apart(delivery.workers)
        return arrived

    def take_back(self, now: float) -> set[str]:
        """Forget workers that wait too long for their own copies; returns their addresses.

        Such a worker fetches a copy from one that has stopped, and its tasks wait for that.
        """
        late: set[str] = set()
        for address, deadline in list(self._unkept.items()):
            if all(future.done() for future in self.held.get(address, ())):
                del self._unkept[address]
            elif now > deadline:
                del self._unkept[address], self.held[address]
                self._patience[address] = 2 * self._patience.get(address, 1.0)
                late.add(address)
        return late

    def close(self) -> None:
        """Give up what is on its way, and release what workers have."""
        for delivery in self._under_way:
            delivery.cancel()
        self.held.clear()

    def _is_copying_late(self) -> bool:
        """Tell whether Dask still copies to a worker that has taken nothing, before all others."""
        force = self._workforce
        force.copies_wait &= any(worker.is_slow for worker in force.workers.values())
        return force.copies_wait

    def _send_apart(self, workers: list[Worker]) -> None:
        """Find out which worker of several does not take rows: each gets its own copy."""
        for worker in [w for w in workers if self._workforce.workers.get(w.address) is w]:
            if len(workers) > 1:
                self._send_to([worker])
                continue
            # All workers may be slow: each attempt has more time.
            self._patience[worker.address] = 2 * self._patience.get(worker.address, 1.0)
            self._workforce.suspect(worker)
            self._workforce.copies_wait = True

    def _send_to(self, workers: list[Worker]) -> None:
        assert self._pieces is not None
        patience = max(self._patience.get(worker.address, 1.0) for worker in workers)
        self._under_way.append(_Delivery(workers, self._pieces(), patience))
