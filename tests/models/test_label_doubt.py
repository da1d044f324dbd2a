"""Which labels a model doubts: its definition, and labels that were flipped on purpose."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bigsvm
from bigsvm import CrammerSingerSVC
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ModelError
from bigsvm.models.doubt import label_distribution, label_doubt, most_doubtful, support_codes

N, FLIPPED = 1000, 40


@pytest.fixture(scope="module")
def digits():
    """Images, labels of which some are wrong, and which."""
    X, y = load_digits(return_X_y=True)
    X, y = (X[:N] / 16).astype(np.float32), y[:N].copy()
    rng = np.random.default_rng(0)
    wrong = rng.choice(N, FLIPPED, replace=False)
    y[wrong] = (y[wrong] + rng.integers(1, 10, FLIPPED)) % 10
    return X, y, np.sort(wrong)


@pytest.fixture(scope="module")
def fitted(digits):
    """So small a C that many rows are as doubtful as can be."""
    X, y, _ = digits
    return CrammerSingerSVC(C=1.0, gamma=0.05).fit(X, y)


def test_shares_and_doubt_are_those_of_the_definition(digits, fitted):
    _, y, _ = digits
    weights = np.where(y % 2, 2.0, 0.5)
    weighted = CrammerSingerSVC(C=3.0, gamma=0.05, class_weight={4: 1.5}).fit(
        digits[0], y, sample_weight=weights
    )
    for model, bounds in ((fitted, np.ones(N)), (weighted, 3 * weights * np.where(y == 4, 1.5, 1))):
        support = model.support_
        tau = model.dual_coef_.T / bounds[support][:, None]
        eta = np.eye(10)[y[support]] - tau
        np.testing.assert_allclose(model.label_distribution_, eta, atol=1e-12)
        assert (model.label_distribution_ >= 0).all()
        np.testing.assert_allclose(model.label_distribution_.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_allclose(model.label_doubt_, np.linalg.norm(tau, axis=1), atol=1e-12)
        assert model.label_doubt_.max() <= np.sqrt(2) + 1e-12
        np.testing.assert_array_equal(support_codes(model.model_), y[support])


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_most_of_the_flipped_labels_are_among_the_most_doubtful(digits, C):
    """Of as many rows chosen by chance 4 % would be."""
    X, y, wrong = digits
    fitted = CrammerSingerSVC(C=C, gamma=0.05).fit(X, y)
    found = most_doubtful(fitted.model_, as_row_source(X), FLIPPED)
    assert np.isin(found.rows, wrong).mean() >= 0.8
    # Most of what the flipped rows look like is what they are.
    truth = load_digits(return_X_y=True)[1]
    flipped = np.isin(found.rows, wrong)
    assert (found.looks_like == truth[found.rows])[flipped].mean() >= 0.8


def test_flipped_labels_have_much_doubt_by_itself(digits):
    """No margin takes part in it; with C = 10 few rows have all that they can."""
    X, y, wrong = digits
    fitted = CrammerSingerSVC(C=10.0, gamma=0.05).fit(X, y)
    is_wrong = np.isin(fitted.support_, wrong)
    assert is_wrong.sum() >= 0.95 * FLIPPED
    ordinary = np.quantile(fitted.label_doubt_[~is_wrong], 0.9)
    assert (fitted.label_doubt_[is_wrong] > ordinary).mean() >= 0.9


def test_the_worst_come_first_and_ties_by_their_margin(digits, fitted):
    X, y, _ = digits
    found = most_doubtful(fitted.model_, as_row_source(X), 60)
    assert len(found.rows) == 60
    np.testing.assert_array_equal(found.rows, fitted.support_[found.places])
    np.testing.assert_array_equal(found.label, y[found.rows])
    assert (found.looks_like != found.label).all()
    np.testing.assert_allclose(found.doubt, fitted.label_doubt_[found.places])
    assert (np.diff(found.doubt) <= 1e-6).all()
    assert sorted(found.doubt)[0] >= np.sort(fitted.label_doubt_)[-60] - 1e-9
    values = fitted.decision_function(X)[found.rows]
    own = values[np.arange(60), found.label]
    values[np.arange(60), found.label] = -np.inf
    np.testing.assert_allclose(found.margin, own - values.max(axis=1), atol=1e-5)
    tied = found.doubt > np.sqrt(2) - 1e-7
    assert tied.sum() > 10
    assert (np.diff(found.margin[tied]) >= 0).all()
    np.testing.assert_array_equal(
        found.distribution, label_distribution(fitted.model_, found.places)
    )
    share = found.distribution[np.arange(60), found.looks_like]
    assert (share >= found.distribution.max(axis=1) - found.distribution[
        np.arange(60), found.label
    ] - 1e-12).all()  # fmt: skip


def test_there_are_no_more_than_support_vectors(digits, fitted):
    found = most_doubtful(fitted.model_, as_row_source(digits[0]), 10**6)
    assert len(found.rows) == len(fitted.support_)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rows_of_a_store_are_as_good(digits, fitted, layout, tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.data.schema.CHUNK_BYTES", 1 << 14)
    X, y, _ = digits
    store = bigsvm.write_store(tmp_path / "s.zarr", X, y, layout=layout)
    of_store = CrammerSingerSVC(C=1.0, gamma=0.05).fit(store)
    told = []
    found = most_doubtful(
        of_store.model_, store.rows, 30, on_progress=lambda done, total: told.append((done, total))
    )
    expected = most_doubtful(fitted.model_, as_row_source(X), 30)
    originals = store.original_rows()[found.rows]
    assert len(np.intersect1d(originals, expected.rows)) >= 28
    assert told[-1][0] == told[-1][1] >= 30


def test_a_kernel_matrix_tells_as_much(digits):
    X, y, _ = digits
    K = (X.astype(float) @ X.T)[:300, :300] / 10
    fitted = CrammerSingerSVC(kernel="precomputed").fit(K, y[:300])
    found = most_doubtful(fitted.model_, as_row_source(K), 10)
    values = fitted.decision_function(K)[found.rows]
    own = values[np.arange(10), found.label]
    values[np.arange(10), found.label] = -np.inf
    np.testing.assert_allclose(found.margin, own - values.max(axis=1), atol=1e-5)


def test_other_rows_and_other_models_are_refused(digits, fitted):
    X, y, _ = digits
    with pytest.raises(DataError, match="not the rows that the model was trained on"):
        most_doubtful(fitted.model_, as_row_source(X[:-1]), 5)
    binary = bigsvm.SVC(gamma=0.05).fit(X, y > 4).model_
    with pytest.raises(ModelError, match="is a c-svc, whose coefficients tell nothing"):
        label_doubt(binary)
    with pytest.raises(ModelError, match="crammer-singer do"):
        most_doubtful(binary, as_row_source(X), 5)
