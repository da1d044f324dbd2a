"""
A Dask array larger than memory
===============================

The array is never whole in memory: it is computed block by block while it is written to a store,
whose rows are in random order and cheap to read again, as every sweep of the training does.
Predictions are a lazy Dask array.
"""

import tempfile
from pathlib import Path

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

import bigsvm

ROWS, COLUMNS = 150_000, 64
MEMORY = 36_000_000

y = np.random.default_rng(0).integers(0, 2, ROWS)
sides = da.from_array(0.45 * (2 * y - 1), chunks=20_000)
noise = da.random.default_rng(1).normal(size=(ROWS, COLUMNS), chunks=(20_000, COLUMNS))
X = (noise + sides[:, None]).astype(np.float32)
print(f"the array takes {X.nbytes} bytes, the memory budget is {MEMORY}")

with tempfile.TemporaryDirectory() as folder:
    store = bigsvm.write_store(Path(folder) / "clouds.zarr", X, y, memory=MEMORY)
    classifier = bigsvm.SVC(C=1, gamma=0.005, memory=MEMORY).fit(store)
certificate = classifier.certificate_
print(
    f"{certificate['stop_reason']} after {certificate['n_sweeps']} sweeps: "
    f"{certificate['n_support']} support vectors, KKT gap {certificate['gap']:.2g}"
)

# %%
# Decision values of all rows, a block at a time. Rows between -1 and 1 are within the margin.
predicted = classifier.predict(X)
print(f"lazy: {predicted}")
print(f"accuracy: {(predicted == da.from_array(y, chunks=predicted.chunks)).mean().compute():.4f}")
counts, edges = da.histogram(classifier.decision_function(X), bins=60, range=(-6, 6))
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
axis.stairs(counts.compute(), edges, fill=True, alpha=0.7)
axis.axvspan(-1, 1, color="0.5", alpha=0.3)
axis.set(xlabel="decision value", ylabel="rows", xlim=(-6, 6))
