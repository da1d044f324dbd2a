"""`bigsvm svm-train` and `svm-predict`: LIBSVM's options, files and output lines."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import error_of, finish, libsvm_text, run_here, shell, start, two_clouds
from sklearn.datasets import make_blobs

from bigsvm.interchange.libsvm_model import read_libsvm_model
from bigsvm.models import KernelExpansion

KINDS = {
    "c-svc": ["-s", "0", "-c", "2"],
    "weights": ["-w1", "3", "-w-1", "0.5"],
    "nu-svc": ["-s", "1", "-n", "0.3"],
    "one-class": ["-s", "2", "-n", "0.2", "-t", "0"],
    "eps-svr": ["-s", "3", "-p", "0.2", "-t", "3", "-r", "-0.5", "-g", "0.01"],
    "nu-svr": ["-s", "4", "-n", "0.4"],
    "many": ["-t", "1", "-d", "2", "-r", "1", "-g", "0.125"],
}


def text_of(kind, folder):
    """LIBSVM text of 150 rows, of which the first is of the second class."""
    X, y = two_clouds(150, 4)
    X = X.round(4) + 3 * (kind == "one-class")
    if kind.endswith("svr"):
        y = (10 * np.sin(X[:, 0])).round(4)
    if kind == "many":
        y = np.digitize(X[:, 0], [-1, 0, 1])[::-1] * 3 - 2
    path = folder / "train"
    path.write_text(
        "".join(
            f"{label:g} " + " ".join(f"{j}:{v:.8g}" for j, v in enumerate(row, 1) if v) + "\n"
            for label, row in zip(y.tolist(), X.astype(float).round(4).tolist(), strict=True)
        )
    )
    return path


def with_numbers(line):
    """Words of a line; numbers are numbers."""
    return [float(word) if re.fullmatch(r"[-+.e\d]+", word) else word for word in line.split()]


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_predictions_are_those_of_libsvm(kind, tmp_path, monkeypatch):
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    train, options = text_of(kind, tmp_path), [*KINDS[kind], "-e", "1e-5"]
    run_here("svm-train", *options, "-q", "train")
    y, x = svmutil.svm_read_problem(os.fspath(train))
    theirs = svmutil.svm_train(y, x, " ".join(["-q", *options]))
    svmutil.svm_save_model("theirs", theirs)
    ours, expected = Path("train.model").read_text(), Path("theirs").read_text()
    start = 1 + ours.splitlines().index("SV")
    for line, other in zip(ours.splitlines()[:start], expected.splitlines()[:start], strict=True):
        found, wanted = with_numbers(line), with_numbers(other)
        assert found[0] == wanted[0]
        if found[0] not in ("total_sv", "nr_sv"):
            assert found[1:] == pytest.approx(wanted[1:], abs=2e-3)
    # The same support vectors in the same order, save for some whose coefficient is close to 0.
    n_numbers = 3 if kind == "many" else 1
    vectors, wanted = (
        [line.split(" ", n_numbers)[n_numbers] for line in text.splitlines(keepends=True)[start:]]
        for text in (ours, expected)
    )
    shared = set(vectors) & set(wanted)
    assert len(shared) >= 0.95 * max(len(vectors), len(wanted))
    assert [each for each in vectors if each in shared] == [
        each for each in wanted if each in shared
    ]
    ended = run_here("svm-predict", "train", "train.model", "out")
    labels, quality, _ = svmutil.svm_predict(y, x, theirs, "-q")
    found = np.loadtxt("out")
    if kind.endswith("svr"):
        np.testing.assert_allclose(found, labels, atol=5e-3)
        said = re.findall(r"= (\S+) \(regression\)", ended.stdout)
        assert list(map(float, said)) == pytest.approx(quality[1:], rel=1e-2)
    else:
        assert np.count_nonzero(found != labels) <= 1
        assert re.fullmatch(r"Accuracy = [\d.]+% \(\d+/150\) \(classification\)\n", ended.stdout)
        assert float(ended.stdout.split()[2][:-1]) == pytest.approx(quality[0], abs=0.7)
    # LIBSVM reads our model.
    again, _, _ = svmutil.svm_predict(y, x, svmutil.svm_load_model("train.model"), "-q")
    np.testing.assert_allclose(found, again, atol=1e-4)


def test_a_function_without_a_margin_has_an_infinite_C(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text("1 1:1\n-1 1:1\n" * 2)
    said = run_here("svm-train", "-s", "1", "train").stdout
    assert "C = inf\nnSV = " in said


OF_NO_USE = {
    "two classes": (["-s", "1", "-n", "0.9"], "-n is less than the share of errors"),
    "three classes": (["-s", "1", "-n", "0.9"], "classes 0.0 and 1.0: nu is less than the share"),
    "probabilities": (["-s", "1", "-n", "0.9", "-b", "1"], "-n is less than the share of errors"),
    "folds": (["-s", "1", "-n", "0.9", "-v", "3"], "of 3 fits 3 may be of no use, the first"),
    "folds of three classes": (["-s", "1", "-n", "0.9", "-v", "2"], "of 2 fits 2 may be of no use"),
}


@pytest.mark.parametrize("kind", OF_NO_USE)
def test_a_model_of_no_use_is_told_as_the_estimators_tell_it(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, told = OF_NO_USE[kind]
    X = two_clouds(40, 3)[0] if kind == "two classes" else np.ones((40, 1))
    classes = [0, 1, 2] if "three" in kind else [-1, 1]
    text = "".join(libsvm_text(X, np.full(len(X), label)) for label in classes)
    (tmp_path / "train").write_text(text)
    said = run_here("svm-train", *words, "-q", "train").stderr
    assert [told in line for line in said.splitlines() if "warning: " in line] == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_estimators_tell_is_told_of_each_kind(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_of(kind, tmp_path)
    monkeypatch.setattr(KernelExpansion, "doubt", "a doubt; raise nu")
    said = run_here("svm-train", *KINDS[kind], "-q", "train").stderr
    assert "bigsvm: warning: a doubt; raise -n\n" in said


@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        ("c-svc", ["nu"], True), ("weights", [], True), ("nu-svc", ["C"], True),
        ("one-class", [], False), ("eps-svr", ["nu"], False), ("nu-svr", ["epsilon"], False),
    ],
)  # fmt: skip
def test_training_prints_libsvms_lines(kind, values, total, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_of(kind, tmp_path)
    said = run_here("svm-train", *KINDS[kind], "train").stdout
    lines = [f"{name} = N" for name in values]
    assert re.sub(r"-?[0-9.]+", "N", said).splitlines() == [
        "optimization finished, #iter = N", *lines, "obj = N, rho = N", "nSV = N, nBSV = N",
        *["Total nSV = N"] * total,
    ]  # fmt: skip
    printed = re.search(r"rho = (\S+)", said)[1]
    written = re.search(r"rho (\S+)", Path("train.model").read_text())[1]
    assert printed == f"{float(written):.6f}"


def usage_error(*arguments):
    """Last line on standard error of a command that is used wrongly."""
    return run_here(*arguments, code=2).stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the training set"),
        (("-x", "1", "train"), "there is no option -x; there are -s, -t"),
        (("train", "-c", "1"), "options come before files; move -c to the front"),
        (("-c", "many", "train"), "-c has 'many', which is not a number"),
        (("-s", "7", "train"), "-s is '7'; it must be one of 0 (c-svc), 1 (nu-svc)"),
        (("-c",), "-c needs a value"),
        (("-",), "standard input has no name"),
        (("-wx", "1", "train"), "-wx has 'x', which is not a number"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, message):
    assert message in usage_error("svm-train", *words)


def test_names_of_predictions_are_needed():
    assert "give the rows, the model and the file" in usage_error("svm-predict", "a", "b")


def test_other_values_and_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_of("c-svc", tmp_path)
    assert "error: -c is -1.0" in error_of("svm-train", "-c", "-1", "train")
    (tmp_path / "train.model").write_text("a letter")
    assert "is not LIBSVM's model, so it is not replaced" in error_of("svm-train", "train")
    assert "nothing.model" in error_of("svm-predict", "train", "nothing.model", "out")


def test_options_without_effect_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_of("c-svc", tmp_path)
    options = ("-n", "0.5", "-t", "0", "-g", "3", "-h", "0", "-w7", "2", "-m", "100")
    said = run_here("svm-train", *options, "train").stderr
    for letter in "ngh":
        assert f"warning: -{letter} has no effect on c-svc here" in said
    assert "no row has the label 7, which -w gives a weight" in said


def test_predictions_go_to_standard_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_of("c-svc", tmp_path)
    run_here("svm-train", "-b", "1", "train")
    out, err = finish(start("svm-predict", "train", "train.model", "-"))
    assert len(out.splitlines()) == 150
    assert set(out.split()) == {"1", "-1"}
    assert err.startswith("Accuracy = ")
    run_here("svm-predict", "-q", "-b", "1", "train", "train.model", "out")
    header, first, *_ = (tmp_path / "out").read_text().splitlines()
    assert header == "labels 1 -1"
    label, *numbers = map(float, first.split())
    assert sum(numbers) == pytest.approx(1)
    assert label in (1, -1)


def test_probabilities_of_one_class_have_libsvms_format(tmp_path, monkeypatch):
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(200, 3))
    (tmp_path / "train").write_text(libsvm_text(X, np.ones(200)))
    run_here("svm-train", "-s", "2", "-n", "0.4", "-b", "1", "-q", "train")
    run_here("svm-predict", "-b", "1", "-q", "train", "train.model", "out")
    head, *lines = (tmp_path / "out").read_text().splitlines()
    assert head == "label normal outlier"
    y, x = svmutil.svm_read_problem("train")
    labels, _, found = svmutil.svm_predict(y, x, svmutil.svm_load_model("train.model"), "-q -b 1")
    expected = [f"{label:g} {p:g} {q:g}" for label, (p, q) in zip(labels, found, strict=True)]
    assert lines == expected


def test_noise_of_a_regression_has_libsvms_words(tmp_path, monkeypatch):
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(200, 3))
    (tmp_path / "train").write_text(libsvm_text(X, X[:, 0]))
    said = run_here("svm-train", "-s", "3", "-b", "1", "train").stdout
    scale = svmutil.svm_load_model("train.model").get_svr_probability()
    words = (
        "Prob. model for test data: target value = predicted value + z,\n"
        f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={scale:g}\n"
    )
    assert said.startswith(words)
    assert run_here("svm-predict", "-b", "1", "train", "train.model", "out").stdout.startswith(
        words
    )
    assert len(np.loadtxt("out")) == 200
    assert "Prob. model" not in run_here("svm-predict", "train", "train.model", "out").stdout


def test_columns_past_those_of_the_training_data_count(tmp_path, monkeypatch):
    """The rows of the textbook example, a1a, have more columns in the test text."""
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    text_of("c-svc", tmp_path)
    lines = (tmp_path / "train").read_text().splitlines()
    (tmp_path / "test").write_text("".join(f"{line} 7:0.5 9:1.5\n" for line in lines))
    run_here("svm-train", "train")
    run_here("svm-predict", "test", "train.model", "out")
    y, x = svmutil.svm_read_problem("test")
    expected, _, _ = svmutil.svm_predict(y, x, svmutil.svm_load_model("train.model"), "-q")
    np.testing.assert_array_equal(np.loadtxt("out"), expected)
    run_here("train", "train", "ours", "--gamma", "auto")
    assert "5 past those of the training data" in run_here("predict", "test", "ours").stdout
    said = run_here("svm-predict", "test", "ours", "out").stderr
    assert "the rows have 5 more columns than the training data" in said


def test_probabilities_of_many_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = make_blobs(120, centers=3, cluster_std=3.0, random_state=0)
    (tmp_path / "train").write_text(libsvm_text(X, y))
    run_here("svm-train", "-q", "-b", "1", "train")
    run_here("svm-predict", "-b", "1", "train", "train.model", "out")
    head, *lines = (tmp_path / "out").read_text().splitlines()
    model = read_libsvm_model("train.model")
    assert head == f"labels {' '.join(f'{label:g}' for label in model.classes)}"
    found = np.array([line.split() for line in lines], float)
    expected = model.probabilities(X.astype(np.float32))
    np.testing.assert_allclose(found[:, 1:], expected, rtol=1e-3)
    np.testing.assert_array_equal(found[:, 0], np.take(model.classes, expected.argmax(axis=1)))


@pytest.mark.parametrize("centers", [2, 3])
def test_with_probabilities_labels_are_those_of_the_largest_as_libsvms_are(
    centers, tmp_path, monkeypatch
):
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    X, y = make_blobs(300, centers=centers, cluster_std=6.0, random_state=0)
    (tmp_path / "train").write_text(libsvm_text(X, y))
    run_here("svm-train", "-q", "-b", "1", "-g", "0.3", "train")
    if centers == 2:  # probabilities of 0.5 far from the threshold
        text = Path("train.model").read_text()
        Path("train.model").write_text(re.sub("probB .*", "probB 0.7", text))
    said = run_here("svm-predict", "-b", "1", "train", "train.model", "out").stdout
    found = np.loadtxt("out", skiprows=1)
    y, x = svmutil.svm_read_problem("train")
    theirs, _, p = svmutil.svm_predict(y, x, svmutil.svm_load_model("train.model"), "-q -b 1")
    second, first = np.sort(p, axis=1)[:, -2:].T
    # LIBSVM couples pairs by an iteration that it stops at 0.005 / k.
    clear = first - second > (1e-9 if centers == 2 else 0.02)
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(found[clear, 0], np.array(theirs)[clear])
    without = run_here("svm-predict", "-q", "train", "train.model", "plain")
    assert without.stdout == ""
    signs, _, _ = svmutil.svm_predict(y, x, svmutil.svm_load_model("train.model"), "-q")
    np.testing.assert_array_equal(np.loadtxt("plain"), signs)
    assert (np.loadtxt("plain") != found[:, 0]).any()  # near the threshold, or among tied votes
    assert said.startswith(f"Accuracy = {100 * (found[:, 0] == y).mean():g}%")


@pytest.mark.parametrize("kind", ["c-svc", "one-class", "eps-svr", "many"])
def test_cross_validation_prints_libsvms_lines(kind, tmp_path, monkeypatch):
    svmutil = pytest.importorskip("libsvm.svmutil")
    monkeypatch.chdir(tmp_path)
    train = text_of(kind, tmp_path)
    found = run_here("svm-train", *KINDS[kind], "-v", "5", "-q", "train").stdout
    y, x = svmutil.svm_read_problem(os.fspath(train))
    expected = svmutil.svm_train(y, x, " ".join(["-q", "-v", "5", *KINDS[kind]]))
    if kind == "eps-svr":
        pattern = (
            r"Cross Validation Mean squared error = (\S+)\n"
            r"Cross Validation Squared correlation coefficient = (\S+)\n"
        )
        assert float(re.fullmatch(pattern, found)[1]) == pytest.approx(expected, rel=0.1)
    else:
        accuracy = float(re.fullmatch(r"Cross Validation Accuracy = (\S+)%\n", found)[1])
        assert accuracy == pytest.approx(expected, abs=6)
    assert os.listdir(tmp_path) == ["train"]


@pytest.mark.parametrize("folds", ["1", "many", "0.5"])
def test_a_number_of_folds_that_means_nothing_is_refused(folds):
    assert "it must be a number of folds, at least 2" in usage_error("svm-train", "-v", folds, "f")


def test_targets_of_a_regression_are_not_trained_as_classes(tmp_path, monkeypatch):
    """Without -s 3 there were thousands of pairs of classes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mpg").write_text("18.5 1:1\n15 2:1\n36.25 1:2\n")
    told = error_of("svm-train", "mpg")
    assert "the label 18.5 is a target of a regression and no class" in told
    assert "train a regression with SVR (-s 3)" in told
    assert not (tmp_path / "mpg.model").exists()


def test_programs_have_the_names_of_libsvms(tmp_path, monkeypatch):
    folder = tmp_path / "my programs"
    assert run_here("libsvm-programs", folder).stdout.split("\n")[0] == str(folder / "svm-train")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bigsvm").mkdir()  # which is not the package
    text_of("c-svc", tmp_path)
    script = """set -e; PATH="$1:$PATH"
svm-scale -l 0 train > scaled
svm-train -q -c 2 scaled
svm-predict scaled scaled.model predicted"""
    said = shell(script, folder).stdout
    assert re.fullmatch(r"Accuracy = .*% \(\d+/150\) \(classification\)\n", said)
    assert len(Path("predicted").read_text().splitlines()) == 150
    shell('"$1"/svm-train', folder, code=2)

    before = (folder / "svm-train").read_text()
    (folder / "svm-predict").unlink()
    told = error_of("libsvm-programs", folder)
    assert f"{folder / 'svm-train'} exists; name another folder, or give --overwrite" in told
    assert not (folder / "svm-predict").exists()
    run_here("libsvm-programs", folder, "--overwrite")
    assert (folder / "svm-train").read_text() == before
    Path("file").write_text("precious")
    assert "file" in error_of("libsvm-programs", "file")
    assert Path("file").read_text() == "precious"
