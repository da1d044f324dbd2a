"""C-SVC as data: bounds by class and weight, and problems that are none."""

import math

import numpy as np
import pytest

from bigsvm.duals.formulations import CSVC
from bigsvm.errors import DataError, ParameterError

SIGN = np.array([1, -1, -1, 1, -1], np.int8)


def test_box_of_every_row():
    weights = np.array([1.0, 0.5, 0.0, 3.0, 2.0])
    problem = CSVC(sign=SIGN, C=4.0, class_weight=(0.5, 2.0), sample_weight=weights)
    linear, lower, upper = problem.box(slice(None))
    assert linear.dtype == lower.dtype == upper.dtype == np.float64
    for i, y in enumerate(SIGN):
        bound = 4.0 * (2.0 if y > 0 else 0.5) * weights[i]
        assert (linear[i], lower[i], upper[i]) == (
            y, 0.0 if y > 0 else -bound, bound if y > 0 else 0.0,
        )  # fmt: skip
    assert len(problem) == 5


@pytest.mark.parametrize("rows", [slice(1, 4), np.array([4, 0, 0]), np.array([], np.int64)])
def test_box_of_some_rows(rows):
    problem = CSVC(sign=SIGN, C=2.0, sample_weight=np.arange(5) + 1.0)
    whole = problem.box(slice(None))
    for part, values in zip(problem.box(rows), whole, strict=True):
        np.testing.assert_array_equal(part, values[rows])


def test_weights_default_to_one():
    box = CSVC(sign=SIGN, C=3.0).box(slice(None))
    np.testing.assert_array_equal(box.upper - box.lower, 3.0)


def test_movable_by_class():
    problem = CSVC(sign=SIGN, C=1.0, sample_weight=np.array([1.0, 0, 2, 0, 0]))
    negative, positive = problem.movable_by_class()
    assert np.flatnonzero(negative).tolist() == [2]
    assert np.flatnonzero(positive).tolist() == [0]


@pytest.mark.parametrize("C", [0.0, -1.0, math.nan])
def test_invalid_C_is_refused(C):
    with pytest.raises(ParameterError, match=r"C is .*; it must be a number > 0"):
        CSVC(sign=SIGN, C=C)


@pytest.mark.parametrize(("weights", "label"), [
    ((-1.0, 1.0), "negative"), ((1.0, math.nan), "positive"), ((math.inf, 1.0), "negative"),
])  # fmt: skip
def test_invalid_class_weight_is_refused(weights, label):
    with pytest.raises(ParameterError, match=f"the {label} class has weight"):
        CSVC(sign=SIGN, C=1.0, class_weight=weights)


@pytest.mark.parametrize(("given", "label"), [
    ({"sign": np.ones(3, np.int8)}, "negative"),
    ({"sign": -np.ones(3, np.int8)}, "positive"),
    ({"sign": SIGN, "class_weight": (0.0, 1.0)}, "negative"),
    ({"sign": SIGN, "sample_weight": np.array([0.0, 1, 1, 0, 1])}, "positive"),
])  # fmt: skip
def test_classification_without_one_of_its_classes_is_refused(given, label):
    with pytest.raises(DataError, match=f"no row of the {label} class"):
        CSVC(C=1.0, **given)
