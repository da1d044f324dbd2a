import dataclasses
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import answer, run_here
from sklearn.datasets import make_blobs, make_moons

import bigsvm
from bigsvm.coupling import couple
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ModelError
from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.interchange.sklearn_estimator import to_scikit_learn

from .kinds import KINDS


@pytest.fixture(scope="module")
def moons():
    return make_moons(200, noise=0.3, random_state=0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("estimator", KINDS, ids=str)
def test_written_model_is_read_to_the_same_values(estimator, form, moons, tmp_path):
    X, y = moons
    fitted = estimator.fit(form(X), y)
    path = tmp_path / "libsvm.model"
    write_libsvm_model(fitted.model_, path)
    model = read_libsvm_model(path, n_features=2)
    expected = fitted.model_.decision_function(as_row_source(X))
    np.testing.assert_allclose(
        model.decision_function(as_row_source(X)), expected, rtol=1e-12, atol=1e-12
    )
    assert model.classes == (None if fitted.model_.classes is None else [0.0, 1.0])


WHOLE = """svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 2
total_sv 2
rho -0.25
label 1 -1
nr_sv 1 1
SV
1 1:0.5 3:1e-3
-1 2:-2
"""


def written(tmp_path, text):
    path = tmp_path / "other.model"
    path.write_text(text)
    return path


def test_a_model_of_libsvm_decides_for_its_first_label(tmp_path):
    model = read_libsvm_model(written(tmp_path, WHOLE))
    assert model.classes == [-1.0, 1.0]
    assert model.intercept == 0.25
    assert model.support_vectors.shape == (2, 3)
    np.testing.assert_array_equal(model.support_vectors.toarray(), [[0.5, 0, 1e-3], [0, -2, 0]])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("svm_type c_svc", "svm_type d_svc", "svm_type is 'd_svc'"),
        ("kernel_type rbf", "kernel_type wavelet", "kernel_type is 'wavelet'"),
        ("gamma 0.5", "gamma nan", "gamma is nan"),
        ("gamma 0.5", "gamma", "gamma is ''"),
        ("nr_class 2", "nr_class 3", "nr_class is 3"),
        ("total_sv 2", "total_sv 3", "nr_sv are not numbers of rows that are 3 together"),
        ("-1 2:-2\n", "", "1 support vectors instead of 2"),
        ("SV\n", "SV\n1 1:1\n", "more support vectors than total_sv"),
        ("gamma 0.5\n", "", "gamma is 'missing'"),
        ("gamma 0.5", "gamma 0.5\ngamma 2", ":4: gamma is there twice"),
        ("gamma 0.5", "gamma 0_5", "gamma is '0_5'"),
        ("gamma 0.5", "gamma 0.5\nscaled 1", ":4: not a line of the header"),
        ("SV\n", "SV bigsvm-scaled-by 0\n", "text behind it that bigsvm has not written"),
        ("1 1:0.5", "1 # 1:0.5", "support vector 1"),
        ("1 1:0.5", "1 qid:3 1:0.5", "support vector 1"),
        ("total_sv 2", "total_sv -1", "total_sv is -1"),
        ("total_sv 2", "total_sv x", "total_sv is 'x'"),
        ("label 1 -1", "label 1 -1 1", "two different classes"),
        ("label 1 -1", "label 1" + 400 * "0" + " -1", "two different classes"),
        ("label 1 -1", "label 9007199254740993 9007199254740992", "two different classes"),
        ("gamma 0.5", "gamma -0.5", "other.model: gamma is -0.5"),
        ("gamma 0.5", "gamma 1e300", "other.model: gamma is 1e"),
        ("rho -0.25", "rho inf", "rho is inf"),
        ("nr_sv 1 1", "probA -2\nnr_sv 1 1", "probB has 0 values"),
        ("nr_sv 1 1", "probB 0.5\nprobA nan\nnr_sv 1 1", "probA is nan"),
        ("nr_sv 1 1", "probB 0.5\nprobA -2 1\nnr_sv 1 1", "probA has 2 values"),
        ("label 1 -1", "label 1 1", "two different classes"),
        ("label 1 -1", "label a b", "two different classes"),
        ("SV\n", "", "not a line of the header|no line SV"),
        ("1 1:0.5 3:1e-3", "1 3:0.5 1:1e-3", "support vector 1"),
        ("-1 2:-2", "-1 2:", "support vector 2"),
        ("-1 2:-2", "x 2:1", "support vector 2"),
    ],
)
def test_damage_is_named(tmp_path, old, new, message):
    assert old in WHOLE
    with pytest.raises(ModelError, match=message):
        read_libsvm_model(written(tmp_path, WHOLE.replace(old, new, 1)))


@pytest.mark.fault("truncation")
@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_model_that_ends_earlier_is_refused(size, tmp_path):
    """Also within the last line, where a truncated number would be another number."""
    with pytest.raises(ModelError):
        read_libsvm_model(written(tmp_path, WHOLE[:size]))


@pytest.mark.fault("truncation")
def test_missing_newline_at_the_end_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no newline at the end; the file may be cut off"):
        read_libsvm_model(written(tmp_path, WHOLE[:-1]))
    assert len(read_libsvm_model(written(tmp_path, WHOLE + "\n")).support) == 2


@pytest.mark.fault("bombs")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nr_class 2", "nr_class 2147483647"),
        ("nr_class 2", "nr_class 99999999999999999999"),
        ("total_sv 2", "total_sv 2147483647"),
        ("nr_sv 1 1", "nr_sv 2147483647 2147483647"),
        ("rho -0.25", "rho " + "0 " * 100_000),
        ("1 1:0.5", "1 2147483647:0.5"),
    ],
)
def test_sizes_that_the_file_has_not_take_no_memory(old, new, tmp_path):
    path = written(tmp_path, WHOLE.replace(old, new))
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            read_libsvm_model(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("index", [30_000_000, 2_147_483_646])
def test_an_index_far_away_takes_no_memory(index, tmp_path):
    path = written(tmp_path, WHOLE.replace("3:1e-3", f"{index}:1e-3"))
    assert answer("info", path)["n_features"] == index
    tracemalloc.start()
    try:
        model = read_libsvm_model(path)
        model.save(tmp_path / "saved")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert model.support_vectors.nnz == 3


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("text", [WHOLE, WHOLE[:40], WHOLE + "1 1:", ""])
def test_a_hole_is_no_line(text, tmp_path):
    path = written(tmp_path, text)
    os.truncate(path, 1 << 33)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="NUL byte"):
            read_libsvm_model(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.fault("links-and-pipes")
def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="Not a regular file"):
        read_libsvm_model(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(written(tmp_path, WHOLE))
    assert len(read_libsvm_model(tmp_path / "link").support) == 2


CONSTANT = """svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 1
total_sv 0
rho
label 7
nr_sv 0
SV
"""
"""What LIBSVM writes where all rows have the label 7."""


@pytest.mark.fault("text")
@pytest.mark.parametrize("text", [CONSTANT, CONSTANT.replace("nr_sv", "probA\nprobB\nnr_sv")])
def test_a_model_of_one_class_predicts_it_for_all_rows(text, tmp_path):
    path = written(tmp_path, text)
    model = read_libsvm_model(path)
    rows = np.random.default_rng(0).normal(size=(5, 1))
    assert model.classes == [7]
    np.testing.assert_array_equal(model.decide(rows), np.zeros(5))
    model.save(tmp_path / "saved")
    (tmp_path / "rows").write_text("7 1:2 5:1\n3 2:2\n")
    for one in (path, tmp_path / "saved"):
        assert "7 only" in run_here("info", one).stdout
        run_here("predict", tmp_path / "rows", one, "-o", tmp_path / "predicted", "--overwrite")
        assert (tmp_path / "predicted").read_text() == "7\n7\n"
    write_libsvm_model(model, tmp_path / "again")
    assert (tmp_path / "again").read_text() == CONSTANT.replace("rho\n", "rho \n")
    with pytest.raises(ModelError, match="no SVM of one class only"):
        to_scikit_learn(model)


@pytest.mark.fault("text")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("total_sv 0", "total_sv 1", "a model of one class has none"),
        ("label 7", "label 7 8", "label must name one different class"),
        ("rho", "rho 0.5", "rho has 1 values; nr_class is 1, and so it must have 0"),
        ("nr_class 1", "nr_class 0", "nr_class is 0, which c_svc cannot have"),
        ("c_svc", "nu_svr", "nr_class is 1, which nu_svr cannot have"),
        ("SV\n", "SV\n1 1:1\n", "more support vectors than total_sv, 0"),
    ],
)
def test_damage_of_a_model_of_one_class_is_named(old, new, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        read_libsvm_model(written(tmp_path, CONSTANT.replace(old, new)))


def test_libsvm_writes_and_reads_models_of_one_class(tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    theirs = svmutil.svm_train([7, 7], [{1: 1.0}, {1: 2.0}], "-q -g 0.5")
    svmutil.svm_save_model(str(tmp_path / "theirs"), theirs)
    model = read_libsvm_model(tmp_path / "theirs")
    assert model.classes == [7]
    write_libsvm_model(model, tmp_path / "ours")
    again = svmutil.svm_load_model(str(tmp_path / "ours"))
    assert svmutil.svm_predict([0], [{1: 1.0}], again, "-q")[0] == [7]


def test_a_probability_of_libsvm_is_that_of_its_first_label(tmp_path):
    text = WHOLE.replace("nr_sv 1 1", "probA -2\nprobB 0.5\nnr_sv 1 1")
    made = read_libsvm_model(written(tmp_path, text)).calibration
    assert (made.method, made.n_rows) == ("sigmoid", None)
    value = np.array([0.7])
    np.testing.assert_allclose(made.probability(value), 1 / (1 + np.exp(-2 * value + 0.5)))


def test_a_number_of_a_regression_is_the_scale_of_its_noise(tmp_path):
    text = WHOLE.replace("c_svc", "epsilon_svr").replace("label 1 -1\nnr_sv 1 1", "probA 0.25")
    model = read_libsvm_model(written(tmp_path, text))
    assert model.calibration.method == "laplace"
    assert model.calibration.numbers.tolist() == [[0.25]]
    write_libsvm_model(model, tmp_path / "again")
    assert (tmp_path / "again").read_text().partition("SV")[0] == text.partition("SV")[0]
    with pytest.raises(ModelError, match=r"probA: the scale .* -0\.25, below 0"):
        read_libsvm_model(written(tmp_path, text.replace("probA 0.25", "probA -0.25")))


def test_marks_of_one_class_come_back(tmp_path):
    marks = " ".join(f"{mark:.17g}" for mark in np.arange(-4.5, 5.5))
    line = f"prob_density_marks {marks}"
    text = WHOLE.replace("c_svc", "one_class").replace("label 1 -1\nnr_sv 1 1", line)
    model = read_libsvm_model(written(tmp_path, text))
    assert model.calibration.method == "density"
    np.testing.assert_array_equal(model.calibration.numbers[0], np.arange(-4.5, 5.5))
    write_libsvm_model(model, tmp_path / "again")
    assert (tmp_path / "again").read_text().partition("SV")[0] == text.partition("SV")[0]
    for wrong, message in (("1 2", "has 2 values; it must have 10"), ("9 " * 9 + "1", "ascend")):
        with pytest.raises(ModelError, match=message):
            read_libsvm_model(written(tmp_path, text.replace(marks, wrong.strip())))


def test_libsvm_itself_has_our_marks_and_scale(tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    X = np.random.default_rng(0).normal(size=(300, 2))
    rows = [dict(enumerate(row, 1)) for row in X.tolist()]
    detector = bigsvm.OneClassSVM(nu=0.3, gamma=0.5, calibration="density").fit(X)
    write_libsvm_model(detector, tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    _, _, found = svmutil.svm_predict([0] * 300, rows, theirs, "-q -b 1")
    np.testing.assert_allclose(np.array(found)[:, ::-1], detector.predict_proba(X), atol=1e-12)
    trained = svmutil.svm_train([0] * 300, rows, "-q -s 2 -n 0.3 -g 0.5 -b 1")
    svmutil.svm_save_model(str(tmp_path / "theirs"), trained)
    _, _, found = svmutil.svm_predict([0] * 300, rows, trained, "-q -b 1")
    read = read_libsvm_model(tmp_path / "theirs")
    np.testing.assert_allclose(np.array(found)[:, ::-1], read.probabilities(X), atol=1e-12)
    regression = bigsvm.SVR(gamma=0.5, calibration="laplace").fit(X, X[:, 0])
    write_libsvm_model(regression, tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    assert theirs.get_svr_probability() == regression.noise_scale_


def test_a_sigmoid_calibration_comes_back(moons, tmp_path):
    X, y = moons
    for kind in (bigsvm.SVC, bigsvm.NuSVC):
        fitted = kind(calibration="sigmoid").fit(X, y)
        write_libsvm_model(fitted.model_, tmp_path / "m")
        made = read_libsvm_model(tmp_path / "m").calibration
        np.testing.assert_array_equal(made.numbers, fitted.model_.calibration.numbers)
    read_libsvm_model(tmp_path / "m").save(tmp_path / "again")
    assert "sigmoid, fitted elsewhere" in run_here("info", tmp_path / "again").stdout


def test_isotonic_calibration_is_left_out(moons, tmp_path):
    fitted = bigsvm.SVC(calibration="isotonic").fit(*moons)
    write_libsvm_model(fitted.model_, tmp_path / "m")
    assert "prob" not in (tmp_path / "m").read_text()
    fitted.model_.save(tmp_path / "model.safetensors")
    ended = run_here("export", tmp_path / "model.safetensors", tmp_path / "other", "--to", "libsvm")
    assert "libsvm has no isotonic calibration: no probabilities there" in ended.stderr
    assert read_libsvm_model(tmp_path / "other").calibration is None


@pytest.mark.slow
@pytest.mark.parametrize("labels", [(0, 1), (7, -3)])
def test_libsvm_itself_has_our_probabilities(labels, moons, tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    X, y = moons
    fitted = bigsvm.SVC(calibration="sigmoid").fit(X, np.array(labels)[y])
    write_libsvm_model(fitted.model_, tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    rows = [dict(enumerate(x, 1)) for x in X]
    _, _, found = svmutil.svm_predict(list(y), rows, theirs, "-q -b 1")
    order = [list(fitted.classes_).index(label) for label in theirs.get_labels()]
    # LIBSVM keeps its probabilities 1e-7 away from 0 and 1.
    np.testing.assert_allclose(found, fitted.predict_proba(X)[:, order], atol=1e-6)


def coupled(fitted, X):
    """Probabilities as LIBSVM has them, which are not moved to those of the predicted class."""
    model = fitted.model_
    return couple(model.calibration.probability(model.decision_function(X)), len(fitted.classes_))


def test_probabilities_of_many_classes_come_back(tmp_path):
    X, y = make_blobs(120, centers=3, cluster_std=3.0, random_state=0)
    fitted = bigsvm.SVC(calibration="sigmoid").fit(X, y)
    write_libsvm_model(fitted, tmp_path / "m")
    slope = fitted.model_.calibration.numbers[0, 0]
    lines = (tmp_path / "m").read_text().splitlines()
    assert f"probA {' '.join([f'{-slope:.17g}'] * 3)}" in lines
    back = read_libsvm_model(tmp_path / "m")
    unmoved = coupled(fitted, X)
    np.testing.assert_allclose(back.probabilities(X), unmoved, atol=1e-6)
    write_libsvm_model(fitted, tmp_path / "m", labels=[2, 0, 1])
    other = read_libsvm_model(tmp_path / "m")
    assert other.classes == [2, 0, 1]
    expected = unmoved[:, [2, 0, 1]]
    np.testing.assert_allclose(other.probabilities(X), expected, atol=1e-6)
    write_libsvm_model(other, tmp_path / "m", labels=[0, 1, 2])
    back = read_libsvm_model(tmp_path / "m")
    np.testing.assert_allclose(back.probabilities(X), unmoved, atol=1e-6)
    uneven = [line + "0" if line.startswith("prob") else line for line in lines]
    (tmp_path / "m").write_text("\n".join(uneven) + "\n")
    assert read_libsvm_model(tmp_path / "m").calibration.numbers.shape == (2, 3)


@pytest.mark.slow
def test_libsvm_itself_has_our_probabilities_of_many_classes(tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    X, y = make_blobs(120, centers=4, cluster_std=3.0, random_state=0)
    fitted = bigsvm.SVC(calibration="sigmoid").fit(X, y)
    write_libsvm_model(fitted, tmp_path / "m")
    theirs = svmutil.svm_load_model(str(tmp_path / "m"))
    rows = [dict(enumerate(x, 1)) for x in X]
    _, _, found = svmutil.svm_predict(list(y), rows, theirs, "-q -b 1")
    # LIBSVM stops its iteration at 0.005 / k.
    np.testing.assert_allclose(found, coupled(fitted, X), atol=0.01)


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"\x00" * 1000, b"svm_type c_svc\n" * 100, b"svm_type " + b"x" * 10**6):
        path = tmp_path / "no.model"
        path.write_bytes(content)
        with pytest.raises(ModelError):
            read_libsvm_model(path)
    with pytest.raises(ModelError, match="cannot read"):
        read_libsvm_model(tmp_path / "absent")


def test_labels_that_libsvm_has_not_are_refused(moons, tmp_path):
    X, y = moons
    model = bigsvm.SVC().fit(X, y).model_
    for labels in (["a", "b"], [0.5, 1.0], [0.0, 2.0**40]):
        with pytest.raises(ModelError, match="whole numbers"):
            write_libsvm_model(dataclasses.replace(model, classes=labels), tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("estimator", KINDS, ids=str)
def test_libsvm_itself_gives_our_labels_and_we_give_its(estimator, moons, tmp_path):
    svmutil = pytest.importorskip("libsvm.svmutil")
    X, y = moons
    fitted = estimator.fit(X, y)
    write_libsvm_model(fitted.model_, tmp_path / "ours.model")
    theirs = svmutil.svm_load_model(str(tmp_path / "ours.model"))
    predicted, _, _ = svmutil.svm_predict(list(y), [dict(enumerate(x, 1)) for x in X], theirs, "-q")
    np.testing.assert_allclose(predicted, fitted.predict(X), atol=1e-9)
    svmutil.svm_save_model(str(tmp_path / "theirs.model"), theirs)
    again = read_libsvm_model(tmp_path / "theirs.model", n_features=2)
    np.testing.assert_allclose(
        again.decision_function(as_row_source(X)),
        fitted.model_.decision_function(as_row_source(X)),
        atol=1e-6,
    )


def test_the_command_line_exports(moons, tmp_path):
    X, y = moons
    fitted = bigsvm.SVC().fit(X, y)
    fitted.model_.save(tmp_path / "model.safetensors")
    command = [sys.executable, "-m", "bigsvm", "export", tmp_path / "model.safetensors"]
    subprocess.run([*command, tmp_path / "libsvm.model", "--to", "libsvm"], check=True)
    model = read_libsvm_model(tmp_path / "libsvm.model", n_features=2)
    np.testing.assert_array_equal(sorted(model.coefficients), sorted(fitted.dual_coef_[0]))


def test_float32_rows_far_from_the_origin_keep_their_values(moons, tmp_path):
    X, y = moons
    X = (X + 1e4).astype(np.float32)
    fitted = bigsvm.SVC().fit(X, y)
    write_libsvm_model(fitted.model_, tmp_path / "m")
    values = read_libsvm_model(tmp_path / "m").decision_function(as_row_source(X))
    np.testing.assert_allclose(values, fitted.decision_function(X), atol=1e-3)


@pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")  # to lower epsilon
def test_model_without_support_vectors_is_exported(moons, tmp_path):
    X, _ = moons
    fitted = bigsvm.SVR(epsilon=9).fit(X, X[:, 0])
    write_libsvm_model(fitted.model_, tmp_path / "m")
    model = read_libsvm_model(tmp_path / "m", n_features=2)
    np.testing.assert_array_equal(model.decision_function(as_row_source(X)), fitted.predict(X))
