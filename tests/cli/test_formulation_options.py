"""`bigsvm train --formulation` and what predict and info make of the models."""

import numpy as np
import pytest
from command_line import answer, error_of, run_here

import bigsvm
from bigsvm import KernelExpansion, write_store

KINDS = {
    "c-svc": bigsvm.SVC(loss="squared_hinge", gamma=0.3),
    "nu-svc": bigsvm.NuSVC(nu=0.4, gamma=0.3),
    "one-class": bigsvm.OneClassSVM(nu=0.2, gamma=0.3),
    "eps-svr": bigsvm.SVR(C=2.0, epsilon=0.05, gamma=0.3),
    "nu-svr": bigsvm.NuSVR(C=2.0, nu=0.3, gamma=0.3),
}


def options(estimator):
    names = ("C", "nu", "epsilon", "gamma", "loss")
    given = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
    return [word for name, value in given.items() for word in (f"--{name}", value)]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_estimators_model(kind, data, tmp_path):
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
def test_a_resumed_run_has_them_as_they_were_and_refuses_others(kind, unused, data, tmp_path):
    run = tmp_path / "run"
    options = ("--formulation", kind, "--nu", "0.2", "--checkpoint", run)
    run_here("train", data / "train.zarr", tmp_path / "m", *options)
    assert answer("train", "--resume", run)["converged"]
    assert f"means nothing for {kind}" in error_of("train", "--resume", run, *unused)
