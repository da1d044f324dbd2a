"""What errors and reports repeat: texts of any length and of any characters, from anywhere."""

import copy
import pickle
import re

import numpy as np
import pytest
from command_line import error_of, libsvm_text, run_here, two_clouds
from sklearn.exceptions import FitFailedWarning

import bigsvm
from bigsvm import errors
from bigsvm.errors import BigsvmError, DataError, ParameterError, brief, shortened, shown
from bigsvm.interchange.libsvm_model import read_libsvm_model
from bigsvm.models import KernelExpansion
from bigsvm.report.quality import confusion_text
from bigsvm.report.text import label_text

LONG = "x" * 10**6
DIGITS = "9" * 4000
MOST = 1000
"""Characters of an error, but for paths."""
FAMILY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BigsvmError)
]
MODEL = """svm_type c_svc
kernel_type polynomial
degree 3
gamma 0.5
coef0 0
nr_class 2
total_sv 1
rho 0.5
label 1 -1
nr_sv 1 0
SV
1 1:1
"""
ESCAPE = "\x1b[2J\x1b]0;title\x07"


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("text", [LONG, f"it is '{'a b ' * 10**5}'", "word " * 10**5], ids=len)
def test_an_error_of_any_kind_is_short(kind, text):
    pytest.importorskip("distributed")  # which changes how exceptions are pickled
    error = kind(f"before {text}; after")
    assert str(error).startswith("before ")
    assert str(error).endswith("; after") or "word" in text
    assert len(str(error)) < (MOST if "word" not in text else 10**4)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), kind(str(error))):
        assert (type(again), str(again)) == (kind, str(error))


@pytest.mark.parametrize("text", ["/".join(["n" * 255] * 16), "a sentence; and its remedy", ""])
def test_what_is_no_longer_than_a_path_is_whole(text):
    assert str(DataError(text)) == text


def test_values_of_any_kind_are_brief():
    assert brief(10**5000) == "a number of thousands of digits"
    assert brief("\x1b") == r"'\x1b'"
    assert brief([1, 2]) == "[1, 2]"
    assert len(brief(LONG)) == len(shortened(LONG)) == 61
    assert shown(shortened(ESCAPE + LONG)).startswith(r"\x1b[2J\x1b]0;title\x07x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nr_class 2", f"nr_class {'9' * 2151}"), ("nr_class 2", f"nr_class {DIGITS}"),
        ("nr_class 2", f"nr_class -{DIGITS}"), ("c_svc", "nu_svr\nnr_class 3"),
        ("nr_class 2", f"nr_class {2**31 - 1}"), ("total_sv 1", f"total_sv {DIGITS}"),
        ("total_sv 1", f"total_sv -{DIGITS}"), ("degree 3", f"degree {DIGITS}"),
        ("degree 3", f"degree {'9' * 400}"), ("gamma 0.5", f"gamma {LONG}"),
        ("gamma 0.5", f"gamma {DIGITS}"), ("coef0 0", f"coef0 {DIGITS}"),
        ("rho 0.5", f"rho {LONG}"), ("rho 0.5", f"rho {DIGITS}"),
        ("label 1 -1", f"label 1 {DIGITS}"), ("nr_sv 1 0", f"nr_sv 1 {DIGITS}"),
        ("c_svc", LONG), ("polynomial", LONG), ("rho", LONG), ("1 1:1", f"{LONG} 1:1"),
        ("1 1:1", f"1 {DIGITS}:1"), ("1 1:1", f"1 1:{LONG}"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_model_file_is_refused_in_short(old, new, tmp_path):
    (tmp_path / "m").write_text(MODEL.replace(old, new, 1))
    with pytest.raises(BigsvmError) as caught:
        read_libsvm_model(tmp_path / "m")
    assert len(str(caught.value)) < MOST


@pytest.mark.parametrize(
    "line",
    [
        f"{LONG}: 1:1", f"1 1:{LONG}", f"1 {LONG}:1", f"1 {DIGITS}:1", f"{DIGITS} 1:1",
        f"1 1:{DIGITS}", f"1 qid:{LONG}", f"1,{LONG} 1:1", f"word\n{DIGITS} 1:1",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_text_is_refused_in_short(line, tmp_path):
    (tmp_path / "rows").write_text(f"{line}\n")
    told = error_of("convert", tmp_path / "rows", tmp_path / "rows.zarr", "--strict", "-q")
    assert len(told) < MOST


@pytest.mark.parametrize("name", ["C", "gamma", "tol", "degree", "coef0", "memory"])
@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), LONG, [LONG] * 100], ids=["large", "small", "text", "list"]
)
def test_a_parameter_is_refused_in_short(name, value):
    with pytest.raises(ParameterError) as caught:
        bigsvm.SVC(**{name: value}).fit(np.eye(4), [0, 1, 0, 1])
    assert len(str(caught.value)) < MOST


@pytest.mark.parametrize(
    "weights",
    [{0: 10**5000}, {10**5000: 1}, {LONG: 1}, {0: LONG}, LONG],
    ids=["large weight", "large label", "long label", "long weight", "long"],
)
def test_class_weights_are_refused_in_short(weights):
    with pytest.raises(ParameterError) as caught:
        bigsvm.SVC(class_weight=weights).fit(np.eye(4), [0, 1, 0, 1])
    assert len(str(caught.value)) < MOST


def test_labels_are_refused_in_short():
    for labels in ([LONG, "b", LONG, None], [f"{LONG}1", f"{LONG}2", "a", "b"]):
        with pytest.raises(BigsvmError) as caught:
            bigsvm.SVC(calibration="sigmoid").fit(np.eye(4), np.array(labels, object))
        assert len(str(caught.value)) < MOST


@pytest.mark.parametrize(
    "label", [LONG, ESCAPE, ESCAPE + LONG, 10**5000], ids=["long", "escape", "both", "large"]
)
def test_a_model_shows_its_labels_in_short_and_without_escapes(label):
    labels = np.array([label, label, 0, 0] if isinstance(label, int) else [label] * 2 + ["b"] * 2)
    model = bigsvm.SVC().fit(np.eye(4), labels.astype(object)).model_
    for text in (repr(model), str(model), f"{model}"):
        assert len(text) < MOST
        assert re.search(r"[\x00-\x1f\x7f]", text) is None


def test_a_doubt_names_its_classes_in_short():
    X = np.ones((12, 1))
    names = np.repeat([f"{LONG}1", f"{ESCAPE}2", "c"], 4)
    with pytest.warns(match="nu is less than the share of errors") as told:
        bigsvm.NuSVC(nu=0.9).fit(X, names)
    assert [len(str(each.message)) < MOST for each in told] == [True]
    assert "\x1b" not in str(told[0].message)


def test_tables_of_labels_are_narrow_and_predictions_have_whole_labels(tmp_path):
    X, y = two_clouds(60)
    words = [f"long{LONG}", "short"]
    text = libsvm_text(X, y).splitlines()
    rows = [f"{words[line.startswith('-')]} {line.partition(' ')[2]}\n" for line in text]
    (tmp_path / "rows").write_text("".join(rows))
    run_here("convert", tmp_path / "rows", tmp_path / "rows.zarr", "-q")
    run_here("train", tmp_path / "rows.zarr", tmp_path / "model", "-q")
    ended = run_here("predict", tmp_path / "rows.zarr", tmp_path / "model", "-o", tmp_path / "out")
    assert max(map(len, ended.stdout.splitlines())) < MOST
    assert "…" in ended.stdout
    assert max(map(len, run_here("info", tmp_path / "model").stdout.splitlines())) < MOST
    assert words[0] in (tmp_path / "out").read_text().splitlines()
    assert KernelExpansion.load(tmp_path / "model").classes == words


def test_the_width_of_the_confusion_table_is_that_of_short_labels():
    record = {
        "confusion": [[1, 0], [0, 1]],
        "classes": [{"label": "a" * 500}, {"label": ESCAPE * 500}],
    }
    assert max(map(len, confusion_text(record).splitlines())) < MOST
    assert label_text("a" * 500, 500) == "a" * 500


ROWS, LABELS = two_clouds(10, 2)
HUGE = 10**5000
"""Python writes no whole number of so many digits."""


def search(*, grid=None, **given):
    return bigsvm.SearchCV(bigsvm.SVC(), grid or {"C": [1]}, **given).fit(ROWS, LABELS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bigsvm.cross_validate(bigsvm.SVC(), ROWS, LABELS, cv=HUGE), "cv is a number of"),
        (lambda: search(cv=HUGE), "cv is a number of"),
        (lambda: search(grid={"C": HUGE}), "the grid is a number of"),
        (lambda: search(scoring=HUGE), "scoring is a number of"),
        (lambda: bigsvm.SVC().fit([[HUGE]] * 10, LABELS), "float64 cannot hold"),
        (lambda: bigsvm.SVR().fit(ROWS, [HUGE] * 10), "float64 cannot hold"),
        (lambda: bigsvm.SVC().fit(ROWS, LABELS, [HUGE] * 10), "float64 cannot hold"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(make, message):
    with pytest.raises(bigsvm.errors.BigsvmError, match=message):
        make()


def test_a_point_with_a_number_of_thousands_of_digits_has_no_score():
    with pytest.warns(FitFailedWarning, match="a number of thousands of digits cannot be trained"):
        found = search(grid={"C": [1, HUGE]}, cv=2)
    assert found.best_params_ == {"C": 1}
    assert np.isnan(found.cv_results_["mean_test_score"]).tolist() == [False, True]


def test_halving_by_a_number_of_thousands_of_digits_is_one_round():
    assert search(halving=HUGE, cv=2).best_params_ == {"C": 1}


def test_an_ignored_parameter_may_be_a_number_of_thousands_of_digits():
    with pytest.warns(UserWarning, match="cache_size=a number of thousands of digits"):
        bigsvm.SVC(cache_size=HUGE).fit(ROWS, LABELS)
