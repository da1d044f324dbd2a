"""
All ten digits
==============

A classifier of many classes has one function for each pair of them. They are trained together, and
share their support vectors.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

import bigsvm

images, digits = load_digits(return_X_y=True)
images, test_images, digits, test_digits = train_test_split(
    images / 16, digits, test_size=1 / 3, random_state=0, stratify=digits
)
with tempfile.TemporaryDirectory() as folder:
    store = bigsvm.write_store(Path(folder) / "digits.zarr", images, digits)
    classifier = bigsvm.SVC(C=10, gamma=0.05, memory="200MB").fit(store)
    graph = bigsvm.SVC(C=10, gamma=0.05, multiclass="ddag").fit(store)
pairs = classifier.certificate_["pairs"]
print(f"{pairs['n_pairs']} pairs, stopped: {pairs['stop_reasons']}")
worst = pairs["worst"][0]
first, second = (classifier.classes_[code] for code in worst["classes"])
print(f"largest KKT gap: {worst['gap']:.2g}, of {first:g} and {second:g}")
print(f"{len(classifier.support_)} support vectors, shared; of each digit", end=" ")
print(*classifier.n_support_)

# %%
# Two ways to decide: the votes of all pairs, or a graph that asks one pair after the other and
# leaves a digit out each time.
print(f"votes: accuracy {classifier.score(test_images, test_digits):.4f}")
print(f"decision graph: accuracy {graph.score(test_images, test_digits):.4f}")
values = classifier.decision_function(test_images)
print(f"decision values of {values.shape[0]} rows and {values.shape[1]} classes")

figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
for axis, model, title in zip(axes, (classifier, graph), ("votes", "decision graph"), strict=True):
    ConfusionMatrixDisplay.from_predictions(
        test_digits, model.predict(test_images), ax=axis, colorbar=False, cmap="Blues"
    )
    axis.set_title(title)
