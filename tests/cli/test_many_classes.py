"""`bigsvm info` and `bigsvm predict` of a model of many classes."""

from pathlib import Path

import numpy as np
import pytest
from command_line import answer, error_of, libsvm_text, run_here
from fitted_models import blobs, fitted_on, of_scikit_learn

from bigsvm import write_store
from bigsvm.data.sources import as_row_source
from bigsvm.models import KernelExpansion
from bigsvm.report import predictions


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of four classes, and LIBSVM text and a shuffled store of other rows."""
    path = tmp_path_factory.mktemp("many")
    _, model, rows = fitted_on(4)
    model.save(path / "model")
    rows, y = rows.astype(np.float32), blobs(4, seed=1)[1]
    (path / "test.libsvm").write_text(libsvm_text(rows, y))
    write_store(path / "test.zarr", rows, y)
    return path


@pytest.fixture
def expected(folder):
    rows = as_row_source(blobs(4, seed=1)[0].astype(np.float32))
    model = KernelExpansion.load(folder / "model")
    return model.decision_function(rows), model.decide(rows)


@pytest.mark.parametrize("source", ["test.libsvm", "test.zarr"])
def test_labels_and_accuracy_in_the_order_of_the_input(source, folder, expected, tmp_path):
    record = answer("predict", folder / source, folder / "model", "-o", tmp_path / "labels")
    assert (tmp_path / "labels").read_text().split("\n")[:-1] == [str(c) for c in expected[1]]
    assert record["accuracy"] == pytest.approx((expected[1] == blobs(4, seed=1)[1]).mean())
    assert (record["n_rows"], record["converged"]) == (240, None)
    assert answer("predict", folder / source, folder / "model")["output"] is None


def test_values_of_all_functions_are_in_a_line(folder, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "_LINES_AT_ONCE", 300)
    output = tmp_path / "values"
    run_here("predict", folder / "test.zarr", folder / "model", "-o", output, "--decision-function")
    np.testing.assert_allclose(np.loadtxt(output), expected[0], atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["values"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_full_disk_beside_the_predictions_is_reported(folder, tmp_path, monkeypatch):
    full = open("/dev/full", "r+b", buffering=0)
    monkeypatch.setattr("bigsvm.cli.predict.tempfile.TemporaryFile", lambda **options: full)
    options = ("-o", tmp_path / "values", "--decision-function")
    message = error_of("predict", folder / "test.zarr", folder / "model", *options)
    assert "cannot keep values beside the predictions" in message
    assert not list(tmp_path.iterdir())


def test_labels_of_any_kind(folder, expected, tmp_path):
    names = ["ä b", "x", "7", ""]
    fitted = fitted_on(4)[0]
    of_scikit_learn(fitted, classes=names).save(tmp_path / "model")
    record = answer("predict", folder / "test.zarr", tmp_path / "model", "-o", tmp_path / "labels")
    lines = (tmp_path / "labels").read_text(encoding="utf-8").split("\n")[:-1]
    assert lines == [names[code] for code in expected[1]]
    assert record["accuracy"] is None
    of_scikit_learn(fitted, classes=[2**60 + n for n in range(4)]).save(tmp_path / "model")
    (tmp_path / "labels").unlink()
    answer("predict", folder / "test.zarr", tmp_path / "model", "-o", tmp_path / "labels")
    lines = (tmp_path / "labels").read_text().split()
    assert [int(line) - 2**60 for line in lines] == expected[1].tolist()


def test_info_of_a_model_of_many_classes(folder, tmp_path):
    record = answer("info", folder / "model")
    assert (record["rule"], record["n_functions"], record["intercept"]) == ("ovo", 6, None)
    assert record["classes"] == [0, 1, 2, 3]
    shown = run_here("info", folder / "model").stdout
    assert "4: 0, 1, 2, 3" in shown
    assert "votes of 6 pairs" in shown
    assert "intercept" not in shown
    of_scikit_learn(fitted_on(8)[0], rule="ddag").save(tmp_path / "model")
    shown = run_here("info", tmp_path / "model").stdout
    assert "8: 0, 1, 2, 3, 4, 5, and 2 more" in shown
    assert "a decision graph of 28 pairs" in shown


def test_probabilities_of_a_model_without_are_refused(folder, tmp_path):
    options = ("--probability", "-o", tmp_path / "p")
    assert "no calibration" in error_of("predict", folder / "test.zarr", folder / "model", *options)


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_probabilities_are_written_as_libsvm_does(folder, tmp_path, monkeypatch, multiclass):
    monkeypatch.setattr(predictions, "_LINES_AT_ONCE", 300)
    options = ("--calibration", "sigmoid", "--multiclass", multiclass)
    record = answer("train", folder / "test.zarr", tmp_path / "m", *options)
    assert record["calibration"] == {"method": "sigmoid", "n_rows": 24}
    output = tmp_path / "p"
    record = answer(
        "predict", folder / "test.libsvm", tmp_path / "m", "--probability", "-o", output
    )
    head, *lines = output.read_text().splitlines()
    assert head == "labels 0 1 2 3"
    rows, y = blobs(4, seed=1)
    model = KernelExpansion.load(tmp_path / "m")
    found = np.array([line.split() for line in lines], float)
    expected = model.probabilities(rows.astype(np.float32))
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-4)
    np.testing.assert_array_equal(found[:, 0], model.decide(rows.astype(np.float32)))
    of_true = found[np.arange(len(y)), 1 + y.astype(int)]
    assert record["log_loss"] == pytest.approx(-np.log(of_true).mean(), rel=1e-3)
    assert np.sum(record["confusion"]) == len(y)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "p"]
