"""Values under a mask are no data: they are refused wherever arrays are taken."""

import dask.array as da
import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError

X = np.random.default_rng(0).standard_normal((60, 3))
Y = (X[:, 0] > 0).astype(int)
MASKED = np.ma.masked_greater(X, 1.0)
MASKED_Y = np.ma.masked_array(Y, np.arange(60) % 7 == 0)
LAZY = da.from_array(X, chunks=(20, 3))
MASKED_BLOCKS = LAZY.map_blocks(lambda block: np.ma.masked_greater(block, 1.0), meta=X[:0])
REFUSED = "under a mask|with a mask"


@pytest.fixture(scope="module")
def fitted():
    return bigsvm.SVC().fit(X, Y)


@pytest.mark.parametrize(
    "rows", [MASKED, list(MASKED), da.ma.masked_greater(LAZY, 1.0), MASKED_BLOCKS]
)
class TestRows:
    @pytest.mark.parametrize("memory", ["1GB", "3MB"])
    @pytest.mark.parametrize("estimator", [bigsvm.SVC(), bigsvm.SVR(), bigsvm.OneClassSVM()])
    def test_fit_refuses_them(self, rows, memory, estimator):
        with pytest.raises(DataError, match=REFUSED):
            estimator.set_params(memory=memory).fit(rows, Y)

    @pytest.mark.parametrize("method", ["predict", "decision_function"])
    def test_predictions_refuse_them(self, fitted, rows, method):
        with pytest.raises(DataError, match=REFUSED):
            np.asarray(getattr(fitted, method)(rows))

    def test_a_score_refuses_them(self, fitted, rows):
        with pytest.raises(DataError, match=REFUSED):
            fitted.score(rows, Y)

    def test_a_model_and_a_store_refuse_them(self, fitted, rows, tmp_path):
        with pytest.raises(DataError, match=REFUSED):
            fitted.model_.decision_function(rows)
        with pytest.raises(DataError, match=REFUSED):
            bigsvm.write_store(tmp_path / "store.zarr", rows, Y)
        assert not (tmp_path / "store.zarr").exists()


@pytest.mark.parametrize("lazy", [False, True])
class TestLabelsAndWeights:
    def values(self, values, *, lazy):
        return da.from_array(values, chunks=20, asarray=False) if lazy else values

    def test_labels(self, fitted, lazy, tmp_path):
        y = self.values(MASKED_Y, lazy=lazy)
        for rows in (X, LAZY, bigsvm.write_store(tmp_path / "one.zarr", X, Y, shuffle=False)):
            with pytest.raises(DataError, match="y has values under a mask"):
                bigsvm.SVC().fit(rows, y)
            with pytest.raises(DataError, match="y has values under a mask"):
                fitted.score(rows, y)
        with pytest.raises(DataError, match="y has values under a mask"):
            bigsvm.write_store(tmp_path / "two.zarr", X, y)

    def test_weights(self, fitted, lazy, tmp_path):
        weights = self.values(np.ma.masked_array(np.ones(60), np.arange(60) == 5), lazy=lazy)
        for rows in (X, LAZY):
            with pytest.raises(DataError, match="sample_weight has values under a mask"):
                bigsvm.SVC().fit(rows, Y, weights)
        with pytest.raises(DataError, match="sample_weight has values under a mask"):
            bigsvm.write_store(tmp_path / "store.zarr", X, Y, weights)


def test_a_store_takes_no_masked_values_in_either_order(tmp_path):
    store = bigsvm.write_store(tmp_path / "store.zarr", X, Y)
    with pytest.raises(DataError, match="under a mask"):
        store.row_values(MASKED_Y, order="input")
    with pytest.raises(DataError, match="y has values under a mask"):
        bigsvm.SVC().fit(store, MASKED_Y, y_order="input")


def test_searches_refuse_them():
    with pytest.raises(DataError, match="X has values under a mask"):
        bigsvm.cross_validate(bigsvm.SVC(), MASKED, Y, cv=3)
    with pytest.raises(DataError, match="y has values under a mask"):
        bigsvm.cross_validate(bigsvm.SVC(), X, MASKED_Y, cv=3)


def test_a_list_with_a_masked_label_is_refused(tmp_path):
    labels = [np.ma.masked, *Y[1:]]
    with pytest.raises(DataError, match="y has values under a mask"):
        bigsvm.SVC().fit(X, labels)
    with pytest.raises(DataError, match="y has values under a mask"):
        bigsvm.write_store(tmp_path / "store.zarr", X, labels)


def test_a_mask_of_nothing_is_taken(fitted):
    again = bigsvm.SVC().fit(np.ma.masked_greater(X, 1e9), np.ma.masked_array(Y))
    np.testing.assert_array_equal(again.dual_coef_, fitted.dual_coef_)


def test_a_frame_with_a_column_of_that_name_is_none():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["_mask", "mask", "data"])
    assert bigsvm.SVC().fit(frame, Y).score(frame, Y) > 0.8
