"""L2SVC beside a dense problem in float64, LIBLINEAR, and its own definition."""

import json
import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import LinearSVC
from support.optimum import (
    FINE,
    KERNELS,
    SOLVERS,
    coefficients_of,
    is_the_optimum_of_its_ball,
    optimum_of_ball,
)
from support.resuming import assert_killed_to_the_same_bits
from support.same import without_measured

import bigsvm
from bigsvm import KernelExpansion
from bigsvm.data import schema
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ParameterError
from bigsvm.fit.gamma import mean_distance
from bigsvm.papers.costs import TierDecision
from bigsvm.parameters import TrainingParameters
from bigsvm.parameters.checks import check_parameters
from bigsvm.training.generations import newest_manifest


@pytest.fixture(scope="module")
def wide():
    return make_classification(400, 30, n_informative=8, flip_y=0.1, random_state=1)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_certified_model_is_the_optimum(moons, solver, kernel, form):
    X, y = moons
    model = bigsvm.L2SVC(C=10.0, solver=solver, tol=FINE, **KERNELS[kernel])
    is_the_optimum_of_its_ball(model.fit(form(X), y), X, y)


@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_optimum_for_any_C(moons, solver, C):
    X, y = moons
    is_the_optimum_of_its_ball(
        bigsvm.L2SVC(C=C, solver=solver, tol=FINE, gamma=1.0).fit(X, y), X, y
    )


@pytest.mark.parametrize("C", [0.02, 2.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_linear_kernel_agrees_with_liblinear(wide, solver, C):
    """Its C is half of ours, and its bias has the same penalty."""
    X, y = wide
    model = bigsvm.L2SVC(C=C, solver=solver, kernel="linear", tol=FINE).fit(X, y)
    peer = LinearSVC(
        loss="squared_hinge", dual=True, fit_intercept=True, intercept_scaling=1, C=C / 2,
        tol=1e-10, max_iter=10**6, random_state=0,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(
        model.decision_function(X), peer.decision_function(X), rtol=0, atol=1e-3
    )
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=1e-4)
    w = np.append(peer.coef_[0], peer.intercept_)
    slack = np.maximum(0, 1 - np.where(y == 1, 1, -1) * peer.decision_function(X))
    primal = 0.5 * w @ w + C / 2 * slack @ slack
    assert model.objective_ == pytest.approx(primal, rel=1e-6)


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_weight_of_two_is_the_row_twice(moons, solver):
    X, y = moons
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    options = {"C": 5.0, "gamma": 1.0, "tol": FINE, "solver": solver}
    weighted = bigsvm.L2SVC(**options).fit(X, y, sample_weight=weights)
    is_the_optimum_of_its_ball(weighted, X, y, weights=weights)
    again = np.repeat(np.arange(len(y)), weights)
    repeated = bigsvm.L2SVC(**options).fit(X[again], y[again])
    assert repeated.objective_ == pytest.approx(weighted.objective_, rel=1e-8)
    np.testing.assert_allclose(
        repeated.decision_function(X), weighted.decision_function(X), atol=1e-6
    )
    assert (weights[weighted.support_] > 0).all()


def test_class_weights_are_weights_of_their_rows(moons):
    X, y = moons
    model = bigsvm.L2SVC(gamma=1.0, tol=FINE, class_weight={0: 0.5, 1: 3.0}).fit(X, y)
    is_the_optimum_of_its_ball(model, X, y, weights=np.where(y == 1, 3.0, 0.5))
    by_rows = bigsvm.L2SVC(gamma=1.0, tol=FINE).fit(X, y, sample_weight=np.where(y == 1, 3.0, 0.5))
    assert by_rows.objective_ == pytest.approx(model.objective_, rel=1e-9)
    y_rare = (np.arange(len(y)) < 40).astype(int)
    balanced = bigsvm.L2SVC(gamma=1.0, tol=FINE, class_weight="balanced").fit(X, y_rare)
    weights = np.where(y_rare == 1, 300 / 80, 300 / 520)
    is_the_optimum_of_its_ball(balanced, X, y_rare, weights=weights)


def test_fit_with_a_class_of_one_row(moons):
    X, _ = moons
    y = np.zeros(300, int)
    y[123] = 1
    is_the_optimum_of_its_ball(bigsvm.L2SVC(gamma=1.0, tol=FINE).fit(X, y), X, y)


# -- not certified --------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sampling", [1, 60, 0.3, "all"])
def test_uncertified_fit_does_not_warn(moons, solver, sampling):
    X, y = moons
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bigsvm.L2SVC(
            C=10, gamma=1.0, solver=solver, sampling=sampling, certify=False,
            ball_tol=1e-6 if solver in ("pairwise", "cvm") else 1e-3,  # single steps are many
        ).fit(X, y)  # fmt: skip
    assert model.stop_reason_ == "sampled"
    assert not model.converged_
    assert model.gap_ is None
    assert model.duality_gap_ is None
    assert model.certificate_["n_sweeps"] == 0
    best, K = optimum_of_ball(model, X, y)
    beta = coefficients_of(model, 300)
    assert (beta * np.where(y == 1, 1, -1) >= 0).all()
    objective = np.abs(beta).sum() - 0.5 * beta @ (K @ beta + beta / 10)
    assert model.objective_ == pytest.approx(objective, rel=1e-4)
    assert objective <= 0.5 * np.abs(best).sum()
    np.testing.assert_allclose(model.decision_function(X), K @ beta, atol=1e-6)
    if sampling != 1:
        assert model.score(X, y) > 0.85


def test_an_uncertified_model_is_saved_and_loaded(moons, tmp_path):
    X, y = moons
    model = bigsvm.L2SVC(C=10, gamma=1.0, certify=False).fit(X, y)
    model.model_.save(tmp_path / "model")
    loaded = KernelExpansion.load(tmp_path / "model")
    values = loaded.decision_function(as_row_source(X))
    np.testing.assert_array_equal(values, model.decision_function(X))
    assert loaded.certificate == without_measured(model.certificate_)
    assert loaded.certificate["stop_reason"] == "sampled"
    assert loaded.certificate["gap"] is None
    assert loaded.formulation == "l2-svc"
    assert json.dumps(loaded.certificate)


def test_random_state_decides_the_samples(moons):
    X, y = moons
    fitted = [
        bigsvm.L2SVC(gamma=1.0, certify=False, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fitted[0].dual_coef_, fitted[1].dual_coef_)
    assert fitted[0].objective_ != fitted[2].objective_


def test_out_of_steps_it_warns_with_what_was_asked_for(moons):
    X, y = moons
    with pytest.warns(ConvergenceWarning, match=r"max_iter.*KKT gap unknown, tol 0.001"):
        model = bigsvm.L2SVC(gamma=1.0, max_iter=5).fit(X, y)
    assert model.stop_reason_ == "max_iter"
    assert model.n_iter_ == 5


@pytest.mark.fault("half-models")
@pytest.mark.parametrize("certify", [True, False])
def test_a_full_core_set_is_no_model(certify):
    X, y = make_moons(1200, noise=0.4, random_state=0)
    options = {"gamma": 1.0, "memory": "2MB", "tol": 1e-6, "n_jobs": 1}
    model = bigsvm.L2SVC(certify=certify, **options).fit(X, y)
    assert model.converged_
    plenty = bigsvm.L2SVC(gamma=1.0, tol=1e-7).fit(X, y)
    assert model.objective_ == pytest.approx(plenty.objective_, rel=1e-6)


@pytest.mark.fault("half-models")
def test_uncertified_score_on_noisy_labels_in_little_memory():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 8)).astype(np.float32)
    y = np.sign(X[:, 0] * X[:, 1] + X[:, 2])
    y[rng.random(5000) < 0.2] *= -1
    score = {}
    for certify in (False, True):
        model = bigsvm.L2SVC(gamma=0.1, C=2, certify=certify, memory="4MB", n_jobs=1)
        score[certify] = model.fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])
    assert score[False] == pytest.approx(score[True], abs=0.005)


@pytest.mark.slow
@pytest.mark.fault("half-models")
def test_uncertified_training_ends_when_the_core_set_is_full():
    """Where the core set is full before a search ends."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25_000, 6)).astype(np.float32)
    y = np.sign(X[:, 0] * X[:, 1] + X[:, 2])
    noisy = rng.random(25_000) < 0.2
    y[noisy] = rng.permutation(y[noisy])
    given = {"gamma": 0.1, "C": 1, "memory": "16MB", "n_jobs": 1}
    settled = bigsvm.L2SVC(**given, certify=False).fit(X[:20_000], y[:20_000])
    assert settled.stop_reason_ == "settled"
    certified = bigsvm.L2SVC(**given, tol=0.01).fit(X[:20_000], y[:20_000])
    assert certified.converged_
    score = [model.score(X[20_000:], y[20_000:]) for model in (settled, certified)]
    assert score[0] == pytest.approx(score[1], abs=0.015)
    assert settled.certificate_["test_error"] == pytest.approx(1 - score[1], abs=0.04)


@pytest.mark.fault("half-models")
def test_full_core_set_of_one_class_is_certified():
    X, _ = make_moons(1200, noise=0.4, random_state=0)
    options = {"C": 0.5, "gamma": 1.0, "n_jobs": 1, "certify": False}
    model = bigsvm.L2OneClassSVM(memory="2MB", **options).fit(X)
    plenty = bigsvm.L2OneClassSVM(**options | {"certify": True}).fit(X)
    assert model.stop_reason_ == "converged"
    assert model.objective_ == pytest.approx(plenty.objective_, rel=1e-5)


# -- what a certificate says of the centre --------------------------------------------------------


def eps_of(model, X, y):
    """Smallest ε for which (1 + ε) times the radius encloses all points, by plain formulas."""
    K = np.exp(-model.gamma * ((X[:, None] - X[None]) ** 2).sum(axis=-1)) + 1.0
    a = np.abs(coefficients_of(model, len(X)))
    a /= a.sum()
    K = np.outer(y, y) * K + np.eye(len(X)) / model.C
    energy, diagonal = a @ K @ a, K[0, 0]
    farthest = (diagonal - 2 * K @ a + energy).max()
    return np.sqrt(farthest / (diagonal - energy)) - 1


@pytest.mark.parametrize("ball_tol", [1e-2, 1e-4, 1e-6])
def test_the_certificate_has_the_eps_of_the_centre_that_is_returned(moons, ball_tol):
    X, y = moons
    model = bigsvm.L2SVC(C=2.0, gamma=1.0, ball_tol=ball_tol).fit(X, y)
    found = model.certificate_["ball"]
    expected = eps_of(model, np.asarray(X, np.float64), np.where(y == model.classes_[1], 1, -1))
    assert found["eps"] == pytest.approx(expected, rel=1e-3, abs=1e-10)
    assert (found["test"] == "radius") == (found["eps"] <= ball_tol)


def test_the_certificate_names_the_test_that_the_ball_passes(monkeypatch):
    """The paper's test does not decide whether the run has converged."""
    X, y = make_moons(1500, noise=0.4, random_state=0)
    monkeypatch.setattr("bigsvm.training.certify.EXACT_EVALUATIONS", 0)  # nothing is polished
    passed = []
    for ball_tol in (1e-3, 3e-6, 1e-9):
        model = bigsvm.L2SVC(C=1.0, gamma=1.0, ball_tol=ball_tol).fit(X, y)
        found = model.certificate_["ball"]
        assert model.converged_
        assert model.gap_ <= 1e-3
        passed.append(found["test"])
        assert (found["eps"] <= ball_tol) == (found["test"] == "radius")
    assert passed[0] == "radius"
    assert passed[-1] != "radius"


def test_uncertified_certificate_has_no_ball(moons):
    X, y = moons
    model = bigsvm.L2SVC(C=2.0, gamma=1.0, certify=False).fit(X, y)
    assert model.certificate_["ball"] is None


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("solver", "smo", r"solver is 'smo'; it must be one of pairwise, mfw, fw, cvm"),
        ("sampling", 0, "sampling is 0; it must be a number of rows"),
        ("sampling", -5, "sampling is -5"),
        ("sampling", 1.5, r"sampling is 1\.5"),
        ("sampling", 0.0, r"sampling is 0\.0"),
        ("sampling", np.nan, "sampling is nan"),
        ("sampling", np.inf, "sampling is inf"),
        ("sampling", "some", "sampling is 'some'"),
        ("ball_tol", 0.0, r"ball_tol is 0\.0; it must be a finite number > 0"),
        ("ball_tol", -1.0, r"ball_tol is -1\.0"),
        ("ball_tol", np.inf, "ball_tol is inf"),
        ("certify", "no", "certify is 'no'; it must be True or False"),
        ("C", 0.0, r"C is 0\.0"),
        ("gamma", "mean", "gamma is 'mean'; it must be 'scale', 'auto', 'mean-distance' or"),
    ],
)
def test_invalid_parameters_are_refused(moons, name, value, message):
    with pytest.raises(ParameterError, match=message):
        bigsvm.L2SVC(**{name: value}).fit(*moons)


@pytest.mark.parametrize("sampling", [1, 1.0, 60, 60.0, np.int64(5), np.float32(0.5), 10**9, "all"])
def test_valid_values_of_sampling(sampling):
    check_parameters(TrainingParameters(formulation="l2-svc", sampling=sampling))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("weighted", [False, True])
def test_gamma_of_the_mean_distance_is_its_definition(moons, form, weighted):
    X, y = moons
    weights = np.random.default_rng(0).integers(0, 3, 300).astype(float) if weighted else None
    share = np.ones(300) if weights is None else weights
    share = share / share.sum()
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    sigma_squared = share @ squared @ share
    expected = 1 / (2 * sigma_squared)  # exp(-d² / 2σ²) of Frandi et al. 2013, section 5.2.1
    model = bigsvm.L2SVC(gamma="mean-distance").fit(form(X), y, sample_weight=weights)
    assert model.model_.kernel.gamma == pytest.approx(expected, rel=1e-9)
    other = bigsvm.SVC(gamma="mean-distance").fit(form(X), y, sample_weight=weights)
    assert other.model_.kernel.gamma == model.model_.kernel.gamma


def test_the_mean_distance_of_many_rows_is_that_of_a_sample(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4)).astype(np.float32) + 100
    X[:10_000, 0] += 10
    squared = 2 * X.astype(np.float64).var(axis=0).sum()
    rows = bigsvm.write_store(tmp_path / "s.zarr", X, np.zeros(len(X))).rows
    for source in (as_row_source(X), rows):
        assert mean_distance(source, None, seed=0) == pytest.approx(squared, rel=0.05)
        assert mean_distance(source, None, seed=0) == mean_distance(source, None, seed=0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_mean_distance_of_equal_rows_gives_gamma_1(form):
    X, y = np.full((20, 3), 0.1), np.arange(20) % 2
    model = bigsvm.L2SVC(gamma="mean-distance").fit(form(X), y)
    assert model.model_.kernel.gamma == 1.0
    assert model.converged_


# -- going on from other models -------------------------------------------------------------------


def test_a_path_has_the_models_that_each_C_alone_has(moons):
    X, y = moons
    path = bigsvm.C_path(bigsvm.L2SVC(gamma=1.0, tol=FINE), X, y, C=[4.0, 1.0, 16.0])
    for model in path:
        is_the_optimum_of_its_ball(model, X, y)


def test_warm_start_skips_the_search(moons):
    X, y = moons
    model = bigsvm.L2SVC(gamma=1.0, warm_start=True, tol=FINE).fit(X, y)
    assert model.certificate_["drift"] is not None
    model.set_params(C=2.0).fit(X, y)
    assert model.certificate_["drift"] is None
    is_the_optimum_of_its_ball(model, X, y)


def test_warm_start_from_an_uncertified_model(moons):
    X, y = moons
    model = bigsvm.L2SVC(gamma=1.0, certify=False, warm_start=True, tol=FINE).fit(X, y)
    model.set_params(certify=True).fit(X, y)
    is_the_optimum_of_its_ball(model, X, y)


# -- stores ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(2500) < 0.4, 1, -1)
    X = rng.normal(size=(2500, 12)).astype(np.float32)
    X[:, 0] += y
    return X, y


@pytest.fixture(scope="module")
def store(clouds, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CHUNK_BYTES", 1 << 14)
        return bigsvm.write_store(tmp_path_factory.mktemp("s") / "s.zarr", *clouds)


LITTLE = {"C": 1.0, "gamma": 0.05, "memory": "12MB", "n_jobs": 1, "tol": 1e-6}


@pytest.fixture(scope="module")
def of_store(store):
    return bigsvm.L2SVC(**LITTLE).fit(store)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_store_has_the_optimum_of_its_rows(store, clouds, of_store, solver):
    model = bigsvm.L2SVC(solver=solver, **LITTLE).fit(store)
    assert model.converged_
    assert model.certificate_["bytes_read"] > 0
    assert model.objective_ == pytest.approx(of_store.objective_, rel=1e-5)
    X, y = clouds
    lazy = bigsvm.L2SVC(solver=solver, **LITTLE).fit(da.from_array(X, chunks=(700, -1)), y)
    assert lazy.objective_ == pytest.approx(of_store.objective_, rel=1e-5)


def test_resumed_after_max_iter_it_ends_at_the_same_model(store, of_store, tmp_path):
    """In its search, and in the sweeps after it."""
    run, stops = tmp_path / "run", []
    for max_iter in (40, 300, of_store.certificate_["n_iter"] // 2, -1):
        model = bigsvm.L2SVC(**LITTLE, checkpoint=run, max_iter=max_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(store)
        stops.append(model.certificate_["n_sweeps"])
    assert stops[0] == 0
    assert model.converged_
    assert model.objective_ == pytest.approx(of_store.objective_, rel=1e-6)


def fit_in_process(folder, name, store):
    saving = {"checkpoint": folder, "checkpoint_every": 0.02}
    return getattr(bigsvm, name)(**LITTLE, **saving).fit(store).model_


@pytest.mark.slow
@pytest.mark.parametrize("name", ["L2SVC", "L2OneClassSVM"])
def test_killed_several_times_it_ends_at_the_same_model(store, name, tmp_path):
    phases = set()
    assert_killed_to_the_same_bits(
        fit_in_process, tmp_path, arguments=(name, store.path), pause=0.0, same=assert_same_run,
        after_kill=lambda folder: phases.add(newest_manifest(folder)["values"]["phase"]),
    )  # fmt: skip
    assert "search" in phases


def assert_same_run(model, other):
    """Hold a model to another one that may have been saved more often."""
    np.testing.assert_array_equal(model.support, other.support)
    np.testing.assert_array_equal(model.coefficients, other.coefficients)
    for name in ("objective", "gap", "duality_gap", "n_sweeps", "n_iter", "drift"):
        assert model.certificate[name] == other.certificate[name], name


def test_a_finished_run_is_the_same_model_again(store, of_store, tmp_path):
    model = bigsvm.L2SVC(**LITTLE, checkpoint=tmp_path / "run")
    assert_same_run(model.fit(store).model_, of_store.model_)
    assert_same_run(clone(model).fit(store).model_, of_store.model_)


def test_all_rows_as_one_working_set(moons):
    X, y = moons
    is_the_optimum_of_its_ball(bigsvm.L2SVC(gamma=1.0, tol=FINE, working_set="all").fit(X, y), X, y)


def test_kernel_rows_on_disk_are_not_those_of_another_formulation(tmp_path, monkeypatch):
    """Ours are of K + 1, and of K where no bias is one of the weights."""
    keep = TierDecision(True, "as the test says")
    monkeypatch.setattr("bigsvm.papers.disk.decide", lambda **seconds: keep)
    X, y = make_moons(1500, noise=0.3, random_state=0)
    options = {
        "gamma": 1.0, "working_set": "all", "memory": "2MB", "n_jobs": 1, "disk_cache": "100MB",
        "cache_dir": tmp_path,
    }  # fmt: skip
    objectives, reads = [], []
    for _ in range(2):
        for estimator in (bigsvm.L2SVC(tol=1e-6, **options), bigsvm.SVC(**options)):
            objectives.append(estimator.fit(X, y).objective_)
            reads.append(estimator.certificate_["row_reads"])
    assert min(reads) > 0
    ball = bigsvm.L2SVC(gamma=1.0, tol=FINE).fit(X, y)
    assert objectives[0::2] == pytest.approx([ball.objective_] * 2, rel=1e-6)
    hinge = bigsvm.SVC(gamma=1.0).fit(X, y)
    assert objectives[1::2] == pytest.approx([hinge.objective_] * 2, rel=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_kernel_matrix(moons, solver):
    X, y = moons
    K = pairwise_kernels(X, metric="rbf", gamma=1.0)
    model = bigsvm.L2SVC(kernel="precomputed", solver=solver, tol=FINE).fit(K, y)
    rbf = bigsvm.L2SVC(gamma=1.0, solver=solver, tol=FINE).fit(X, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(rbf.objective_, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(K), rbf.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("certify", [False, True])
def test_calibrated_probabilities(moons, method, certify):
    X, y = moons
    model = bigsvm.L2SVC(gamma=1.0, C=5, calibration=method, certify=certify).fit(X, y)
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    order = np.argsort(model.decision_function(X))
    assert (np.diff(probability[order, 1]) >= 0).all()
