"""Models of a1a that are loaded, as scikit-learn's SVC predicts a1a.t, which has more columns."""

import numpy as np
from sklearn import svm
from sklearn.datasets import load_svmlight_file

import bigsvm
from bigsvm.interchange import to_scikit_learn, write_libsvm_model


def test_loaded_models_of_a1a_predict_as_scikit_learn(real, tmp_path):
    X, y = load_svmlight_file(str(real("a1a")))
    rows, labels = load_svmlight_file(str(real("a1a.t")))
    rows, labels = rows[:1500], labels[:1500]
    assert (X.shape[1], rows.shape[1]) == (119, 123)
    int32 = rows[:, :119]
    known = int32.copy()
    known.indices, known.indptr = known.indices.astype(np.int64), known.indptr.astype(np.int64)
    fitted = bigsvm.SVC(C=1, gamma=0.05).fit(bigsvm.convert(real("a1a"), tmp_path / "s"))
    fitted.save(tmp_path / "ours")
    write_libsvm_model(fitted, tmp_path / "theirs")
    ours, theirs = bigsvm.load(tmp_path / "ours"), bigsvm.load(tmp_path / "theirs")
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    expected = svm.SVC(C=1, gamma=0.05).fit(X, y)
    values = expected.decision_function(int32)
    clear = np.abs(values) > 0.01
    for loaded, given in (
        (ours, known), (theirs, known), (to_scikit_learn(ours), int32),
        (to_scikit_learn(theirs), int32),
    ):  # fmt: skip
        np.testing.assert_array_equal(loaded.predict(given)[clear], expected.predict(int32)[clear])
    np.testing.assert_allclose(ours.decision_function(known), values, atol=2e-3)
    # Values in columns that the training data lack only add to distances.
    assert (theirs.predict(rows) == theirs.predict(known)).mean() > 0.99
