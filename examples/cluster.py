"""
Workers of a cluster
====================

Train and predict with the workers of a Dask cluster, and compare with one machine. Two processes of
this machine stand for a cluster. For a real one, give ``Client`` the address of its scheduler, and
put the store at a path or a URL that all workers can read.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import bigsvm

ROWS, COLUMNS = 20_000, 20


def main(folder: Path) -> None:
    """Write a store, train there and here, predict there."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, ROWS)
    X = (rng.normal(size=(ROWS, COLUMNS)) + 0.45 * (2 * y - 1)[:, None]).astype(np.float32)
    path = folder / "clouds.zarr"
    bigsvm.write_store(path, X, y)

    classifier = bigsvm.SVC(C=1, gamma=0.02, memory="16MB")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        classifier.fit(path, client=client)
        accuracy = classifier.score(path)
    certificate = classifier.certificate_
    print(
        f"{certificate['stop_reason']}: {certificate['n_support']} support vectors, "
        f"{certificate['n_workers']} workers did {certificate['tasks']} tasks"
    )
    print(f"accuracy: {accuracy:.3f}")

    alone = bigsvm.SVC(C=1, gamma=0.02, memory="16MB").fit(path)
    same = np.array_equal(alone.dual_coef_, classifier.dual_coef_)
    print(f"the model of one machine is {'the same' if same else 'another one'}")

    # Both fits went the same way, working set by working set.
    _, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    bigsvm.HistoryDisplay(classifier.working_set_history_, tol=classifier.tol).plot(axis)


# A process that Dask starts imports this module, and must not start processes itself.
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
