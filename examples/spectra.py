"""
Concentrations from spectra
===========================

A spectrum is a row of 300 numbers. How much of one substance is in a mixture follows from it, but
peaks overlap, the baseline drifts, and strong peaks saturate. The spectra here are made.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import r2_score

import bigsvm

SPECTRA = 1000
rng = np.random.default_rng(0)
wave = np.linspace(0, 1, 300)


def peaks(*places: tuple[float, float, float]) -> np.ndarray:
    """Sum of peaks, each at a place, with a width and a height."""
    return sum(height * np.exp(-(((wave - place) / width) ** 2)) for place, width, height in places)


pure = np.stack(
    [
        peaks((0.3, 0.04, 1.0), (0.7, 0.05, 0.6)),
        peaks((0.34, 0.05, 0.9), (0.5, 0.04, 0.7)),
        peaks((0.66, 0.06, 1.0)),
    ]
)
amounts = rng.dirichlet([1, 1, 1], SPECTRA)
baseline = rng.normal(0, 0.1, (SPECTRA, 1)) + rng.normal(0, 0.2, (SPECTRA, 1)) * wave
spectra = np.tanh(4 * amounts @ pure) + baseline + rng.normal(0, 0.02, (SPECTRA, len(wave)))
target = amounts[:, 0]

model = bigsvm.SVR(C=10, epsilon=0.01).fit(spectra[:600], target[:600])
predicted = np.asarray(model.predict(spectra[600:]))
print(f"R² {r2_score(target[600:], predicted):.4f} on spectra held out")

# %%
# On the left some spectra, coloured by how much of the substance they hold.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for row in range(25):
    left.plot(wave, spectra[row], color=plt.cm.viridis(target[row]), linewidth=0.8)
left.set(xlabel="wave number, scaled", ylabel="absorption", title="25 spectra")
right.scatter(target[600:], predicted, s=5)
right.plot([0, 1], [0, 1], color="black", linewidth=0.8)
right.set(xlabel="amount", ylabel="predicted", title="400 spectra held out")
