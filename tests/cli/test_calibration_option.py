"""`bigsvm train --calibration` and `bigsvm predict --probability`, run in this process."""

import json

import numpy as np
import pytest
from command_line import answer, error_of, run_here

from bigsvm import SVC, KernelExpansion
from bigsvm.data.sources import as_row_source


@pytest.fixture(scope="module", params=["sigmoid", "isotonic"])
def calibrated(request, data, tmp_path_factory):
    """Train a model, and keep what the command said; path, method, record."""
    path = tmp_path_factory.mktemp("calibrated") / "model"
    options = ("--C", "2", "--gamma", "0.3", "--calibration", request.param)
    return path, request.param, answer("train", data / "train.zarr", path, *options)


def test_calibration_is_that_of_the_estimator(calibrated, data):
    path, method, _ = calibrated
    fitted = SVC(C=2, gamma=0.3, calibration=method).fit(data / "train.zarr")
    made = KernelExpansion.load(path).calibration
    np.testing.assert_allclose(made.numbers, fitted.model_.calibration.numbers)


def test_calibration_is_described_with_its_rows(calibrated, data, tmp_path):
    path, method, record = calibrated
    assert record["calibration"] == {"method": method, "n_rows": 30}
    assert answer("info", path)["calibration"] == record["calibration"]
    shown = f"probabilities      {method}, fitted on 30 rows held out"
    assert shown.split() == next(
        line.split() for line in run_here("info", path).stdout.splitlines() if "held out" in line
    )
    ended = run_here("train", data / "train.zarr", tmp_path / "m", "--calibration", method)
    assert f"{method}, fitted on 30 rows held out" in ended.stdout
    assert answer("info", data / "model")["calibration"] is None
    assert "probabilities" not in run_here("info", data / "model").stdout


@pytest.mark.parametrize("source", ["test.zarr", "test.libsvm"])
def test_probabilities_are_written_as_libsvm_does(calibrated, data, tmp_path, rows, source):
    path, _, _ = calibrated
    run_here("predict", data / source, path, "--probability", "-o", tmp_path / "out")
    head, *lines = (tmp_path / "out").read_text().splitlines()
    assert head == "labels -1 1"
    model = KernelExpansion.load(path)
    values = model.decision_function(as_row_source(rows[0][300:]))
    assert [line.split()[0] for line in lines] == ["1" if v > 0 else "-1" for v in values]
    found = np.array([line.split()[1:] for line in lines], float)
    np.testing.assert_allclose(found[:, 1], model.calibration.probability(values), atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_probability_of_a_model_without_calibration_is_refused(data, tmp_path):
    arguments = ("predict", data / "test.zarr", data / "model", "--probability")
    message = error_of(*arguments, "-o", tmp_path / "out")
    assert f"{data / 'model'} has no calibration" in message
    assert "train it with --calibration" in message
    assert not (tmp_path / "out").exists()


def test_a_file_is_needed_and_one_kind_of_output(calibrated, data, tmp_path):
    arguments = ("predict", data / "test.zarr", calibrated[0], "--probability")
    assert "--probability needs --output" in run_here(*arguments, code=2).stderr
    both = (*arguments, "-o", tmp_path / "out", "--decision-function")
    assert "no --decision-function" in run_here(*both, code=2).stderr


def test_calibration_is_refused_where_it_is_impossible(data, tmp_path):
    arguments = ("train", data / "train.zarr", tmp_path / "m", "--calibration", "sigmoid")
    message = error_of(*arguments, "--formulation", "one-class")
    assert "calibration is 'sigmoid'; of one-class it must be 'density', or be left out" in message
    (tmp_path / "few").write_text("1 1:1\n-1 1:2\n-1 1:3\n")
    message = error_of("train", tmp_path / "few", tmp_path / "m", "--calibration", "sigmoid")
    assert "1 row(s) of class 1.0 have a weight" in message
    assert not (tmp_path / "m").exists()


def test_a_resumed_run_has_its_calibration(data, tmp_path):
    run = tmp_path / "run"
    options = ("--calibration", "isotonic", "--checkpoint", run)
    first = run_here("train", data / "train.zarr", tmp_path / "m", *options, "--json")
    again = answer("train", "--resume", run)
    assert again["calibration"] == json.loads(first.stdout)["calibration"]
    assert answer("train", "--resume", run, "--calibration", "sigmoid")["calibration"] == {
        "method": "sigmoid", "n_rows": 30,
    }  # fmt: skip


def test_probabilities_of_one_class_are_written(data, tmp_path):
    options = ("--formulation", "one-class", "--nu", "0.3", "--calibration", "density")
    run_here("train", data / "train.zarr", tmp_path / "m", *options)
    run_here("predict", data / "test.zarr", tmp_path / "m", "--probability", "-o", tmp_path / "out")
    head, *lines = (tmp_path / "out").read_text().splitlines()
    assert head == "labels -1 1"
    found = np.array([line.split() for line in lines], float)
    np.testing.assert_allclose(found[:, 1] + found[:, 2], 1)
    assert (found[found[:, 0] == 1, 2] >= 0.5).all()


def test_the_noise_of_a_regression_is_shown(data, tmp_path):
    options = ("--formulation", "eps-svr", "--calibration", "laplace")
    record = answer("train", data / "train.zarr", tmp_path / "m", *options)
    scale = record["calibration"]["scale"]
    assert scale > 0
    assert f"laplace of scale {scale:.6g}, fitted on 30" in run_here("info", tmp_path / "m").stdout
    told = error_of(
        "predict", data / "test.zarr", tmp_path / "m", "--probability", "-o", tmp_path / "out"
    )
    assert "is a regression, which has no classes" in told
    assert answer("predict", data / "test.zarr", tmp_path / "m")["mean_squared_error"] > 0
