"""One against the rest on real data beside scikit-learn's and each class's own fit."""

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC as PeerSVC
from support.reductions import trained_one_vs_rest

from bigsvm.data.sources import as_row_source
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters

SETS = {"vowel.scale": (10.0, 2.0), "satimage.scale": (10.0, 1.0), "usps": (10.0, 0.01)}
"""C and gamma."""
MOST_ROWS = 2000


@pytest.mark.parametrize("name", SETS)
def test_one_vs_rest_agrees_with_single_fits_and_scikit_learn(real, name):
    C, gamma = SETS[name]
    X, y = load_svmlight_file(str(real(name)))
    chosen = np.random.default_rng(0).permutation(len(y))
    X, y = X[chosen].toarray(), y[chosen]
    others, (X, y) = X[-MOST_ROWS:], (X[:MOST_ROWS], y[:MOST_ROWS])
    parameters = TrainingParameters(C=C, gamma=gamma, tol=1e-5)
    found = trained_one_vs_rest(as_row_source(X), y, None, parameters)
    functions = found.functions
    assert functions.certificate.converged
    K = rbf_kernel(others, X[functions.support], gamma=gamma)
    h = K @ functions.coefficients.toarray() + functions.intercepts
    models = [
        train_model(as_row_source(X), y == label, None, parameters) for label in found.classes
    ]
    assert functions.certificate.objective == pytest.approx(
        sum(model.certificate["objective"] for model in models), rel=1e-5
    )
    for column, model in zip(h.T, models, strict=True):
        np.testing.assert_allclose(
            column, model.decision_function(as_row_source(others)), atol=1e-3
        )
    peer = OneVsRestClassifier(PeerSVC(C=C, gamma=gamma, tol=1e-6)).fit(X, y)
    expected = peer.decision_function(others)
    np.testing.assert_allclose(h, expected, atol=1e-3)
    first, second = np.sort(expected, axis=1)[:, -2:].T
    sure = second - first > 2 * np.abs(h - expected).max()
    assert sure.mean() > 0.9
    labels = found.classes[h.argmax(axis=1)]
    np.testing.assert_array_equal(labels[sure], peer.predict(others)[sure])
