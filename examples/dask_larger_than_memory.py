"""
A Dask array larger than memory
===============================

Train on a Dask array that is larger than the memory budget, and predict it lazily.

    python examples/dask_larger_than_memory.py [FOLDER]

The array is never whole in memory: it is computed block by block while it is written to a store,
whose rows are in random order and cheap to read again, as every sweep of the training does.
"""

import sys
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np

import bigsvm

ROWS, COLUMNS = 150_000, 64
MEMORY = 36_000_000


def two_clouds() -> tuple[da.Array, np.ndarray]:
    """Rows around two centres, far enough apart for a few hundred support vectors."""
    y = np.random.default_rng(0).integers(0, 2, ROWS)
    sides = da.from_array(0.45 * (2 * y - 1), chunks=20_000)
    noise = da.random.default_rng(1).normal(size=(ROWS, COLUMNS), chunks=(20_000, COLUMNS))
    return (noise + sides[:, None]).astype(np.float32), y


def main(folder: Path) -> None:
    """Write, train, predict."""
    X, y = two_clouds()
    print(f"the array takes {X.nbytes} bytes, the memory budget is {MEMORY}")
    store = bigsvm.write_store(folder / "clouds.zarr", X, y, memory=MEMORY)

    classifier = bigsvm.SVC(C=1, gamma=0.005, memory=MEMORY).fit(store)
    certificate = classifier.certificate_
    print(
        f"{certificate['stop_reason']} after {certificate['n_sweeps']} sweeps: "
        f"{certificate['n_support']} support vectors, KKT gap {certificate['gap']:.2g}"
    )

    predicted = classifier.predict(X)
    print(f"lazy: {predicted}")
    print(
        f"accuracy: {(predicted == da.from_array(y, chunks=predicted.chunks)).mean().compute():.4f}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
