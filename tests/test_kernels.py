"""Kernels: their formulas against `math`, their names and parameters, gamma's words."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.svm import SVC

from bigsvm.errors import ParameterError
from bigsvm.kernels import (
    KERNELS,
    RBF,
    KernelCode,
    Linear,
    Polynomial,
    Sigmoid,
    kernel_from,
    make_kernel,
    resolve_gamma,
)


@pytest.mark.parametrize(("name", "parameters"), [
    ("linear", {}), ("rbf", {"gamma": 0.7}), ("sigmoid", {"gamma": 0.2, "coef0": -1.0}),
    ("poly", {"gamma": 0.5, "coef0": 1.0, "degree": 3}), ("poly", {"gamma": 2.0, "degree": 0}),
])  # fmt: skip
def test_formulas(name, parameters):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    kernel = make_kernel(name, **parameters)
    exact = naive.kernel_matrix(A, B, name, **parameters)
    values = kernel.from_products(A @ B.T, (A**2).sum(1), (B**2).sum(1))
    np.testing.assert_allclose(values, exact, rtol=1e-12)


def test_codes_are_libsvm_s():
    own = [kind for kind in KERNELS.values() if kind.__module__ == "bigsvm.kernels"]
    of_libsvm = ["linear", "poly", "rbf", "sigmoid", "precomputed"]
    assert [int(KERNELS[name].code) for name in of_libsvm] == [0, 1, 2, 3, 4]
    assert len({kind.code for kind in own}) == len(own)
    assert KernelCode(2) is KernelCode.RBF


def test_the_core_is_given_what_the_kernel_has():
    assert Polynomial(gamma=2.0, coef0=3.0, degree=4).core_parameters == (1, 2.0, 3.0, 4)
    assert RBF(gamma=0.5).core_parameters[:2] == (2, 0.5)
    assert Sigmoid(gamma=0.5, coef0=1.0).core_parameters[:3] == (3, 0.5, 1.0)
    assert Linear().core_parameters[0] == 0


def test_only_distances_do_not_mind_where_the_origin_is():
    invariant = [name for name, kind in KERNELS.items() if kind.is_shift_invariant]
    assert invariant == ["rbf", "laplacian", "matern32", "matern52", "rbf-by-column"]


@pytest.mark.parametrize("kernel", [
    Linear(), RBF(gamma=0.25), Sigmoid(gamma=1.0, coef0=-0.5), Polynomial(gamma=3.0, degree=2),
])  # fmt: skip
def test_described_and_made_again_it_is_the_same(kernel):
    description = kernel.describe()
    assert description["name"] == kernel.name
    assert kernel_from(description) == kernel
    assert description["name"] == kernel.name  # not taken apart


@pytest.mark.parametrize(("arguments", "names"), [
    ({"name": "gauss"}, ["'gauss'", "linear, poly, rbf, sigmoid"]),
    ({"name": "rbf", "gamma": -1}, ["gamma is -1", ">= 0"]),
    ({"name": "rbf", "gamma": math.nan}, ["gamma is nan"]),
    ({"name": "rbf", "gamma": math.inf}, ["gamma is inf"]),
    ({"name": "rbf", "gamma": 1e39}, ["gamma is 1e+39", "float32", "scale the features"]),
    ({"name": "rbf", "gamma": 1e-40}, ["gamma is 1e-40", "float32", "scale the features"]),
    ({"name": "poly", "coef0": math.inf}, ["coef0 is inf"]),
    ({"name": "poly", "coef0": -1e39}, ["coef0 is -1e+39", "3.4e+38"]),
    ({"name": "poly", "degree": -1}, ["degree is -1"]),
    ({"name": "poly", "degree": 2.5}, ["degree is 2.5", "whole"]),
    ({"name": "poly", "degree": math.nan}, ["degree is nan"]),
    ({"name": "poly", "degree": math.inf}, ["degree is inf"]),
])  # fmt: skip
def test_parameters_without_meaning_are_named(arguments, names):
    with pytest.raises(ParameterError) as error:
        make_kernel(**arguments)
    for name in names:
        assert name in str(error.value)


def test_gamma_has_scikit_learns_meaning():
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(40, 6)) + 5
    y = X[:, 0] > 5
    for gamma in ("scale", "auto", 0.125):
        peer = SVC(gamma=gamma).fit(X, y)
        ours = resolve_gamma(gamma, n_features=6, variance=X.var())
        assert ours == pytest.approx(peer._gamma, rel=1e-12)
    assert resolve_gamma("scale", n_features=6, variance=0.0) == 1.0


@pytest.mark.parametrize("gamma", ["scal", "", -0.1, math.nan, math.inf])
def test_gamma_without_meaning(gamma):
    with pytest.raises(
        ParameterError, match="must be 'scale', 'auto', 'mean-distance' or a number >= 0"
    ):
        resolve_gamma(gamma, n_features=3, variance=1.0)


@pytest.mark.parametrize(("gamma", "variance"), [
    ("scale", 1e-50), ("scale", 5e-324), ("scale", 1e50), ("scale", math.inf), ("scale", math.nan),
    (1e39, 1.0), (1e-40, 1.0),
])  # fmt: skip
def test_gamma_that_float32_cannot_hold_is_refused_with_the_remedy(gamma, variance):
    with pytest.raises(ParameterError, match=r"gamma.*float32.*scale the features"):
        resolve_gamma(gamma, n_features=3, variance=variance)
    assert resolve_gamma(0.0, n_features=3, variance=variance) == 0.0


LARGEST = float(np.finfo(np.float32).max)


@given(
    st.sampled_from([Linear(), RBF(gamma=0.5)]) | st.builds(
        Polynomial, gamma=st.floats(0, 1e3), coef0=st.floats(-10, 10), degree=st.integers(0, 9)
    ),
)  # fmt: skip
def test_largest_norm_is_as_far_as_values_stay_finite(kernel):
    limit = kernel.largest_norm(LARGEST)
    if limit <= 0:
        return
    norms = np.array([limit * 0.999])
    for sign in (1.0, -1.0):
        assert np.abs(kernel.from_products(sign * norms[:, None], norms, norms)) <= LARGEST
        assert norms[0] + norms[0] + 2 * norms[0] <= LARGEST or kernel.name != "rbf"


def test_largest_norm_of_a_polynomial_is_not_far_from_the_truth():
    kernel = Polynomial(gamma=0.1, coef0=2.0, degree=4)
    limit = kernel.largest_norm(LARGEST)
    norms = np.array([limit * 1.001])
    assert kernel.from_products(norms[:, None], norms, norms)[0, 0] > LARGEST
