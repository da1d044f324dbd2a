"""`bigsvm train --formulation` and what predict and info make of the models."""

import numpy as np
import pytest
from command_line import answer, error_of, run_here

import bigsvm
from bigsvm import KernelExpansion, write_store

KINDS = {
    "c-svc": bigsvm.SVC(loss="squared_hinge", gamma=0.3),
    "nu-svc": bigsvm.NuSVC(nu=0.4, gamma=0.3),
    "l2-svc": bigsvm.L2SVC(C=2.0, gamma=0.3, solver="mfw", sampling=0.2, ball_tol=1e-8),
    "one-class": bigsvm.OneClassSVM(nu=0.2, gamma=0.3),
    "l2-one-class": bigsvm.L2OneClassSVM(C=20.0, gamma=0.3, solver="fw", sampling=30),
    "eps-svr": bigsvm.SVR(C=2.0, epsilon=0.05, gamma=0.3),
    "nu-svr": bigsvm.NuSVR(C=2.0, nu=0.3, gamma=0.3),
}


def options(estimator):
    names = ("C", "nu", "epsilon", "gamma", "loss", "solver", "sampling", "ball_tol")
    given = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
    return [
        word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_trained_model_is_that_of_the_estimator(kind, data, tmp_path):
    estimator = KINDS[kind]
    record = answer(
        "train", data / "train.zarr", tmp_path / "m", "--formulation", kind, *options(estimator)
    )
    assert record["converged"]
    fitted = estimator.fit(data / "train.zarr")
    model = KernelExpansion.load(tmp_path / "m")
    np.testing.assert_array_equal(model.coefficients, fitted.dual_coef_[0])
    assert model.intercept == fitted.intercept_[0]
    assert kind in run_here("info", tmp_path / "m").stdout
    run_here("predict", data / "test.zarr", tmp_path / "m", "-o", tmp_path / "predicted")
    order = bigsvm.open_store(data / "test.zarr").original_rows()
    predicted = np.empty(100)
    predicted[order] = fitted.predict(data / "test.zarr").compute()
    np.testing.assert_allclose(np.loadtxt(tmp_path / "predicted"), predicted, atol=1e-6)


def test_a_regression_is_measured_by_its_errors(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 3)).astype(np.float32)
    z = np.sin(X[:, 0]) + 5
    write_store(tmp_path / "train.zarr", X[:300], z[:300])
    write_store(tmp_path / "test.zarr", X[300:], z[300:])
    run_here(
        "train", tmp_path / "train.zarr", tmp_path / "m", "--formulation", "eps-svr", "--C", "10",
        "--epsilon", "0.01",
    )  # fmt: skip
    record = answer("predict", tmp_path / "test.zarr", tmp_path / "m")
    model = bigsvm.SVR(C=10, epsilon=0.01).fit(tmp_path / "train.zarr")
    error = ((model.predict(X[300:]) - z[300:]) ** 2).mean()
    assert record["mean_squared_error"] == pytest.approx(error, rel=1e-3)
    assert record["r2"] == pytest.approx(1 - error / z[300:].var(), rel=1e-3)
    assert record["accuracy"] is None
    assert "R²" in run_here("predict", tmp_path / "test.zarr", tmp_path / "m").stdout


def test_an_infeasible_nu_is_one_line(data, tmp_path):
    message = error_of(
        "train", data / "train.zarr", tmp_path / "m", "--formulation", "nu-svc", "--nu", "1"
    )
    assert "nu is 1, which is infeasible" in message
    assert not (tmp_path / "m").exists()


UNUSED = [
    ("nu-svc", "--C", 2),
    ("one-class", "--C", 2),
    ("c-svc", "--nu", 0.3),
    ("eps-svr", "--nu", 0.3),
    ("c-svc", "--epsilon", 0.1),
    ("nu-svc", "--epsilon", 0.1),
    ("one-class", "--epsilon", 0.1),
    ("nu-svr", "--epsilon", 0.1),
    ("nu-svc", "--loss", "hinge"),
    ("eps-svr", "--loss", "squared_hinge"),
    ("one-class", "--class-weight", "1:2"),
    ("eps-svr", "--class-weight", "balanced"),
    ("nu-svr", "--class-weight", "balanced"),
    ("l2-svc", "--nu", 0.3),
    ("l2-svc", "--epsilon", 0.1),
    ("l2-svc", "--loss", "hinge"),
    ("l2-one-class", "--nu", 0.3),
    ("l2-one-class", "--class-weight", "balanced"),
    ("l2-one-class", "--loss", "squared_hinge"),
    *(
        (kind, option, value)
        for kind in ("c-svc", "one-class", "eps-svr")
        for option, value in (("--solver", "fw"), ("--sampling", 60), ("--ball-tol", 1e-3))
    ),
]


@pytest.mark.parametrize(("kind", "option", "value"), UNUSED)
def test_an_option_that_would_be_ignored_is_refused(kind, option, value, data, tmp_path):
    message = error_of(
        "train", data / "train.zarr", tmp_path / "m", "--formulation", kind, option, value
    )
    assert f"{option} is for " in message
    assert f"means nothing for {kind}; leave it out" in message
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("kind", "unused"), [("nu-svc", ("--C", 3)), ("one-class", ("--epsilon", 1))]
)
def test_resumed_run_keeps_its_options_and_refuses_others(kind, unused, data, tmp_path):
    run = tmp_path / "run"
    options = ("--formulation", kind, "--nu", "0.2", "--checkpoint", run)
    run_here("train", data / "train.zarr", tmp_path / "m", *options)
    assert answer("train", "--resume", run)["converged"]
    assert f"means nothing for {kind}" in error_of("train", "--resume", run, *unused)


# -- l2-svc: the search in samples, and whether sweeps follow it -----------------------------------

L2 = ("--formulation", "l2-svc", "--gamma", "0.3")


@pytest.mark.parametrize("formulation", ["one-class", "eps-svr", "nu-svr"])
@pytest.mark.parametrize("option", ["--certify", "--no-certify"])
def test_certify_option_is_refused_for_regression_and_one_class(
    formulation, option, data, tmp_path
):
    options = ("--formulation", formulation, option)
    message = error_of("train", data / "train.zarr", tmp_path / "m", *options)
    assert "--certify is for c-svc" in message
    assert f"means nothing for {formulation}; leave it out" in message


@pytest.mark.parametrize("solver", ["pairwise", "mfw", "fw", "cvm"])
def test_uncertified_run_succeeds_and_reports_it(solver, data, tmp_path):
    options = (*L2, "--solver", solver, "--sampling", "20", "--no-certify")
    record = answer("train", data / "train.zarr", tmp_path / "m", *options)
    assert record["stop_reason"] == "sampled"
    assert record["converged"] is False
    assert record["gap"] is None
    assert record["duality_gap"] is None
    assert record["n_sweeps"] == 0
    assert record["drift"] >= 0
    estimator = bigsvm.L2SVC(gamma=0.3, solver=solver, sampling=20, certify=False)
    fitted = estimator.fit(data / "train.zarr")
    model = KernelExpansion.load(tmp_path / "m")
    np.testing.assert_array_equal(model.coefficients, fitted.dual_coef_[0])
    assert "not certified: random samples" in run_here("info", tmp_path / "m").stdout
    assert answer("predict", data / "test.zarr", tmp_path / "m")["accuracy"] > 0.6


def test_uncertified_model_is_reported_in_words(data, tmp_path):
    options = (*L2, "--no-certify")
    ended = run_here("train", data / "train.zarr", tmp_path / "m", *options)
    assert "the model is not certified: random samples had no point outside" in ended.stderr
    assert "has not converged" not in ended.stderr
    assert "not certified: random samples" in ended.stdout
    assert "NOT converged" not in ended.stdout


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--sampling", "many", "--sampling 'many' is not a number of rows, a share of them"),
        ("--sampling", "0", "sampling is 0; it must be a number of rows"),
        ("--sampling", "1.5", "sampling is 1.5; it must be"),
        ("--sampling", "-3", "sampling is -3; it must be"),
        ("--ball-tol", "0", "--ball-tol is 0.0; it must be a finite number > 0"),
        ("--gamma", "mean", "--gamma 'mean' is not a number, 'scale', 'auto' or 'mean-distance'"),
    ],
)
def test_invalid_values_are_refused_in_one_line(option, value, message, data, tmp_path):
    given = ("--formulation", "l2-svc", option, value)
    assert message in error_of("train", data / "train.zarr", tmp_path / "m", *given)
    assert not (tmp_path / "m").exists()


def test_an_unknown_solver_is_refused_with_the_known_ones(data, tmp_path):
    ended = run_here("train", data / "train.zarr", tmp_path / "m", *L2, "--solver", "smo", code=2)
    for known in ("pairwise", "mfw", "fw", "cvm"):
        assert known in ended.stderr


@pytest.mark.parametrize("formulation", ["l2-svc", "l2-one-class", "c-svc"])
def test_gamma_of_the_mean_distance(formulation, data, tmp_path):
    options = ("--formulation", formulation, "--gamma", "mean-distance")
    assert answer("train", data / "train.zarr", tmp_path / "m", *options)["converged"]
    store = bigsvm.open_store(data / "train.zarr")
    X = store.rows.read(0, 300)
    X = X if isinstance(X, np.ndarray) else X.toarray()
    distance = 2 * X.astype(np.float64).var(axis=0).sum()
    expected = 1 / (2 * distance)
    gamma = KernelExpansion.load(tmp_path / "m").kernel.gamma
    assert gamma == pytest.approx(expected, rel=1e-6)


def test_a_search_that_was_stopped_is_resumed_by_its_directory_alone(data, tmp_path):
    run, options = tmp_path / "run", (*L2, "--solver", "mfw", "--sampling", "30")
    whole = answer("train", data / "train.zarr", tmp_path / "whole", *options)
    stopped = answer(
        "train", data / "train.zarr", tmp_path / "m", *options,
        "--checkpoint", run, "--max-iter", "60",
    )  # fmt: skip
    assert stopped["stop_reason"] == "max_iter"
    assert stopped["n_sweeps"] == 0
    assert "is for" in error_of("train", "--resume", run, "--epsilon", "0.1")
    record = answer("train", "--resume", run, "--max-iter", "-1")
    assert record["converged"]
    assert record["objective"] == pytest.approx(whole["objective"], rel=1e-4)


def test_a_ball_of_one_class_is_stopped_in_its_search_and_resumed(data, tmp_path):
    run = tmp_path / "run"
    options = ("--formulation", "l2-one-class", "--C", "100", "--gamma", "0.3")
    whole = answer("train", data / "train.zarr", tmp_path / "whole", *options)
    stopped = answer(
        "train", data / "train.zarr", tmp_path / "m", *options,
        "--checkpoint", run, "--max-iter", "10",
    )  # fmt: skip
    assert stopped["stop_reason"] == "max_iter"
    assert stopped["n_sweeps"] == 0
    assert stopped["classes"] is None
    record = answer("train", "--resume", run, "--max-iter", "-1")
    assert record["converged"]
    assert record["objective"] == pytest.approx(whole["objective"], rel=1e-4)
    sampled = answer("train", data / "train.zarr", tmp_path / "s", *options, "--no-certify")
    assert sampled["stop_reason"] == "sampled"
    assert sampled["gap"] is None
