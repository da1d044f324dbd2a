"""A coordinator that is killed is resumed on other workers, or on none, to the same bits."""

import os
import shutil
import signal

import pytest
from support import processes
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import MOMENTS as FOUR_MOMENTS
from support.clusters import Disturbance, make_tasks_many, opened_cluster
from support.stores import make_chunks_small

from bigsvm.training.generations import newest_manifest
from bigsvm.working_sets import choice

distributed = pytest.importorskip("distributed")

MOMENTS = {
    "fill": {"phase": "fill", "share": 0.3},
    "take": {"phase": "solve", "name": "bigsvm-take", "share": 0.3},
    "active product": {"phase": "solve", "name": "bigsvm-active", "share": 0.3},
    "grow": {"phase": "grow", "share": 0.3},
    "sending rows": {"phase": "sweep", "share": None},
    "sweep at 0 %": {"phase": "sweep", "share": 0.0},
    "sweep at 30 %": {"phase": "sweep", "share": 0.3},
    "sweep at 90 %": {"phase": "sweep", "share": 0.9},
    **{moment: FOUR_MOMENTS[moment] for moment in ("start", "checkpoint", "certificate")},
}


def prepare(patch):
    """Make passes of many tasks, and scopes that grow, though there are few rows."""
    make_tasks_many(patch)
    patch.setattr(choice, "DIRECT_ROWS", 100)
    patch.setattr(choice, "FIRST_SCOPE", 1400)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        prepare(patch)
        labels, options = FITS["one-class"]
        rows, y = stored(tmp_path_factory.mktemp("stores"), labels)
        yield rows, y, options


@pytest.fixture(scope="module")
def model(problem):
    return fit(*problem)


@pytest.fixture(scope="module")
def one_worker():
    with opened_cluster(1) as cluster, distributed.Client(cluster) as client:
        yield client


def coordinate(address, problem, folder, moment):
    """Train, with a checkpoint, until this process kills itself at a moment."""
    prepare(pytest.MonkeyPatch())

    def end():
        os.kill(os.getpid(), signal.SIGKILL)

    with distributed.Client(address) as client, Disturbance(end, **MOMENTS[moment]):
        # It is saved whenever it asks whether it is time to.
        fit(*problem, client, checkpoint=str(folder / "run"), checkpoint_every=1e-9)


def killed_and_resumed(problem, model, cluster, folder, moment, others):
    process = processes.start(coordinate, cluster.scheduler_address, problem, folder, moment)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    newest = newest_manifest(folder / "run")
    assert (newest is None) == (moment in ("start", "checkpoint"))  # before the first one
    if moment in ("sweep at 30 %", "sweep at 90 %"):
        # What workers have returned of a pass is not lost.
        assert newest["values"]["phase"] == "sweep"
        assert newest["values"]["rows_done"] > 0
    for number, client in enumerate(others):
        copy = folder / str(number)
        shutil.copytree(folder / "run", copy)
        assert_same_fit(fit(*problem, client, checkpoint=str(copy)), model)


@pytest.mark.slow
@pytest.mark.fault("surroundings")
def test_resumed_on_one_worker_and_on_none(problem, model, cluster, one_worker, tmp_path):
    killed_and_resumed(problem, model, cluster, tmp_path, "sweep at 30 %", [one_worker, None])


@pytest.mark.slow
@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("moment", MOMENTS)
def test_resumed_after_every_moment(problem, model, cluster, one_worker, tmp_path, moment):
    killed_and_resumed(problem, model, cluster, tmp_path, moment, [one_worker, None])
