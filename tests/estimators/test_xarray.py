"""Arrays of xarray are the arrays of Dask or NumPy that they have."""

import dask.array as da
import numpy as np
import pytest

import bigsvm
from bigsvm.errors import DataError

xarray = pytest.importorskip("xarray")

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("chunks", [None, {"row": 100}, {"row": 100, "column": 2}])
def test_arrays_are_fitted_and_predicted(chunks):
    rows = xarray.DataArray(X, dims=("row", "column"))
    if chunks is not None:
        rows = rows.chunk(chunks)
    expected = bigsvm.SVC().fit(rows.data, Y)
    fitted = bigsvm.SVC().fit(rows, xarray.DataArray(Y, dims="row"))
    np.testing.assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
    found = fitted.predict(rows)
    assert isinstance(found, np.ndarray if chunks is None else da.Array)
    np.testing.assert_array_equal(np.asarray(found), expected.predict(X))
    assert fitted.score(rows, Y) == expected.score(X, Y)


def test_an_array_of_dask_in_it_is_read_in_blocks():
    read = []

    def block(values):
        read.append(values.shape)
        return values

    rows = da.from_array(X, chunks=(100, 4)).map_blocks(block, meta=np.empty((0, 4), X.dtype))
    bigsvm.SVC().fit(xarray.DataArray(rows, dims=("row", "column")), Y)
    assert set(read) == {(100, 4)}


@pytest.mark.parametrize("use", [lambda model, rows: model.fit(rows, Y), bigsvm.SVC.predict])
def test_a_data_set_is_refused_with_the_name_of_an_array(use):
    fitted = bigsvm.SVC().fit(X, Y)
    rows = xarray.Dataset({"x": (("row", "column"), X)})
    with pytest.raises(DataError, match=r"with the arrays 'x'; give one of them, as X\['x'\]"):
        use(fitted, rows)
