"""
Are the probabilities right?
============================

Of the rows that are given a probability of 80 %, about 80 % should be of that class. A reliability
diagram shows whether it is so: a calibrated model is near the diagonal.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.metrics import brier_score_loss

import bigsvm

X, y = make_classification(
    12_000, n_features=12, n_informative=6, flip_y=0.15, class_sep=0.8, random_state=0
)
X, X_test, y, y_test = X[:6000], X[6000:], y[:6000], y[6000:]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for kind in ("sigmoid", "isotonic"):
    model = bigsvm.SVC(C=1, gamma=0.1, calibration=kind).fit(X, y)
    probability = np.asarray(model.predict_proba(X_test))[:, 1]
    CalibrationDisplay.from_predictions(y_test, probability, n_bins=10, name=kind, ax=left)
    right.hist(probability, np.linspace(0, 1, 31), histtype="step", label=kind, linewidth=1.5)
    print(f"{kind}: Brier score {brier_score_loss(y_test, probability):.4f}")
left.set_title("test rows")
right.set(xlabel="probability of class 1", ylabel="rows")
right.legend()
