"""Faults of one worker are made up for by others; faults of all end the run, which is saved."""

import pytest
from support import faulty_workers
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import (
    MOMENTS,
    Disturbance,
    make_tasks_many,
    opened_cluster,
    wait_for_workers,
)
from support.stores import make_chunks_small

from bigsvm.errors import (
    BigsvmError,
    CheckpointError,
    ClusterError,
    DataCorruptionError,
    StoreError,
)

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.fault("surroundings")


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
def failing(client):
    """Have some workers fail for a while."""

    def fail(what, n_workers):
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])[:n_workers]
        client.run(faulty_workers.fail, what, workers=addresses)
        return addresses

    yield fail
    client.run(faulty_workers.mend)


def saved_and_resumed(problem, model, client, error, match, folder):
    """Hold a fit to an error, and what goes on from its checkpoint to the bits of a model."""
    options = {"checkpoint": str(folder), "checkpoint_every": 1e9}
    with pytest.raises(error, match=match) as raised:
        fit(*problem, client, **options)
    assert list(folder.glob("generation-*"))
    assert_same_fit(fit(*problem, **options), model)
    return raised.value


@pytest.mark.parametrize(
    "what",
    [
        "damage",
        *(
            pytest.param(what, marks=pytest.mark.slow)
            for what in ("missing store", "unreadable store", "defect")
        ),
    ],
)
def test_faults_of_one_worker_are_made_up_for(problem, model, client, failing, what):
    failing(what, 1)
    assert_same_fit(fit(*problem, client), model)


@pytest.mark.parametrize(
    ("what", "error", "match"),
    [
        ("damage", DataCorruptionError, "worker tcp.*: chunk 3 is damaged"),
        ("missing store", ClusterError, "worker tcp.*x.zarr.* at the same path on every machine"),
        ("unreadable store", StoreError, "worker tcp.*x.zarr cannot be read"),
        ("defect", ClusterError, "worker tcp.* failed .KeyError.*resume the run"),
        ("no memory", ClusterError, "worker tcp.* .limit 600000000 bytes. has no memory left"),
    ],
)
def test_faults_of_all_workers_end_a_run_that_is_saved(
    problem, model, client, failing, tmp_path, what, error, match
):
    failing(what, 2)
    raised = saved_and_resumed(problem, model, client, error, match, tmp_path)
    assert isinstance(raised, BigsvmError)


def test_a_worker_with_another_release_is_refused_by_its_address(problem, client, failing):
    (address,) = failing("bigsvm", 1)
    with pytest.raises(ClusterError, match=f"worker {address} has bigsvm 99.1.0, this process"):
        fit(*problem, client)


@pytest.mark.parametrize("what", ["numba", "processor"])
def test_a_worker_that_may_have_other_bits_is_named(problem, model, client, failing, what):
    (address,) = failing(what, 1)
    with pytest.warns(UserWarning, match=f"worker {address} has {what} .*last bits may depend"):
        found = fit(*problem, client)
    assert_same_fit(found, model)


@pytest.mark.slow
def test_tasks_that_kill_their_workers_end_the_run(problem, model, client, tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.executors.passes.MOST_LOSSES", 2)
    client.register_plugin(faulty_workers.plugin_of("end"))
    try:
        saved_and_resumed(
            problem, model, client, ClusterError, "2 workers were lost over the same task", tmp_path
        )
    finally:
        client.unregister_worker_plugin("failing")
        wait_for_workers(client, 2)


@pytest.mark.parametrize(
    "moment",
    [
        "pass",
        *(pytest.param(moment, marks=pytest.mark.slow) for moment in MOMENTS if moment != "pass"),
    ],
)
def test_a_second_run_on_a_checkpoint_is_refused_and_disturbs_nothing(
    problem, model, client, tmp_path, moment
):
    options = {"checkpoint": str(tmp_path), "checkpoint_every": 1e-9}

    def train_too():
        for there in (client, None):
            with pytest.raises(CheckpointError, match=r"in use by process \d+ on .*; wait for it"):
                fit(*problem, there, **options)

    with Disturbance(train_too, **MOMENTS[moment]) as disturbance:
        found = fit(*problem, client, **options)
    assert disturbance.done
    assert_same_fit(found, model)


def test_a_client_that_is_closed_ends_the_run(problem, model, cluster, tmp_path):
    closed = distributed.Client(cluster, set_as_default=False)
    with Disturbance(closed.close, phase="sweep", share=0.3) as disturbance:
        saved_and_resumed(problem, model, closed, ClusterError, "client has been closed", tmp_path)
    assert disturbance.done


def test_a_scheduler_that_ends_ends_the_run(problem, model, tmp_path):
    with opened_cluster(1) as cluster:
        client = distributed.Client(cluster, timeout=3, set_as_default=False)
        with Disturbance(cluster.close, phase="sweep", share=0.3) as disturbance:
            saved_and_resumed(problem, model, client, ClusterError, "does not answer", tmp_path)
        client.close()
    assert disturbance.done
