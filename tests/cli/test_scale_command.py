"""`bigsvm scale`, run in this process, and what other commands make of its stores."""

import os
import signal
import time

import numpy as np
import pytest
from command_line import answer, error_of, finish, libsvm_text, run_here, start, two_clouds

from bigsvm import KernelExpansion, open_store, write_store


@pytest.fixture(scope="module")
def scaled(data, tmp_path_factory):
    """A scaled store, a model of it, and a folder for both."""
    folder = tmp_path_factory.mktemp("scaled")
    run_here("scale", data / "train.zarr", folder / "train", "--method", "standard")
    run_here("train", folder / "train", folder / "model", "--C", "2", "--gamma", "0.1")
    return folder


class TestScale:
    @pytest.mark.parametrize(
        ("options", "method", "low", "high"),
        [
            ([], "minmax", -1, 1),
            (["--lower", "0", "--upper", "5"], "minmax", 0, 5),
            (["--method", "maxabs"], "maxabs", -1, 1),
        ],
    )
    def test_methods(self, data, tmp_path, options, method, low, high):
        record = answer("scale", data / "train.zarr", tmp_path / "out", *options)
        assert record["scaler"] == {"method": method, "ignored_columns": 0}
        assert (record["n_rows"], record["first_index"], record["seed"]) == (300, 1, 0)
        assert record["seconds"] > 0
        assert low <= record["statistics"]["minimum"] < record["statistics"]["maximum"] <= high

    def test_scaling_is_reported_in_words(self, data, tmp_path):
        ended = run_here("scale", data / "train.zarr", tmp_path / "out")
        assert "scaled by      minmax\n" in ended.stdout
        assert "scaled in" in ended.stdout
        told = run_here("info", tmp_path / "out").stdout
        # Different rows are counted for `info` alone.
        assert (
            ended.stdout.splitlines()[:8] == told.replace(" (300 different)", "").splitlines()[:8]
        )

    def test_constant_columns_are_counted(self, tmp_path):
        X, y = two_clouds(20)
        X[:, 3] = 5
        write_store(tmp_path / "s", X, y)
        ended = run_here("scale", tmp_path / "s", tmp_path / "out", "--quiet")
        assert "minmax, 1 columns ignored" in ended.stdout
        assert ended.stderr == ""

    @pytest.mark.parametrize("like", ["train", "model"])
    def test_like_a_store_or_a_model(self, data, scaled, tmp_path, like):
        run_here("scale", data / "test.zarr", tmp_path / "out", "--like", scaled / like)
        assert open_store(tmp_path / "out").scaler == open_store(scaled / "train").scaler

    def test_text(self, data, scaled, tmp_path):
        run_here("scale", data / "train.libsvm", tmp_path / "out", "--method", "standard")
        assert open_store(tmp_path / "out").scaler == open_store(scaled / "train").scaler
        assert open_store(tmp_path / "out").attributes.sources == ("train.libsvm",)

    def test_text_is_numbered_and_as_wide_as_what_it_is_like(self, tmp_path):
        """No row of the other text has index 0 or 2."""
        (tmp_path / "train.libsvm").write_text("1 0:1 2:2\n-1 1:1\n1 0:2 1:3\n-1 2:1\n")
        (tmp_path / "test.libsvm").write_text("1 1:2\n-1 1:1\n")
        run_here("scale", tmp_path / "train.libsvm", tmp_path / "train")
        arguments = ("--like", tmp_path / "train")
        run_here("scale", tmp_path / "test.libsvm", tmp_path / "test", *arguments)
        other = open_store(tmp_path / "test")
        assert (other.attributes.first_index, other.rows.n_columns) == (0, 3)
        (tmp_path / "wide.libsvm").write_text("1 3:2\n-1 0:2\n")
        told = run_here("scale", tmp_path / "wide.libsvm", tmp_path / "wide", *arguments).stderr
        assert "wide.libsvm has columns past those of " in told
        found = open_store(tmp_path / "wide")
        rows = found.rows.as_dask().compute()[np.argsort(found.labels())]
        np.testing.assert_array_equal(rows, [[1, -1, -1, 0], [-1, -1, -1, 0]])

    def test_overwrite(self, data, scaled, tmp_path):
        run_here("scale", data / "train.zarr", tmp_path / "out")
        arguments = ("scale", data / "train.zarr", tmp_path / "out", "--method", "standard")
        assert "already exists" in error_of(*arguments)
        run_here(*arguments, "--overwrite")
        assert open_store(tmp_path / "out").attributes.scaler == "standard"

    def test_invalid_scalings_are_refused(self, data, scaled, tmp_path):
        def error(*arguments):
            return error_of("scale", *arguments[:1], tmp_path / "out", *arguments[1:])

        train = data / "train.zarr"
        assert "is scaled already (standard)" in error(scaled / "train")
        assert "train.zarr: is not scaled" in error(train, "--like", train)
        assert "model: is not scaled" in error(train, "--like", data / "model")
        assert "no such folder" in error(train, "--like", tmp_path / "none")
        assert "limits of minmax" in error(train, "--method", "standard", "--lower", "0")
        assert "like brings all" in error(train, "--like", scaled / "train", "--method", "minmax")
        assert "no such store or file" in error(tmp_path / "none")
        wide = tmp_path / "wide"
        wide.write_text("".join(f"{i % 2} {1 + 10**4 * i}:1\n" for i in range(30)))
        assert "--lower 0, which keeps zeros" in error(wide, "--memory", "32MiB")
        assert [path.name for path in tmp_path.iterdir()] == ["wide"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_store_is_whole_or_not_there(self, tmp_path, number):
        rng = np.random.default_rng(0)
        X = rng.random((400_000, 60), np.float32)
        write_store(tmp_path / "s", X, np.zeros(len(X)), shuffle=False)
        child = start("scale", tmp_path / "s", tmp_path / "out", "--memory", "40MB")
        while not list(tmp_path.glob(".out.partial-*/store/X/c")) and child.poll() is None:
            time.sleep(0.005)
        assert not (tmp_path / "out").exists()
        os.kill(child.pid, number)
        finish(child, code=143 if number == signal.SIGTERM else -9)
        assert not (tmp_path / "out").exists()
        run_here("scale", tmp_path / "s", tmp_path / "out", "--quiet")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "s"]


class TestTrainAndPredict:
    @pytest.fixture
    def values(self, data, scaled, tmp_path):
        """Decision values of a source of the test rows, in the order of their text."""

        def values(source):
            options = ("--decision-function", "--overwrite", "-o", tmp_path / "values")
            run_here("predict", source, scaled / "model", *options)
            return np.loadtxt(tmp_path / "values")

        return values

    def test_raw_text_raw_store_and_scaled_store_get_the_same(self, data, scaled, values, tmp_path):
        run_here("scale", data / "test.zarr", tmp_path / "t", "--like", scaled / "model")
        expected = values(tmp_path / "t")
        np.testing.assert_allclose(values(data / "test.libsvm"), expected, atol=1e-6)
        np.testing.assert_allclose(values(data / "test.zarr"), expected, atol=1e-6)
        run_here("convert", data / "test.libsvm", tmp_path / "sparse", "--sparse")
        np.testing.assert_allclose(values(tmp_path / "sparse"), expected, atol=1e-6)
        labels = [
            (tmp_path / name).read_text()
            for name, source in (("a", data / "test.libsvm"), ("b", tmp_path / "t"))
            if run_here("predict", source, scaled / "model", "-o", tmp_path / name)
        ]
        assert labels[0] == labels[1]

    def test_rows_scaled_by_themselves_are_refused(self, data, scaled, tmp_path):
        run_here("scale", data / "test.zarr", tmp_path / "t", "--method", "standard")
        message = error_of("predict", tmp_path / "t", scaled / "model")
        assert "scaled with other parameters" in message
        assert "was trained on rows that were not scaled" in (
            error_of("predict", scaled / "train", data / "model")
        )

    def test_info(self, data, scaled):
        expected = {"method": "standard", "ignored_columns": 0}
        assert answer("info", scaled / "train")["scaler"] == expected
        assert answer("info", scaled / "model")["scaler"] == expected
        assert "scales rows by   standard\n" in run_here("info", scaled / "model").stdout
        for path in (data / "train.zarr", data / "model"):
            assert answer("info", path)["scaler"] is None
            assert "scale" not in run_here("info", path).stdout

    def test_a_resumed_run_keeps_the_scaler(self, tmp_path):
        X, y = two_clouds(5000)
        (tmp_path / "many.libsvm").write_text(libsvm_text(X, y))
        run_here("scale", tmp_path / "many.libsvm", tmp_path / "s")
        little = ("--gamma", "0.3", "--memory", "10MB", "--max-iter", "1")
        run = ("--checkpoint", tmp_path / "run")
        run_here("train", tmp_path / "s", tmp_path / "m", *little, *run)
        run_here("train", "--resume", tmp_path / "run", "--max-iter", "-1")
        model = KernelExpansion.load(tmp_path / "m")
        assert model.certificate["converged"]
        assert model.scaler == open_store(tmp_path / "s").scaler
