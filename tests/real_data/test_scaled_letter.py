"""Our scaling beside svm-scale's: LIBSVM's letter comes both raw and scaled by it."""

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import bigsvm


def test_letter_is_scaled_as_svm_scale_did(real, tmp_path):
    """The same rows, in another order and divided at another place."""
    parts = ("letter", "letter.t")
    store = bigsvm.convert([real(name) for name in parts], tmp_path / "s", layout="dense")
    rows = bigsvm.scale_store(store, tmp_path / "t").rows.read(0, 20_000)
    theirs = np.concatenate(
        [
            load_svmlight_file(str(real(name)), n_features=16)[0].toarray()
            for name in ("letter.scale", "letter.scale.t")
        ]
    )
    # Their text has six digits.
    np.testing.assert_allclose(in_order(rows), in_order(theirs), atol=1e-6)


def in_order(rows):
    return rows[np.lexsort(np.round(rows, 4).astype(np.float32).T)]


@pytest.mark.parametrize("method", ["minmax", "standard"])
def test_letter_is_predicted_raw_as_scaled(real, tmp_path, method):
    store, other = (
        bigsvm.convert(real(name), tmp_path / name, n_features=16, layout="dense")
        for name in ("letter", "letter.t")
    )
    train = bigsvm.scale_store(store, tmp_path / "a", method=method)
    C, gamma = {"minmax": (8, 0.5), "standard": (8, 0.1)}[method]
    fitted = bigsvm.SVC(C=C, gamma=gamma, memory="500MB").fit(
        train, train.row_values(train.labels() % 2, order="store")
    )
    scaled = bigsvm.scale_store(other, tmp_path / "b", like=fitted.model_)
    raw = fitted.predict(other).compute()
    np.testing.assert_array_equal(raw, fitted.predict(scaled).compute())
    assert (raw == other.labels() % 2).mean() > 0.95
