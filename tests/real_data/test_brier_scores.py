"""Probabilities of rows that nothing was fitted on, by their Brier score and log loss."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

import bigsvm


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("german.numer_scale", "sigmoid"),  # 60 rows held out, too few for an isotonic one
        ("spambase", "sigmoid"),
        ("spambase", "isotonic"),
        ("a1a", "sigmoid"),
        ("a1a", "isotonic"),
    ],
)
def test_calibrated_brier_scores_beat_the_sigmoid_of_the_decision_value(real, name, method):
    X, y = load_svmlight_file(str(real(name)))
    X = X.toarray()
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    scores = []
    for seed in range(5):
        a, b, y_a, y_b = train_test_split(
            X, y == y.max(), test_size=0.4, stratify=y, random_state=seed
        )
        model = bigsvm.SVC(calibration=method).fit(a, y_a)
        both = model.predict_proba(b)[:, 1], expit(model.decision_function(b))
        scores.append([[score(y_b, p) for p in both] for score in (brier_score_loss, log_loss)])
    (brier, brier_of_naive), (loss, loss_of_naive) = np.mean(scores, axis=0)
    assert brier < brier_of_naive
    if method == "sigmoid":  # an isotonic one may be sure of what is wrong: its loss is infinite
        assert loss < loss_of_naive
