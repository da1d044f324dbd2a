"""Classes from the values of several functions: against scikit-learn and against loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_iris, make_blobs
from sklearn.svm import SVC
from sklearn.utils.multiclass import _ovr_decision_function

from bigsvm import votes
from bigsvm.errors import ParameterError
from bigsvm.votes import libsvm_coefficients, pair_functions, pair_number


def pairs(k):
    return list(itertools.combinations(range(k), 2))


def naive_votes(row, k):
    won = [0] * k
    for value, (first, second) in zip(row, pairs(k), strict=True):
        won[second if value > 0 else first] += 1
    return won


def naive_graph(row, k):
    value = dict(zip(pairs(k), row, strict=True))
    left = list(range(k))
    while len(left) > 1:
        left.remove(left[0] if value[left[0], left[-1]] > 0 else left[-1])
    return left[0]


@st.composite
def values_of_pairs(draw):
    k = draw(st.integers(2, 6))
    element = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0])
    return k, draw(arrays(np.float64, (draw(st.integers(0, 5)), len(pairs(k))), elements=element))


@given(values_of_pairs())
def test_votes_and_the_graph_are_their_definitions(case):
    k, values = case
    won = np.array([naive_votes(row, k) for row in values]).reshape(-1, k)
    np.testing.assert_array_equal(votes.count_votes(values, k), won)
    expected = [list(row).index(max(row)) for row in won.tolist()]
    np.testing.assert_array_equal(votes.decide(values, "ovo", k), expected)
    expected = [naive_graph(row, k) for row in values.tolist()]
    np.testing.assert_array_equal(votes.decide(values, "ddag", k), expected)
    shaped = votes.one_vs_rest_values(values, k)
    np.testing.assert_allclose(
        shaped, _ovr_decision_function(values > 0, values, k) if len(values) else won, atol=1e-14
    )
    np.testing.assert_array_equal(
        votes.decide(values, "ovo-break-ties", k), np.argmax(shaped, axis=1)
    )


@pytest.mark.parametrize("break_ties", [False, True])
@pytest.mark.parametrize("k", [5, 8])
def test_scikit_learns_values_give_its_labels(k, break_ties):
    X, y = make_blobs(400, centers=k, n_features=3, cluster_std=9, random_state=k)
    fitted = SVC(decision_function_shape="ovo").fit(X, y)
    values = -fitted.decision_function(X)
    fitted.set_params(decision_function_shape="ovr", break_ties=break_ties)
    np.testing.assert_allclose(
        votes.one_vs_rest_values(values, k), fitted.decision_function(X), atol=1e-12
    )
    rule = "ovo-break-ties" if break_ties else "ovo"
    np.testing.assert_array_equal(votes.decide(values, rule, k), fitted.predict(X))
    won = np.sort(votes.count_votes(values, k), axis=1)
    assert (won[:, -1] == won[:, -2]).any(), "no tie: the test would not see how they are broken"


@pytest.mark.parametrize("rule", votes.OF_CLASSES)
def test_the_largest_value_wins_and_the_first_of_equal_ones(rule):
    values = np.array([[1.0, 3.0, 3.0], [-1.0, -2.0, -1.0], [0.0, 0.0, 1e-300]])
    np.testing.assert_array_equal(votes.decide(values, rule, 3), [1, 0, 2])


def test_invalid_votes_are_refused():
    with pytest.raises(ParameterError, match="rule is 'majority'; it must be one of ovo"):
        votes.decide(np.zeros((2, 3)), "majority", 3)
    with pytest.raises(ParameterError, match="ovo of 4 classes takes 6 functions, there are 3"):
        votes.decide(np.zeros((2, 3)), "ovo", 4)


@pytest.mark.parametrize("k", [2, 3, 8])
def test_pairs_are_numbered_in_libsvms_order(k):
    assert [pair_number(a, b, k) for a, b in pairs(k)] == list(range(len(pairs(k))))


def test_scikit_learns_coefficients_become_functions_and_come_back():
    X, y = load_iris(return_X_y=True)
    fitted = SVC(decision_function_shape="ovo").fit(X, y)
    functions = pair_functions(fitted.dual_coef_, fitted.n_support_)
    K = np.exp(-fitted._gamma * ((X[:, None] - fitted.support_vectors_) ** 2).sum(axis=2))
    np.testing.assert_allclose(
        -(K @ functions.toarray() - fitted.intercept_), fitted.decision_function(X), atol=1e-12
    )
    order = np.random.default_rng(0).permutation(len(fitted.support_))
    rows, counts, dual = libsvm_coefficients(functions[order], 3)
    np.testing.assert_array_equal(counts, fitted.n_support_)
    back = np.empty_like(dual)
    back[:, order[rows]] = dual
    np.testing.assert_array_equal(back, fitted.dual_coef_)
    classes = np.repeat(np.arange(3), counts)
    np.testing.assert_array_equal(classes, y[fitted.support_][order[rows]])


def test_a_support_vector_of_two_classes_is_there_once_for_each():
    functions = pair_functions(np.array([[1.0, -2, 0, 0], [0, 0, 4, -3]]), [1, 2, 1])
    both = functions.toarray()
    both[0] += both[3]
    both[3] = 0
    rows, counts, dual = libsvm_coefficients(type(functions)(both), 3)
    np.testing.assert_array_equal(rows, [0, 1, 2, 0])
    np.testing.assert_array_equal(counts, [1, 2, 1])
    again = pair_functions(dual, counts).toarray()
    np.testing.assert_array_equal(again[0] + again[3], both[0])
    np.testing.assert_array_equal(again[1:3], both[1:3])
