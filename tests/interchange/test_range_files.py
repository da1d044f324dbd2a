"""Files of svm-scale: read, and what models of LIBSVM's do with them."""

import os

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import answer, error_of, libsvm_text, run_here, two_clouds

import bigsvm
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.wrappers import ScaledRows
from bigsvm.errors import DataError, ModelError
from bigsvm.interchange import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.range_file import is_range_file, read_range

TEXT = "x\n-1 1\n1 2 6\n3 -0.5 1e3\n"


def written(tmp_path, text, name="r"):
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp_path / name


def test_range_file_is_read(tmp_path):
    found = read_range(written(tmp_path, TEXT))
    assert (found.lower, found.upper) == (-1, 1)
    assert found.indices.tolist() == [1, 3]
    rows = np.array([[2.0, 7, 1000], [6.0, 8, -0.5], [4.0, 9, 499.75]])
    scaled = found.scaler(3, 1).apply(rows)
    np.testing.assert_allclose(scaled, [[-1, 0, 1], [1, 0, -1], [0, 0, 0]], atol=1e-15)


def test_other_limits_and_columns_that_are_not_listed(tmp_path):
    found = read_range(written(tmp_path, "x\r\n0 2\r\n2 0 4\r\n"))
    scaler = found.scaler(4, 1)
    assert not len(scaler.moved_columns())
    np.testing.assert_array_equal(scaler.apply(np.full((1, 4), 3.0)), [[0, 1.5, 0, 0]])
    np.testing.assert_array_equal(found.scaler(4, 0).apply(np.full((1, 4), 3.0)), [[0, 0, 1.5, 0]])
    with pytest.raises(DataError, match=r"2 to 2 are scaled, but the rows have the indices 1 to 1"):
        found.scaler(1, 1)


@pytest.mark.fault("truncation")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 6, *range(8, 13), *range(14, len(TEXT))])
def test_a_file_that_ends_within_a_line_is_refused(size, tmp_path):
    with pytest.raises(DataError, match=r"cut off|does not begin"):
        read_range(written(tmp_path, TEXT[:size]))


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "limits in line 2"),
        ("svm_type c_svc\n", "does not begin with x"),
        ("y\n-1 1\n0 1\n" + TEXT, "scales targets too"),
        ("x\n1 1\n", "r:2: 1 is not below 1"),
        ("x\n1 -1\n", "r:2: 1 is not below -1"),
        ("x\n-1 nan\n", "r:2: a line of 2 finite numbers"),
        ("x\n-1 1\n1 2 inf\n", "r:3: a line of 3 finite numbers"),
        ("x\n-1 1\n1 2\n", "r:3: a line of 3 finite numbers"),
        ("x\n-1 1\n1 2 3 4\n", "r:3: a line of 3 finite numbers"),
        ("x\n-1 1\n1 6 2\n", "r:3: 6 is not below 2"),
        ("x\n-1 1\n1 2 2\n", "r:3: 2 is not below 2"),
        ("x\n-1 1\n-1 2 6\n", "r:3: the index must be a whole number above -1"),
        ("x\n-1 1\n1.5 2 6\n", "r:3: the index must be a whole number above -1"),
        ("x\n-1 1\n4 2 6\n4 2 6\n", "r:4: the index must be a whole number above 4"),
        ("x\n-1 1\n4000000000 2 6\n", "r:3: the index must be"),
        ("x\n-1 1\n\n", "r:3: a line of 3"),
        ("x\n-1 1\n1 2 6" + " " * 5000 + "\n", "r:3: no newline"),
        (b"x\n-1 1\n1 2 \xff\n", "r:3: a line of 3"),
        (b"\x00" * 100, "r:1: no newline"),
    ],
)
def test_other_contents_are_refused(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_range(written(tmp_path, text))


def test_invalid_limits_are_refused(tmp_path):
    found = read_range(written(tmp_path, "x\n-1 1\n1 0 5e-324\n"))
    with pytest.raises(DataError, match=r"r: column 0 .* cannot scale in double precision"):
        found.scaler(1, 1)


@pytest.mark.fault("bombs")
def test_a_column_far_away_takes_no_memory(tmp_path):
    found = read_range(written(tmp_path, "x\n-1 1\n2147483646 0 1\n"))
    with pytest.raises(DataError, match=r"the rows have the indices 1 to 3"):
        found.scaler(3, 1)
    scaler = found.scaler(2147483646, 1)
    assert (scaler.n_columns, scaler.columns.tolist()) == (2147483646, [2147483645])
    assert scaler.offset.nbytes == 8


@pytest.mark.fault("bombs")
def test_scaling_fills_no_rows_of_very_many_columns(tmp_path):
    far = 2147483646
    found = read_range(written(tmp_path, f"x\n-1 1\n1 0 2\n{far} -1 1\n"))
    rows = ArrayRows(sp.csr_array(([1.0, 3.0], ([0, 1], [0, far - 1])), shape=(2, far)))
    with pytest.raises(DataError, match=r"minmax turns the zeros of column 0 \(from 0\)"):
        ScaledRows(rows, found.scaler(far, 1))
    found = read_range(written(tmp_path, f"x\n-1 1\n1 -2 2\n{far} -1 1\n"))
    scaled = ScaledRows(rows, found.scaler(far, 1)).read(0, 2)
    np.testing.assert_array_equal(scaled.data, [0.5, 3.0])


@pytest.mark.fault("links-and-pipes")
def test_a_pipe_is_refused_and_a_link_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"cannot read .*pipe: Not a regular file"):
        read_range(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(written(tmp_path, TEXT))
    assert read_range(tmp_path / "link").indices.tolist() == [1, 3]


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """A model of scaled rows, saved and exported, and rows that are not scaled, as text."""
    folder = tmp_path_factory.mktemp("scaled")
    X, y = two_clouds(300)
    X = X * np.array([1e-3, 1, 7, 1e4, 0.5, 30], np.float32) + np.array([0, 5, 0, 0, 0, 90])
    X = X.astype(np.float32)
    bigsvm.scale_store(bigsvm.write_store(folder / "s", X[:200], y[:200]), folder / "t")
    model = bigsvm.SVC(C=2, gamma=0.3).fit(folder / "t").model_
    model.save(folder / "saved")
    write_libsvm_model(model, folder / "m")
    (folder / "rows").write_text(libsvm_text(X[200:], y[200:]))
    return model, folder, X[200:]


def copied(scaled, tmp_path, *names):
    for name in names:
        (tmp_path / name).write_bytes((scaled[1] / name).read_bytes())
    return tmp_path / "m"


@pytest.mark.fault("model-forms")
def test_an_exported_model_scales_rows_by_the_file_beside_it(scaled):
    model, folder, X = scaled
    back = read_libsvm_model(folder / "m")
    np.testing.assert_allclose(back.decision_function(X), model.decision_function(X), atol=1e-6)
    assert back.scaler.method == "minmax"


@pytest.mark.fault("model-forms")
def test_the_command_predicts_as_the_model_does(scaled, tmp_path):
    _, folder, _ = scaled
    for name in ("saved", "m"):
        record = answer(
            "predict", folder / "rows", folder / name, "-o", tmp_path / name, "--decision-function"
        )
        assert record["accuracy"] > 0.8
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "m"), np.loadtxt(tmp_path / "saved"), atol=1e-5
    )
    assert answer("info", folder / "m")["scaler"] == {"method": "minmax", "ignored_columns": 0}


@pytest.mark.fault("model-forms")
def test_a_model_without_its_file_is_refused(scaled, tmp_path):
    m = copied(scaled, tmp_path, "m", "rows")
    with pytest.raises(ModelError, match=r"rows scaled by m\.range, which is not beside it"):
        read_libsvm_model(m)
    assert "put it there, or name it (--range)" in error_of("predict", tmp_path / "rows", m)
    (tmp_path / "elsewhere").write_bytes((scaled[1] / "m.range").read_bytes())
    back = read_libsvm_model(m, range_file=tmp_path / "elsewhere")
    np.testing.assert_allclose(
        back.decision_function(scaled[2]), scaled[0].decision_function(scaled[2]), atol=1e-6
    )
    run_here("predict", tmp_path / "rows", m, "--range", tmp_path / "elsewhere")


@pytest.mark.fault("model-forms")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("x\n-1", "x\n-2"),
        lambda text: text[: text.rindex("\n", 0, -1) + 1],
    ],
)
def test_a_model_with_another_file_is_refused(change, scaled, tmp_path):
    """Another one is one that was cut off between two lines, too."""
    m = copied(scaled, tmp_path, "m", "m.range")
    (tmp_path / "m.range").write_text(change((tmp_path / "m.range").read_text()))
    with pytest.raises(ModelError, match=r"is not the file that .* was exported with"):
        read_libsvm_model(m)


@pytest.mark.fault("model-forms")
def test_a_model_that_does_not_tell_is_refused_beside_a_file(scaled, tmp_path):
    """LIBSVM's own, or one that LIBSVM has read and written."""
    m = copied(scaled, tmp_path, "m", "m.range", "rows")
    m.write_text(m.read_text().replace(m.read_text().split("SV", 1)[1].split("\n")[0], "", 1))
    assert "does not say whether rows are to be scaled by" in error_of(
        "predict", tmp_path / "rows", m
    )
    back = read_libsvm_model(m, range_file=tmp_path / "m.range")
    np.testing.assert_allclose(
        back.decision_function(scaled[2]), scaled[0].decision_function(scaled[2]), atol=1e-6
    )
    (tmp_path / "m.range").rename(tmp_path / "away")
    assert read_libsvm_model(m).scaler is None


def test_other_models_have_no_use_for_a_range(scaled):
    _, folder, _ = scaled
    words = error_of("predict", folder / "rows", folder / "saved", "--range", folder / "m.range")
    assert "leave --range out" in words


def test_a_model_of_rows_as_they_were_is_not_written_beside_a_range(scaled, tmp_path):
    X, y = two_clouds(60)
    written(tmp_path, TEXT, "m.range")
    with pytest.raises(ModelError, match="would be taken for what rows are scaled by"):
        write_libsvm_model(bigsvm.SVC().fit(X, y).model_, tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m.range"]


def test_an_export_is_replaced_with_its_range(scaled, tmp_path):
    for _ in range(2):
        run_here("export", scaled[1] / "saved", tmp_path / "m", "--to", "libsvm")
    assert read_libsvm_model(tmp_path / "m").scaler is not None


def test_predictions_do_not_replace_the_range(scaled, tmp_path):
    m = copied(scaled, tmp_path, "m", "m.range", "rows")
    before = (tmp_path / "m.range").read_bytes()
    words = error_of(
        "predict", tmp_path / "rows", m, "--range", tmp_path / "m.range", "-o", tmp_path / "m.range"
    )
    assert "part of the input" in words
    assert "part of the input" in error_of(
        "predict", tmp_path / "rows", m, "-o", tmp_path / "m.range"
    )
    assert (tmp_path / "m.range").read_bytes() == before


def test_libsvm_ignores_the_scaling_mark_in_a_model(scaled):
    svmutil = pytest.importorskip("libsvm.svmutil")
    theirs = svmutil.svm_load_model(str(scaled[1] / "m"))
    assert theirs.get_nr_sv() == len(scaled[0].support)


def test_more_columns_than_the_file_lists_become_zero(scaled, tmp_path):
    lines = (scaled[1] / "rows").read_text().splitlines()
    (tmp_path / "wide").write_text("".join(f"{line} 9:77\n" for line in lines))
    for name, rows in (("narrow", scaled[1] / "rows"), ("of wide", tmp_path / "wide")):
        run_here("predict", rows, scaled[1] / "m", "-o", tmp_path / name, "--decision-function")
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "narrow"), np.loadtxt(tmp_path / "of wide"), atol=1e-9
    )


@pytest.mark.parametrize("text", [True, False])
def test_a_store_is_scaled_like_a_file(text, scaled, tmp_path):
    model, folder, X = scaled
    rows = folder / "rows"
    if not text:
        run_here("convert", rows, tmp_path / "rows.zarr")
        rows = tmp_path / "rows.zarr"
    run_here("scale", rows, tmp_path / "out", "--like", folder / "m.range")
    store = bigsvm.open_store(tmp_path / "out")
    found = np.vstack([block.values for block in store.rows.blocks(1 << 20)])
    expected = model.scaler.apply(X)[store.original_rows()]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert store.scaler.method == "minmax"
    written(tmp_path, "x\n-1 1\n99 0 1\n", "far")
    if not text:
        words = error_of("scale", rows, tmp_path / "other", "--like", tmp_path / "far")
        assert "99 to 99 are scaled" in words


def test_other_commands_name_the_command_that_has_the_option(scaled, tmp_path):
    m = copied(scaled, tmp_path, "m")
    assert "put it there, or name it (--range of `bigsvm predict`)" in error_of("info", m)


@pytest.mark.fault("model-forms")
def test_an_exported_model_is_exported_again(scaled, tmp_path):
    model, folder, X = scaled
    run_here("export", folder / "m", tmp_path / "again", "--to", "libsvm")
    back = read_libsvm_model(tmp_path / "again")
    np.testing.assert_allclose(back.decision_function(X), model.decision_function(X), atol=1e-6)
    reference = pytest.importorskip("onnx.reference")
    run_here("export", folder / "m", tmp_path / "graph", "--to", "onnx")
    graph = reference.ReferenceEvaluator(str(tmp_path / "graph"))
    [values] = graph.run(["values"], {"X": X.astype(np.float64)})
    np.testing.assert_allclose(values, model.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("size", [0x0A78, 0x0A79, 0x0A0D78])
def test_a_model_is_none_of_them_whatever_the_size_of_its_header(size, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(size.to_bytes(8, "little") + b'{"a": 1}')
    assert not is_range_file(path)
    path.write_bytes(b"x\n0 1\n1 0 2\n")
    assert is_range_file(path)
