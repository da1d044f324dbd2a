"""Squared losses where C times the rounding of float32 kernel values is large, beside float64."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from support.optimum import coefficients_of, kernel_of

import bigsvm
from bigsvm.conversion.from_arrays import write_store

FAR = {"kernel": "linear"}


@pytest.fixture(scope="module")
def cancer():
    """Columns of 0.001 to 4000; SVC has 96 % of its own rows right."""
    return load_breast_cancer(return_X_y=True)


def far(n=300, d=8, mean=100.0, seed=0, noise=1.0):
    """Columns far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + noise * rng.normal(size=n) > 0).astype(int)
    return X + mean, y


def signs_of(model, X, y):
    return np.ones(len(X)) if y is None else np.where(y == model.classes_[1], 1.0, -1.0)


def naive_optimum(model, X, y=None, weights=1.0):
    """α ≥ 0 of ``Σ α − ½ αᵀQα``: least squares by a Cholesky factor of Q; and its objective."""
    s = signs_of(model, X, y)
    K = kernel_of(model, X) + (y is not None)
    Q = np.outer(s, s) * K + np.diag(1 / (model.C * weights * np.ones(len(X))))
    factor = cholesky(Q, lower=True)
    a, _ = nnls(factor.T, solve_triangular(factor, np.ones(len(X)), lower=True), maxiter=10**5)
    return a, a.sum() - 0.5 * a @ (Q @ a)


def kkt_gap(model, X, y=None, weights=1.0):
    """Return the KKT gap of the margins and the duality gap, by their definitions."""
    s = signs_of(model, X, y)
    K, C = kernel_of(model, X) + (y is not None), model.C * weights * np.ones(len(X))
    beta = coefficients_of(model, len(X))
    f = K @ beta
    assert (beta * s >= 0).all()
    gradient = s - f - beta / C
    rises, falls = (s > 0) | (beta < 0), (s < 0) | (beta > 0)
    gap = gradient[rises].max(initial=0.0) - gradient[falls].min(initial=0.0)
    primal = 0.5 * beta @ f + 0.5 * C @ np.maximum(0, 1 - s * f) ** 2
    return gap, primal - (np.abs(beta).sum() - 0.5 * beta @ (f + beta / C))


def is_right(model, X, y=None, weights=1.0):
    """Hold a certified model to the naive optimum."""
    assert model.converged_
    gap, duality_gap = kkt_gap(model, X, y, weights)
    assert max(gap, model.gap_) <= 1.01 * model.certificate_["tol"]
    a, best = naive_optimum(model, X, y, weights)
    assert model.objective_ == pytest.approx(best, rel=1e-5)
    assert abs(duality_gap) <= 1e-5 * best
    values = (kernel_of(model, X) + (y is not None)) @ (a * signs_of(model, X, y))
    found = model.decision_function(X)
    np.testing.assert_allclose(found, values - (y is None), atol=5e-3)


@pytest.mark.parametrize("ball_tol", [1e-6, 1e-8])
@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
def test_columns_that_are_not_scaled(cancer, C, ball_tol):
    X, y = cancer
    model = bigsvm.L2SVC(kernel="linear", C=C, ball_tol=ball_tol).fit(X, y)
    is_right(model, X, y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize(
    "kernel",
    [
        {"kernel": "poly", "gamma": 1e-6, "coef0": 1.0},
        {"kernel": "rbf", "gamma": 1e-6},
        {"kernel": "laplacian", "gamma": 1e-4},
    ],
    ids=lambda kernel: kernel["kernel"],
)
def test_other_kernels_of_columns_that_are_not_scaled(cancer, kernel):
    X, y = cancer
    is_right(bigsvm.L2SVC(C=1e5, **kernel).fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # of scales
def test_one_class_of_columns_that_are_not_scaled(cancer):
    X, _ = cancer
    is_right(bigsvm.L2OneClassSVM(C=1.0, **FAR).fit(X), X)
    with pytest.warns(bigsvm.AdviceWarning, match="different scales"):
        model = bigsvm.L2OneClassSVM(C=1e6, gamma=1e-6).fit(X)
    is_right(model, X)


@pytest.mark.parametrize("mean", [100.0, 1000.0])
@pytest.mark.parametrize("C", [1.0, 1e3])
def test_columns_far_from_the_origin(mean, C):
    X, y = far(mean=mean)
    is_right(bigsvm.L2SVC(C=C, **FAR).fit(X, y), X, y)


def test_weights_of_a_million():
    X, y = far()
    weights = 10 ** np.random.default_rng(1).uniform(0, 6, len(X))
    for kernel in (FAR, {"kernel": "rbf", "gamma": 0.1}):
        model = bigsvm.L2SVC(C=1.0, **kernel).fit(X, y, sample_weight=weights)
        is_right(model, X, y, weights)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_of_a_million_that_float64_cannot_separate_end(seed):
    """Coefficients of 1e8 times kernel values of 5e4: outputs are off by about tol."""
    X, y = far(n=600, d=5, noise=0.7, seed=seed)
    weights = 10 ** np.random.default_rng(seed).uniform(0, 6, len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = bigsvm.L2SVC(C=100.0, max_time=300, **FAR).fit(X, y, sample_weight=weights)
    assert model.stop_reason_ in ("converged", "stalled")
    assert model.objective_ == pytest.approx(naive_optimum(model, X, y, weights)[1], rel=1e-2)


@pytest.mark.parametrize("mean", [100.0, pytest.param(1000.0, marks=pytest.mark.slow)])
def test_the_objective_of_a_C_beyond_float64_does_not_run_away(mean):
    """Outputs of float64 are off by more than tol: the run may end unconverged, and is right."""
    X, y = far(mean=mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = bigsvm.L2SVC(C=1e6, **FAR).fit(X, y)
        hinge = bigsvm.SVC(C=1e6, loss="squared_hinge", **FAR).fit(X, y)
    assert model.stop_reason_ in ("converged", "stalled")
    near = 1e-4 if mean == 100.0 else 0.1
    assert model.objective_ == pytest.approx(naive_optimum(model, X, y)[1], rel=near)
    assert np.abs(hinge.dual_coef_).max() <= 1e6 * len(X)
    for one in (model, hinge):
        assert one.objective_ > 0
        assert one.score(X, y) > 0.7


@pytest.mark.parametrize("C", [1.0, 1e3])
@pytest.mark.parametrize("mean", [100.0, 1000.0])
def test_squared_hinge_with_a_bias_of_its_own(mean, C):
    """Its dual has a sum: Σ α = 0, for which rows may be shifted to their mean."""
    X, y = far(mean=mean)
    model = bigsvm.SVC(C=C, loss="squared_hinge", **FAR).fit(X, y)
    peer = bigsvm.SVC(C=C, loss="squared_hinge", tol=1e-5, **FAR).fit(X - mean, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-5)
    np.testing.assert_allclose(
        model.decision_function(X), peer.decision_function(X - mean), atol=5e-3
    )


def test_one_class_against_the_rest():
    X, _ = far(mean=300.0)
    y = np.digitize(X[:, 0] - 300.0, [-0.5, 0.5])
    model = bigsvm.L2SVC(C=1e3, multiclass="ovr", **FAR).fit(X, y)
    assert model.converged_
    K, expected = X @ X.T + 1.0, 0.0
    for one in range(3):
        s = np.where(y == one, 1.0, -1.0)
        factor = cholesky(np.outer(s, s) * K + np.eye(len(X)) / 1e3, lower=True)
        right = solve_triangular(factor, np.ones(len(X)), lower=True)
        expected += 0.5 * nnls(factor.T, right, maxiter=10**5)[0].sum()
    assert model.objective_ == pytest.approx(expected, rel=1e-5)


def test_pairs_of_classes():
    X, _ = far(mean=300.0)
    y = np.digitize(X[:, 0] - 300.0, [-0.5, 0.5])
    model = bigsvm.L2SVC(C=1e3, **FAR).fit(X, y)
    assert model.converged_
    for number, pair in enumerate(((0, 1), (0, 2), (1, 2))):
        some = np.isin(y, pair)
        alone = bigsvm.L2SVC(C=1e3, **FAR).fit(X[some], y[some])
        is_right(alone, X[some], y[some])
        values = model.set_params(decision_function_shape="ovo").decision_function(X)[:, number]
        np.testing.assert_allclose(
            np.abs(values[some]), np.abs(alone.decision_function(X[some])), atol=5e-3
        )


def test_sparse_rows_and_a_store_in_little_memory(tmp_path):
    X, y = far(n=1500, d=5, mean=100.0)
    X = X.astype(np.float32).astype(np.float64)
    store = write_store(tmp_path / "rows.zarr", X, y)
    dense = bigsvm.L2SVC(C=1e3, **FAR).fit(X, y)
    assert dense.converged_
    for rows, given in ((sp.csr_array(X), {}), (store, {"memory": "3MB", "n_jobs": 1})):
        model = bigsvm.L2SVC(C=1e3, **FAR, **given).fit(rows, None if rows is store else y)
        assert model.converged_
        assert model.objective_ == pytest.approx(dense.objective_, rel=1e-5)


def test_without_a_certificate():
    X, y = far()
    model = bigsvm.L2SVC(C=1e4, certify=False, **FAR).fit(X, y)
    assert model.objective_ == pytest.approx(naive_optimum(model, X, y)[1], rel=1e-3)


def test_the_same_bits_for_any_number_of_threads(cancer):
    X, y = cancer
    one, two = (bigsvm.L2SVC(kernel="linear", C=10.0, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


def test_scaled_rows_stay_in_float32():
    """Newton's method takes few rounds, pair steps take many."""
    X, y = far(mean=0.0)
    assert bigsvm.L2SVC(gamma=0.1, C=10.0).fit(X, y).n_iter_ > 100
    repeated = np.repeat([0, 1], 2000)
    merged = bigsvm.L2SVC(gamma=0.1).fit(
        np.concatenate([X, X[repeated]]), np.concatenate([y, y[repeated]])
    )
    assert merged.n_iter_ > 100


@pytest.mark.parametrize("kind", ["l2-svc", "squared hinge"])
def test_an_objective_that_falls_ends_the_run(monkeypatch, kind):
    """In float32 alone, where it ran away until the time was up, or to NaN."""
    monkeypatch.setattr("bigsvm.fit.choices._inverse_ridge", lambda *given: 0.0)
    X, _ = far(n=400, d=10, mean=100.0)
    y = np.digitize(X[:, 0] - 100.0, [-0.5, 0.5])
    given = {"C": 1e6, "multiclass": "ovr", "max_iter": 5_000_000, **FAR}
    model = bigsvm.L2SVC(**given) if kind == "l2-svc" else bigsvm.SVC(loss="squared_hinge", **given)
    with pytest.warns(ConvergenceWarning, match="neither gap nor objective improved.*scale"):
        model.fit(X, y)
    assert model.stop_reason_ == "stalled"


def test_classes_that_are_told_apart_by_few_rows():
    """Whole steps led from four rows that lose back to hundreds, round after round."""
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(70, 6)) * 3, np.arange(4200) % 70
    X = centres[y] + rng.normal(size=(4200, 6)) + 100
    model = bigsvm.L2SVC(C=1e3, max_iter=1000, **FAR).fit(X, y == 36)
    assert kkt_gap(model, X, y == 36)[0] <= 1e-3
    assert model.n_iter_ < 100
