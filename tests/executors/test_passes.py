"""Results of tasks as they come."""

import contextlib
from types import SimpleNamespace

import dask
import pytest
from support.clusters import kill, opened_cluster, wait_for_workers

from bigsvm.executors import passes
from bigsvm.executors.workforce import Worker, Workforce
from bigsvm.interruption import checked_by


def test_where_there_always_is_a_result_it_looks_whether_to_end():
    class Ready(passes.Pass):
        """A pass in which a result has arrived each time somebody asks."""

        def __init__(self, calls):
            self._calls, self.results, self.n_arrived = calls, {}, 0

        def top_up(self, _):
            self.results[self.n_arrived] = "done"
            self.n_arrived += 1

        def close(self):
            pass

    taken, checked = [], []
    calls = range(5)
    with checked_by(lambda: checked.append(len(taken))):
        for number, _ in Ready(calls).as_done():
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


@pytest.mark.slow
def test_after_a_copy_to_a_worker_that_died_workers_can_be_retired(monkeypatch):
    distributed = pytest.importorskip("distributed")
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": "1s"}))
        cluster = stack.enter_context(opened_cluster(3))
        client = stack.enter_context(distributed.Client(cluster))
        workforce, scheduler = Workforce(client), cluster.scheduler
        workers = [Worker(address, 1, "") for address in scheduler.workers]
        replicate = scheduler.replicate

        async def replicate_to_a_dead_worker(keys, **options):
            holders = {worker.address for worker in scheduler.tasks[keys[0]].who_has}
            nannies = cluster.workers.values()
            kill(next(nanny.pid for nanny in nannies if nanny.worker_address not in holders))
            return await replicate(keys=keys, **options)

        monkeypatch.setattr(scheduler, "replicate", replicate_to_a_dead_worker)
        copying = workforce.scatter("a copy", bytes(10), workers)
        with pytest.raises(TimeoutError):  # Dask tries for ever
            copying.result(timeout=5)
        copying.cancel()
        wait_for_workers(client, 3)
        wait_for_workers(client, 2)
