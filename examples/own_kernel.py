"""A kernel of one's own: a class with a formula, and everything else works as before.

python examples/own_kernel.py
"""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import make_moons

import bigsvm


@dataclass(frozen=True, kw_only=True)
class Cauchy(bigsvm.Kernel):
    """``k(a, b) = 1 / (1 + |a - b|² / width²)``: its tails are heavier than those of rbf."""

    name = "cauchy"
    width: float = 1.0

    def from_products(
        self, dots: np.ndarray, norms_rows: np.ndarray, norms_columns: np.ndarray
    ) -> np.ndarray:
        """Kernel values (m, p) from ``a·b`` (m, p), ``|a|²`` (m,) and ``|b|²`` (p,)."""
        squared_distances = np.add.outer(norms_rows, norms_columns) - 2 * dots
        return 1 / (1 + np.maximum(squared_distances, 0) / self.width**2)


def main() -> None:
    """Train with it, and say how good it is."""
    X, y = make_moons(2000, noise=0.2, random_state=0)
    model = bigsvm.SVC(C=1, kernel=Cauchy(width=0.5)).fit(X[:1000], y[:1000])
    accuracy = model.score(X[1000:], y[1000:])
    print(f"{model.stop_reason_}, {len(model.support_)} support vectors, accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
