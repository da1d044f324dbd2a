"""A user's program with each public name: `test_types.py` has it checked by mypy, and runs it."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score

import bigsvm

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Cauchy(bigsvm.Kernel):
    """Distances with heavy tails."""

    name = "cauchy of the program"
    width: float = 1.0

    def from_products(self, dots: Values, norms_rows: Values, norms_columns: Values) -> Values:
        squared = np.add.outer(norms_rows, norms_columns) - 2 * dots
        values: Values = 1 / (1 + np.maximum(squared, 0) / self.width**2)
        return values


def classify(X: NDArray[np.float64], y: NDArray[np.int64], folder: Path) -> dict[str, float]:
    accuracies: dict[str, float] = {}
    classifiers: list[
        bigsvm.SVC | bigsvm.NuSVC | bigsvm.L2SVC | bigsvm.CrammerSingerSVC
    ] = [
        bigsvm.SVC(C=10, gamma="scale", calibration="sigmoid", memory="1GB"),
        bigsvm.SVC(kernel=Cauchy(width=2.0), class_weight="balanced"),
        bigsvm.NuSVC(nu=0.1, gamma=0.02),
        bigsvm.L2SVC(C=10, gamma=0.02, tol=1e-2),
        bigsvm.CrammerSingerSVC(C=0.1, kernel="linear"),
    ]  # fmt: skip
    for number, classifier in enumerate(classifiers):
        classifier.fit(X[:200], y[:200])
        name = f"{number}-{type(classifier).__name__}"
        accuracies[name] = float(accuracy_score(y[200:], classifier.predict(X[200:])))
        classifier.save(folder / f"{name}.safetensors")
    loaded = bigsvm.load(folder / "0-SVC.safetensors")
    assert np.array_equal(loaded.predict(X), classifiers[0].predict(X))
    model = bigsvm.KernelExpansion.load(folder / "2-NuSVC.safetensors")
    assert model.n_features == X.shape[1]
    return accuracies


def others(X: NDArray[np.float64], y: NDArray[np.int64]) -> list[NDArray[Any]]:
    regressions = [bigsvm.SVR(C=2, epsilon=0.2).fit(X, y), bigsvm.NuSVR(C=2, nu=0.3).fit(X, y)]
    models = [bigsvm.OneClassSVM(nu=0.1).fit(X), bigsvm.L2OneClassSVM(C=0.1).fit(X)]
    path = bigsvm.C_path(bigsvm.SVC(gamma=0.02), X, y == 3, C=[0.1, 1.0])
    return [each.predict(X) for each in (*regressions, *models, *path)]


def stores(X: NDArray[np.float64], y: NDArray[np.int64], folder: Path) -> int:
    (folder / "rows.libsvm").write_text("1 1:0.5 3:2\n-1 2:1\n")
    assert bigsvm.convert(folder / "rows.libsvm", folder / "text.zarr").shape == (2, 3)
    store = bigsvm.write_store(folder / "rows.zarr", X[:200], y[:200], shuffle=True)
    bigsvm.scale_store(store, folder / "scaled.zarr", method="minmax")
    store = bigsvm.append(store, X[200:], y[200:])
    bigsvm.drop(store, [0, 5], folder / "fewer.zarr")
    return bigsvm.open_store(folder / "fewer.zarr").shape[0]


def select(X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    scores = bigsvm.cross_validate(bigsvm.SVC(), X, y, cv=3)
    search = bigsvm.SearchCV(bigsvm.SVC(gamma=0.02), {"C": [0.1, 10.0]}, cv=3).fit(X, y)
    bigsvm.SearchDisplay.from_estimator(search)
    bigsvm.HistoryDisplay.from_estimator(search.best_estimator_)
    return float(np.mean(scores["test_score"]))


def main() -> None:
    images, digits = load_digits(return_X_y=True)
    X, y = images[:300] / 16, digits[:300]
    with TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", bigsvm.AdviceWarning)
        print(classify(X, y, Path(name)), len(others(X, y)), stores(X, y, Path(name)), select(X, y))


if __name__ == "__main__":
    main()
