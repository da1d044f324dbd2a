"""What all tasks share reaches each worker that answers, whatever the others do."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from bigsvm.executors import sharing
from bigsvm.executors.sharing import Sharing
from bigsvm.executors.workforce import Traffic, Worker

LATER = 1e12
"""A time when everything is late."""


class Workers:
    """A workforce of workers A, B and C; those in `stopped` do nothing.

    Dask copies a value to one worker, which gives it to the others. `holder` is that worker, from
    which each fetches its own copy.
    """

    def __init__(self, stopped="", holder="A"):
        self.workers = {name: Worker(name, 1, name) for name in "ABC"}
        self.stopped, self.holder = stopped, holder
        self.traffic, self.copies_wait = Traffic(), False
        self.sent, self.kept, self.answers = [], [], []

    def ready(self):
        """Those that are not slow."""
        return [worker for worker in self.workers.values() if not worker.is_slow]

    def suspect(self, worker):
        """It is slow until it answers."""
        worker.is_slow = True

    def scatter(self, name, value, workers):
        """Send at once, but to those that are stopped."""
        names = "".join(worker.address for worker in workers)
        self.sent.append(names)
        reply = Future()
        if not set(names) & set(self.stopped):
            reply.set_result(names)
        self.answers.append(reply)
        return reply

    def submit(self, worker, name, function, value):
        """Have a worker keep a value: it fetches it, unless it is the only one that was sent it."""
        self.kept.append(worker.address)
        fetched_from = self.holder if len(value) > 1 else worker.address
        return SimpleNamespace(done=lambda: not {worker.address, fetched_from} & set(self.stopped))


def shared(workers, n_pieces=1):
    """Send pieces to all workers, and go on until nothing more happens."""
    under_way = Sharing(workers, lambda: iter([SimpleNamespace(nbytes=8)] * n_pieces))
    under_way.begin(workers.ready())
    under_way.advance()
    return under_way


def test_a_piece_is_kept_before_the_next_one_is_sent():
    """Dask drops copies that nothing needs."""
    workers = Workers(stopped="C")
    under_way = Sharing(workers, lambda: iter([SimpleNamespace(nbytes=8)] * 2))
    under_way.begin(workers.ready())
    under_way.advance()
    assert (workers.sent, workers.kept) == (["ABC"], [])
    workers.answers[0].set_result("ABC")
    under_way.advance()
    assert (workers.sent, workers.kept) == (["ABC", "ABC"], ["A", "B", "C"])
    assert not under_way.held


def test_who_waits_for_a_copy_of_one_that_has_stopped_is_sent_its_own():
    workers = Workers()
    under_way = shared(workers)
    assert set(under_way.held) == set("ABC")
    workers.stopped = "A"  # after it was sent all
    assert not under_way.take_back(0.0)
    assert under_way.take_back(LATER) == set("ABC")
    workers.suspect(workers.workers["A"])
    under_way.begin(workers.ready())
    workers.holder = "B"
    assert sorted(under_way.advance()) == ["B", "C"]
    assert workers.sent == ["ABC", "BC"]
    assert not under_way.take_back(LATER)
    assert set(under_way.held) == set("BC")


def test_each_has_its_own_while_a_copy_to_a_stopped_one_keeps_dask_from_copying(monkeypatch):
    monkeypatch.setattr(sharing, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(sharing, "SLOW_LINK", 1e30)
    workers = Workers(stopped="A")
    under_way = shared(workers)
    for _ in range(3):
        under_way.advance()
    assert workers.sent == ["ABC", "A", "B", "C"]
    assert set(under_way.held) == set("BC")
    workers.sent.clear()
    assert set(shared(workers).held) == set("BC")
    assert workers.sent == ["B", "C"]
    workers.workers["A"].is_slow = False
    workers.stopped = ""
    workers.sent.clear()
    shared(workers)
    assert workers.sent == ["ABC"]


@pytest.mark.parametrize("n_pieces", [1, 3])
def test_all_are_sent_together_where_nobody_has_stopped(n_pieces):
    workers = Workers()
    under_way = shared(workers, n_pieces)
    assert workers.sent == ["ABC"] * n_pieces
    assert {name: len(copies) for name, copies in under_way.held.items()} == dict.fromkeys(
        "ABC", n_pieces
    )
