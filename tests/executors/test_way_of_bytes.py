"""Bytes go between this process and workers directly, or through the scheduler if they must."""

import numpy as np
import pytest
from support.cluster_fits import N_ROWS, stored

from bigsvm.executors.cluster import ClusterExecutor
from bigsvm.executors.executor import WeightedRows
from bigsvm.executors.workforce import Workforce
from bigsvm.gram import KernelTiles
from bigsvm.gram.partners import rows_at
from bigsvm.kernels import RBF

pytest.importorskip("distributed")


@pytest.fixture
def rows(tmp_path):
    return stored(tmp_path, "two")[0]


def sums_of_workers(client, rows):
    """Sums of a pass, the workforce that was used, and the sums of this process."""
    workforce, weights = Workforce(client), np.linspace(-1, 1, 50)
    try:
        with KernelTiles(RBF(gamma=0.1), threads=1) as tiles:
            executor = ClusterExecutor(workforce, rows, tiles, block_bytes=1 << 20)
            executor.wait_until_ready()
            weighted = WeightedRows.held(rows_at(rows.read(0, 50)), weights)
            parts = [part.added for part in executor.run(weighted, start=0, stop=N_ROWS)]
    finally:
        workforce.close()
    X = rows.read(0, N_ROWS).astype(np.float64)
    squares = ((X[:, None] - X[:50]) ** 2).sum(axis=2)
    return np.concatenate(parts), workforce, np.exp(-0.1 * squares) @ weights


def test_results_and_rows_do_not_go_through_the_scheduler(client, rows, monkeypatch):
    async def fails(**options):
        raise AssertionError("bytes went through the scheduler")

    for name in ("gather", "scatter"):
        monkeypatch.setattr(client.scheduler, name, fails, raising=False)
    sums, workforce, expected = sums_of_workers(client, rows)
    assert all(worker.is_reached for worker in workforce.workers.values())
    np.testing.assert_allclose(sums, expected, atol=1e-4)


def test_workers_that_cannot_be_reached_send_by_way_of_the_scheduler(
    client, rows, monkeypatch, caplog
):
    def refused(who_has, rpc):
        raise OSError("no route to host")

    monkeypatch.setattr("distributed.utils_comm.gather_from_workers", refused)
    sums, workforce, expected = sums_of_workers(client, rows)
    assert len(workforce.workers) == 2
    assert not any(worker.is_reached for worker in workforce.workers.values())
    np.testing.assert_allclose(sums, expected, atol=1e-4)
    told = [record.message for record in caplog.records if "be reached" in record.message]
    assert len(told) == 1
    assert "its results come by way of the scheduler tcp://" in told[0]
