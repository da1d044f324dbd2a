"""The commands, run in this process: results, options, errors."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest
from command_line import REPOSITORY, answer, libsvm_text, run_here, two_clouds

from bigsvm import KernelExpansion, __version__, open_store, write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError

COMMANDS = ("convert", "info", "train", "predict", "demo")
SLOW_MODULES = ("numba", "sklearn", "dask", "zarr", "scipy", "numpy", "rich.progress")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text and stores of the same two clouds, 300 rows to train on and 100 others."""
    folder = tmp_path_factory.mktemp("data")
    X, y = two_clouds(400)
    (folder / "train.libsvm").write_text(libsvm_text(X[:300], y[:300]))
    (folder / "test.libsvm").write_text(libsvm_text(X[300:], y[300:]))
    run_here("convert", folder / "train.libsvm", folder / "train.zarr")
    run_here("convert", folder / "test.libsvm", folder / "test.zarr")
    run_here("train", folder / "train.zarr", folder / "model", "--C", "2", "--gamma", "0.3")
    return folder


LITTLE = ("--gamma", "0.3", "--memory", "10MB", "--max-iter", "1")
"""Too little memory for `many` rows at once, so that the first sweep finds work left to do."""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store and LIBSVM text of the same rows, in a folder."""
    folder = tmp_path_factory.mktemp("many")
    X, y = two_clouds(5000)
    write_store(folder / "many.zarr", X, y)
    (folder / "many.libsvm").write_text(libsvm_text(X, y))
    return folder


@pytest.fixture
def rows():
    return two_clouds(400)


def error_of(*arguments):
    """Run a command that must fail for a reason of the user's; that reason, a single line."""
    ended = run_here(*arguments, code=2)
    assert ended.stdout == ""
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("bigsvm: error: ")
    return last


class TestStart:
    def test_starts_without_the_modules_that_take_long_to_import(self):
        code = f"""
import sys
import bigsvm.cli
print([name for name in {SLOW_MODULES} if name in sys.modules])
"""
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
        )
        assert ended.stdout.strip() == "[]"

    def test_version(self):
        assert run_here("--version").stdout == f"bigsvm {__version__}\n"

    def test_help_names_every_command(self):
        shown = run_here("--help").stdout
        assert all(command in shown for command in COMMANDS)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_of_a_command_has_examples(self, command):
        shown = run_here(command, "--help").stdout
        assert f"Examples:\n    bigsvm {command}" in shown or f"\n    bigsvm {command}" in shown
        assert "\x1b" not in shown

    def test_an_unknown_option_is_wrong_usage(self):
        assert "--nonsense" in run_here("train", "--nonsense", code=2).stderr


class TestConvert:
    def test_the_store_holds_what_the_text_says(self, data, rows):
        store = open_store(data / "train.zarr")
        X, y = rows
        original = store.original_rows()
        assert np.array_equal(store.rows.read(0, 300), X[original])
        assert np.array_equal(store.labels(), y[original])

    def test_json(self, data, tmp_path):
        record = answer("convert", data / "train.libsvm", data / "test.libsvm", tmp_path / "both")
        assert (record["n_rows"], record["n_columns"], record["layout"]) == (400, 6, "dense")
        assert record["sources"] == ["train.libsvm", "test.libsvm"]
        assert sum(item["rows"] for item in record["label_counts"]) == 400
        assert record["seconds"] > 0
        assert record["peak_rss_bytes"] > 1e7

    @pytest.mark.parametrize(
        ("options", "layout", "shuffled", "n_columns"),
        [
            (["--sparse"], "csr", True, 6),
            (["--layout", "sparse", "--features", "9"], "csr", True, 9),
            (["--dense", "--no-shuffle", "--zero-based", "yes"], "dense", False, 7),
        ],
    )
    def test_options(self, data, tmp_path, options, layout, shuffled, n_columns):
        run_here("convert", data / "train.libsvm", tmp_path / "store", *options)
        attributes = open_store(tmp_path / "store").attributes
        assert (attributes.layout, attributes.shuffled) == (layout, shuffled)
        assert attributes.n_columns == n_columns

    def test_dtype_seed_and_overwrite(self, data, tmp_path):
        run_here("convert", data / "train.libsvm", tmp_path / "store")
        options = ("--overwrite", "--dtype", "float64", "--seed", "5")
        run_here("convert", data / "train.libsvm", tmp_path / "store", *options)
        attributes = open_store(tmp_path / "store").attributes
        assert (attributes.dtype, attributes.seed) == ("float64", 5)

    def test_what_was_skipped_is_said(self, data, tmp_path):
        text = tmp_path / "remarks.libsvm"
        text.write_text("# both classes\n1 1:2 # one\n\n-1 qid:3 2:1\n")
        ended = run_here("convert", text, tmp_path / "store")
        assert "empty lines: 1, comments: 2, qids: 1" in ended.stdout
        record = answer("convert", text, tmp_path / "again")
        assert record["skipped"] == {"empty_lines": 1, "comments": 2, "qids": 1}
        ended = run_here("convert", data / "test.libsvm", tmp_path / "clean")
        assert "comments" not in ended.stdout

    def test_standard_input(self, tmp_path):
        run_here("convert", "-", tmp_path / "store", stdin="1 1:2\n-1 2:1\n")
        assert open_store(tmp_path / "store").rows.n_rows == 2

    def test_a_bad_line_is_named_with_its_place(self, tmp_path):
        text = tmp_path / "bad.libsvm"
        text.write_text("1 1:2\n1 1:x\n")
        assert f"{text}:2:5" in error_of("convert", text, tmp_path / "store")
        assert [path.name for path in tmp_path.iterdir()] == ["bad.libsvm"]

    def test_an_existing_store_stays(self, data):
        assert "already exists" in error_of("convert", data / "test.libsvm", data / "train.zarr")

    def test_two_layouts_are_one_too_many(self, data, tmp_path):
        ended = run_here(
            "convert", data / "train.libsvm", tmp_path / "s", "--dense", "--sparse", code=2
        )
        assert "one of" in ended.stderr

    def test_quiet(self, data, tmp_path):
        ended = run_here("convert", data / "train.libsvm", tmp_path / "store", "--quiet")
        assert ended.stderr == ""


class TestTrain:
    def test_json_has_the_certificate_and_what_it_cost(self, data, tmp_path):
        record = answer("train", data / "train.zarr", tmp_path / "m", "--C", "2", "--gamma", "0.3")
        promised = (
            "converged stop_reason objective gap duality_gap n_support n_bounded n_sweeps "
            "n_kernel_evaluations row_misses seconds peak_rss_bytes"
        )
        assert set(promised.split()) <= record.keys()
        assert record["converged"] is True
        assert record["stop_reason"] == "converged"
        assert 0 <= record["gap"] <= 1e-3
        certificate = KernelExpansion.load(tmp_path / "m").certificate
        assert {name: record[name] for name in certificate} == certificate
        assert (record["n_rows"], record["n_features"]) == (300, 6)
        assert record["classes"] == [-1, 1]

    def test_text_on_standard_output_progress_on_standard_error(self, data, tmp_path):
        ended = run_here("train", data / "train.zarr", tmp_path / "m")
        assert "converged: a full sweep certified the tolerance" in ended.stdout
        assert "sweep 1: gap" in ended.stderr
        assert "\x1b" not in ended.stdout + ended.stderr
        assert run_here("train", data / "train.zarr", tmp_path / "m", "-q").stderr == ""

    def test_every_parameter_arrives(self, data, tmp_path):
        options = (
            *("--C", "3", "--gamma", "auto", "--kernel", "poly", "--degree", "2"),
            *("--coef0", "1.5", "--tol", "0.01", "--class-weight", "-1:2", "--class-weight", "1:3"),
            *("--selection", "second-order", "--memory", "100MB", "--threads", "1", "--seed", "7"),
            *("--max-iter", "1000000", "--max-time", "2h", "--checkpoint-every", "5m"),
        )
        run_here("train", data / "train.zarr", tmp_path / "m", *options)
        model = KernelExpansion.load(tmp_path / "m")
        recorded = model.provenance["parameters"]
        expected = {
            "C": 3.0, "kernel": "poly", "degree": 2, "gamma": "auto", "coef0": 1.5, "tol": 0.01,
            "class_weight": [2.0, 3.0], "selection": "second-order", "memory": "100MB",
            "threads": 1, "seed": 7, "max_iter": 1000000, "max_seconds": 7200.0,
            "checkpoint_every": 300.0,
        }  # fmt: skip
        assert {name: recorded[name] for name in expected} == expected
        assert model.kernel.describe()["gamma"] == pytest.approx(1 / 6)

    def test_balanced_weights(self, data, tmp_path):
        run_here("train", data / "train.zarr", tmp_path / "m", "--class-weight", "balanced")
        weights = KernelExpansion.load(tmp_path / "m").provenance["parameters"]["class_weight"]
        counts = dict(open_store(data / "train.zarr").attributes.label_counts)
        assert weights == pytest.approx([150 / counts[-1], 150 / counts[1]])

    def test_text_trains_the_same_model_and_leaves_nothing(self, data, tmp_path):
        cache = tmp_path / "cache"
        options = ("--C", "2", "--gamma", "0.3", "--cache-dir", cache)
        ended = run_here("train", data / "train.libsvm", tmp_path / "m", *options)
        assert f"temporary store in {cache}" in ended.stderr
        assert list(cache.iterdir()) == []
        direct, from_text = (KernelExpansion.load(m) for m in (data / "model", tmp_path / "m"))
        assert np.array_equal(direct.coefficients, from_text.coefficients)
        assert np.array_equal(direct.support_vectors, from_text.support_vectors)

    def test_what_a_killed_process_left_is_removed(self, data, tmp_path):
        left = tmp_path / "bigsvm-text-killed"
        left.mkdir()
        (left / "lock").touch()
        other = tmp_path / "bigsvm-text-not-ours"
        other.mkdir()
        run_here("train", data / "train.libsvm", tmp_path / "m", "--cache-dir", tmp_path)
        assert not left.exists()
        assert other.exists()

    def test_an_unconverged_model_is_written_and_says_so(self, data, many, tmp_path):
        options = (*LITTLE, "--quiet", "--json")
        ended = run_here("train", many / "many.zarr", tmp_path / "m", *options)
        record = json.loads(ended.stdout)
        assert (record["converged"], record["stop_reason"]) == (False, "max_iter")
        assert ended.stderr.startswith("bigsvm: warning: the model has not converged: the limit")
        assert KernelExpansion.load(tmp_path / "m").certificate["converged"] is False
        assert "had not converged" in run_here("predict", data / "test.zarr", tmp_path / "m").stdout

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--C", "-1"], "C is -1.0"),
            (["--gamma", "big"], "--gamma 'big'"),
            (["--memory", "much"], "'much' is not a size"),
            (["--memory", "1kB"], "too little"),
            (["--max-time", "soon"], "--max-time 'soon'"),
            (["--checkpoint-every", "0"], "--checkpoint-every '0'"),
            (["--class-weight", "3"], "--class-weight '3'"),
            (["--class-weight", "balanced", "--class-weight", "1:2"], "'balanced' alone"),
            (["--class-weight", "1:2", "--class-weight", "1:3"], "'1:3'"),
            (["--class-weight", "5:2"], "names 5.0"),
        ],
    )
    def test_a_bad_value_is_named(self, data, tmp_path, options, words):
        assert words in error_of("train", data / "train.zarr", tmp_path / "m", *options)
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize("option", ["--kernel", "--selection"])
    def test_a_bad_choice_is_wrong_usage(self, data, tmp_path, option):
        ended = run_here("train", data / "train.zarr", tmp_path / "m", option, "no", code=2)
        assert option in ended.stderr

    def test_a_file_that_is_no_model_is_not_replaced(self, data):
        before = (data / "test.libsvm").read_bytes()
        assert "not a model" in error_of("train", data / "train.zarr", data / "test.libsvm")
        assert (data / "test.libsvm").read_bytes() == before

    def test_a_model_that_cannot_be_written_is_found_before_training(self, data, tmp_path):
        missing = tmp_path / "missing" / "m"
        assert f"{missing.parent} is not a folder" in error_of(
            "train", data / "train.zarr", missing
        )
        assert "is a folder" in error_of("train", data / "train.zarr", tmp_path)

    def test_what_is_not_there(self, tmp_path):
        assert "no such store or file" in error_of("train", tmp_path / "none", tmp_path / "m")

    @pytest.mark.parametrize(("memory", "given"), [("40MB", 40_000_000), ("10MB", 32 << 20)])
    def test_text_is_converted_within_the_budget(self, data, tmp_path, monkeypatch, memory, given):
        def convert(*arguments, memory, **options):
            raise DataError(f"converting in {memory}")

        monkeypatch.setattr("bigsvm.data.convert.convert", convert)
        options = (data / "test.libsvm", tmp_path / "m", "--memory", memory)
        assert f"converting in {given}" in error_of("train", *options)

    def test_more_than_two_classes(self, tmp_path):
        (tmp_path / "three").write_text("1 1:1\n2 1:2\n3 1:3\n")
        assert "y has 3 class" in error_of("train", tmp_path / "three", tmp_path / "m")

    def test_the_store_or_what_to_resume_is_needed(self, tmp_path):
        assert "--resume" in run_here("train", code=2).stderr
        ended = run_here("train", "a", "b", "--resume", tmp_path, code=2)
        assert "--resume needs neither" in ended.stderr


class TestCheckpoint:
    def test_a_run_stopped_by_a_limit_is_resumed_by_its_directory_alone(self, many, tmp_path):
        run = tmp_path / "a run"
        options = (*LITTLE, "--checkpoint", run)
        ended = run_here("train", many / "many.zarr", tmp_path / "m", *options)
        command = ended.stderr.strip().rpartition(": ")[2]
        assert answer("info", run)["resume"] == command
        program, *arguments = shlex.split(command)
        assert program == "bigsvm"
        record = answer(*arguments)
        assert record["converged"]
        assert record["model"] == str(tmp_path / "m")
        assert record["n_sweeps"] > 1
        assert KernelExpansion.load(tmp_path / "m").certificate["converged"]

    def test_another_C_is_refused_by_name_and_the_run_stays_as_it_was(self, data, tmp_path):
        options = ("--gamma", "0.3", "--checkpoint", tmp_path / "run")
        run_here("train", data / "train.zarr", tmp_path / "m", "--C", "2", *options)
        before = (tmp_path / "run" / "run.json").read_bytes()
        arguments = ("train", data / "train.zarr", tmp_path / "m", *options)
        assert "C (checkpoint: 2.0, now: 3.0)" in error_of(*arguments, "--C", "3")
        message = error_of("train", "--resume", tmp_path / "run", "--C", "3")
        assert "C (checkpoint: 2.0, now: 3.0)" in message
        assert (tmp_path / "run" / "run.json").read_bytes() == before
        assert answer("train", "--resume", tmp_path / "run")["converged"]

    def test_text_is_read_again_by_a_resumed_run(self, many, tmp_path):
        run, text = tmp_path / "run", many / "many.libsvm"
        options = (*LITTLE, "--checkpoint", run, "--class-weight", "1:2")
        run_here("train", text, tmp_path / "m", *options)
        record = answer("train", "--resume", run, "--max-iter", "-1")
        assert record["converged"]
        assert record["n_sweeps"] > 1
        assert answer("info", run)["source"] == str(text)

    def test_standard_input_cannot_be_resumed(self, tmp_path):
        message = error_of("train", "-", tmp_path / "m", "--checkpoint", tmp_path / "run")
        assert "standard input" in message

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "has no run.json"),
            (b"{", "is damaged"),
            (b"[]", "is damaged"),
            (b'{"format_version": 99, "bigsvm": "9.9"}', "resume with bigsvm 9.9"),
            (b'{"format_version": 1, "bigsvm": "0.1", "nonsense": 1}', "is damaged"),
        ],
    )
    def test_a_directory_that_is_no_run(self, tmp_path, content, words):
        if content is not None:
            (tmp_path / "run.json").write_bytes(content)
        assert words in error_of("train", "--resume", tmp_path)


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

    def test_text_may_lack_the_last_columns_but_not_have_more(self, data, tmp_path):
        (tmp_path / "few").write_text("1 1:1\n-1 2:1\n")
        assert answer("predict", tmp_path / "few", data / "model")["n_rows"] == 2
        (tmp_path / "many").write_text("1 1:1 7:1\n")
        message = error_of("predict", tmp_path / "many", data / "model")
        assert "past the 6 columns that the model was trained on" in message

    def test_a_store_of_other_columns_is_refused(self, data, tmp_path):
        run_here("convert", data / "test.libsvm", tmp_path / "wide", "--features", "9")
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

    def test_predictions_do_not_go_into_the_store(self, data):
        output = data / "test.zarr" / "zarr.json"
        message = error_of("predict", data / "test.zarr", data / "model", "-o", output)
        assert "is part of the input" in message

    def test_what_is_no_model(self, data):
        message = error_of("predict", data / "test.zarr", data / "train.libsvm")
        assert "not a whole bigsvm model" in message


class TestInfo:
    def test_store(self, data):
        record = answer("info", data / "train.zarr")
        assert (record["kind"], record["n_rows"]) == ("store", 300)
        assert record["statistics"]["minimum"] < 0 < record["statistics"]["maximum"]
        assert record["bytes_on_disk"] > 0
        shown = run_here("info", data / "train.zarr").stdout
        assert record["fingerprint"] in shown
        assert "300, 6" in shown

    def test_model(self, data):
        record = answer("info", data / "model")
        assert record["kind"] == "model"
        assert record["kernel"] == {"name": "rbf", "gamma": 0.3}
        assert record["certificate"]["converged"] is True
        assert "rbf, gamma 0.3" in run_here("info", data / "model").stdout

    def test_run(self, many, tmp_path):
        source = many / "many.zarr"
        run_here("train", source, tmp_path / "m", *LITTLE, "--checkpoint", tmp_path / "run")
        record = answer("info", tmp_path / "run")
        assert (record["kind"], record["source"]) == ("run", str(source))
        assert record["progress"]["n_sweeps"] == 1
        assert record["progress"]["gap"] > 1e-3
        shown = run_here("info", tmp_path / "run").stdout
        assert f"bigsvm train --resume {tmp_path / 'run'}" in shown

    def test_a_run_without_a_whole_generation(self, data, tmp_path):
        run_here("train", data / "train.zarr", tmp_path / "m", "--checkpoint", tmp_path / "run")
        for manifest in tmp_path.glob("run/generation-*/manifest.json"):
            manifest.write_bytes(b"damaged")
        assert answer("info", tmp_path / "run")["progress"] is None
        assert "nothing saved yet" in run_here("info", tmp_path / "run").stdout

    def test_neither(self, data, tmp_path):
        assert "no such store, model or run" in error_of("info", tmp_path / "none")
        assert "not a store" in error_of("info", tmp_path)
        assert "not a whole bigsvm model" in error_of("info", data / "train.libsvm")
