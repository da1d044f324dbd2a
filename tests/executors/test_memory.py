"""Workers and the coordinator keep to their memory, though the rows are larger."""

import threading

import numpy as np
import psutil
import pytest
from support import processes
from support.clusters import MEMORY_LIMIT, opened_cluster, process_ids

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.store import open_store
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.events import Hooks

distributed = pytest.importorskip("distributed")

N_ROWS, N_COLUMNS = 1_000_000, 54
"""216 MB: a worker cannot keep its half."""
BUDGET = 100 * 10**6
MOST_OF_LIMIT = 0.6
POLL_SECONDS = 0.05


class Peaks:
    """Largest resident sizes of some processes while a block runs."""

    def __init__(self, process_ids):
        self._processes = [psutil.Process(number) for number in process_ids]
        self._stop, self.bytes = threading.Event(), dict.fromkeys(process_ids, 0)
        self._thread = threading.Thread(target=self._poll)

    def _poll(self):
        while not self._stop.wait(POLL_SECONDS):
            for process in self._processes:
                size = process.memory_info().rss
                self.bytes[process.pid] = max(self.bytes[process.pid], size)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._stop.set()
        self._thread.join()


def make_store(path, n_rows):
    """Two classes that hardly overlap, so that there are few support vectors."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n_rows)
    X = rng.standard_normal((n_rows, N_COLUMNS), dtype=np.float32)
    X[:, :8] += (2 * y[:, None] - 1).astype(np.float32)
    write_store(path, X, y)


def train(path, client):
    store = open_store(path)
    parameters = TrainingParameters(
        formulation="c-svc", C=1.0, gamma=0.01, tol=0.1, memory=BUDGET, threads=1, seed=0
    )
    return train_model(store.rows, store.labels(), None, parameters, Hooks(client=client))


def coordinate(address, folder):
    """Train a small problem, which loads compiled code, and then a large one; note the sizes."""
    with distributed.Client(address) as client:
        train(folder / "small.zarr", client)
        before = psutil.Process().memory_info().rss
        with Peaks([psutil.Process().pid]) as peaks:
            model = train(folder / "large.zarr", client)
        (peak,) = peaks.bytes.values()
        labels = 8 * N_ROWS  # given to the fit, not counted in its budget
        converged = int(model.certificate["converged"])
        (folder / "sizes").write_text(f"{peak - before - labels} {converged}")


@pytest.mark.slow
def test_resident_sizes(tmp_path):
    for name, n_rows in (("small", 20_000), ("large", N_ROWS)):
        assert processes.run(make_store, tmp_path / f"{name}.zarr", n_rows) == 0
    with opened_cluster(2) as cluster, distributed.Client(cluster) as client:
        workers = process_ids(client)
        with Peaks(workers) as peaks:
            assert processes.run(coordinate, cluster.scheduler_address, tmp_path) == 0
        assert process_ids(client) == workers
    grown, converged = map(int, (tmp_path / "sizes").read_text().split())
    print(
        f"workers {[size / 1e6 for size in peaks.bytes.values()]} MB, coordinator {grown / 1e6} MB"
    )
    assert converged
    assert max(peaks.bytes.values()) < MOST_OF_LIMIT * MEMORY_LIMIT
    assert grown < BUDGET
