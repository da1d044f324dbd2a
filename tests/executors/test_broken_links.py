"""Schedulers that end and come back, and networks that break, change no bit of the model."""

import os
import signal
import threading
import time
from contextlib import ExitStack
from functools import partial

import pytest
from support import HANGS
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import MOMENTS, Disturbance, make_tasks_many
from support.networks import Relay, free_port, processes_of
from support.stores import make_chunks_small

from bigsvm.errors import ClusterError
from bigsvm.executors.workforce import Workforce

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.fault("surroundings")]

SPLIT_SECONDS = 20.0


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        make_tasks_many(patch)
        labels, options = FITS["c-svc"]
        rows, y = stored(tmp_path_factory.mktemp("stores"), labels)
        yield rows, y, options


@pytest.fixture(scope="module")
def model(problem):
    return fit(*problem)


@pytest.fixture
def stack():
    """What a test opens, closed in the end."""
    with ExitStack() as stack:
        yield stack


def connected(stack, address, n_workers, **options):
    """Open a client of a scheduler, with so many workers."""
    client = distributed.Client(address, set_as_default=False, **options)
    stack.callback(client.close)
    if n_workers:
        client.wait_for_workers(n_workers, timeout=HANGS)
    return client


def disturbed(act, moment, problem, client, folder):
    """Fit while something happens at a moment; returns the model."""
    options = {}
    if moment == "checkpoint":
        options = {"checkpoint": str(folder / "run"), "checkpoint_every": 1e-9}
    with Disturbance(act, **MOMENTS[moment]) as disturbance:
        found = fit(*problem, client, **options)
    assert disturbance.done
    return found


def meanwhile(act):
    """Return a function that has a thread do something."""
    return lambda: threading.Thread(target=act, daemon=True).start()


def start_again(started, n_workers):
    """Kill a scheduler, whose workers end with it, and start it with new ones."""
    started.scheduler.kill()
    started.scheduler.wait()
    started.start_scheduler()
    for _ in range(n_workers):
        started.start_worker()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_scheduler_that_is_killed_and_started_again(
    problem, model, stack, tmp_path, at_once, moment
):
    """The run goes on with new workers; Dask's own end with their scheduler."""
    started = stack.enter_context(processes_of(tmp_path, 2))
    client = connected(stack, started.address, 2)
    act = partial(start_again, started, 2)
    act = act if at_once else meanwhile(act)
    assert_same_fit(disturbed(act, moment, problem, client, tmp_path), model)


def test_tasks_are_not_blamed_for_a_scheduler_that_ends_again_and_again(
    problem, model, stack, tmp_path, monkeypatch
):
    monkeypatch.setattr("bigsvm.executors.passes.MOST_LOSSES", 2)
    started, times = stack.enter_context(processes_of(tmp_path, 1)), []
    client, submit = connected(stack, started.address, 1), Workforce.submit

    def submitted(force, worker, name, *given):
        future = submit(force, worker, name, *given)
        if name == "bigsvm-pass" and len(times) < 3:
            times.append(name)
            start_again(started, 1)
        return future

    monkeypatch.setattr(Workforce, "submit", submitted)
    assert_same_fit(fit(*problem, client), model)
    assert len(times) == 3


def test_a_scheduler_that_is_started_again_is_shown_what_waits(problem, model, stack, tmp_path):
    """Else a cluster that adapts to its load would start no worker."""
    started = stack.enter_context(processes_of(tmp_path, 0))
    client = connected(stack, started.address, 0)
    found = []
    run = threading.Thread(target=lambda: found.append(fit(*problem, client)), daemon=True)
    run.start()
    for is_new in (False, True):
        if is_new:
            start_again(started, 0)
        deadline = time.monotonic() + HANGS
        while not any(name.startswith("bigsvm-open") for name in names_of_tasks(client)):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    started.start_worker()
    run.join(HANGS)
    assert_same_fit(found[0], model)


def names_of_tasks(client):
    """Names of the tasks that the scheduler knows; none while it cannot be asked."""

    def names(dask_scheduler):  # of no module, which the scheduler could not import
        return [str(key) for key in dask_scheduler.tasks]

    try:
        return client.run_on_scheduler(names)
    except OSError:
        return []


def test_a_scheduler_that_is_killed_for_good_ends_a_run_that_is_saved(
    problem, model, stack, tmp_path
):
    started = stack.enter_context(processes_of(tmp_path, 1))
    connected(stack, started.address, 1)  # it may take long to start
    client = connected(stack, started.address, 1, timeout=3)
    options = {"checkpoint": str(tmp_path / "run"), "checkpoint_every": 1e9}
    with Disturbance(started.scheduler.kill, phase="sweep", share=0.3) as disturbance:
        with pytest.raises(ClusterError, match=r"^the scheduler .* does not answer, or") as raised:
            fit(*problem, client, **options)
    assert disturbance.done
    assert "\n" not in str(raised.value)
    others = stack.enter_context(processes_of(tmp_path, 2))
    client = connected(stack, others.address, 2)
    assert_same_fit(fit(*problem, client, **options), model)


BREAKS = {"split": lambda relay: relay.split(SPLIT_SECONDS), "cut": Relay.cut}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", BREAKS)
def test_the_link_of_a_worker_breaks(problem, model, stack, tmp_path, kind, moment):
    """The worker and the rest of the cluster do not reach each other."""
    started = stack.enter_context(processes_of(tmp_path, 2))
    own_port = free_port()
    there, back = Relay(own_port), Relay(int(started.address.rpartition(":")[2]))
    stack.callback(there.close)
    stack.callback(back.close)
    started.start_worker(
        "--listen-address", f"tcp://127.0.0.1:{own_port}", "--contact-address", there.address,
        scheduler=back.address,
    )  # fmt: skip
    client = connected(stack, started.address, 3)
    assert there.address in client.scheduler_info(n_workers=-1)["workers"]

    def act():
        for relay in (there, back):
            BREAKS[kind](relay)

    assert_same_fit(disturbed(act, moment, problem, client, tmp_path), model)


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("moment", ["sending rows", *MOMENTS])
def test_the_link_of_the_coordinator_breaks(
    problem, model, stack, tmp_path, monkeypatch, kind, moment
):
    monkeypatch.setitem(MOMENTS, "sending rows", {"phase": "sweep", "share": None})
    started = stack.enter_context(processes_of(tmp_path, 2))
    relay = Relay(int(started.address.rpartition(":")[2]))
    stack.callback(relay.close)
    connected(stack, started.address, 2)  # the relay refuses who comes before
    client = connected(stack, relay.address, 2)
    act = partial(BREAKS[kind], relay)
    assert_same_fit(disturbed(act, moment, problem, client, tmp_path), model)


def test_a_worker_is_killed_while_it_sends_a_result(problem, model, stack, tmp_path):
    def fail_while_sending(dask_worker):  # of no module, which workers could not import
        """Have a worker send the beginning of a result of a pass, and end."""
        send = dask_worker.handlers["get_data"]

        async def send_a_part(comm, keys=(), **options):
            if any(str(key).startswith("bigsvm-pass") for key in keys):
                await comm.stream.write((1 << 20).to_bytes(8, "little"))
                os.kill(os.getpid(), signal.SIGKILL)
            return await send(comm, keys=keys, **options)

        dask_worker.handlers["get_data"] = send_a_part

    started = stack.enter_context(processes_of(tmp_path, 2))
    client = connected(stack, started.address, 2)
    address = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    client.run(fail_while_sending, workers=[address])
    assert_same_fit(fit(*problem, client), model)
    assert address not in client.scheduler_info(n_workers=-1)["workers"]
