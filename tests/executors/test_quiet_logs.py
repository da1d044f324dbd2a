"""Dask's logs have nothing alarming about a run: not at its end, nor where a worker is killed."""

import logging

import pytest
from support.cluster_fits import FITS, assert_same_fit, fit, stored
from support.clusters import Disturbance, kill, opened_cluster, process_ids, wait_for_workers
from support.stores import make_chunks_small

distributed = pytest.importorskip("distributed")


@pytest.fixture
def records():
    """Give what Dask logs in this process, where the scheduler is."""
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append(record)

    handler, logger = Keep(logging.WARNING), logging.getLogger("distributed")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.fixture
def problem(tmp_path, many_tasks, monkeypatch):
    make_chunks_small(monkeypatch)
    labels, options = FITS["one-class"]
    return (*stored(tmp_path, labels), options)


def test_a_cluster_that_is_closed_after_a_run_has_lost_nothing(problem, records):
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        for _ in range(3):
            fit(*problem, client)
        left = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
    assert [key for key in left if "bigsvm" in str(key)] == []
    assert [record.getMessage() for record in records if "caused the cluster" in record.msg] == []


@pytest.mark.slow
@pytest.mark.parametrize("phase", [{"phase": "sweep", "share": share} for share in (None, 0.3)])
def test_a_killed_worker_leaves_no_traceback(problem, records, phase):
    expected = fit(*problem)
    with opened_cluster(2) as cluster, distributed.Client(cluster) as client:
        wait_for_workers(client, 2)
        with Disturbance(lambda: kill(process_ids(client)[0]), **phase) as disturbance:
            found = fit(*problem, client)
        told = [record for record in records if record.exc_info]
    assert disturbance.done
    assert_same_fit(found, expected)
    assert [record.getMessage() for record in told] == []


def test_a_worker_that_has_gone_is_sent_nothing(client, records):
    from bigsvm.executors.messages import SentPiece
    from bigsvm.executors.workforce import ResultLostError, Worker, Workforce

    workforce = Workforce(client)
    gone = Worker("tcp://127.0.0.1:1", 1, "")
    here = Worker(next(iter(client.scheduler_info()["workers"])), 1, "")
    reply = workforce.scatter("bigsvm-rows", SentPiece("a", 0, [], []), [gone, here])
    with pytest.raises(ResultLostError):
        reply.result(timeout=30)
    workforce.close()
    assert [record.getMessage() for record in records if "scatter" in record.getMessage()] == []
