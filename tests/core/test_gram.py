"""Kernel values and sums: against `math` and loops, and bit by bit wherever they are computed."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from bigsvm.core import gram

SLOW_PYTHON = config.DISABLE_JIT
BOUND32 = 3e-7
LOW32, LOW64 = (-last * math.log(2) for last in (gram.LAST_POWER, gram.LAST_POWER64))
CODES = {"linear": 0, "poly": 1, "rbf": 2, "sigmoid": 3}
EXPONENTIALS = [(np.float32, LOW32, BOUND32), (np.float64, LOW64, 1e-15)]
GAMMAS = [1.0, 0.3, 1 / 123, 3.7, 1e-6, 1e5]


def formula(name, gamma=1.0, coef0=0.0, degree=0):
    return gram.Formula(CODES[name], gamma, coef0, degree, 0.0)


VALUES = {np.float32: gram.kernel_values32, np.float64: gram.kernel_values64}


def decay_of(distances, gamma):
    """exp(−gamma · distance) through the rbf pass, vectorised as in use."""
    block = np.zeros((1, len(distances)), distances.dtype)
    VALUES[distances.dtype.type](block, block[0, :1].copy(), distances, formula("rbf", gamma))
    return block[0]


def exp_of(x):
    """exp(x) for x ≤ 0."""
    return decay_of(-x, 1.0)


def sample(dtype, low):
    rng = np.random.default_rng(0)
    n = 300 if SLOW_PYTHON else 200_000
    spread = rng.uniform(low, 0, n)
    near_zero = -(10.0 ** rng.uniform(-30, math.log10(-low), n))
    halves = np.log(2) * (np.arange(int(low / np.log(2)), 0) + 0.5)
    ends = [0.0, low, np.nextafter(dtype(low), dtype(0))]
    return np.concatenate([spread, near_zero, halves, ends]).astype(dtype)


@pytest.mark.parametrize(("dtype", "low", "bound"), EXPONENTIALS)
def test_exponential_is_accurate(dtype, low, bound):
    x = sample(dtype, low)
    x = x[x >= dtype(low)]
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(exp_of(x) / exact - 1)
    assert error.max() < bound
    assert error.max() > bound / 100  # that something was measured


@pytest.mark.slow
@pytest.mark.skipif(SLOW_PYTHON, reason="a thousand million values")
def test_exponential_is_accurate_and_monotone_on_all_of_float32():
    first = int(np.float32(-0.0).view(np.uint32))
    last = int(np.float32(LOW32).view(np.uint32))
    least = np.float32(1)
    for start in range(first, last + 1, 1 << 22):
        bits = np.arange(start, min(start + (1 << 22), last + 1), dtype=np.uint32)
        x = bits.view(np.float32)
        values = exp_of(x)
        assert np.abs(values / np.exp(x.astype(np.float64)) - 1).max() < BOUND32
        assert values[0] <= least
        assert (np.diff(values) <= 0).all()
        least = values[-1]


@pytest.mark.parametrize(("dtype", "low", "bound"), EXPONENTIALS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_exponential_is_accurate_at_the_gamma_that_is_given(gamma, dtype, low, bound):
    """Not at a rounded one: its error would grow with the exponent."""
    distances = (-sample(dtype, low) / gamma).astype(dtype)
    distances = distances[distances.astype(np.longdouble) * gamma <= -low]
    exact = np.exp(-gamma * distances.astype(np.longdouble))
    assert np.abs(decay_of(distances, gamma) / exact - 1).max() < bound


@given(st.floats(-86, 86, width=32), st.sampled_from([1.0, gram.LOG2_E, 0.7]))
def test_scalar_power32(x, scale):
    high, low = map(np.float32, gram.split32(scale))
    power = float(gram.power32(np.float32(x), high, low))
    assert power == pytest.approx(2.0 ** (x * scale), rel=BOUND32, abs=0)


@given(st.floats(1e-30, 1e30), st.sampled_from([1, -1]))
def test_a_scale_is_the_sum_of_its_parts(scale, sign):
    high, low = (float(part) for part in gram.split32(sign * scale))
    assert high + low == pytest.approx(sign * scale, rel=1e-14, abs=0)
    assert 0 <= sign * low <= sign * high * 2**-22


@given(st.floats(-700, 700))
def test_scalar_power64(x):
    power = float(gram.power64(x, *gram.split64(1.0)))
    assert power == pytest.approx(math.exp(x), rel=1e-15, abs=0)


@pytest.mark.parametrize("dtype", VALUES)
def test_exponential_of_zero_is_one(dtype):
    tiny = np.array([0.0, -0.0, -1e-30], dtype)
    np.testing.assert_array_equal(exp_of(tiny), 1)


@pytest.mark.parametrize(("dtype", "low", "bound"), EXPONENTIALS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_exponential_is_monotone(gamma, dtype, low, bound):
    """Among neighbouring numbers: anywhere, and where the whole part of the exponent changes."""
    rng = np.random.default_rng(6)
    n_places, beside = (5, 20) if SLOW_PYTHON else (100, 5000)
    anywhere = rng.uniform(0, -low / gamma, n_places)
    changes = np.log(2) * np.arange(1, int(-low / math.log(2)), 9 if beside > 20 else 100) / gamma
    bits = np.int32 if dtype == np.float32 else np.int64
    for place in np.concatenate([anywhere, changes, 10.0 ** rng.uniform(-20, 0, n_places)]):
        first = int(dtype(place).view(bits)) - beside
        distances = np.arange(first, first + 2 * beside, dtype=bits).view(dtype)
        assert (np.diff(decay_of(distances, gamma)) <= 0).all()


@pytest.mark.parametrize(("dtype", "low"), [(np.float32, LOW32), (np.float64, LOW64)])
def test_exponential_is_clamped_below(dtype, low):
    values = exp_of(np.array([low - 1, low - 2, -1e30, -np.inf], dtype))
    assert len(set(values.tolist())) == 1
    assert values[0] == pytest.approx(math.exp(low), rel=1e-5)
    assert values[0] > 0


@pytest.mark.parametrize("gamma", [0.0, float(np.finfo(np.float32).tiny), 1e-30, 1e30, 3.4e38])
def test_decays_of_extreme_gammas_and_distances(gamma):
    distances = np.array([0, 1e-30, 1e-5, 1, 1e5, 1e30, np.finfo(np.float32).max], np.float32)
    values = decay_of(distances, gamma)
    exact = np.exp(np.maximum(-gamma * distances.astype(np.float64), LOW32))
    np.testing.assert_allclose(values, exact, rtol=1e-5)
    assert values[0] == 1
    assert values.min() >= np.finfo(np.float32).tiny


def rows_and_norms(dtype, m=5, p=7, d=4):
    rng = np.random.default_rng(1)
    A, B = rng.uniform(-1, 1, (m, d)).astype(dtype), rng.uniform(-1, 1, (p, d)).astype(dtype)
    exact_a, exact_b = A.astype(float), B.astype(float)
    dots = (exact_a @ exact_b.T).astype(dtype)
    return A, B, dots, (exact_a**2).sum(1).astype(dtype), (exact_b**2).sum(1).astype(dtype)


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize(("name", "coef0", "degree"), [
    ("linear", 0.0, 1), ("rbf", 0.0, 1), ("sigmoid", 0.5, 1), ("sigmoid", -3.0, 1),
    ("poly", 0.3, 0), ("poly", 0.3, 1), ("poly", 0.3, 2), ("poly", 0.3, 3), ("poly", -0.1, 20),
])  # fmt: skip
def test_kernel_values_are_their_formulas(dtype, name, coef0, degree):
    A, B, block, a, b = rows_and_norms(dtype)
    VALUES[dtype](block, a, b, formula(name, 0.7, coef0, degree))
    exact = naive.kernel_matrix(A, B, name, gamma=0.7, coef0=coef0, degree=degree)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(block, exact, rtol=8 * eps * max(degree, 1), atol=4 * eps)
    assert np.ptp(exact) > 0 or degree == 0


@pytest.mark.parametrize("dtype", VALUES)
def test_sigmoid_saturates(dtype):
    block = np.array([[-1e30, -1000, -30, 30, 1000, 1e30]], dtype)
    VALUES[dtype](block, block[0, :1], block[0], formula("sigmoid"))
    np.testing.assert_array_equal(block, [[-1, -1, -1, 1, 1, 1]])


@pytest.mark.parametrize("dtype", VALUES)
def test_rbf_of_a_rounded_distance_below_zero_is_one(dtype):
    block = np.array([[1.0 + 1e-6]], dtype)
    VALUES[dtype](block, np.ones(1, dtype), np.ones(1, dtype), formula("rbf", 5.0))
    assert block[0, 0] == 1


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("name", CODES)
def test_kernel_values_have_the_same_bits_at_every_place(dtype, name):
    rng = np.random.default_rng(2)
    n = 40 if SLOW_PYTHON else 150
    dots, norms = rng.uniform(-1, 1, (3, n)).astype(dtype), rng.uniform(1, 2, n).astype(dtype)
    whole = dots.copy()
    VALUES[dtype](whole, norms[:3], norms, formula(name, 0.7, 0.2, 3))
    for start, stop in ((0, 1), (1, 2), (3, 10), (5, 36), (n - 33, n), (1, n)):
        part = dots[:, start:stop].copy()
        VALUES[dtype](part, norms[:3], norms[start:stop], formula(name, 0.7, 0.2, 3))
        np.testing.assert_array_equal(part, whole[:, start:stop])


def test_weighted_sums_are_those_of_fsum():
    rng = np.random.default_rng(3)
    values, weights = rng.normal(size=(4, 37)).astype(np.float32), rng.normal(size=37)
    for kept in (values, values.astype(np.float64), values[:3]):
        out = np.ones(len(kept))
        gram.weighted_sums(kept, weights, out)
        exact = [
            1 + math.fsum(float(v) * x for v, x in zip(row, weights, strict=True)) for row in kept
        ]
        np.testing.assert_allclose(out, exact, rtol=1e-13)


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("p", [1, 7, 64, 137])
def test_weighted_sums_have_the_same_bits_at_every_place(dtype, p):
    rng = np.random.default_rng(4)
    values, weights = rng.normal(size=(5, p)).astype(dtype), rng.normal(size=p)
    whole = np.zeros(5)
    gram.weighted_sums(values, weights, whole)
    for start, stop in ((0, 1), (1, 2), (1, 4), (2, 5), (1, 5)):
        part = np.zeros(stop - start)
        gram.weighted_sums(values[start:stop], weights, part)
        np.testing.assert_array_equal(part, whole[start:stop])
