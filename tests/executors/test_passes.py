"""Results of tasks as they come."""

import contextlib
import sys
from concurrent.futures import Future
from types import SimpleNamespace
from unittest import mock

import dask
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import kill, opened_cluster, wait_for_workers

from bigsvm.errors import ClusterError
from bigsvm.executors import passes
from bigsvm.executors.workforce import ResultLostError, SchedulerLostError, Worker, Workforce
from bigsvm.interruption import checked_by
from tools.fake_workers import fake_pass, fake_workforce


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
    workforce = fake_workforce(1)
    under_way = fake_pass(workforce, 4)
    under_way.top_up(0)
    first = workforce.asked.popleft()
    workforce.workers.clear()
    first.answer()
    assert not under_way.results
    workforce.join("fake://another")
    assert len(list(under_way.in_order(ahead=4))) == 4
    assert workforce.traffic.tasks_again


@settings(max_examples=25)
@given(
    data=st.data(), n_workers=st.integers(1, 12), threads=st.integers(1, 3),
    n_calls=st.integers(1, 60), ahead=st.integers(1, 70), in_order=st.booleans(),
    parts=st.integers(1, 4), are_sent=st.booleans(),
)  # fmt: skip
def test_all_calls_are_done_whatever_workers_do(
    data, n_workers, threads, n_calls, ahead, in_order, parts, are_sent
):
    workforce = fake_workforce(n_workers, threads=threads, keeps={} if are_sent else None)
    events = st.sampled_from(["answer"] * 8 + ["stop", "join", "suspect", "fall silent", "lose"])
    losses, joined, silent = 0, n_workers, set()

    def step():
        nonlocal losses, joined
        event = data.draw(events)
        workers = [worker for name, worker in workforce.workers.items() if name not in silent]
        asked = [k for k, task in enumerate(workforce.asked) if task.worker.address not in silent]
        if event == "stop" and len(workers) > 1 and losses < passes.MOST_LOSSES - 1:
            losses += 1
            worker = workforce.workers.pop(data.draw(st.sampled_from(workers)).address)
            workforce._lose(worker)
        elif event == "join":
            joined += 1
            workforce.join(f"fake://{joined}")
        elif event == "suspect" and len(workforce.ready()) > 1:
            workforce.suspect(data.draw(st.sampled_from(list(workforce.ready()))))
        elif event == "fall silent" and len(workers) > 1:
            worker = data.draw(st.sampled_from(workers))
            silent.add(worker.address)
            workforce.suspect(worker)
        else:
            assert asked  # else all would wait for ever
            at = data.draw(st.sampled_from(asked))
            task = workforce.asked[at]
            del workforce.asked[at]
            if event == "lose" and losses < passes.MOST_LOSSES - 1:
                losses += 1
                reply = Future()
                reply.set_exception(ResultLostError("the result"))
                task.use(reply)
            else:
                task.answer()

    workforce.step = step
    under_way = fake_pass(workforce, n_calls, parts=parts)
    with mock.patch.object(passes, "LOOK_SECONDS", 1e9):  # what happens does not depend on time
        if in_order:
            assert len(list(under_way.in_order(ahead=ahead))) == n_calls
        else:
            assert sorted(number for number, _ in under_way.as_done()) == [*range(n_calls)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_a_unit_is_sent_to_a_worker_once(n_workers, threads):
    """Though several of its parts may be under way before the worker has it."""
    keeps = {}
    workforce = fake_workforce(n_workers, threads=threads, keeps=keeps)
    assert len(list(fake_pass(workforce, 40, parts=4).in_order(ahead=40))) == 40
    assert set(keeps.values()) == {1}
    assert workforce.traffic.bytes_sent == len(keeps)


def test_some_tasks_that_wait_are_shown_to_the_scheduler(monkeypatch):
    shown, released = [], []

    def submit(name, function, *given, **where):
        shown.append((name, where))
        return SimpleNamespace(release=lambda: released.append(name))

    workforce = fake_workforce(1)
    monkeypatch.setattr(workforce, "_submit", submit)
    for n_tasks, most in ((2, 2), (1000, 32), (5, 5), (0, 0)):
        Workforce.want(workforce, n_tasks, "bigsvm-pass")
        assert len(shown) - len(released) == most
    assert all(where == {"resources": {"bigsvm-waits": 1}} for _, where in shown)


def lose_results(error, times):
    """Lose the result of a pass a number of times, then return it."""
    workforce = fake_workforce(1)
    under_way = fake_pass(workforce, 1)

    def step():
        task = workforce.asked.popleft()
        step.times += 1
        if step.times > times:
            task.answer()
            return
        reply = Future()
        reply.set_exception(error("the result"))
        task.use(reply)

    step.times, workforce.step = 0, step
    return len(list(under_way.in_order(ahead=1)))


def test_a_task_is_blamed_for_lost_workers_but_not_for_lost_schedulers():
    assert lose_results(ResultLostError, passes.MOST_LOSSES - 1) == 1
    with pytest.raises(ClusterError, match="4 workers were lost over the same task"):
        lose_results(ResultLostError, passes.MOST_LOSSES)
    assert lose_results(SchedulerLostError, 3 * passes.MOST_LOSSES) == 1


@pytest.mark.parametrize("is_blamed", [True, False])
def test_a_task_is_not_blamed_for_workers_that_go_with_their_scheduler(is_blamed):
    workforce = fake_workforce(1)
    under_way, answer, n_lost = fake_pass(workforce, 1), workforce.step, 0
    workforce._open = lambda worker: workforce.join(worker.address)
    workforce._scheduler_id = "scheduler 0"

    def step():
        """Answer, once a worker has been lost MOST_LOSSES times, each with its task."""
        nonlocal n_lost
        if n_lost == passes.MOST_LOSSES:
            answer()
            return
        n_lost += 1
        another = {"nthreads": 1, "local_directory": "", "last_seen": 0.0}
        scheduler = "scheduler 0" if is_blamed else f"scheduler {n_lost}"
        workforce._asking = Future()
        workforce._asking.set_result({"workers": {f"fake://{n_lost}": another}, "id": scheduler})
        workforce._members()
        assert list(workforce.workers) == [f"fake://{n_lost}"]

    workforce.step = step
    results = under_way.in_order(ahead=1)
    if is_blamed:
        with pytest.raises(ClusterError, match="4 workers were lost over the same task"):
            list(results)
    else:
        assert len(list(results)) == 1


def test_what_waits_is_shown_again_to_a_scheduler_that_is_started_again():
    workforce, shown = fake_workforce(1), []
    workforce.want = lambda n_tasks, name: shown.append((n_tasks, name))
    for is_lost in (False, True):
        task = SimpleNamespace(cancelled=lambda is_lost=is_lost: is_lost, key="bigsvm-pass-0af")
        workforce._wanted = [task] * 3
        workforce._asking = Future()
        workforce._asking.set_result({"workers": {}, "id": "a scheduler"})
        workforce._members()
        assert shown == is_lost * [(3, "bigsvm-pass")]


def calls_for_each_result(n_workers):
    """Count the functions of Python that a pass enters, for each of its results."""
    workforce, count = fake_workforce(n_workers), 0

    def enter(frame, event, arg):
        nonlocal count
        count += event == "call" and "executors" in frame.f_code.co_filename

    n_calls = 4 * n_workers
    results = fake_pass(workforce, n_calls).in_order(ahead=n_calls)
    sys.setprofile(enter)
    try:
        assert len(list(results)) == n_calls
    finally:
        sys.setprofile(None)
    return count / n_calls


def test_scheduling_is_as_cheap_with_many_workers(monkeypatch):
    monkeypatch.setattr(passes, "LOOK_SECONDS", 1e9)  # looks depend on time, not on results
    few, many = calls_for_each_result(10), calls_for_each_result(500)
    assert many <= 1.2 * few


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
