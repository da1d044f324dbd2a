"""
A kernel of one's own
=====================

A kernel is a class with a formula. Training, certificates, checkpoints and model files work with it
as with the others.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay

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


X, y = make_moons(2000, noise=0.2, random_state=0)
models = {
    "cauchy": bigsvm.SVC(C=1, kernel=Cauchy(width=0.5)).fit(X[:1000], y[:1000]),
    "rbf": bigsvm.SVC(C=1, gamma=2).fit(X[:1000], y[:1000]),
}
for name, model in models.items():
    accuracy = model.score(X[1000:], y[1000:])
    vectors = len(model.support_)
    print(f"{name}: {model.stop_reason_}, {vectors} support vectors, accuracy {accuracy:.1%}")

# %%
# Far from all rows the rbf kernel is 0 and cannot tell the classes apart. The tails of this one
# still can.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
for axis, (name, model) in zip(axes, models.items(), strict=True):
    DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="decision_function", ax=axis, eps=2, cmap="coolwarm", alpha=0.6,
        plot_method="pcolormesh", vmin=-2, vmax=2,
    )  # fmt: skip
    axis.scatter(*X[1000:].T, c=y[1000:], s=3, cmap="coolwarm")
    axis.set_title(name)
