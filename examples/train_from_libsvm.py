"""
Train on LIBSVM text
====================

Text of any size is converted once to a store, which training reads in blocks. Here the digits that
scikit-learn ships are written as text first: even against odd.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file, load_digits

import bigsvm

images, digits = load_digits(return_X_y=True)
with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    text = folder / "digits.libsvm"
    dump_svmlight_file(images / 16, digits % 2, str(text), zero_based=False)
    print(text.read_text(encoding="utf-8")[:72], "…")

    store = bigsvm.convert(text, folder / "train.zarr")
    print(f"{store.rows.n_rows} rows, {store.rows.n_columns} columns")
    classifier = bigsvm.SVC(C=10, memory="200MB").fit(store)
    print(f"converged: {classifier.converged_}, KKT gap {classifier.gap_:.2g}")
    print(f"{len(classifier.support_)} support vectors, objective {classifier.objective_:.6g}")

    classifier.save(folder / "model.safetensors")
    loaded = bigsvm.load(folder / "model.safetensors")
    print(f"accuracy on the training rows: {loaded.score(store):.4f}")

# %%
# The digits that are hardest to tell: those with the smallest margin.
values = np.asarray(loaded.decision_function(images / 16))
margins = np.where(digits % 2 == 1, values, -values)
figure, axes = plt.subplots(1, 8, figsize=(9, 1.8), layout="constrained")
for axis, row in zip(axes, np.argsort(margins), strict=False):
    axis.imshow(images[row].reshape(8, 8), cmap="gray_r")
    axis.set(xticks=[], yticks=[], title=f"{digits[row]}: {margins[row]:.2f}")
