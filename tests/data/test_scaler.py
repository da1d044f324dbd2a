"""Scalers chosen from statistics, against scikit-learn's and against their definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from support.stores import dense, make_matrix

from bigsvm.data.scaler import METHODS, Scaler, choose_scaler
from bigsvm.data.statistics import ColumnStatistics
from bigsvm.errors import DataError, ParameterError

PEERS = {
    "minmax": MinMaxScaler(feature_range=(-1, 1)),
    "standard": StandardScaler(),
    "maxabs": MaxAbsScaler(),
}
CONSTANT = 5
"""The column of zeros that `make_matrix` has."""


def statistics_of(rows):
    statistics = ColumnStatistics(rows.shape[1])
    statistics.add(rows)
    return statistics.result()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("method", METHODS)
def test_scikit_learn_scales_the_same(method, form, dtype):
    matrix = make_matrix(dtype=dtype)
    others = make_matrix(300, dtype=dtype, seed=1)
    scaler = choose_scaler(statistics_of(form(matrix)), method)
    peer = PEERS[method].fit(matrix.astype(np.float64))
    varies = np.arange(23) != CONSTANT
    for rows in (matrix, others):
        scaled = scaler.apply(form(rows))
        assert scaled.dtype == dtype
        expected = peer.transform(rows.astype(np.float64))
        tolerance = 1e-6 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(
            dense(scaled)[:, varies], expected[:, varies], rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize(("lower", "upper"), [(0, 1), (-3, 5), (None, 0), (0.5, None)])
def test_limits_are_those_of_minmax(lower, upper):
    matrix = make_matrix(dtype=np.float64)
    scaler = choose_scaler(statistics_of(matrix), lower=lower, upper=upper)
    limits = (-1 if lower is None else lower, 1 if upper is None else upper)
    expected = MinMaxScaler(feature_range=limits).fit_transform(matrix)
    varies = np.arange(23) != CONSTANT
    np.testing.assert_allclose(scaler.apply(matrix)[:, varies], expected[:, varies], atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_column_becomes_zero_and_is_ignored_ever_after(method):
    rows = np.array([[7.0, 1.0], [7.0, 2.0]])
    scaler = choose_scaler(statistics_of(rows), method)
    assert scaler.ignored_columns == 1
    np.testing.assert_array_equal(scaler.apply(rows)[:, 0], 0)
    np.testing.assert_array_equal(scaler.apply(rows * [1e300, 1])[:, 0], 0)


@pytest.mark.parametrize(
    ("method", "low", "moved"),
    [("maxabs", 1.0, []), ("minmax", -2.0, []), ("minmax", 0.0, [0]), ("standard", -2.0, [])],
)
def test_sparse_rows_stay_sparse_where_zeros_stay_zeros(method, low, moved):
    rows = sp.csr_array(np.array([[low, 0], [0, 0], [2.0, 0]]))
    scaler = choose_scaler(statistics_of(rows), method)
    np.testing.assert_array_equal(scaler.moved_columns(), moved)
    scaled = scaler.apply(rows)
    assert sp.issparse(scaled) is (not moved)
    np.testing.assert_allclose(dense(scaled), scaler.apply(rows.toarray()))


def test_lower_zero_keeps_the_zeros_of_columns_without_negative_values():
    rows = sp.csr_array(np.array([[3.0, 0], [0, 0.1], [7.0, 0]]))
    scaler = choose_scaler(statistics_of(rows), lower=0)
    assert sp.issparse(scaler.apply(rows))


@pytest.mark.parametrize(
    ("column", "able"),
    [
        ([0, 1e-320], ""),
        ([0, 5e-324], ""),
        ([1e-310, 2e-310], ""),
        ([0, 1e308], ""),
        ([-1.7e308, 1.7e308], ""),
        # The variance under- and overflows before the values do.
        ([0, 1e-200], "minmax maxabs"),
        ([-1e300, 1e300], "minmax maxabs"),
        ([1e300, 1e300 * (1 + 1e-15)], "minmax maxabs"),
        ([1e9, 1e9 + 1], "minmax standard maxabs"),
        ([1.0, np.nextafter(1, 2)], "minmax standard maxabs"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_extreme_columns_become_finite_or_are_refused_by_name(method, column, able):
    rows = np.array([[1.0, 2.0], column]).T
    with np.errstate(all="ignore"):
        statistics = statistics_of(rows)
    if method not in able.split():
        with pytest.raises(DataError, match=rf"column 1 \(from 0\) has values from .*{method}"):
            choose_scaler(statistics, method)
        return
    scaled = choose_scaler(statistics, method).apply(rows)
    assert np.isfinite(scaled).all()
    assert (scaled[0] <= scaled[1]).all()
    # Two neighbours of float64 have no middle.
    np.testing.assert_array_less(np.abs(scaled), 2.1)


def test_minmax_of_extreme_values():
    """Not everything unusual is refused."""
    for limit in (1e300, 1e-300):
        rows = np.array([[-limit], [0], [limit]])
        with np.errstate(all="ignore"):
            statistics = statistics_of(rows)
        scaled = choose_scaler(statistics).apply(rows)
        np.testing.assert_allclose(scaled, [[-1], [0], [1]], rtol=1e-15)


@given(
    st.integers(0, 2**32),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
    st.lists(st.integers(-100, 100), min_size=1, max_size=4),
)
def test_minmax_reaches_its_limits(seed, lower, width, exponents):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20, len(exponents))) * 10.0 ** np.array(exponents)
    scaled = choose_scaler(statistics_of(rows), lower=lower, upper=lower + width).apply(rows)
    tolerance = 1e-13 * (abs(lower) + width)
    np.testing.assert_allclose(scaled.min(axis=0), lower, atol=tolerance)
    np.testing.assert_allclose(scaled.max(axis=0), lower + width, atol=tolerance)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("robust", {}, "method is 'robust'; it must be one of minmax, standard, maxabs"),
        ("standard", {"lower": 0}, "lower and upper are limits of minmax; standard has none"),
        ("maxabs", {"upper": 2}, "limits of minmax"),
        ("minmax", {"lower": 1}, "lower is 1, upper 1.0; lower must be less"),
        ("minmax", {"lower": np.nan}, "lower must be less"),
        ("minmax", {"lower": -np.inf}, "both finite"),
        ("minmax", {"lower": -1e308, "upper": 1e308}, "both finite"),
    ],
)
def test_invalid_parameters_are_refused(method, options, message):
    with pytest.raises(ParameterError, match=message):
        choose_scaler(statistics_of(np.eye(2)), method, **options)


@pytest.mark.parametrize(
    ("method", "offset", "factor", "message"),
    [
        ("robust", [0.0], [1.0], "rows scaled by 'robust'; known are"),
        ({"method": "minmax"}, [0.0], [1.0], "rows scaled by"),
        ("minmax", [np.nan], [1.0], "must be finite float64"),
        ("minmax", [0.0], [np.inf], "must be finite float64"),
        ("minmax", [[0.0]], [[1.0]], "must be finite float64"),
        ("minmax", [0], [1], "must be finite float64"),
        ("minmax", [0.0, 0.0], [1.0], "2 offsets and 1 factors"),
    ],
)
def test_invalid_scaler_is_refused(method, offset, factor, message):
    with pytest.raises(DataError, match=message):
        Scaler(method, np.array(offset), np.array(factor))


def test_scalers_are_equal_by_what_they_do():
    one = Scaler("minmax", np.zeros(2), np.ones(2))
    assert one == Scaler("maxabs", np.zeros(2), np.ones(2))
    assert one != Scaler("minmax", np.zeros(2), np.array([1, 2.0]))
    assert one != Scaler("minmax", np.ones(2), np.ones(2))
    assert one != Scaler("minmax", np.zeros(3), np.ones(3))
