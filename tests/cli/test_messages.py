"""What errors advise can be done: in the words of the command, about things that are there."""

import json
import os
import re
import shutil
import tempfile

import pytest
import typer
from command_line import LITTLE, error_of, run_here, two_clouds

import bigsvm
from bigsvm.cli import app
from bigsvm.cli.failures import in_options, options_of
from bigsvm.errors import DataError, StoreError
from bigsvm.models import KernelExpansion

COMMANDS = typer.main.get_command(app).commands


class TestErrorsNameOptions:
    @pytest.mark.fault("messages")
    @pytest.mark.parametrize(
        ("python", "train", "convert"),
        [
            (
                "memory 'x' is not a size",
                "--memory 'x' is not a size",
                "--memory 'x' is not a size",
            ),
            ("seed (random_state) is -1; x", "--seed is -1; x", "--seed is -1; x"),
            ("threads (n_jobs) is 0", "--threads is 0", "--threads is 0"),
            ("C is -1.0; it must be", "--C is -1.0; it must be", "C is -1.0; it must be"),
            ("lower tol to 1e-05", "lower --tol to 1e-05", "lower tol to 1e-05"),
            ("reached; raise max_iter", "reached; raise --max-iter", "reached; raise max_iter"),
            (
                "use dtype='float64', or",
                "use --dtype float64 of `bigsvm convert`, or",
                "use --dtype float64, or",
            ),
            ("n_features=12; x", "--features 12 of `bigsvm convert`; x", "--features 12; x"),
            ("or give overwrite=True", "or give overwrite=True", "or give --overwrite"),
            (
                "/tmp/max_iter: memory.zarr",
                "/tmp/max_iter: memory.zarr",
                "/tmp/max_iter: memory.zarr",
            ),
        ],
    )
    def test_parameters_become_options(self, python, train, convert):
        for name, expected in (("train", train), ("convert", convert)):
            assert in_options(python, options_of(COMMANDS[name])) == expected

    @pytest.mark.fault("messages")
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--kernel", "RBG"], "Invalid value for '--kernel': 'RBG' is not one of 'rbf',"),
            (
                ["--C", "x"],
                "Invalid value for '--C': 'x' is not a number; see `bigsvm train --help`",
            ),
            (["--seed", "1.5"], "Invalid value for '--seed': '1.5' is not a whole number"),
            (["--threads", "0"], "Invalid value for '--threads': '0' must be at least 1"),
            (["--seed", "-1"], "error: --seed is -1; it must be >= 0"),
            (["--max-iter", "-5"], "error: --max-iter is -5; it must be"),
            (["--ball-tol", "nan", "--formulation", "l2-svc"], "error: --ball-tol is nan"),
            (["--memory", "12 apples"], "error: --memory '12 apples' is not a size"),
            (
                ["--disk-cache", "x", "--working-set", "all"],
                "error: --disk-cache 'x' is not a size",
            ),
        ],
    )
    def test_invalid_values_are_refused_by_option(self, data, tmp_path, arguments, words):
        told = error_of("train", data / "train.zarr", tmp_path / "m", *arguments)
        assert words in told
        assert "Value error" not in told
        assert "Input should" not in told
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        "words",
        [
            ("info", "missing", "--json"),
            ("cv", "--json", "missing", "--folds", "ü"),
            ("train", "--json", "--kernel", "RBG", "a", "b"),
            ("plan", "", "--json"),
            ("demo", "--json", "--nonsense"),
            ("--json",),
            ("no-command", "--json"),
        ],
    )
    def test_errors_are_objects_for_a_program(self, words):
        ended = run_here(*words, code=2)
        [line] = ended.stderr.splitlines()
        told = json.loads(line)
        assert set(told) == {"error", "exit_code"}
        assert told["exit_code"] == 2
        assert ended.stdout == ""
        assert "\n" not in told["error"]

    @pytest.mark.fault("messages")
    def test_errors_of_a_conversion_name_options(self, tmp_path, data):
        (tmp_path / "large").write_text("1 1:1e100 5:1\n-1 2:3\n")
        made = tmp_path / "s.zarr"
        assert "use --dtype float64" in error_of("convert", tmp_path / "large", made)
        told = error_of(
            "convert", tmp_path / "large", made, "--dtype", "float64", "--features", "3"
        )
        assert "but --features 3; use --features 5" in told
        run_here("convert", tmp_path / "large", made, "--dtype", "float64", "--features", "5")
        assert "or give --overwrite" in error_of("convert", data / "train.libsvm", made)
        run_here("convert", data / "train.libsvm", made, "--overwrite")
        (tmp_path / "empty").write_text("1\n-1\n")
        told = error_of("train", tmp_path / "empty", tmp_path / "m")
        assert "give --features of `bigsvm convert`" in told

    def test_warning_of_an_unconverged_run_names_the_option(self, many, tmp_path):
        told = run_here("train", many / "many.zarr", tmp_path / "m", *LITTLE).stderr
        assert "the limit of steps was reached; raise --max-iter" in told


class TestAdvice:
    @pytest.mark.fault("messages")
    @pytest.mark.parametrize(
        ("words", "program"),
        [
            (("train", "-s", "0", "-t", "2", "-c", "8", "-v", "5", "f"), "svm-train"),
            (("train", "-c", "8", "f", "m"), "svm-train"),
            (("predict", "-b", "1", "f", "m", "o"), "svm-predict"),
            (("scale", "-l", "0", "f"), "svm-scale"),
        ],
    )
    def test_about_options_of_libsvm(self, words, program):
        told = error_of(*words)
        assert f"No such option: {words[1]}" in told
        assert (
            f"; `bigsvm {program}` takes LIBSVM's options; see `bigsvm {words[0]} --help`" in told
        )
        assert "LIBSVM" not in error_of("convert", "-x")

    @pytest.mark.fault("messages")
    @pytest.mark.parametrize("name", ["cv", "search", "plan"])
    def test_about_options_that_are_commands(self, name):
        assert f"there is a command `bigsvm {name}`" in error_of(
            "train", f"--{name}", "5", "f", "m"
        )

    @pytest.mark.fault("messages")
    @pytest.mark.parametrize("n_columns", [4, 9])
    def test_about_other_columns_can_be_followed(self, tmp_path, data, n_columns):
        """Rows can be given more columns by converting them, and fewer by nothing."""
        bigsvm.write_store(tmp_path / "s.zarr", *two_clouds(30, n_columns))
        told = error_of("predict", tmp_path / "s.zarr", data / "model")
        assert f"the rows have {n_columns} columns, the model was trained on 6" in told
        assert ("convert" in told) == (n_columns < 6)

    @pytest.mark.fault("messages")
    @pytest.mark.parametrize("name", ["trian.zarr", "none/trian.zarr"])
    def test_about_a_typo_in_a_path(self, tmp_path, name):
        with pytest.raises(StoreError, match=r"trian\.zarr: no such folder; check the path"):
            bigsvm.SVC().fit(tmp_path / name)
        with pytest.raises(StoreError, match="no such folder"):
            bigsvm.open_store(str(tmp_path / name))

    @pytest.mark.fault("messages")
    def test_about_text_in_place_of_a_store(self, data):
        with pytest.raises(StoreError, match=r"a file, and a store is a folder; .*bigsvm\.convert"):
            bigsvm.SVC().fit(data / "train.libsvm")

    def test_about_a_store_in_an_archive(self, data, tmp_path):
        archive = shutil.make_archive(tmp_path / "x.zarr", "zip", data / "train.zarr")
        with pytest.raises(
            StoreError, match="a zip archive, not a store; unpack it, and give what is"
        ):
            bigsvm.SVC().fit(archive)

    def test_about_a_table_without_the_name_of_its_labels(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,b,y\n1,2,0\n2,1,1\n")
        with pytest.raises(StoreError, match=r"x\.csv: .*of CSV name the column of its labels"):
            bigsvm.SVC().fit(tmp_path / "x.csv")
        assert bigsvm.SVC().fit(tmp_path / "x.csv", "y").n_features_in_ == 2

    def test_about_dask_arrays_with_other_columns(self, data):
        model = KernelExpansion.load(data / "model")
        with pytest.raises(DataError, match="give rows with these columns alone"):
            model.check_columns(7)

    @pytest.mark.fault("messages")
    @pytest.mark.parametrize("rows", ["test.zarr", "test.libsvm", "none"])
    def test_about_swapped_arguments(self, data, rows):
        told = error_of("predict", data / "model", data / rows)
        assert f"model is a model, and {data / rows} is none; write `bigsvm predict STORE" in told
        told = error_of("inspect", data / rows, data / "model")
        assert "write `bigsvm inspect MODEL STORE`" in told

    def test_swapped_arguments_of_libsvms_models(self, data, tmp_path):
        run_here("export", data / "model", tmp_path / "m", "--to", "libsvm")
        assert "is a model, and" in error_of("predict", tmp_path / "m", data / "test.libsvm")


class TestTemporaryPaths:
    @pytest.mark.fault("messages")
    def test_temporary_stores_are_called_by_their_source(self, tmp_path):
        """Sparse text that has no zeros to keep, and is too large when it is dense."""
        (tmp_path / "t").write_text("".join(f"{i % 2} {1 + 10**4 * i}:1\n" for i in range(30)))
        told = error_of(
            "scale", tmp_path / "t", tmp_path / "s.zarr",
            "--method", "standard", "--memory", "32MiB",
        )  # fmt: skip
        assert f"the temporary store of {tmp_path / 't'} in {tempfile.gettempdir()}" in told
        assert "bigsvm-text-" not in told

    @pytest.mark.fault("messages")
    def test_temporary_paths_are_not_in_errors_of_training(self, tmp_path):
        (tmp_path / "t").write_text("1 1:1\n1 2:1\n")
        told = error_of("train", tmp_path / "t", tmp_path / "m", "--cache-dir", tmp_path / "c")
        assert not re.search("bigsvm-text-|data.zarr", told)

    def test_a_folder_that_fills_up_is_named(self, tmp_path, data, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("bigsvm.data.workspace.sync_tree", full)
        told = error_of("train", data / "train.libsvm", tmp_path / "m", "--cache-dir", tmp_path)
        assert f"in {tmp_path} (--cache-dir): cannot be written (No space left on device)" in told
        assert os.listdir(tmp_path) == []


def test_numbers_in_an_index_are_no_advice():
    """Words of other sentences stay as they are."""
    options = options_of(COMMANDS["train"])
    for message in ("the kernel is indefinite", "rows with C 1 and gamma 2", "a memory of 4 GB"):
        assert in_options(message, options) == message
