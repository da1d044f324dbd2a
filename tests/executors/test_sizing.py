"""What `worker_memory` a run needs, held to what workers read."""

import numpy as np
import pytest
from support.clusters import wait_for_workers
from support.stores import make_chunks_small

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.rows import RowsAt
from bigsvm.data.store import open_store
from bigsvm.executors import worker_state
from bigsvm.executors.cluster import ClusterExecutor
from bigsvm.executors.executor import WeightedRows
from bigsvm.executors.messages import WorkerTerms
from bigsvm.executors.sizing import worker_memory_for
from bigsvm.executors.workforce import Workforce
from bigsvm.gram import KernelTiles
from bigsvm.kernels import RBF

N_ROWS, N_COLUMNS, N_MOVED, N_PASSES = 8000, 100, 500, 5


def _keep_at_least(n_bytes):
    worker_state.LEAST_KEPT_BYTES = n_bytes


@pytest.fixture
def rows(tmp_path, monkeypatch):
    make_chunks_small(monkeypatch)
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    write_store(tmp_path / "rows.zarr", X, np.zeros(N_ROWS))
    return open_store(tmp_path / "rows.zarr").rows


@pytest.fixture
def exact_workers(client):
    """Workers that keep no more than they may."""
    wait_for_workers(client, 2)
    before = worker_state.LEAST_KEPT_BYTES
    client.run(_keep_at_least, 0)
    yield client
    client.run(_keep_at_least, before)


def times_read(client, rows, memory):
    """How often workers read the rows in some passes."""
    workforce = Workforce(client, WorkerTerms(memory))
    with KernelTiles(RBF(gamma=0.01), threads=1) as tiles:
        executor = ClusterExecutor(workforce, rows, tiles, block_bytes=1 << 20)
        while len(workforce.ready()) < 2:
            executor.wait_until_ready()
        moved = RowsAt(rows.read(0, N_MOVED), np.arange(N_MOVED))
        for _ in range(N_PASSES):
            for _ in executor.run(
                WeightedRows.held(moved, np.ones(N_MOVED)), start=0, stop=rows.n_rows
            ):
                pass
    workforce.close()
    return sum(workforce.traffic.bytes_read.values()) / (rows.n_rows * rows.bytes_per_row)


def test_rows_are_read_once_with_the_memory_for_it_and_again_with_the_least(exact_workers, rows):
    needed = worker_memory_for(rows, N_MOVED, [1, 1])
    assert needed.least < needed.once
    # An idle worker may read a unit that another one keeps.
    assert 1 <= times_read(exact_workers, rows, needed.once) < 1.5
    assert times_read(exact_workers, rows, needed.least) > 2


@pytest.mark.parametrize(
    ("n_support", "threads", "once_in_shares"),
    [(0, [1, 1], 1), (N_ROWS, [1, 1], 3), (N_ROWS // 10, [1, 1], 1.4), (0, [2, 2, 2, 2], 1)],
)
def test_memory_for_reading_once_is_a_share_of_the_rows_and_the_support_vectors(
    n_support, threads, once_in_shares
):
    rows = ArrayRows(np.zeros((N_ROWS, N_COLUMNS), np.float32))
    share = 4 * N_ROWS * N_COLUMNS * threads[0] / sum(threads)
    under_way = 4 * N_COLUMNS * threads[0] * (N_ROWS // (8 * sum(threads)))
    needed = worker_memory_for(rows, n_support, threads)
    assert needed.once == pytest.approx(under_way + once_in_shares * share)
    assert needed.least == under_way + 3 * 512 * 4 * N_COLUMNS
