"""Probabilities from decision values: beside scikit-learn's, and where values are awkward."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from bigsvm.calibration import METHODS, Calibration, fit_calibration
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
