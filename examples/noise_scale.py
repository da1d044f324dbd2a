"""
Regression with the scale of its noise
======================================

With ``calibration="laplace"`` a regression holds out a tenth of the rows, and learns from them how
far targets are from predictions. That gives a band which most targets are in.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import bigsvm

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(1500, 1))
y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 0] + rng.laplace(scale=0.25, size=len(X))
model = bigsvm.SVR(C=10, gamma=1.0, epsilon=0.1, calibration="laplace").fit(X, y)
print(f"the noise was made with the scale 0.25; found: {model.noise_scale_:.3f}")

# %%
# Of a Laplace distribution 90 % is within ln(10) times the scale.
line = np.linspace(-3, 3, 300)[:, None]
middle, width = model.predict(line), np.log(10) * model.noise_scale_
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.scatter(X[:, 0], y, s=4, color="0.6", label="rows")
axis.plot(line[:, 0], middle, label="prediction")
axis.fill_between(line[:, 0], middle - width, middle + width, alpha=0.25, label="90 %")
axis.set(xlabel="x", ylabel="target")
axis.legend()
inside = np.mean(np.abs(y - model.predict(X)) <= width)
print(f"{inside:.1%} of the targets are in the band")

# %%
# The same on measured data: the progression of diabetes within a year, for 442 patients. The
# targets are standardised, as ``epsilon`` is in their units.
patients, progression = load_diabetes(return_X_y=True)
patients = StandardScaler().fit_transform(patients)
progression = (progression - progression.mean()) / progression.std()
model = bigsvm.SVR(C=1, gamma=0.01, calibration="laplace").fit(patients[:300], progression[:300])
width = np.log(10) * model.noise_scale_
inside = np.mean(np.abs(progression[300:] - model.predict(patients[300:])) <= width)
print(f"diabetes: {inside:.1%} of the patients held out are in the band of 90 %")
