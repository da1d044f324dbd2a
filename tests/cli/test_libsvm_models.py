"""`bigsvm export`, and what `predict` and `info` make of LIBSVM's model text."""

import numpy as np
import pytest
from command_line import answer, error_of, run_here

from bigsvm import KernelExpansion
from bigsvm.data.sources import as_row_source

HEADER = """svm_type {svm_type}
kernel_type {kernel}
nr_class 2
total_sv 2
rho 0.5
"""
VECTORS = """SV
1 1:1
-1 2:1
"""
ROWS = "1 1:2\n-1 2:2 5:9\n1 3:1\n"
"""Their values in `linear`: 2 - 0.5, -2 - 0.5 and -0.5; column 5 is in no support vector."""


def written(path, svm_type="c_svc", kernel="linear", lines="label 3 7\nnr_sv 1 1\n"):
    path.write_text(HEADER.format(svm_type=svm_type, kernel=kernel) + lines + VECTORS)
    return path


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows").write_text(ROWS)
    return tmp_path / "rows"


@pytest.mark.parametrize(
    ("svm_type", "lines", "expected"),
    [
        ("c_svc", "label 3 7\nnr_sv 1 1\n", [3, 7, 7]),
        ("nu_svc", "label -1 1\nnr_sv 1 1\n", [-1, 1, 1]),
        ("one_class", "", [1, -1, -1]),
        ("epsilon_svr", "probA 0.1\n", [1.5, -2.5, -0.5]),
        ("nu_svr", "", [1.5, -2.5, -0.5]),
    ],
)
@pytest.mark.parametrize("as_store", [False, True])
def test_predictions_are_those_of_its_formulas(svm_type, lines, expected, as_store, rows, tmp_path):
    model = written(tmp_path / "m", svm_type, lines=lines)
    if as_store:
        run_here("convert", rows, tmp_path / "rows.zarr")
        rows = tmp_path / "rows.zarr"
    record = answer("predict", rows, model, "-o", tmp_path / "predicted")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "predicted"), expected)
    assert record["converged"] is None
    run_here("predict", rows, model, "-o", tmp_path / "values", "--decision-function")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "values"), [1.5, -2.5, -0.5])
    assert "converged" not in run_here("predict", rows, model).stdout


def test_columns_that_no_support_vector_has_count_in_distances(rows, tmp_path):
    lines = "gamma 0.25\nlabel 1 -1\nnr_sv 1 1\n"
    model = written(tmp_path / "m", kernel="rbf", lines=lines)
    run_here("predict", rows, model, "-o", tmp_path / "values", "--decision-function")
    X = np.array([[2, 0, 0, 0, 0], [0, 2, 0, 0, 9], [0, 0, 1, 0, 0]])
    squared = [((X - vector) ** 2).sum(axis=1) for vector in np.eye(5)[:2]]
    expected = np.exp(-squared[0] / 4) - np.exp(-squared[1] / 4) - 0.5
    np.testing.assert_allclose(np.loadtxt(tmp_path / "values"), expected, rtol=1e-12)


def test_rows_of_fewer_columns_than_it_uses(tmp_path):
    model = written(tmp_path / "m")
    (tmp_path / "rows").write_text("1 1:2\n-1\n")
    run_here("predict", tmp_path / "rows", model, "-o", tmp_path / "values", "--decision-function")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "values"), [1.5, -0.5])
    run_here("convert", tmp_path / "rows", tmp_path / "rows.zarr")
    assert "--features 2" in error_of("predict", tmp_path / "rows.zarr", model)


def test_text_is_read_as_precisely_as_libsvm_reads_it(tmp_path):
    """The values of these two rows are on either side of 0, but the same in float32."""
    model = written(tmp_path / "m")
    (tmp_path / "rows").write_text("1 1:0.500000001\n-1 1:0.499999999\n")
    run_here("predict", tmp_path / "rows", model, "-o", tmp_path / "predicted")
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "predicted"), [3, 7])


def test_info_of_a_libsvm_model(tmp_path):
    model = written(tmp_path / "m")
    record = answer("info", model)
    assert (record["kind"], record["formulation"], record["n_support"]) == ("model", "c-svc", 2)
    assert record["kernel"] == {"name": "linear"}
    assert record["classes"] == [7, 3]
    assert record["certificate"] == {}
    shown = run_here("info", model).stdout
    assert "LIBSVM" in shown
    assert "7 (negative), 3 (positive)" in shown


@pytest.mark.parametrize("command", ["info", "predict"])
def test_damage_is_named(command, rows, tmp_path):
    model = written(tmp_path / "m", svm_type="c_tvc")
    arguments = (model,) if command == "info" else (rows, model)
    assert "svm_type is 'c_tvc'" in error_of(command, *arguments)


def test_an_export_is_predicted_from_like_the_model(data, tmp_path):
    run_here("export", data / "model", tmp_path / "libsvm", "--to", "libsvm")
    for source in (data / "test.libsvm", data / "test.zarr"):
        for model, name in ((data / "model", "ours"), (tmp_path / "libsvm", "exported")):
            options = ("--decision-function", "--overwrite", "-o", tmp_path / name)
            run_here("predict", source, model, *options)
        ours, exported = np.loadtxt(tmp_path / "ours"), np.loadtxt(tmp_path / "exported")
        np.testing.assert_allclose(exported, ours, atol=1e-5)


class TestExport:
    @pytest.fixture(params=["libsvm", "onnx"])
    def kind(self, request):
        if request.param == "onnx":
            pytest.importorskip("onnx")
        return request.param

    def test_earlier_export_is_replaced(self, kind, data, tmp_path):
        output = tmp_path / "exported"
        run_here("export", data / "model", output, "--to", kind)
        before = output.read_bytes()
        run_here("train", data / "train.zarr", tmp_path / "other", "--C", "9", "--gamma", "0.1")
        run_here("export", tmp_path / "other", output, "--to", kind)
        assert output.read_bytes() != before
        run_here("export", data / "model", output, "--to", kind)
        assert output.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["exported", "other"]

    def test_other_files_are_not_replaced(self, kind, data, tmp_path):
        other = {"libsvm": "onnx", "onnx": "libsvm"}[kind]
        (tmp_path / "text").write_bytes((data / "train.libsvm").read_bytes())
        (tmp_path / "model").write_bytes((data / "model").read_bytes())
        if other == "libsvm":
            run_here("export", data / "model", tmp_path / other, "--to", other)
        for path in tmp_path.iterdir():
            before = path.read_bytes()
            message = error_of("export", data / "model", path, "--to", kind)
            assert "so it is not replaced" in message
            assert path.read_bytes() == before

    def test_model_is_not_replaced_by_its_export(self, kind, data):
        assert "not replaced" in error_of("export", data / "model", data / "model", "--to", kind)

    def test_training_does_not_replace_an_export(self, kind, data, tmp_path):
        run_here("export", data / "model", tmp_path / "m", "--to", kind)
        assert "is not a model" in error_of("train", data / "train.zarr", tmp_path / "m")


def test_exported_model_is_read_back(data, tmp_path):
    from bigsvm.interchange import read_libsvm_model
    from bigsvm.models.widened import widened

    run_here("export", data / "model", tmp_path / "m", "--to", "libsvm")
    X = np.random.default_rng(0).standard_normal((20, 6))
    narrow = read_libsvm_model(tmp_path / "m")
    assert widened(narrow, 3) is narrow
    wide = widened(narrow, 9)
    zeros = np.zeros((20, 3))
    np.testing.assert_allclose(
        wide.decision_function(as_row_source(np.hstack([X, zeros]))),
        KernelExpansion.load(data / "model").decision_function(as_row_source(X)),
        rtol=1e-5,
    )
