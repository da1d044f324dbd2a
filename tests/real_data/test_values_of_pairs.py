"""Labels of all pairs on real data beside scikit-learn's SVC."""

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC as PeerSVC
from support.reductions import trained_by

from bigsvm.data.sources import as_row_source
from bigsvm.fit.one_vs_one import OneVsOneReduction
from bigsvm.parameters import TrainingParameters

SETS = {
    "vowel.scale": (10.0, 2.0),
    "glass.scale": (100.0, 0.5),
    "dna": (10.0, 0.01),
    "satimage.scale": (10.0, 1.0),
    "segment.scale": (100.0, 0.5),
}
"""C and gamma."""


def read(real, name):
    X, y = load_svmlight_file(str(real(name)))
    return X, y


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("sparse", [False, True])
def test_labels_are_scikit_learns(real, name, sparse):
    C, gamma = SETS[name]
    X, y = read(real, name)
    rows = X if sparse else X.toarray()
    parameters = TrainingParameters(C=C, gamma=gamma, tol=1e-5)
    found = trained_by(OneVsOneReduction, as_row_source(rows), y, None, parameters)
    functions = found.functions
    peer = PeerSVC(C=C, gamma=gamma, tol=1e-6, decision_function_shape="ovo").fit(X.toarray(), y)
    assert functions.certificate.converged
    test = real(f"{name}.t")
    others = read(real, f"{name}.t")[0].toarray() if test.exists() else X.toarray()
    K = rbf_kernel(others, X[functions.support].toarray(), gamma=gamma)
    h = K @ functions.coefficients.toarray() + functions.intercepts
    expected = -peer.decision_function(others)
    np.testing.assert_allclose(h, expected, atol=5e-4 * max(1.0, C / 10))
    k = len(found.classes)
    first, second = np.triu_indices(k, 1)
    votes = np.zeros((len(h), k))
    for column, a, b in zip(h.T, first, second, strict=True):
        votes[:, a] += column <= 0
        votes[:, b] += column > 0
    labels = found.classes[votes.argmax(axis=1)]
    # Values nearer to 0 may have either sign.
    sure = (np.abs(expected) > 2 * np.abs(h - expected).max()).all(axis=1)
    assert sure.mean() > 0.9
    np.testing.assert_array_equal(labels[sure], peer.predict(others)[sure])
    np.testing.assert_array_equal(found.classes, peer.classes_)
