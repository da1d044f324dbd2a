"""scikit-learn's tools split a store as they split an array."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.model_selection import (
    GridSearchCV,
    ShuffleSplit,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from support.stores import dense

import bigsvm
from bigsvm.data.store_part import StorePart
from bigsvm.errors import DataError, ParameterError

X, Y = make_blobs(240, centers=3, cluster_std=3.0, random_state=0)
X = X.astype(np.float32)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def store(request, tmp_path_factory):
    rows = X if request.param == "dense" else sp.csr_array(np.where(X > 0, X, 0))
    return bigsvm.write_store(tmp_path_factory.mktemp("store") / "s.zarr", rows, Y)


@pytest.fixture
def arrays(store):
    """Rows and labels in the order of the store."""
    return store.rows.read(0, len(store)), store.labels()


@pytest.mark.parametrize(
    "estimator",
    [bigsvm.SVC(class_weight="balanced"), bigsvm.SVC(multiclass="ovr"), bigsvm.CrammerSingerSVC()],
)
def test_cross_validation_is_that_of_the_array(store, arrays, estimator):
    """gamma="scale" and balanced weights are those of each fold."""
    found = cross_val_score(estimator, store, store.labels(), cv=3)
    np.testing.assert_allclose(found, cross_val_score(estimator, *arrays, cv=3), atol=0.02)
    predicted = cross_val_predict(estimator, store, store.labels(), cv=3)
    assert (predicted == cross_val_predict(estimator, *arrays, cv=3)).mean() > 0.98


def test_regressions_one_class_and_other_scores(store, arrays):
    rows, labels = arrays
    for name, scoring in (("SVR", "r2"), ("OneClassSVM", "accuracy")):
        estimator = getattr(bigsvm, name)()
        found = cross_val_score(estimator, store, labels, cv=3, scoring=scoring)
        expected = cross_val_score(estimator, rows, labels, cv=3, scoring=scoring)
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_searches_shuffled_splits_and_workers(store, arrays):
    splits = ShuffleSplit(2, random_state=0)
    found, expected = (
        GridSearchCV(bigsvm.SVC(), {"C": [0.1, 1]}, cv=splits, n_jobs=2).fit(*data)
        for data in ((store, store.labels()), arrays)
    )
    np.testing.assert_allclose(
        *(each.cv_results_["mean_test_score"] for each in (found, expected)), atol=0.05
    )
    assert found.best_estimator_.shape_fit_ == (240, 2)
    parts = train_test_split(store, store.labels(), random_state=0)
    assert [len(part) for part in parts] == [180, 60, 180, 60]
    assert bigsvm.SVC().fit(parts[0], parts[2]).score(parts[1], parts[3]) > 0.5


@pytest.mark.parametrize("ensemble", [True, False])
def test_probabilities_by_scikit_learns_calibration(store, arrays, ensemble):
    """It recommends this in place of probability=True."""
    made = CalibratedClassifierCV(bigsvm.SVC(), ensemble=ensemble, cv=3)
    found = made.fit(store, store.labels()).predict_proba(store)
    expected = made.fit(*arrays).predict_proba(arrays[0])
    np.testing.assert_allclose(found, expected, atol=5e-3)


class TestParts:
    def test_a_part_has_the_rows_it_names(self, store, arrays):
        rows, labels = arrays
        mask = labels == 1
        for key in ([3, 1, 7], np.array([5, 6]), slice(10, 30, 3), mask, (np.array([2]), Ellipsis)):
            part = store[key]
            numbers = np.arange(240)[key if not isinstance(key, tuple) else key[0]]
            assert (len(part), part.shape) == (len(numbers), (len(numbers), 2))
            read = part.rows.read(0, len(part))
            np.testing.assert_array_equal(dense(read), dense(rows[numbers]))
            np.testing.assert_array_equal(part.labels(), labels[numbers])
            assert part.sample_weight() is None
        np.testing.assert_array_equal(store[50:100][mask[50:100]].labels(), 1)
        again = pickle.loads(pickle.dumps(store[[3, 1]]))
        np.testing.assert_array_equal(again.labels(), labels[[3, 1]])

    @pytest.mark.parametrize("key", [3, "C", (0, 1), ([0], [1]), np.ix_([0, 1], [0])])
    def test_columns_and_single_rows_are_refused(self, store, key):
        with pytest.raises(DataError, match="does not choose rows of a store"):
            store[key]

    def test_rows_that_do_not_exist_are_refused(self, store):
        with pytest.raises(DataError, match="a store of 240 rows has no such rows"):
            store[[240]]
        with pytest.raises(DataError, match="no row of the store is chosen"):
            store[[]]

    def test_a_store_does_not_become_an_array(self, store):
        for rows in (store, store[:5]):
            with pytest.raises(DataError, match="is not read into memory as an array"):
                np.asarray(rows)
            with pytest.raises(TypeError):
                iter(rows)

    def test_labels_in_another_order_are_refused(self, store):
        """They may be those of the input, which has another order."""
        with pytest.raises(DataError, match="y is not what the shuffled store has for these rows"):
            bigsvm.SVC().fit(store[:100], Y[:100])
        with pytest.raises(DataError, match="y_order is 'input', but rows that are chosen"):
            bigsvm.SVC().fit(store[:100], Y[:100], y_order="input")
        other = store.labels()[:100] > 0
        fitted = bigsvm.SVC().fit(store[:100], other, y_order="store")
        assert fitted.classes_.tolist() == [False, True]
        of_all = store.row_values(store.labels() > 0, order="store")
        again = bigsvm.SVC().fit(store[:100], of_all)
        np.testing.assert_array_equal(again.dual_coef_, fitted.dual_coef_)

    def test_predictions_have_the_order_of_the_part(self, store):
        fitted = bigsvm.SVC().fit(store)
        chosen = [7, 3, 200]
        whole = fitted.predict(store).compute()
        np.testing.assert_array_equal(fitted.predict(store[chosen]), whole[chosen])
        with pytest.raises(ParameterError, match="order is 'input', but rows that are chosen"):
            fitted.predict(store[chosen], order="input")

    def test_our_own_folds_are_of_a_whole_store(self, store):
        with pytest.raises(ParameterError, match="folds are made of a whole one"):
            bigsvm.cross_validate(bigsvm.SVC(), store[:50])

    def test_a_part_becomes_a_store(self, store, tmp_path):
        part = store[:50]
        made = bigsvm.write_store(tmp_path / "part.zarr", part, part.labels())
        np.testing.assert_array_equal(np.sort(made.labels()), np.sort(part.labels()))
        assert isinstance(part, StorePart)
