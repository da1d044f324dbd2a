"""Labels and weights beside a store: their order must be said where rows are shuffled."""

import re

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs

import bigsvm
from bigsvm.data.row_values import RowValues
from bigsvm.errors import DataError, ParameterError

X, Y = make_blobs(120, centers=2, cluster_std=4.0, random_state=0)
TARGETS = X[:, 0] - 2 * X[:, 1]
WEIGHTS = np.linspace(0.5, 2.0, 120)
ESTIMATORS = {
    "SVC": bigsvm.SVC(),
    "L2SVC": bigsvm.L2SVC(),
    "CrammerSingerSVC": bigsvm.CrammerSingerSVC(),
    "SVR": bigsvm.SVR(),
}
REFUSED = r" is given beside a shuffled store.*say which order it has: y_order='input', or"


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of the same rows, without their labels, shuffled and not."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        kind: bigsvm.write_store(folder / kind, X, np.zeros(120), shuffle=kind == "shuffled")
        for kind in ("shuffled", "in order")
    }


def target_of(name):
    return TARGETS if name == "SVR" else Y


def refused(name):
    return pytest.raises(DataError, match=f"^{name}{REFUSED}")


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("form", ["store", "path"])
def test_a_plain_y_beside_a_shuffled_store_is_refused(name, form, stores):
    store = stores["shuffled"]
    given = store if form == "store" else store.path
    with refused("y"):
        ESTIMATORS[name].fit(given, target_of(name))
    with refused("y"):
        ESTIMATORS[name].fit(given, da.from_array(target_of(name)))
    fitted = ESTIMATORS[name].fit(given, store.row_values(target_of(name), order="input"))
    with refused("y"):
        fitted.score(given, target_of(name))


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize("name", [*ESTIMATORS, "OneClassSVM"])
def test_plain_weights_beside_a_shuffled_store_are_refused(name, stores):
    estimator = ESTIMATORS.get(name, bigsvm.OneClassSVM())
    y = stores["shuffled"].row_values(target_of(name), order="input")
    with refused("sample_weight"):
        estimator.fit(stores["shuffled"], y, sample_weight=WEIGHTS)


@pytest.mark.fault("columns-and-order")
def test_a_path_of_models_refuses_them_too(stores):
    with refused("y"):
        bigsvm.C_path(bigsvm.SVC(), stores["shuffled"], Y, C=[1.0, 2.0])
    y = stores["shuffled"].row_values(Y, order="input")
    first, second = bigsvm.C_path(bigsvm.SVC(), stores["shuffled"], y, C=[1.0, 2.0])
    assert first.score(stores["shuffled"], y) > 0.6 < second.score(stores["shuffled"], y)


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_values_of_a_known_order_belong_to_their_rows(name, stores):
    store, y = stores["shuffled"], target_of(name)
    order = store.original_rows()
    assert not (np.diff(order) > 0).all()
    in_memory = ESTIMATORS[name].fit(X[order], y[order], sample_weight=WEIGHTS[order])
    expected = in_memory.score(X, y, sample_weight=WEIGHTS)
    for given, of_input in ((y, "input"), (y[order], "store")):
        values = store.row_values(given, order=of_input)
        weights = store.row_values(WEIGHTS, order="input")
        fitted = ESTIMATORS[name].fit(store, values, sample_weight=weights)
        found = fitted.score(store, values, sample_weight=weights)
        assert found == pytest.approx(expected, rel=1e-6)
        np.testing.assert_array_equal(values, y[order])


def test_a_store_that_is_not_shuffled_takes_arrays(stores):
    fitted = bigsvm.SVC().fit(stores["in order"], Y, sample_weight=WEIGHTS)
    assert fitted.score(stores["in order"], Y) == fitted.score(X, Y)


def test_without_y_labels_of_the_store_are_scored_against(tmp_path):
    store = bigsvm.write_store(tmp_path / "s", X, Y)
    fitted = bigsvm.SVC().fit(store)
    assert fitted.score(store) == fitted.score(X, Y) == fitted.score(tmp_path / "s")


def test_one_class_ignores_y(stores):
    bigsvm.OneClassSVM().fit(stores["shuffled"], Y)


def test_a_scaled_store_has_the_order_of_its_source(stores, tmp_path):
    scaled = bigsvm.scale_store(stores["shuffled"].path, tmp_path / "scaled")
    bigsvm.SVC().fit(scaled, stores["shuffled"].row_values(Y, order="input"))


def test_values_of_another_store_are_refused(stores, tmp_path):
    other = bigsvm.write_store(tmp_path / "other", X, Y, seed=7)
    with pytest.raises(DataError, match="y has the order of another store"):
        bigsvm.SVC().fit(stores["shuffled"], other.row_values(Y, order="input"))


def test_wrong_lengths_and_orders_are_refused(stores):
    store = stores["shuffled"]
    with pytest.raises(DataError, match=re.escape("shape (119,); the store needs one a row")):
        store.row_values(Y[1:], order="input")
    with pytest.raises(ParameterError, match="order is 'file'"):
        store.row_values(Y, order="file")


def test_row_values_convert_to_numpy_arrays(stores):
    values = stores["shuffled"].row_values(Y, order="store")
    assert isinstance(values, RowValues)
    assert len(values) == 120
    assert np.asarray(values, np.float32).dtype == np.float32


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize("form", ["store", "path"])
def test_a_store_of_a_shuffled_store_needs_the_order_too(form, stores, tmp_path):
    source = stores["shuffled"]
    given = source if form == "store" else source.path
    y, weights = (source.row_values(one, order="input") for one in (Y, WEIGHTS))
    for name, wrong in {"y": (Y, weights), "sample_weight": (y, WEIGHTS)}.items():
        with refused(name):
            bigsvm.write_store(tmp_path / "again", given, *wrong)
    again = bigsvm.write_store(tmp_path / "again", given, y, weights)
    rows = again.rows.read(0, 120)
    order = np.array([np.flatnonzero((row == X).all(axis=1))[0] for row in rows])
    np.testing.assert_array_equal(again.labels(), Y[order])
    np.testing.assert_array_equal(again.sample_weight(), WEIGHTS[order])
    said = bigsvm.write_store(tmp_path / "said", given, Y, WEIGHTS, y_order="input")
    assert said.attributes.fingerprint == again.attributes.fingerprint
    with pytest.raises(ParameterError, match="y_order is 'store', which is for"):
        bigsvm.write_store(tmp_path / "array", X, Y, y_order="store")
    bigsvm.write_store(tmp_path / "plain", stores["in order"], Y)


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("form", ["store", "path"])
def test_y_order_says_the_order_of_labels_and_weights(name, form, stores):
    store, y = stores["shuffled"], target_of(name)
    order = store.original_rows()
    known = ESTIMATORS[name].fit(
        store,
        store.row_values(y, order="input"),
        sample_weight=store.row_values(WEIGHTS, order="input"),
    )
    given = store if form == "store" else store.path
    for y_order, rows in (("input", np.arange(120)), ("store", order)):
        values = {"y": y[rows], "sample_weight": WEIGHTS[rows], "y_order": y_order}
        fitted = clone(ESTIMATORS[name]).fit(given, **values)
        np.testing.assert_array_equal(fitted.dual_coef_, known.dual_coef_)
        assert fitted.score(given, **values) == known.score(
            X[order], y[order], sample_weight=WEIGHTS[order]
        )


def test_y_order_is_of_weights_beside_labels_of_the_store(tmp_path):
    store = bigsvm.write_store(tmp_path / "s", X, Y)
    fitted = bigsvm.SVC().fit(store, sample_weight=WEIGHTS, y_order="input")
    weights = store.row_values(WEIGHTS, order="input")
    expected = bigsvm.SVC().fit(store, sample_weight=weights)
    np.testing.assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
    bigsvm.OneClassSVM().fit(store, sample_weight=WEIGHTS, y_order="input")
    bigsvm.C_path(bigsvm.SVC(), store, Y, C=[1.0], sample_weight=WEIGHTS, y_order="input")


def test_y_order_that_would_be_ignored_is_refused(stores):
    store = stores["shuffled"]
    known = store.row_values(Y, order="input")
    fitted = bigsvm.SVC().fit(store, known)
    with pytest.raises(ParameterError, match=r"y_order is 'input', which is for .* beside a store"):
        bigsvm.SVC().fit(X, Y, y_order="input")
    with pytest.raises(ParameterError, match=r"y_order is 'input', which is for .* beside a store"):
        fitted.score(X, Y, y_order="input")
    for call in (bigsvm.SVC().fit, fitted.score):
        with pytest.raises(ParameterError, match="no labels or weights are given that lack"):
            call(store, known, y_order="input")
    with pytest.raises(ParameterError, match="no labels or weights are given that lack"):
        bigsvm.OneClassSVM().fit(store, Y, y_order="input")
    with pytest.raises(ParameterError, match="y_order is 'file'; it must be"):
        bigsvm.SVC().fit(store, Y, y_order="file")


@pytest.mark.fault("columns-and-order")
@pytest.mark.parametrize(
    "estimator",
    [
        *ESTIMATORS.values(),
        bigsvm.SVC(calibration="sigmoid"),
        bigsvm.OneClassSVM(),
        bigsvm.SVC(decision_function_shape="ovo"),
    ],
    ids=str,
)
def test_predictions_come_in_the_order_of_the_input(estimator, stores):
    store = stores["shuffled"]
    targets = TARGETS if isinstance(estimator, bigsvm.SVR) else Y
    if getattr(estimator, "decision_function_shape", "ovr") == "ovo":
        targets = np.arange(120) % 3
    estimator = (
        clone(estimator).fit(store, targets, y_order="input")
        if (estimator._needs_y)
        else clone(estimator).fit(store)
    )
    methods = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    for method in (*methods, "score_samples"):
        if not hasattr(estimator, method):
            continue
        predict = getattr(estimator, method)
        expected = predict(X, order="input")
        of_input = predict(store.path, order="input")
        assert isinstance(of_input, da.Array)
        assert (of_input.shape, of_input.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(of_input, expected, atol=1e-6)
        of_store = predict(store, order="store")
        np.testing.assert_array_equal(of_store, predict(store))
        np.testing.assert_array_equal(store.in_input_order(of_store), of_input)
        of_rows = predict(store.rows, order="input")
        np.testing.assert_allclose(of_rows, expected, atol=1e-6)


def test_orders_that_are_none_are_refused(stores):
    store = stores["shuffled"]
    fitted = bigsvm.SVC().fit(store, Y, y_order="input")
    for rows in (X, store):
        with pytest.raises(ParameterError, match="order is 'file'; it must be"):
            fitted.predict(rows, order="file")
    with pytest.raises(DataError, match=r"values have shape \(119,\); the store needs one for"):
        store.in_input_order(Y[1:])


@pytest.mark.parametrize("k", [2, 3])
def test_predictions_in_the_order_of_the_input_have_blocks_of_a_size(stores, monkeypatch, k):
    monkeypatch.setattr("bigsvm.estimators.lazily.ORDERED_BLOCK", 8 * 50)
    words = np.array(["no", "yes", "maybe"])[np.arange(120) % k]
    fitted = bigsvm.SVC(decision_function_shape="ovo").fit(X, words)
    for method in (fitted.predict, fitted.decision_function):
        found, expected = method(stores["shuffled"], order="input"), method(X)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        of_row = expected.itemsize * (1 if expected.ndim == 1 else expected.shape[1])
        assert len(found.chunks[0]) > 1
        assert max(found.chunks[0]) == max(1, 8 * 50 // of_row)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found.compute(), expected, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(found.compute(), expected)
