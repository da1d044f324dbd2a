"""
A ball with and without a certificate
=====================================

Random samples of the rows find nearly all of a ball at a cost that does not depend on the number of
rows. A certificate needs all of them. This shows what it costs, and what it is worth.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bigsvm

ROWS = 200_000


def clouds(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make rows about two centres, and which of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    return (rng.normal(size=(rows, 10)) + 0.9 * (2 * y - 1)[:, None]).astype(np.float32), y


X, y = clouds(10_000, 1)
bars = []
with tempfile.TemporaryDirectory() as folder:
    store = bigsvm.write_store(Path(folder) / "clouds.zarr", *clouds(ROWS, 0))
    for certify in (False, True):
        ball = bigsvm.L2SVC(C=1, gamma="mean-distance", certify=certify, memory="200MB").fit(store)
        found, accuracy = ball.certificate_, ball.score(X, y)
        bars.append((found["n_kernel_evaluations"], found["n_support"], 100 * (1 - accuracy)))
        print(
            f"{found['stop_reason']}: {found['n_sweeps']} sweeps, "
            f"{found['n_kernel_evaluations']:.1e} kernel evaluations, {found['seconds']:.1f} s, "
            f"{found['n_support']} support vectors, accuracy {accuracy:.4f}"
        )

# %%
# The errors on new rows are nearly the same. Only the second model is known to be the best one.
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
titles = ("kernel evaluations", "support vectors", "errors on new rows, %")
for axis, title, of_both in zip(axes, titles, zip(*bars, strict=True), strict=True):
    axis.bar(["sampled", "certified"], of_both, color=["tab:orange", "tab:blue"], width=0.6)
    axis.set_title(title)
