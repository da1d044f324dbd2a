"""
Train on LIBSVM text
====================

Train on a LIBSVM file of any size: convert it to a store once, then train out of core.

    python examples/train_from_libsvm.py [FILE] [FOLDER]

Without a FILE, the digits that scikit-learn ships are written as one: even against odd.
"""

import sys
import tempfile
from pathlib import Path

from sklearn.datasets import dump_svmlight_file, load_digits

import bigsvm


def main(file: Path | None, folder: Path) -> None:
    """Convert, train, save, load, predict."""
    if file is None:
        file = folder / "digits.libsvm"
        images, digits = load_digits(return_X_y=True)
        dump_svmlight_file(images / 16, digits % 2, str(file), zero_based=False)

    store = bigsvm.convert(file, folder / "train.zarr", overwrite=True)
    print(f"{store.rows.n_rows} rows, {store.rows.n_columns} columns in {store.path}")

    classifier = bigsvm.SVC(C=10, memory="200MB").fit(store)
    print(f"converged: {classifier.converged_}, KKT gap {classifier.gap_:.2g}")
    print(f"{len(classifier.support_)} support vectors, objective {classifier.objective_:.6g}")

    classifier.save(folder / "model.safetensors")
    loaded = bigsvm.load(folder / "model.safetensors")
    print(f"accuracy on the training rows: {loaded.score(store):.4f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(given[0]) if given else None, Path(given[1] if len(given) > 1 else temporary))
