"""
A map of C and gamma
====================

``bigsvm.SVC`` in scikit-learn's own tools: columns are scaled in a pipeline, and ``C`` and
``gamma`` are chosen by cross-validation. ``SearchDisplay`` draws the scores.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bigsvm

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
search = GridSearchCV(
    make_pipeline(StandardScaler(), bigsvm.SVC()),
    {"svc__C": np.logspace(-1, 3, 5), "svc__gamma": np.logspace(-3, -1, 5).round(4)},
    cv=3,
)
search.fit(X, y)
print(f"best: {search.best_params_}, cross-validated accuracy {search.best_score_:.4f}")
print(f"accuracy on the test rows: {search.score(X_test, y_test):.4f}")

# %%
# Good values lie along a diagonal: a smaller ``gamma`` needs a larger ``C``. A star on the edge of
# the map would mean that the grid is too small.
display = bigsvm.SearchDisplay.from_estimator(search)
