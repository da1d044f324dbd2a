"""Workers that are killed, stopped and added at any moment of a run change no bit of the model."""

import time
from functools import partial
from pathlib import Path

import pytest
from support import HANGS
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import (
    MOMENTS as FOUR_MOMENTS,
)
from support.clusters import (
    Disturbance,
    go_on,
    kill,
    opened_cluster,
    process_ids,
    stop,
    wait_for_workers,
)
from support.stores import make_chunks_small

from bigsvm.executors import workforce
from bigsvm.training.events import Left
from bigsvm.working_sets import choice

distributed = pytest.importorskip("distributed")

N_WORKERS = 3
STOPPED_SECONDS = 60.0
MOMENTS = {
    "opening": {"phase": "opening"},
    "fill": {"phase": "fill", "share": 0.3},
    "take": {"phase": "solve", "name": "bigsvm-take", "share": 0.3},
    "active product": {"phase": "solve", "name": "bigsvm-active", "share": 0.3},
    "sending rows": {"phase": "sweep", "share": None},
    "sweep at 0 %": {"phase": "sweep", "share": 0.0},
    "sweep at 30 %": {"phase": "sweep", "share": 0.3},
    "sweep at 90 %": {"phase": "sweep", "share": 0.9},
    "grow": {"phase": "grow", "share": 0.3},
    "certificate": FOUR_MOMENTS["certificate"],
    "checkpoint": FOUR_MOMENTS["checkpoint"],
}
ACTS = ("kill one", "kill all", "stop one", "add one", "restart", "scale")
A_SLICE = [
    ("sweep at 30 %", "kill all"),
    ("sweep at 0 %", "add one"),
    ("active product", "kill one"),
    ("grow", "stop one"),
    ("certificate", "kill one"),
]


@pytest.fixture(autouse=True)
def several_scopes(many_tasks, monkeypatch):
    """The scope grows, though there are few rows."""
    monkeypatch.setattr(choice, "DIRECT_ROWS", 100)
    monkeypatch.setattr(choice, "FIRST_SCOPE", 1400)
    # On a busy machine a run would begin with some of the workers, and with fewer tasks.
    monkeypatch.setattr(workforce, "OPEN_SECONDS", 300.0)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        labels, options = FITS["one-class"]
        rows, y = stored(tmp_path_factory.mktemp("stores"), labels)
    return rows, y, options


@pytest.fixture(scope="module")
def client():
    with opened_cluster(N_WORKERS) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def undisturbed():
    """The model: once per module."""
    return {}


def expected(undisturbed, problem, client):
    if not undisturbed:
        undisturbed["model"] = fit(*problem)
        fit(*problem, client)  # loads compiled code
    return undisturbed["model"]


def act(kind, client, seconds):
    """Make one of `ACTS`, which ends by itself."""
    workers = process_ids(client)
    if kind == "add one":
        wait_for_workers(client, N_WORKERS + 1)
    elif kind.startswith("stop"):
        for worker in workers if kind == "stop all" else workers[:1]:
            stop(worker, seconds)
    elif kind == "restart":
        client.restart()
    elif kind == "scale":
        client.cluster.scale(0)
        while client.scheduler_info()["workers"]:
            time.sleep(0.05)
        client.cluster.scale(2)
    else:
        for worker in workers if kind == "kill all" else workers[:1]:
            kill(worker)


def is_stopped(process_id):
    """Whether a process is stopped, by what the kernel says of it after its name."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def disturb(problem, client, undisturbed, moment, kind, seconds, folder):
    model = expected(undisturbed, problem, client)
    wait_for_workers(client, N_WORKERS)
    events, workers = [], process_ids(client)
    act_then = partial(act, kind, client, seconds)
    moment = {**MOMENTS, **FOUR_MOMENTS}[moment]
    try:
        with Disturbance(act_then, **moment) as disturbance:
            found = fit(*problem, client, events.append, **saved(moment, folder))
    finally:
        for worker in workers:
            go_on(worker)
        wait_for_workers(client, N_WORKERS)
    assert disturbance.done
    assert_same_fit(found, model)
    return events


def saved(moment, folder):
    """Options of a fit that is saved at every opportunity, if the moment is when it is saved."""
    if moment["phase"] != "checkpoint":
        return {}
    return {"checkpoint": str(folder / "run"), "checkpoint_every": 1e-9}


@pytest.mark.parametrize(("moment", "kind"), A_SLICE)
def test_bits_stay(problem, client, undisturbed, tmp_path, moment, kind):
    events = disturb(problem, client, undisturbed, moment, kind, 3.0, tmp_path)
    if kind == "kill all":
        assert len([event for event in events if isinstance(event, Left)]) == N_WORKERS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ACTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_bits_stay_after_everything(problem, client, undisturbed, tmp_path, moment, kind):
    disturb(problem, client, undisturbed, moment, kind, STOPPED_SECONDS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("moment", FOUR_MOMENTS)
def test_a_run_waits_while_all_workers_are_stopped_for_a_minute(
    problem, client, undisturbed, tmp_path, moment
):
    began = time.monotonic()
    disturb(problem, client, undisturbed, moment, "stop all", STOPPED_SECONDS, tmp_path)
    assert time.monotonic() - began > STOPPED_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("n_workers", [2, N_WORKERS])
def test_a_run_does_not_wait_for_a_worker_that_is_stopped_for_ever(
    problem, client, undisturbed, tmp_path, moment, n_workers
):
    model = expected(undisturbed, problem, client)
    wait_for_workers(client, n_workers)
    (stopped, *_) = process_ids(client)
    act = partial(stop, stopped, 2 * HANGS)
    try:
        with Disturbance(act, **MOMENTS[moment]) as disturbance:
            found = fit(*problem, client, **saved(MOMENTS[moment], tmp_path))
        assert disturbance.done
        assert is_stopped(stopped)
    finally:
        go_on(stopped)
        wait_for_workers(client, N_WORKERS)
    assert_same_fit(found, model)


@pytest.mark.slow
def test_a_copy_that_only_a_stopped_worker_has_is_sent_anew(
    problem, client, undisturbed, monkeypatch
):
    """Dask has dropped the others, and a worker fetches one from the worker that has stopped."""
    model = expected(undisturbed, problem, client)
    wait_for_workers(client, 2)
    scatter, stopped = workforce.Workforce.scatter, []

    def dropped_and_stopped(force, name, value, workers):
        reply = scatter(force, name, value, workers)
        if len(workers) > 1 and not stopped:
            key = reply.result(HANGS).key
            while len(client.who_has()[key]) > 1:
                time.sleep(0.05)
            (holder,) = client.who_has()[key]
            nannies = client.cluster.workers.values()
            stopped.extend(nanny.pid for nanny in nannies if nanny.worker_address == holder)
            stop(stopped[0], 2 * HANGS)
        return reply

    monkeypatch.setattr(workforce.Workforce, "scatter", dropped_and_stopped)
    try:
        found = fit(*problem, client)
        assert is_stopped(stopped[0])
    finally:
        go_on(stopped[0])
        wait_for_workers(client, N_WORKERS)
    assert_same_fit(found, model)
