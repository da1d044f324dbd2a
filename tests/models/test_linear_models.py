"""Linear functions by weights: the sums over support vectors, for one product each."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC as PeerSVC

from bigsvm import SVC, SVR, CrammerSingerSVC, KernelExpansion
from bigsvm.data.sources import as_row_source
from bigsvm.gram import Partners
from bigsvm.models import prediction
from bigsvm.models.prediction import weight_vectors

pytestmark = pytest.mark.usefixtures("compiled_predictions")


def rows_of_classes(n=200, k=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    return (rng.normal(size=(n, 5)) + np.eye(k, 5)[y]).astype(np.float32), y


def n_columns_used(monkeypatch):
    found = []

    class Noted(Partners):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            found.append(self.n)

    monkeypatch.setattr(prediction, "Partners", Noted)
    return found


@pytest.mark.parametrize("step", [1 << 12, 7])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_functions", [None, 4])
def test_weights_are_their_definition(n_functions, sparse, step, monkeypatch):
    monkeypatch.setattr("bigsvm.models.prediction.ROWS_AT_ONCE", step)
    rng = np.random.default_rng(0)
    X, _ = rows_of_classes(30)
    coefficients = rng.normal(size=30 if n_functions is None else (30, n_functions))
    exact = np.atleast_2d(coefficients.T @ X.astype(np.float64))
    given = coefficients if n_functions is None else sp.csr_array(coefficients)
    found = weight_vectors(sp.csr_array(X) if sparse else X, given)
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("make", [
    lambda: SVC(kernel="linear"),
    lambda: SVC(kernel="linear", multiclass="ovr"),
    lambda: SVC(kernel="linear", decision_function_shape="ovo"),
    lambda: CrammerSingerSVC(kernel="linear"),
    lambda: SVR(kernel="linear"),
])  # fmt: skip
def test_values_are_the_sums_over_support_vectors(make, sparse, monkeypatch):
    X, y = rows_of_classes(k=2 if isinstance(make(), SVR) else 3)
    rows = sp.csr_array(X) if sparse else X
    model = make().fit(rows, y).model_
    coefficients = model.coefficients
    if not isinstance(coefficients, np.ndarray):
        coefficients = coefficients.toarray()
    exact = X.astype(float) @ X[model.support].astype(float).T @ coefficients + model.intercept
    used = n_columns_used(monkeypatch)
    found = model.decision_function(as_row_source(rows))
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)
    assert used == [model.n_functions]
    double = model.decision_function(as_row_source(rows.astype(np.float64)))
    np.testing.assert_array_equal(found, double)


def test_functions_as_many_as_support_vectors_stay_as_they_are(monkeypatch):
    X = np.eye(4, dtype=np.float32)
    model = SVC(kernel="linear").fit(X, np.arange(4))
    assert model.model_.n_functions == 6
    used = n_columns_used(monkeypatch)
    np.testing.assert_array_equal(model.predict(X), np.arange(4))
    assert used == [4]


def test_labels_agree_with_libsvm_s():
    X, y = rows_of_classes(400, 4)
    ours = SVC(kernel="linear", tol=1e-5).fit(X, y)
    peer = PeerSVC(kernel="linear", tol=1e-5).fit(X, y)
    assert (ours.predict(X) == peer.predict(X)).mean() >= 0.995


def test_a_model_that_has_predicted_is_still_one_to_keep(tmp_path):
    X, y = rows_of_classes()
    model = SVC(kernel="linear").fit(X, y)
    values = model.decision_function(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), values)
    model.model_.save(tmp_path / "m.safetensors")
    loaded = KernelExpansion.load(tmp_path / "m.safetensors")
    found = loaded.decision_function(as_row_source(X))
    np.testing.assert_array_equal(found, model.model_.decision_function(as_row_source(X)))
