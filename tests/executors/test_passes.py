"""Results of tasks as they come."""

from types import SimpleNamespace

from bigsvm.executors import passes
from bigsvm.interruption import checked_by


def test_where_there_always_is_a_result_it_looks_whether_to_end(monkeypatch):
    class Ready:
        """A pass in which a result has arrived each time somebody asks."""

        def __init__(self, *_, **__):
            self.results, self.n_arrived = {}, 0

        def top_up(self, _):
            self.results[self.n_arrived] = "done"
            self.n_arrived += 1

        def close(self):
            pass

    monkeypatch.setattr(passes, "Pass", Ready)
    taken, checked = [], []
    calls = range(5)
    with checked_by(lambda: checked.append(len(taken))):
        for number, _ in passes.results_as_done(None, None, calls, name=""):
            taken.append(number)
    assert taken == list(calls)
    assert checked == [1, 2, 3, 4]  # not after the last: everything is done


def test_a_reply_of_a_worker_that_was_refused_meanwhile_is_not_used():
    under_way = object.__new__(passes.Pass)
    worker = SimpleNamespace(address="tcp://one:1")
    flight = SimpleNamespace(numbers=[3, 4], worker=worker, future=SimpleNamespace(release=int))
    put_back = []
    under_way._flights, under_way._put_back = [flight], put_back.append
    under_way._workforce = SimpleNamespace(workers={worker.address: object()})
    under_way._finished(flight, None)
    assert put_back == [3, 4]
    assert not under_way._flights
