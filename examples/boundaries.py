"""
Decision boundary and margins of rows on disk
=============================================

The rows are in a store on disk, and training reads them in blocks. Of 100 000 rows, few become
support vectors: the others could be left out, and the boundary would be the same.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import bigsvm

X, y = make_moons(100_000, noise=0.18, random_state=0)
with tempfile.TemporaryDirectory() as folder:
    store = bigsvm.write_store(Path(folder) / "moons.zarr", X.astype(np.float32), y)
    model = bigsvm.SVC(C=1, gamma=2, memory="24MB").fit(store)
certificate = model.certificate_
print(f"{model.stop_reason_}: {len(model.support_)} support vectors of {len(X)} rows")
print(f"KKT gap {model.gap_:.1e}, {certificate['n_sweeps']} passes over all rows")

# %%
# Between the dashed lines are the rows within the margin. Support vectors that are farther on the
# wrong side have the largest coefficient that ``C`` allows; those on the margin have smaller ones.
horizontal, vertical = np.meshgrid(np.linspace(-1.8, 2.8, 150), np.linspace(-1.3, 1.8, 150))
grid = np.column_stack([horizontal.ravel(), vertical.ravel()])
values = model.decision_function(grid).reshape(horizontal.shape)
on_margin = np.abs(np.asarray(model.dual_coef_).ravel()) < model.C

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
left.hexbin(*X.T, C=y, gridsize=70, cmap="coolwarm", mincnt=1, alpha=0.7)
left.set_title("share of class 1 among 100 000 rows")
vectors = np.asarray(model.support_vectors_)
right.scatter(*vectors[~on_margin].T, s=2, color="0.6", label="coefficient is C")
right.scatter(*vectors[on_margin].T, s=18, color="tab:green", label="on the margin")
right.set_title(f"{len(vectors)} support vectors")
right.legend(loc="upper right", fontsize=8)
for axis in (left, right):
    axis.contour(
        horizontal, vertical, values, levels=[-1, 0, 1], colors="black",
        linestyles=["--", "-", "--"], linewidths=1.2,
    )  # fmt: skip
    axis.set(xlim=(-1.8, 2.8), ylim=(-1.3, 1.8))
