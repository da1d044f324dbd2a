"""L2OneClassSVM beside dense problems in float64, LIBSVM, data description, and enclosing balls."""

import itertools
import warnings

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import svm as peers
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from support.optimum import FINE, KERNELS, SOLVERS, coefficients_of, is_the_optimum_of_its_ball

import bigsvm
from bigsvm import KernelExpansion
from bigsvm.data import schema
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ParameterError
from bigsvm.papers.costs import TierDecision


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.3, random_state=0)[0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_certified_model_is_the_optimum(moons, solver, kernel, form):
    model = bigsvm.L2OneClassSVM(C=10.0, solver=solver, tol=FINE, **KERNELS[kernel])
    is_the_optimum_of_its_ball(model.fit(form(moons)), moons)


@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_optimum_for_any_C(moons, solver, C):
    model = bigsvm.L2OneClassSVM(C=C, solver=solver, tol=FINE, gamma=1.0).fit(moons)
    is_the_optimum_of_its_ball(model, moons)
    values = model.decision_function(moons)
    np.testing.assert_array_equal(np.flatnonzero(values < -1e-9), model.support_)
    np.testing.assert_array_equal(model.predict(moons), np.where(values >= 0, 1, -1))
    np.testing.assert_array_equal(model.fit_predict(moons), model.predict(moons))


@pytest.mark.parametrize("C", [0.5, 20.0])
def test_agrees_with_libsvm_on_the_kernel_with_the_ridge(moons, C):
    """With nu of one row the sum of its multipliers is 1, and no bound is below that."""
    K = rbf_kernel(moons, gamma=1.0)
    peer = peers.OneClassSVM(kernel="precomputed", nu=1 / 300, tol=1e-9)
    peer.fit(K + np.eye(300) / C)
    rho = peer.offset_[0]
    values = K[:, peer.support_] @ peer.dual_coef_[0] / rho - 1
    model = bigsvm.L2OneClassSVM(C=C, gamma=1.0, tol=FINE).fit(moons)
    np.testing.assert_allclose(model.decision_function(moons), values, atol=1e-4)
    assert model.objective_ == pytest.approx(0.5 / rho, rel=1e-5)


def test_agrees_with_data_description_for_a_constant_diagonal(moons):
    """Primal and dual of ``r² + C/4 Σ ξ²`` are one at its centre, and inside is within r of it."""
    C = 20.0
    model = bigsvm.L2OneClassSVM(C=C, gamma=1.0, tol=FINE).fit(moons)
    K, a = rbf_kernel(moons, gamma=1.0), coefficients_of(model, len(moons))
    a /= a.sum()
    R = 0.5 / model.objective_
    centre = a @ K @ a
    squared = 1 - 2 * R + centre
    distances = 1 - 2 * K @ a + centre
    losses = np.maximum(distances - squared, 0)
    assert squared + C / 4 * (losses**2).sum() == pytest.approx(1 - R, rel=1e-6)
    apart = np.abs(distances - squared) > 1e-8
    assert apart.sum() > 290
    np.testing.assert_array_equal(
        model.predict(moons)[apart], np.where(distances < squared, 1, -1)[apart]
    )


# -- balls ----------------------------------------------------------------------------------------


def squared_radius(K):
    """Squared radius of the least ball around points of Gram matrix K: of all subsets' spheres."""
    best = np.inf
    for size in range(1, len(K) + 1):
        for among in itertools.combinations(range(len(K)), size):
            of_sphere = K[np.ix_(among, among)]
            shares = np.linalg.solve(of_sphere, np.ones(size))
            shares /= shares.sum()
            centre = shares @ of_sphere @ shares
            distances = np.diag(K) - 2 * K[:, among] @ shares + centre
            if distances.max() <= distances[list(among)].max() + 1e-9:
                best = min(best, distances.max())
    return best


CORNERS = st.tuples(*[st.integers(-3, 3)] * 2)


@settings(max_examples=40, deadline=None)
@given(
    points=st.lists(CORNERS, min_size=2, max_size=7, unique=True),
    how=st.sampled_from([*((solver, True) for solver in SOLVERS), ("cvm", False)]),
    ball_tol=st.sampled_from([1e-6, 1e-2, 0.2]),
)
def test_the_ball_of_distinct_points(points, how, ball_tol):
    """With a huge C K̃ is K: the ball is that of the rows themselves, but for (1 + ε).

    Without a certificate only a solver that leaves no point of the core set outside has it.
    """
    C, (solver, certify) = 1e7, how
    X = 0.5 * np.array(points, float)
    model = bigsvm.L2OneClassSVM(
        C, gamma=1.0, solver=solver, ball_tol=ball_tol, certify=certify, sampling="all"
    ).fit(X)
    K, a = rbf_kernel(X, gamma=1.0), coefficients_of(model, len(X))
    a /= a.sum()
    squared = 1 + 1 / C - 0.5 / model.objective_
    least = squared_radius(K)
    distances = 1 - 2 * K @ a + a @ K @ a
    rounding = 1e-5 if not certify else 1e-6
    assert distances.max() <= (1 + ball_tol) ** 2 * squared + rounding
    assert squared <= least + rounding
    assert least <= (1 + ball_tol) ** 2 * squared + rounding
    if certify:
        assert squared == pytest.approx(least, abs=rounding)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_fit_on_two_to_four_rows(n):
    """The variable that takes up the rest has a kernel row as well."""
    X = 0.5 * np.array([[0, 0], [0, 1], [1, 0], [3, 1]])[:n]
    model = bigsvm.L2OneClassSVM(C=1e7, gamma=1.0, ball_tol=1e-6).fit(X)
    is_the_optimum_of_its_ball(model, X)


# -- weights, equal rows --------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_weight_is_the_number_of_repetitions(moons, solver):
    weights = np.random.default_rng(0).integers(0, 3, len(moons))
    options = {"C": 5.0, "gamma": 1.0, "tol": FINE, "solver": solver}
    weighted = bigsvm.L2OneClassSVM(**options).fit(moons, sample_weight=weights)
    is_the_optimum_of_its_ball(weighted, moons, weights=weights)
    repeated = bigsvm.L2OneClassSVM(**options).fit(np.repeat(moons, weights, axis=0))
    assert repeated.objective_ == pytest.approx(weighted.objective_, rel=1e-8)
    np.testing.assert_allclose(
        repeated.decision_function(moons), weighted.decision_function(moons), atol=1e-6
    )
    assert (weights[weighted.support_] > 0).all()


def test_weights_with_an_infinite_ridge_count_as_zero(moons):
    with pytest.raises(DataError, match="no row has a positive weight"):
        bigsvm.L2OneClassSVM().fit(moons, sample_weight=np.full(len(moons), 1e-320))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_equal_rows_are_one_point(moons, form):
    """More rows than are trained as they come, of which thirty each are equal."""
    X = np.repeat(moons, 30, axis=0)[np.random.default_rng(0).permutation(9000)]
    options = {"gamma": 1.0, "tol": FINE}
    model = bigsvm.L2OneClassSVM(C=2.0, **options).fit(form(X))
    one = bigsvm.L2OneClassSVM(C=60.0, **options).fit(moons)
    assert model.converged_
    assert model.objective_ == pytest.approx(one.objective_, rel=1e-6)
    assert len(model.support_) == 30 * len(one.support_)
    np.testing.assert_allclose(
        model.decision_function(moons), one.decision_function(moons), atol=1e-5
    )
    # A single pass over the rows as they are would have more kernel values.
    assert model.certificate_["n_kernel_evaluations"] < len(X) * len(one.support_)


def test_rows_that_are_all_the_same_are_all_outside():
    model = bigsvm.L2OneClassSVM(C=2.0, gamma=1.0).fit(np.full((20, 3), 0.1))
    np.testing.assert_allclose(model.dual_coef_, 1 / 20.5, rtol=1e-6)
    np.testing.assert_allclose(model.score_samples(np.full((1, 3), 0.1)), 20 / 20.5, rtol=1e-6)


# -- not certified, and no kernel ------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sampling", [1, 60, "all"])
def test_uncertified_fit_does_not_warn(moons, solver, sampling, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bigsvm.L2OneClassSVM(
            C=10, gamma=1.0, solver=solver, sampling=sampling, certify=False,
            ball_tol=1e-6 if solver in ("pairwise", "cvm") else 1e-2,  # single steps are many
        ).fit(moons)  # fmt: skip
    assert model.stop_reason_ == "sampled"
    assert model.gap_ is None
    K, alpha = rbf_kernel(moons, gamma=1.0), coefficients_of(model, len(moons))
    objective = alpha.sum() - 0.5 * alpha @ (K @ alpha + alpha / 10)
    assert model.objective_ == pytest.approx(objective, rel=1e-4)
    best = 0.5 * naive.l2_svc(K + np.eye(300) / 10).sum()
    assert objective <= best
    if sampling == "all" and solver == "cvm":
        assert objective == pytest.approx(best, rel=1e-4)
    model.model_.save(tmp_path / "model")
    loaded = KernelExpansion.load(tmp_path / "model")
    assert loaded.formulation == "l2-one-class"
    assert loaded.kind == "one-class"
    values = loaded.decision_function(as_row_source(moons))
    np.testing.assert_array_equal(values, model.decision_function(moons))


@pytest.mark.parametrize("certify", [True, False])
def test_infeasible_ball_is_refused(moons, certify):
    options = {"kernel": "sigmoid", "gamma": 1.0, "coef0": -5.0, "certify": certify}
    with pytest.raises(ParameterError, match=r"not positive semidefinite.*take another kernel"):
        bigsvm.L2OneClassSVM(**options).fit(moons)
    # What is almost the constant 1 is definite enough with the ridge.
    options["coef0"] = 5.0
    assert bigsvm.L2OneClassSVM(**options).fit(moons).stop_reason_ != "stalled"


def test_unbounded_problem_of_an_indefinite_kernel_is_refused(moons):
    """The search finds an energy above 0, and sweeps that it is unbounded."""
    with pytest.raises(ParameterError, match=r"not positive semidefinite.*smaller C"):
        bigsvm.L2OneClassSVM(kernel="sigmoid", gamma=1.0, coef0=-0.5).fit(moons)


# -- stores ---------------------------------------------------------------------------------------

LITTLE = {"C": 30.0, "gamma": 0.005, "memory": "8MB", "n_jobs": 1, "tol": 1e-6}
N_ROWS = 2500


@pytest.fixture(scope="module")
def cloud():
    return np.random.default_rng(0).normal(size=(N_ROWS, 128)).astype(np.float32)


@pytest.fixture(scope="module")
def store(cloud, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CHUNK_BYTES", 1 << 14)
        return bigsvm.write_store(tmp_path_factory.mktemp("s") / "s.zarr", cloud, np.zeros(N_ROWS))


@pytest.fixture(scope="module")
def best(cloud):
    """The objective at the optimum, of the dense problem."""
    K = rbf_kernel(cloud.astype(np.float64), gamma=0.005)
    return 0.5 * naive.l2_svc(K + np.eye(N_ROWS) / 30).sum()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_store_has_the_optimum_of_its_rows(store, cloud, best, solver):
    model = bigsvm.L2OneClassSVM(solver=solver, **LITTLE).fit(store)
    assert model.converged_
    # More than once: its rows are not kept.
    assert model.certificate_["bytes_read"] > 2 * cloud.nbytes
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    inside = model.predict(store).compute() == 1
    assert inside.mean() == pytest.approx(1 - len(model.support_) / N_ROWS, abs=0.01)


def test_resumed_after_max_iter_it_ends_at_the_same_model(store, tmp_path):
    whole = bigsvm.L2OneClassSVM(**LITTLE).fit(store)
    for max_iter in (20, whole.n_iter_ // 2, -1):
        model = bigsvm.L2OneClassSVM(**LITTLE, checkpoint=tmp_path / "run", max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(store)
    assert model.converged_
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)


def test_a_kernel_matrix(moons):
    model = bigsvm.L2OneClassSVM(kernel="precomputed", C=5.0, tol=FINE)
    K = rbf_kernel(moons, gamma=1.0)
    rbf = bigsvm.L2OneClassSVM(gamma=1.0, C=5.0, tol=FINE).fit(moons)
    np.testing.assert_allclose(
        model.fit(K).decision_function(K), rbf.decision_function(moons), atol=1e-5
    )


def test_kernel_rows_on_disk_are_those_of_other_formulations(tmp_path, monkeypatch):
    """Plain K, as C-SVC has it: nothing is added where there is no bias."""
    keep = TierDecision(True, "as the test says")
    monkeypatch.setattr("bigsvm.papers.disk.decide", lambda **seconds: keep)
    X, y = make_moons(1500, noise=0.3, random_state=0)
    options = {
        "gamma": 1.0, "working_set": "all", "memory": "2MB", "n_jobs": 1, "disk_cache": "100MB",
        "cache_dir": tmp_path,
    }  # fmt: skip
    bigsvm.SVC(**options).fit(X, y)
    model = bigsvm.L2OneClassSVM(tol=1e-6, **options).fit(X)
    assert model.certificate_["row_reads"] > 0
    best = 0.5 * naive.l2_svc(rbf_kernel(X, gamma=1.0) + np.eye(1500)).sum()
    assert model.objective_ == pytest.approx(best, rel=1e-6)
