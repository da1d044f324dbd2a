"""Probabilities of many classes from the values of their functions, beside slow definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from bigsvm import votes
from bigsvm.calibration import METHODS, Calibration, fit_calibration
from bigsvm.coupling import (
    class_probabilities,
    couple,
    fit_classes,
    raise_predicted,
    values_per_row,
    values_to_fit,
)
from bigsvm.errors import DataError

PAIRS_4 = list(itertools.combinations(range(4), 2))


def sigmoid(slope, offset=0.0):
    return Calibration(method="sigmoid", numbers=np.array([[slope], [offset]]))


STEPS = Calibration(method="isotonic", numbers=np.array([[-1.0, 0.0, 0.5], [0.1, 0.5, 0.8]]))


def blobs(n, k, seed=0, *, spread=0.7):
    """Values of class pairs, classes of rows, and values of classes, which overlap."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, k, n)
    of_classes = rng.normal(size=(n, k)) * spread + 1.5 * (codes[:, None] == np.arange(k))
    first, second = votes.pair_classes(k)
    return of_classes[:, second] - of_classes[:, first], codes, of_classes


def naive_loss(p, second):
    """``Σ_i Σ_{j≠i} (r_ji p_i − r_ij p_j)²`` of one row."""
    loss = 0.0
    for (i, j), of_second in zip(PAIRS_4, second, strict=True):
        loss += 2 * (of_second * p[i] - (1 - of_second) * p[j]) ** 2
    return loss


def test_coupled_probabilities_minimise_what_they_are_defined_by():
    second = expit(np.random.default_rng(0).normal(size=(20, 6)) * 2)
    found = couple(second, 4)
    for row, p in zip(second, found, strict=True):
        best = minimize(
            naive_loss, np.full(4, 0.25), args=(row,), method="SLSQP", bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, tol=1e-14,
        )  # fmt: skip
        assert naive_loss(p, row) <= best.fun + 1e-12
        np.testing.assert_allclose(p, best.x, atol=1e-4)


@given(st.lists(st.floats(0.001, 1), min_size=3, max_size=6))
def test_probabilities_that_fit_all_pairs_are_found(weights):
    p = np.array(weights) / np.sum(weights)
    first, second = votes.pair_classes(len(p))
    found = couple((p[second] / (p[first] + p[second]))[None], len(p))
    np.testing.assert_allclose(found[0], p, atol=1e-6)


@settings(max_examples=50)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.1, 1e4))
def test_probabilities_of_any_pairs_are_probabilities(k, seed, scale):
    values = np.random.default_rng(seed).normal(size=(7, k * (k - 1) // 2)) * scale
    found = class_probabilities(sigmoid(1.0), values, "ovo", k)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_rows_do_not_depend_on_those_beside_them(monkeypatch):
    values, _, _ = blobs(50, 5)
    whole = class_probabilities(sigmoid(2.0), values, "ovo", 5)
    monkeypatch.setattr("bigsvm.coupling.VALUES_AT_ONCE", 100)
    np.testing.assert_allclose(class_probabilities(sigmoid(2.0), values, "ovo", 5), whole)


def test_a_pair_of_two_classes_is_coupled_to_itself():
    values = np.linspace(-3, 3, 13)
    of_one = class_probabilities(sigmoid(2.0), values, None, 2)
    np.testing.assert_allclose(of_one[:, 1], expit(2 * values))
    np.testing.assert_allclose(
        class_probabilities(sigmoid(2.0), values[:, None], "ovo", 2), of_one, atol=1e-7
    )


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_the_class_that_wins_all_its_pairs_by_most_is_the_likeliest(seed):
    values, _, of_classes = blobs(20, 4, seed)
    found = class_probabilities(sigmoid(2.0), values, "ovo", 4)
    np.testing.assert_array_equal(found.argmax(axis=1), of_classes.argmax(axis=1))


@pytest.mark.parametrize("rule", votes.OF_CLASSES)
def test_a_sigmoid_of_classes_is_a_softmax(rule):
    _, _, values = blobs(50, 4)
    found = class_probabilities(sigmoid(1.7), values, rule, 4)
    np.testing.assert_allclose(found, softmax(1.7 * values, axis=1))
    huge = class_probabilities(sigmoid(1.0), values * 1e307, rule, 4)
    np.testing.assert_array_equal(huge.argmax(axis=1), values.argmax(axis=1))


def test_isotonic_probabilities_of_classes_are_divided_by_their_sum():
    made = Calibration(method="isotonic", numbers=np.array([[0.0, 1.0], [0.0, 0.5]]))
    values = np.array([[1.0, 0.5, -1.0], [-1.0, -1.0, -2.0]])
    found = class_probabilities(made, values, "ovr", 3)
    np.testing.assert_allclose(found, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3]])


def test_values_to_fit_are_those_of_the_pairs_of_the_class():
    values, codes, of_classes = blobs(30, 4)
    found = values_to_fit(values, codes, "ovo", 4)
    assert found.shape == (30, values_per_row("ovo", 4))
    for row, code in enumerate(codes):
        expected = [
            values[row, place] * (1 if code == second else -1)
            for place, (first, second) in enumerate(PAIRS_4)
            if code in (first, second)
        ]
        assert sorted(found[row]) == pytest.approx(sorted(expected))
    assert values_to_fit(of_classes, codes, "ovr", 4) is of_classes


@pytest.mark.parametrize("method", METHODS)
def test_pairs_share_a_calibration_that_treats_both_sides_alike(method):
    values, codes, _ = blobs(400, 4)
    margins = values_to_fit(values, codes, "ovo", 4)
    made = fit_classes(method, margins, codes, None, rule="ovo", k=4)
    both = np.concatenate([margins.ravel(), -margins.ravel()])
    expected = fit_calibration(method, both, np.arange(2400) < 1200, np.full(2400, 0.5))
    x = np.linspace(-4, 4, 81)
    np.testing.assert_allclose(made.probability(x), expected.probability(x), atol=1e-6)
    np.testing.assert_allclose(made.probability(x) + made.probability(-x), 1, atol=1e-9)
    assert made.n_rows == 400


def test_the_temperature_has_the_largest_likelihood():
    _, codes, values = blobs(500, 5)
    made = fit_classes("sigmoid", values, codes, None, rule="ovr", k=5)
    sizes = np.bincount(codes)
    of_true = ((sizes + 1) / (sizes + 2))[codes]
    target = np.repeat(((1 - of_true) / 4)[:, None], 5, axis=1)
    target[np.arange(500), codes] = of_true

    def loss(slope):
        return -(target * log_softmax(slope * values, axis=1)).sum()

    slope = made.numbers[0, 0]
    for other in (0.99 * slope, 1.01 * slope, 0.1, 10.0):
        assert loss(slope) < loss(other)
    assert made.numbers[1, 0] == 0


@pytest.mark.parametrize("rule", ["ovo", "ovr"])
@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_is_the_row_twice(method, rule):
    pairs, codes, of_classes = blobs(200, 3)
    values = values_to_fit(pairs, codes, rule, 3) if rule == "ovo" else of_classes
    weights = np.random.default_rng(2).integers(1, 4, 200)
    weighted = fit_classes(method, values, codes, weights.astype(float), rule=rule, k=3)
    repeated = fit_classes(
        method, np.repeat(values, weights, axis=0), np.repeat(codes, weights), None, rule=rule, k=3
    )
    x = np.linspace(-4, 4, 81)
    np.testing.assert_allclose(weighted.probability(x), repeated.probability(x), atol=1e-6)


@pytest.mark.parametrize("rule", ["ovo", "ovr"])
@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e9, 1e300])
def test_the_size_of_values_does_not_matter(scale, rule):
    pairs, codes, of_classes = blobs(200, 3)
    values = pairs if rule == "ovo" else of_classes

    def probabilities(scale):
        own = values_to_fit(values * scale, codes, rule, 3)
        made = fit_classes("sigmoid", own, codes, None, rule=rule, k=3)
        return class_probabilities(made, values * scale, rule, 3)

    expected = probabilities(1.0) if scale > 1e-300 else np.full((200, 3), 1 / 3)
    np.testing.assert_allclose(probabilities(scale), expected, atol=1e-6)


@pytest.mark.parametrize("rule", ["ovo", "ovr"])
def test_separated_classes_keep_some_doubt(rule):
    codes = np.repeat(np.arange(3), 20)
    values = np.where(codes[:, None] == np.arange(3), 1.0, -1.0)
    if rule == "ovo":
        first, second = votes.pair_classes(3)
        values = (values[:, second] - values[:, first]) / 2
    own = values_to_fit(values, codes, rule, 3)
    made = fit_classes("sigmoid", own, codes, None, rule=rule, k=3)
    found = class_probabilities(made, values, rule, 3)
    assert (found.argmax(axis=1) == codes).all()
    assert 0.9 < found.max() < 0.999


@pytest.mark.parametrize("rule", ["ovo", "ovr"])
def test_values_that_are_not_finite_are_refused(rule):
    values = np.full((6, 3), np.nan)
    with pytest.raises(DataError, match="not finite; scale the features"):
        fit_classes("sigmoid", values, np.arange(6) % 3, None, rule=rule, k=3)


@pytest.mark.parametrize("made", [sigmoid(1.0), sigmoid(0.0), STEPS])
@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.1, 30))
def test_the_predicted_class_is_the_likeliest(made, k, seed, scale):
    rng = np.random.default_rng(seed)
    for rule in votes.RULES:
        values = rng.normal(size=(20, votes.n_functions(rule, k))) * scale
        found = class_probabilities(made, values, rule, k)
        np.testing.assert_array_equal(found.argmax(axis=1), votes.decide(values, rule, k))
        assert ((found >= 0) & (found <= 1)).all()
        np.testing.assert_allclose(found.sum(axis=1), 1)


@settings(max_examples=30)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_probabilities_are_raised_as_little_as_possible(k, seed):
    rng = np.random.default_rng(seed)
    p, code = rng.dirichlet(np.ones(k)), int(rng.integers(k))
    found = raise_predicted(p[None], np.array([code]))[0]
    best = minimize(
        lambda q: ((q - p) ** 2).sum(), np.full(k, 1 / k), method="SLSQP", tol=1e-14,
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: q[code] - q},
        ],
    )  # fmt: skip
    np.testing.assert_allclose(found, best.x, atol=1e-5)
    assert found.argmax() == code


def test_a_sigmoid_for_each_pair_is_libsvms_and_moves_nothing():
    # Votes are tied, and the second class is the likeliest.
    values = np.array([[1.0, -3.0, 0.5]])
    own = Calibration(method="sigmoid", numbers=np.array([[1.0] * 3, [0.0] * 3]))
    found = class_probabilities(own, values, "ovo", 3)
    np.testing.assert_array_equal(found, couple(expit(values), 3))
    shared = class_probabilities(sigmoid(1.0), values, "ovo", 3)
    assert votes.decide(values, "ovo", 3) == shared.argmax() == 0
    assert found.argmax() != 0
    np.testing.assert_allclose(np.sort(shared[0])[-2:], shared.max())


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=6), st.data())
def test_a_probability_rises_with_each_pair_where_pairs_agree(weights, data):
    p, k = np.array(weights) / np.sum(weights), len(weights)
    first, second = votes.pair_classes(k)
    of_second = p[second] / (p[first] + p[second])
    pair = data.draw(st.integers(0, len(first) - 1))
    more = of_second.copy()
    more[pair] += 1e-4
    change = couple(more[None], k)[0] - couple(of_second[None], k)[0]
    assert change[second[pair]] > 0 > change[first[pair]]


def test_a_probability_may_fall_where_pairs_contradict():
    """What the documentation says: the second approach of Wu, Lin and Weng is not monotone."""
    # The third class beats the second, and this the first, but the third hardly beats the first.
    of_second = np.array([[0.95, 0.7, 0.99], [0.96, 0.7, 0.99]])
    before, after = couple(of_second, 3)
    assert after[1] < before[1]


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_a_softmax_is_monotone(k, seed):
    rng = np.random.default_rng(seed)
    values, code = rng.normal(size=(1, k)), int(rng.integers(k))
    more = values + rng.uniform(0.01, 1) * (np.arange(k) == code)
    before, after = (class_probabilities(sigmoid(2.0), v, "ovr", k)[0] for v in (values, more))
    assert after[code] > before[code]
    assert (np.delete(after, code) < np.delete(before, code)).all()
