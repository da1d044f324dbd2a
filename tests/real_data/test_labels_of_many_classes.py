"""Labels of many classes on real data beside scikit-learn's SVC, ties apart."""

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC as PeerSVC

import bigsvm

SETS = {
    "letter": ("letter.scale", 2500, 8.0, 2.0),
    "satimage": ("satimage.scale", None, 4.0, 1.0),
    "pendigits": ("pendigits", 4000, 10.0, 1e-4),
    "usps": ("usps", 2000, 10.0, 1 / 128),
    "vowel": ("vowel.scale", None, 10.0, 2.0),
    "glass": ("glass.scale", None, 100.0, 0.5),
    "dna": ("dna", None, 10.0, 0.01),
}
"""Name, rows to train on at most, C and gamma."""


def read(path):
    X, y = load_svmlight_file(str(path))
    return X.toarray(), y


@pytest.mark.parametrize("name", SETS)
def test_labels_are_scikit_learns(real, name, tmp_path):
    name, n_rows, C, gamma = SETS[name]
    X, y = read(real(name))
    others, truth = read(real(f"{name}.t")) if real(f"{name}.t").exists() else (X, y)
    X, y, others, truth = X[:n_rows], y[:n_rows], others[:3000], truth[:3000]
    store = bigsvm.write_store(tmp_path / "s.zarr", X, y, dtype="float64")
    ours = bigsvm.SVC(C=C, gamma=gamma, tol=1e-5, memory="200MB").fit(store)
    peer = PeerSVC(C=C, gamma=gamma, tol=1e-6, decision_function_shape="ovo").fit(X, y)
    assert ours.converged_
    np.testing.assert_array_equal(ours.classes_, peer.classes_)
    values = ours.set_params(decision_function_shape="ovo").decision_function(others)
    expected = peer.decision_function(others)
    assert values.shape == expected.shape
    # Kernel values are float32 here.
    np.testing.assert_allclose(values, expected, atol=1e-3 * max(1.0, C / 10))
    labels, theirs = ours.predict(others), peer.predict(others)
    # Values nearer to 0 may have either sign.
    sure = (np.abs(expected) > 2 * np.abs(values - expected).max()).all(axis=1)
    assert sure.mean() > 0.8
    np.testing.assert_array_equal(labels[sure], theirs[sure])
    assert (labels == theirs).mean() > 0.998
    assert (labels == truth).mean() > 0.6
