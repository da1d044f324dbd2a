"""
All ten digits
==============

All ten digits: a classifier of many classes, one function for each pair of them.

    python examples/all_ten_digits.py
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import bigsvm


def main(folder: Path) -> None:
    """Train on a store, predict, and compare two ways to decide."""
    images, digits = load_digits(return_X_y=True)
    images, test_images, digits, test_digits = train_test_split(
        images / 16, digits, test_size=1 / 3, random_state=0, stratify=digits
    )
    store = bigsvm.write_store(folder / "digits.zarr", images, digits)

    classifier = bigsvm.SVC(C=10, gamma=0.05, memory="200MB").fit(store)
    pairs = classifier.certificate_["pairs"]
    print(f"{pairs['n_pairs']} pairs, stopped: {pairs['stop_reasons']}")
    worst = pairs["worst"][0]
    first, second = (classifier.classes_[code] for code in worst["classes"])
    print(f"largest KKT gap: {worst['gap']:.2g}, of {first:g} and {second:g}")
    print(f"{len(classifier.support_)} support vectors, shared; of each digit", end=" ")
    print(*classifier.n_support_)

    print(f"votes: accuracy {classifier.score(test_images, test_digits):.4f}")
    graph = bigsvm.SVC(C=10, gamma=0.05, multiclass="ddag").fit(store)
    print(f"decision graph: accuracy {graph.score(test_images, test_digits):.4f}")
    values = classifier.decision_function(test_images)
    print(f"decision values of {values.shape[0]} rows and {values.shape[1]} classes")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
