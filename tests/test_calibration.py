"""Probabilities from decision values: beside scikit-learn's, and where values are awkward."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from bigsvm.calibration import (
    METHODS,
    Calibration,
    fit_calibration,
    fit_density,
    fit_laplace,
)
from bigsvm.errors import DataError, ParameterError


def held_out(n=500, *, distance=1.0, seed=0):
    """Decision values of rows of two overlapping classes, and which are positive."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.3
    return rng.normal(size=n) + distance * np.where(positive, 1.0, -1.5), positive


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose decision values are the only column there is."""

    def fit(self, X, y):
        self.classes_ = np.array([False, True])
        return self

    def decision_function(self, X):
        return X[:, 0]

    def predict(self, X):
        return X[:, 0] > 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("distance", [0.3, 1.0, 6.0])
# Which is what is meant.
@pytest.mark.filterwarnings("ignore:Since FrozenEstimator does not:UserWarning")
def test_probabilities_are_scikit_learns(method, distance, weighted):
    values, positive = held_out(distance=distance)
    weights = np.random.default_rng(1).uniform(0.1, 3, len(values)) if weighted else None
    frozen = FrozenEstimator(Given().fit(values[:, None], positive))
    peer = CalibratedClassifierCV(frozen, method=method)
    peer.fit(values[:, None], positive, sample_weight=weights)
    others = np.linspace(-9, 9, 1001)
    ours = fit_calibration(method, values, positive, weights)
    np.testing.assert_allclose(
        ours.probability(others), peer.predict_proba(others[:, None])[:, 1], atol=1e-6
    )
    assert ours.n_rows == len(values)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_is_the_row_twice(method):
    values, positive = held_out()
    weights = np.random.default_rng(2).integers(1, 4, len(values))
    weighted = fit_calibration(method, values, positive, weights.astype(float))
    repeated = fit_calibration(method, np.repeat(values, weights), np.repeat(positive, weights))
    others = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(
        weighted.probability(others), repeated.probability(others), atol=1e-9
    )


def test_targets_are_platts():
    """At the optimum, the probabilities add up to the targets, and so do they times the values."""
    values, positive = held_out(60)
    n = np.count_nonzero(positive)
    target = np.where(positive, (n + 1) / (n + 2), 1 / (60 - n + 2))
    left = fit_calibration("sigmoid", values, positive).probability(values) - target
    assert abs(left.sum()) < 1e-7
    assert abs(left @ values) < 1e-7


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-9, 1.0, 1e9, 1e200, 1e307])
def test_the_size_of_values_does_not_matter(method, scale):
    values, positive = held_out()
    made = fit_calibration(method, values * scale, positive)
    found = made.probability(values * scale)
    if scale == 1e-300:  # nothing that float64 can calibrate
        np.testing.assert_allclose(found, found[0])
        return
    expected = fit_calibration(method, values, positive).probability(values)
    np.testing.assert_allclose(found, expected, atol=1e-9)


AWKWARD = {
    "equal": np.full(40, 3.3),
    "zero": np.zeros(40),
    "equal up to rounding": 1.0 + np.arange(40) * 1e-16,
    "separated": np.where(np.arange(40) % 2, 2.0, -2.0),
    "separated by little": np.where(np.arange(40) % 2, 1e-12, -1e-12),
    "far away": 1e9 + np.where(np.arange(40) % 2, 1.0, -1.0) + np.sin(np.arange(40)),
    "one far away": np.r_[1e17, np.where(np.arange(39) % 2, -1.0, 1.0)],
    "the wrong way round": np.where(np.arange(40) % 2, -1.0, 1.0) + np.sin(np.arange(40)),
    "as large as there are": np.where(np.arange(40) % 2, 1.7e308, -1.7e308),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("values", AWKWARD.values(), ids=AWKWARD)
def test_probabilities_ascend_from_0_to_1_at_most(method, values):
    made = fit_calibration(method, values, np.arange(40) % 2 == 1)
    everywhere = np.array([-1.7e308, -1e17, -3, -1e-300, 0, 1e-12, 1, 1e9, 1e17, 1.7e308])
    found = made.probability(np.sort(np.r_[values, everywhere]))
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("name", ["equal", "equal up to rounding", "the wrong way round"])
@pytest.mark.parametrize("method", METHODS)
def test_uninformative_values_have_the_share_of_the_class(method, name):
    positive = np.arange(40) % 2 == 1
    found = fit_calibration(method, AWKWARD[name], positive).probability(AWKWARD[name])
    if method == "isotonic" and name == "the wrong way round":
        expected = IsotonicRegression(out_of_bounds="clip").fit_transform(AWKWARD[name], positive)
        np.testing.assert_allclose(found, expected)
        return
    np.testing.assert_allclose(found, 0.5, atol=1e-9)


def test_separated_classes_keep_platts_doubt():
    values = AWKWARD["separated"]
    found = fit_calibration("sigmoid", values, values > 0).probability(values)
    np.testing.assert_allclose(found, np.where(values > 0, 21 / 22, 1 / 22), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(DataError, match="not finite; scale the features"):
        fit_calibration("sigmoid", np.array([0.0, bad]), np.array([True, False]))


@pytest.mark.parametrize(
    ("method", "numbers", "words"),
    [
        ("linear", [[1.0], [0.0]], "one of sigmoid, isotonic"),
        ("sigmoid", [[1.0]], r"of shape \(1, 1\)"),
        ("sigmoid", [1.0, 0.0], r"of shape \(2,\)"),
        ("isotonic", np.empty((2, 0)), r"of shape \(2, 0\)"),
        ("sigmoid", [[np.nan], [0.0]], "finite"),
        ("sigmoid", np.ones((2, 1), np.float32), "float64"),
        ("isotonic", [[0.0, 0.0], [0.1, 0.2]], "ascend"),
        ("isotonic", [[0.0, 1.0], [0.2, 0.1]], "ascend"),
        ("isotonic", [[0.0, 1.0], [-0.1, 0.1]], "ascend"),
        ("isotonic", [[0.0, 1.0], [0.1, 1.1]], "ascend"),
    ],
)
def test_invalid_calibration_is_refused(method, numbers, words):
    with pytest.raises(ParameterError, match=words):
        Calibration(method=method, numbers=np.asarray(numbers))
    with pytest.raises(ParameterError, match="'many' rows"):
        Calibration(method="sigmoid", numbers=np.zeros((2, 1)), n_rows="many")


def naive_marks(values):
    """Middles of the ends of fifths, of rows on both sides of 0."""
    outside, inside = sorted(v for v in values if v < 0), sorted(v for v in values if v >= 0)
    ends = [outside[i * len(outside) // 5] for i in range(5)]
    ends += [0.0, *(inside[-(-i * len(inside) // 5) - 1] for i in range(1, 6))]
    return [(low + high) / 2 for low, high in pairwise(ends)]


@given(st.lists(st.floats(-3, -0.01), min_size=5), st.lists(st.floats(0, 3), min_size=5))
def test_marks_of_a_density_part_both_sides_into_fifths(outside, inside):
    made = fit_density(np.array([*inside, *outside]))
    np.testing.assert_array_equal(made.numbers[0], naive_marks([*inside, *outside]))
    assert made.n_rows == len(inside) + len(outside)


def test_a_density_is_a_step_for_each_mark():
    made = Calibration(method="density", numbers=np.arange(-4.5, 5.5)[None])
    found = made.probability(np.array([-9.0, -4.5, -4.0, -0.5, 0.0, 0.4, 4.4, 4.5, 9.0]))
    np.testing.assert_allclose(found, [0.001, 0.1, 0.1, 0.5, 0.5, 0.5, 0.9, 0.999, 0.999])


@pytest.mark.parametrize(
    "values", [[1.0, 2.0, 3.0], [-1.0, -2.0], [0.0], [-1.0, 1.0], [1e308] * 9, [-1e308] * 9]
)
def test_a_side_without_rows_has_marks_at_the_threshold(values):
    made = fit_density(np.array(values))
    assert (np.diff(made.numbers[0]) >= 0).all()
    low, high = made.probability(np.array([-1e-9, 1e-9]))
    assert low <= 0.5 <= high


@pytest.mark.parametrize("fit", [fit_density, fit_laplace])
def test_a_weight_of_two_is_the_row_twice_without_classes(fit):
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=200) + 0.5, rng.integers(1, 4, 200)
    weighted = fit(values, weights.astype(float))
    np.testing.assert_allclose(weighted.numbers, fit(np.repeat(values, weights)).numbers)


def test_the_scale_of_a_laplace_distribution_is_found_beside_outliers():
    residuals = np.random.default_rng(0).laplace(scale=0.7, size=20_000)
    residuals[:10] = 1e3
    assert fit_laplace(residuals).numbers[0, 0] == pytest.approx(0.7, rel=0.05)
    assert fit_laplace(np.zeros(10)).numbers[0, 0] == 0
    with pytest.raises(ParameterError, match="a regression has no classes"):
        fit_laplace(residuals).probability(residuals)


@pytest.mark.parametrize(
    ("method", "numbers", "message"),
    [
        ("density", np.zeros((1, 9)), "a density calibration of shape"),
        ("density", np.arange(10.0)[::-1][None], "must ascend"),
        ("laplace", np.zeros((2, 1)), "a laplace calibration of shape"),
        ("laplace", np.array([[-1.0]]), "-1.0, below 0"),
        ("laplace", np.array([[np.nan]]), "must be finite"),
    ],
)
def test_numbers_that_are_no_density_and_no_scale_are_refused(method, numbers, message):
    with pytest.raises(ParameterError, match=message):
        Calibration(method=method, numbers=numbers)
