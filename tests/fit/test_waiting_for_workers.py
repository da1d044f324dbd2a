"""A run whose cluster has no workers yet waits for them, and ends when it is asked to, saved."""

import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest
from support import HANGS, processes
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import Disturbance, opened_cluster
from support.optimum import SOLVERS
from support.problems import clouds
from support.resuming import StopAt
from support.stores import make_chunks_small

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ClusterError, ParameterError
from bigsvm.executors.messages import WorkerTerms
from bigsvm.executors.workforce import Workforce
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks
from bigsvm.training.generations import newest_manifest
from bigsvm.training.result import StopReason

X, CODES = clouds(n=300, k=3, d=4, spread=0.7)
PARAMETERS = {"C": 5.0, "gamma": 0.5, "threads": 1}
KINDS = {
    "two classes": (CODES > 0, {}),
    "a class against the rest": (CODES, {"multiclass": "ovr"}),
    "crammer-singer": (CODES, {"formulation": "crammer-singer"}),
}


@pytest.fixture(params=KINDS)
def problem(request):
    labels, parameters = KINDS[request.param]
    return labels, PARAMETERS | parameters


def train(problem, hooks=None, *, rows=slice(None), **parameters):
    labels, chosen = problem
    source = as_row_source(X[rows].astype(np.float32))
    return train_model(
        source, labels, None, TrainingParameters(**{**chosen, **parameters}), hooks or Hooks()
    )


def test_an_interrupted_wait_ends_saved_and_is_resumed(client_without_workers, problem, tmp_path):
    hooks = Hooks(interrupted=StopAt(5), client=client_without_workers)
    model = train(problem, hooks, checkpoint=str(tmp_path))
    assert model.certificate["stop_reason"] == StopReason.INTERRUPTED
    assert newest_manifest(tmp_path) is not None
    resumed, other = train(problem, checkpoint=str(tmp_path)), train(problem)
    assert resumed.certificate["converged"]
    assert np.array_equal(resumed.support, other.support)
    assert np.array_equal(resumed.intercept, other.intercept)


SEARCHED = {
    **{solver: (CODES > 0, {"formulation": "l2-svc", "solver": solver}) for solver in SOLVERS},
    "one class": (None, {"formulation": "l2-one-class", "solver": "mfw"}),
    "three rows": (CODES > 0, {"formulation": "l2-svc", "solver": "mfw", "C": 0.1}),
}
"""Balls, whose search ends before the run waits for workers."""


@pytest.mark.parametrize("name", SEARCHED)
def test_what_a_search_has_found_outlasts_an_interrupted_wait(
    client_without_workers, monkeypatch, tmp_path, name
):
    """The search is not done again, and its point has to be in the checkpoint."""
    asked, wait = threading.Event(), Workforce.wait_for_workers

    def waited(workforce):
        asked.set()
        wait(workforce)

    monkeypatch.setattr(Workforce, "wait_for_workers", waited)
    labels, chosen = SEARCHED[name]
    rows = slice(2, 5) if name == "three rows" else slice(None)
    problem = (labels if labels is None else labels[rows], PARAMETERS | chosen)
    hooks = Hooks(interrupted=asked.is_set, client=client_without_workers)
    stopped = train(problem, hooks, rows=rows, checkpoint=str(tmp_path))
    assert stopped.certificate["stop_reason"] == StopReason.INTERRUPTED
    resumed = train(problem, rows=rows, checkpoint=str(tmp_path))
    assert_same_fit(resumed, train(problem, rows=rows))


def test_the_time_limit_ends_a_wait_saved(client_without_workers, problem, tmp_path):
    hooks = Hooks(client=client_without_workers)
    model = train(problem, hooks, checkpoint=str(tmp_path), max_seconds=0.5)
    assert model.certificate["stop_reason"] == StopReason.TIME_LIMIT
    assert newest_manifest(tmp_path) is not None


def test_the_time_limit_ends_a_wait_before_the_run_saved(
    client_without_workers, monkeypatch, tmp_path
):
    """Rows that would fit in memory are compared first, by workers."""
    monkeypatch.setattr("bigsvm.fit.variables.DIRECT_ROWS", 100)
    bigsvm.write_store(tmp_path / "x.zarr", X.astype(np.float32), CODES > 0)
    store = bigsvm.open_store(tmp_path / "x.zarr")

    def train_stored(hooks, **limits):
        parameters = {**PARAMETERS, "checkpoint": str(tmp_path / "run"), **limits}
        chosen = TrainingParameters(**parameters)
        return train_model(store.rows, store.labels(), None, chosen, hooks)

    hooks = Hooks(client=client_without_workers)
    stopped = train_stored(hooks, max_seconds=0.5)
    assert stopped.certificate["stop_reason"] == StopReason.TIME_LIMIT
    assert newest_manifest(tmp_path / "run") is not None
    assert_same_fit(train_stored(Hooks()), train_stored(Hooks(), checkpoint=None))
    hooks = Hooks(client=client_without_workers, terms=WorkerTerms(wait=0.3))
    with pytest.raises(ClusterError, match="has had no worker"):  # this one ends first
        train_stored(hooks, checkpoint=None, max_seconds=60.0)


def names_of_tasks(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks]


def fit_and_be_interrupted(address, folder):
    """Fit in a process of its own, which sends itself SIGINT while it waits."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        step, n_steps = Workforce.step, itertools.count(1)

        def interrupted(force):
            if next(n_steps) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            step(force)

        Workforce.step = interrupted
        with pytest.raises(KeyboardInterrupt):
            bigsvm.SVC(checkpoint=folder).fit(X, CODES > 0, client=client)
        deadline = time.monotonic() + HANGS
        while names := client.run_on_scheduler(names_of_tasks):  # though the client is still there
            assert time.monotonic() < deadline, names
            time.sleep(0.02)


@pytest.mark.parametrize("saves", [True, False])
def test_ctrl_c_ends_a_wait_of_fit(client_without_workers, tmp_path, saves):
    address = client_without_workers.scheduler.address
    folder = str(tmp_path) if saves else None
    assert processes.run(fit_and_be_interrupted, address, folder) == 0
    assert (newest_manifest(tmp_path) is not None) == saves


def test_a_run_that_waits_no_longer_is_saved_and_says_how_to_start_workers(
    client_without_workers, problem, tmp_path
):
    address = client_without_workers.scheduler.address
    hooks = Hooks(client=client_without_workers, terms=WorkerTerms(wait=0.5))
    with pytest.raises(ClusterError, match=f"{address} has had no worker .*dask worker {address}$"):
        train(problem, hooks, checkpoint=str(tmp_path))
    assert newest_manifest(tmp_path) is not None


def test_a_run_without_limit_says_now_and_then_that_it_waits(
    client_without_workers, monkeypatch, caplog
):
    monkeypatch.setattr("bigsvm.executors.workforce.TOLD_SECONDS", 0.3)
    hooks = Hooks(client=client_without_workers)
    train((CODES > 0, PARAMETERS), hooks, max_seconds=1.5)
    told = [record.getMessage() for record in caplog.records if record.name == "bigsvm"]
    assert 2 <= len(told) <= 5
    assert all("and the run waits; start workers, as with: dask worker" in line for line in told)


@pytest.mark.parametrize("wait", [-1, "long", float("nan")])
def test_a_wait_that_is_no_number_of_seconds_is_refused(client_without_workers, wait):
    with pytest.raises(ParameterError, match=r"worker_wait is .*it must be a number of seconds"):
        bigsvm.SVC().fit(X, CODES, client=client_without_workers, worker_wait=wait)
    with pytest.raises(ParameterError, match="worker_wait is 5, but there are no workers"):
        bigsvm.SVC().fit(X, CODES, worker_wait=5)


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_a_cluster_that_grows_from_nothing_trains(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    make_chunks_small(monkeypatch)
    options = FITS["c-svc"][1]
    rows, y = stored(tmp_path, "two")
    with opened_cluster(0) as cluster, distributed.Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=2, interval="200ms", target_duration="50ms")
        model = fit(rows, y, options, client)
        for _ in range(100):  # nor does the cluster go on to see tasks that wait
            if not client.futures:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"tasks are left: {list(client.futures)}")
    assert model.certificate["n_workers"] >= 1
    assert_same_fit(model, fit(rows, y, options))


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_a_run_whose_workers_have_all_left_can_be_ended_and_goes_on_here(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    make_chunks_small(monkeypatch)
    rows, _ = stored(tmp_path, "none")
    options = FITS["one-class"][1] | {"checkpoint": str(tmp_path / "run")}
    asked = []
    """How often the run has asked whether to stop, since its workers have left."""

    def lose_all():
        client.cluster.scale(0)
        while client.scheduler_info()["workers"]:
            time.sleep(0.05)
        asked.append(0)

    def is_interrupted():
        if asked:
            asked[0] += 1
        return bool(asked) and asked[0] > 5

    with opened_cluster(1) as cluster, distributed.Client(cluster) as client:
        with Disturbance(lose_all, phase="sweep", share=0.3):
            model = fit(rows, None, options, client, interrupted=is_interrupted)
    assert model.certificate["stop_reason"] == StopReason.INTERRUPTED
    assert_same_fit(fit(rows, None, options), fit(rows, None, FITS["one-class"][1]))
