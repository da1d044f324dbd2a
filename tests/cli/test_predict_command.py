"""`bigsvm predict`, run in this process."""

import json
import os
import stat

import numpy as np
import pytest
from command_line import answer, error_of, run_here
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score

from bigsvm import KernelExpansion, write_store
from bigsvm.data.sources import as_row_source


class TestPredict:
    def expected(self, data, X):
        model = KernelExpansion.load(data / "model")
        return model.decision_function(as_row_source(X))

    @pytest.mark.parametrize("source", ["test.zarr", "test.libsvm"])
    def test_decision_values_in_the_order_of_the_input(self, data, tmp_path, rows, source):
        options = ("--decision-function", "--output", tmp_path / "values")
        run_here("predict", data / source, data / "model", *options)
        values = np.loadtxt(tmp_path / "values")
        np.testing.assert_allclose(values, self.expected(data, rows[0][300:]), atol=1e-5)

    def test_labels_and_accuracy(self, data, tmp_path, rows):
        record = answer("predict", data / "test.zarr", data / "model", "-o", tmp_path / "labels")
        lines = (tmp_path / "labels").read_text().splitlines()
        X, y = rows[0][300:], rows[1][300:]
        positive = self.expected(data, X) > 0
        assert lines == ["1" if p else "-1" for p in positive]
        assert record["accuracy"] == pytest.approx((positive == (y > 0)).mean())
        assert record["n_rows"] == 100
        assert record["seconds"] > 0

    def test_a_person_sees_the_accuracy(self, data):
        ended = run_here("predict", data / "test.zarr", data / "model")
        assert "of 100)" in ended.stdout
        assert "%" in ended.stdout

    def test_text_may_lack_the_last_columns_or_have_more(self, data, tmp_path):
        (tmp_path / "few").write_text("1 1:1\n-1 2:1\n")
        assert answer("predict", tmp_path / "few", data / "model")["n_rows"] == 2
        (tmp_path / "many").write_text("1 1:1 7:1\n")
        (tmp_path / "fewer").write_text("1 1:1\n")
        values = {}
        for name, n_more in (("many", 1), ("fewer", 0)):
            options = ("--decision-function", "--overwrite", "-o", tmp_path / "values")
            record = answer("predict", tmp_path / name, data / "model", *options)
            assert record["n_more_columns"] == n_more
            values[name] = float((tmp_path / "values").read_text())
        intercept = KernelExpansion.load(data / "model").intercept
        expected = intercept + np.exp(-0.3) * (values["fewer"] - intercept)
        assert values["many"] == pytest.approx(expected, abs=1e-5)

    def test_a_store_of_text_may_have_more_columns_but_not_fewer(self, data, tmp_path):
        run_here("convert", data / "test.libsvm", tmp_path / "wide", "--features", "9")
        record = answer("predict", tmp_path / "wide", data / "model")
        assert record["n_more_columns"] == 3
        assert (
            record["accuracy"] == answer("predict", data / "test.zarr", data / "model")["accuracy"]
        )
        (tmp_path / "few").write_text("1 1:1\n-1 2:1\n")
        run_here("convert", tmp_path / "few", tmp_path / "few.zarr")
        assert "2 columns" in error_of("predict", tmp_path / "few.zarr", data / "model")

    def test_a_store_of_arrays_with_other_columns_is_refused(self, data, tmp_path):
        write_store(tmp_path / "wide", np.ones((2, 9), np.float32), [1.0, -1.0])
        assert "9 columns" in error_of("predict", tmp_path / "wide", data / "model")

    def test_text_is_numbered_as_the_training_text_was(self, tmp_path):
        """No row of the test text has index 0, so that alone it would seem to start at 1."""
        train, test, model = tmp_path / "train", tmp_path / "test", tmp_path / "model"
        train.write_text("1 0:1 2:2\n-1 1:1\n1 0:2\n-1 2:1\n")
        test.write_text("1 2:2\n-1 1:1\n")
        run_here("train", train, model, "--gamma", "1")
        run_here("predict", test, model, "--decision-function", "-o", tmp_path / "values")
        expected = self.expected(tmp_path, np.array([[0, 0, 2.0], [0, 1, 0]], np.float32))
        np.testing.assert_allclose(np.loadtxt(tmp_path / "values"), expected, atol=1e-5)
        run_here("convert", test, tmp_path / "test.zarr", "--features", "3")
        assert "--zero-based yes" in error_of("predict", tmp_path / "test.zarr", model)

    def test_labels_that_are_no_classes_give_no_accuracy(self, data, tmp_path):
        (tmp_path / "unknown").write_text("0 1:1\n0 2:1\n")
        assert answer("predict", tmp_path / "unknown", data / "model")["accuracy"] is None
        ended = run_here("predict", tmp_path / "unknown", data / "model")
        assert "no labels to compare with" in ended.stdout

    def test_standard_input(self, data):
        ended = run_here("predict", "-", data / "model", "--json", stdin="1 1:1\n")
        assert json.loads(ended.stdout)["n_rows"] == 1

    @pytest.mark.parametrize(
        ("output", "words"),
        [
            ("no/f", "no is not a folder that can be written to"),
            ("model/f", "model is not a folder that can be written to"),
            (".", "is a folder"),
            ("test.libsvm", "is part of the input"),
            ("model", "is part of the input"),
        ],
    )
    def test_an_output_that_cannot_be_written_is_found_before_any_reading(
        self, tmp_path, output, words
    ):
        for name in ("test.libsvm", "model"):
            (tmp_path / name).write_text("neither")
        arguments = ("predict", tmp_path / "test.libsvm", tmp_path / "model")
        assert words in error_of(*arguments, "-o", tmp_path / output)
        assert (tmp_path / "model").read_text() == "neither"

    @pytest.mark.parametrize("command", ["inspect", "train", "export"])
    def test_a_device_or_a_pipe_is_not_replaced(self, data, tmp_path, command):
        os.mkfifo(tmp_path / "pipe")
        arguments = {
            "inspect": (data / "model", data / "train.zarr", "--image", tmp_path / "pipe"),
            "train": (data / "train.zarr", tmp_path / "pipe"),
            "export": (data / "model", tmp_path / "pipe", "--to", "onnx"),
        }
        assert "pipe is a device, a pipe or an open file" in error_of(command, *arguments[command])
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        assert os.listdir(tmp_path) == ["pipe"]

    def test_predictions_do_not_go_into_the_store(self, data):
        output = data / "test.zarr" / "zarr.json"
        message = error_of("predict", data / "test.zarr", data / "model", "-o", output)
        assert "is part of the input" in message

    def test_files_that_are_not_models_are_refused(self, data):
        for name in ("train.libsvm", "train.zarr/zarr.json"):
            message = error_of("predict", data / "test.zarr", data / name)
            assert "is no model, neither of `bigsvm train` nor of LIBSVM" in message
        assert "cannot read the model" in error_of("predict", data / "test.zarr", data / "none")
        assert "cannot read the model" in error_of("predict", data / "test.zarr", data)

    def test_a_model_that_is_cut_off_is_damaged(self, data, tmp_path):
        (tmp_path / "m").write_bytes((data / "model").read_bytes()[:-5])
        message = error_of("predict", data / "test.zarr", tmp_path / "m")
        assert "not a whole bigsvm model" in message

    def test_measures_of_two_classes(self, data, rows):
        record = answer("predict", data / "test.zarr", data / "model")
        X, y = rows[0][300:], rows[1][300:]
        values = self.expected(data, X)
        assert record["auc"] == pytest.approx(roc_auc_score(y, values))
        assert record["confusion"] == confusion_matrix(y, np.where(values > 0, 1, -1)).tolist()
        assert [each["label"] for each in record["classes"]] == [-1, 1]
        assert "log_loss" not in record
        shown = run_here("predict", data / "test.zarr", data / "model").stdout
        for words in ("of class -1", "of class 1", "AUC", "label \\ predicted"):
            assert words in shown

    def test_measures_of_probabilities(self, data, tmp_path, rows):
        options = ("--calibration", "sigmoid", "--gamma", "0.3")
        run_here("train", data / "train.zarr", tmp_path / "m", *options)
        record = answer("predict", data / "test.zarr", tmp_path / "m")
        model = KernelExpansion.load(tmp_path / "m")
        found = model.probabilities(rows[0][300:])
        assert record["log_loss"] == pytest.approx(log_loss(rows[1][300:], found), rel=1e-4)
        assert 0 < record["brier_score"] < 1
        assert "log loss" in run_here("predict", data / "test.zarr", tmp_path / "m").stdout

    def test_one_class_has_a_share_of_outliers(self, data, tmp_path):
        options = ("--formulation", "one-class", "--nu", "0.2", "--gamma", "0.3")
        run_here("train", data / "train.zarr", tmp_path / "m", *options)
        record = answer("predict", data / "test.zarr", tmp_path / "m", "-o", tmp_path / "out")
        expected = (tmp_path / "out").read_text().splitlines().count("-1")
        assert record["n_outliers"] == expected > 0
        shown = run_here("predict", data / "test.zarr", tmp_path / "m").stdout
        assert shown.startswith("outliers")
        assert f"{expected / 100:.4%} ({expected} of 100)" in shown
