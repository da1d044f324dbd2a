"""The uncertified stop's rule: a line through the last estimates, and when it is flat enough."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.training.check_saved import check_counters
from bigsvm.training.learning_curve import LATEST, WORTH, Estimate, LearningCurve, estimate
from bigsvm.training.state import Counters

VALUES = {
    **asdict(Counters(scope=2000)),
    "random_state": dict(np.random.default_rng(0).bit_generator.state),
}


def curve_of(points):
    curve = LearningCurve({})
    for trained, error, deviation in points:
        curve.add(trained, Estimate(error, deviation))
    return curve


def test_an_estimate_is_the_share_of_mistakes():
    wrong = np.zeros(1000, np.bool_)
    wrong[:50] = True
    found = estimate(wrong, np.ones(1000))
    assert found.error == 0.05
    assert found.deviation == pytest.approx(np.sqrt(0.05 * 0.95 / 1000), rel=0.02)


def test_weights_count_rows_as_often():
    wrong = np.array([True, False, False, True])
    weights = np.array([2.0, 1.0, 1.0, 0.0])
    assert estimate(wrong, weights).error == 0.5
    assert estimate(wrong, np.zeros(4)) is None


def test_no_mistake_has_a_standard_error_all_the_same():
    found = estimate(np.zeros(500, np.bool_), np.ones(500))
    assert found.error == 0
    assert 0 < found.deviation < 0.01


def test_standard_errors_are_what_repeated_estimates_scatter_by():
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, 800)
    found = [estimate(rng.random(800) < 0.1, weights) for _ in range(400)]
    scatter = np.std([one.error for one in found])
    assert np.mean([one.deviation for one in found]) == pytest.approx(scatter, rel=0.1)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 0.5), st.floats(1e-3, 0.05)), min_size=LATEST, max_size=LATEST
    )
)
def test_the_slope_is_that_of_weighted_least_squares(pairs):
    trained = np.array([2000.0, 3500.0, 6125.0])
    errors, deviations = np.array(pairs).T
    curve = curve_of(zip(trained, errors, deviations, strict=True))
    coefficients, covariance = np.polyfit(
        trained**-0.5, errors, 1, w=1 / deviations, cov="unscaled"
    )
    slope = max(coefficients[0], 0.0) + np.sqrt(covariance[0, 0])
    expected = slope * (10_000**-0.5 - 1_000_000**-0.5)
    assert curve.gain(10_000, 1_000_000) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_errors_that_still_fall_go_on_and_level_ones_end():
    falling = [(rows, 2.0 * rows**-0.5, 0.001) for rows in (2000, 3500, 6125, 10_718)]
    level = [(rows, 0.02, 0.001) for rows in (2000, 3500, 6125, 10_718)]
    assert not curve_of(falling).is_settled(18_756, 1_000_000)
    assert curve_of(level).is_settled(18_756, 1_000_000)
    assert curve_of(falling).gain(18_756, 1_000_000) > 2.0 * (18_756**-0.5 - 1e-3) > WORTH


def test_few_rows_do_not_settle_the_curve():
    uncertain = [(2000, 0.02, 0.02), (3500, 0.02, 0.015)]
    assert not curve_of(uncertain).is_settled(6125, 10**6)
    assert not curve_of([(2000, 0.0, 1e-4)]).is_settled(3500, 10**6)


def test_curve_of_all_rows_is_settled():
    assert curve_of([(2000, 0.3, 0.01), (3500, 0.1, 0.01)]).is_settled(6125, 6125)


def test_a_saved_curve_goes_on():
    curve = curve_of([(2000, 0.05, 0.005), (3500, 0.04, 0.004)])
    again = LearningCurve(json.loads(json.dumps(curve.saved)))
    for one in (curve, again):
        one.add(6125, Estimate(0.03, 0.002))
    assert again.gain(10_718, 10**6) == curve.gain(10_718, 10**6)
    assert again.last == Estimate(0.03, 0.002)


CURVE = {"trained": [2000.0, 3500.0], "error": [0.05, 0.04], "deviation": [0.005, 0.004]}


@pytest.mark.parametrize("curve", [{}, CURVE, {name: [] for name in CURVE}])
def test_curves_of_runs_are_taken_up(curve):
    check_counters({**VALUES, "curve": curve}, 5000)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "curve",
    [
        None,
        [],
        {"trained": [2000.0]},
        CURVE | {"error": [0.05]},
        CURVE | {"error": 0.05},
        CURVE | {"error": [0.05, "0.04"]},
        CURVE | {"error": [0.05, 1.5]},
        CURVE | {"deviation": [0.005, 0.0]},
        CURVE | {"deviation": [0.005, float("nan")]},
        CURVE | {"trained": [2000.0, 2000.0]},
        CURVE | {"trained": [0.0, 2000.0]},
        CURVE | {"more": [1.0, 2.0]},
    ],
)
def test_damaged_curves_are_refused(curve):
    with pytest.raises(ValueError, match="curve of the counters is"):
        check_counters({**VALUES, "curve": curve}, 5000)
