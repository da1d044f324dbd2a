"""`bigsvm svm-scale`: the text and the files that LIBSVM's program writes."""

import numpy as np
import pytest
from command_line import error_of, run_here

TRAIN = "1 1:2 3:4\n-1 1:6 2:5 3:4\n2.5 1:4 2:-1 3:4\n"
TEST = "1 1:8 2:2 5:3\n-1 2:5\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").write_text(TRAIN)
    (tmp_path / "test").write_text(TEST)
    return tmp_path


def scaled_by_definition(text, low, high, lower, upper, n_columns):
    """svm-scale's formula, an entry at a time."""
    lines = []
    for line in text.splitlines():
        label, *entries = line.split()
        row = dict.fromkeys(range(1, n_columns + 1), 0.0)
        row |= {int(i): float(v) for i, v in (entry.split(":") for entry in entries)}
        words = []
        for index, value in row.items():
            if low.get(index, 0) == high.get(index, 0):
                continue
            if value == low[index]:
                scaled = lower
            elif value == high[index]:
                scaled = upper
            else:
                share = (value - low[index]) / (high[index] - low[index])
                scaled = lower + (upper - lower) * share
            if scaled:
                words.append(f"{index}:{scaled:g} ")
        lines.append(f"{float(label):.17g} {''.join(words)}\n")
    return "".join(lines)


LOW, HIGH = {1: 2.0, 2: -1.0}, {1: 6.0, 2: 5.0}


@pytest.mark.parametrize(("options", "ends"), [((), (-1, 1)), (("-l", "0", "-u", "2"), (0, 2))])
def test_text_is_scaled(options, ends):
    found = run_here("svm-scale", *options, "train")
    assert found.stdout == scaled_by_definition(TRAIN, LOW, HIGH, *ends, 3)
    assert found.stdout.splitlines()[0] == (
        "1 1:-1 2:-0.666667 " if not options else "1 2:0.333333 "
    )
    assert found.stderr == ""


def test_limits_are_saved_and_used_again(folder):
    plain = run_here("svm-scale", "-s", "range", "train").stdout
    assert (folder / "range").read_text() == "x\n-1 1\n1 2 6\n2 -1 5\n"
    assert run_here("svm-scale", "-r", "range", "train").stdout == plain
    ended = run_here("svm-scale", "-r", "range", "test")
    assert ended.stdout == scaled_by_definition(TEST, LOW, HIGH, -1, 1, 5)
    assert "3 indices that are not in range become 0" in ended.stderr
    assert ended.stderr.rstrip().endswith(": 3, 4, 5")


def test_targets_are_scaled():
    found = run_here("svm-scale", "-y", "0", "1", "-s", "range", "train").stdout
    labels = [float(line.split()[0]) for line in found.splitlines()]
    np.testing.assert_allclose(labels, [2 / 3.5, 0, 1])
    with open("range") as file:
        assert file.read() == "y\n0 1\n-1 2.5\nx\n-1 1\n1 2 6\n2 -1 5\n"
    assert run_here("svm-scale", "-r", "range", "train").stdout == found
    assert "scales targets too" in error_of("scale", "train", "out.zarr", "--like", "range")


def test_zeros_that_become_other_values_are_counted(folder):
    (folder / "sparse").write_text("1 1:1 9:1\n-1 2:2\n1 3:1\n")
    said = run_here("svm-scale", "sparse").stderr
    assert "warning: 4 entries became 12, as zeros were mapped to other values" in said
    kept = run_here("svm-scale", "-l", "0", "sparse")
    assert kept.stdout == "1 1:1 9:1 \n-1 2:1 \n1 3:1 \n"
    assert "warning" not in kept.stderr


def test_index_0_is_scaled_but_not_saved(folder):
    (folder / "zero").write_text("1 0:1 1:1\n-1 0:3 1:2\n")
    ended = run_here("svm-scale", "-s", "range", "zero")
    assert ended.stdout == "1 0:-1 1:-1 \n-1 0:1 1:1 \n"
    assert "index 0 is scaled, and range has no place for it" in ended.stderr
    assert (folder / "range").read_text() == "x\n-1 1\n1 1 2\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one file of LIBSVM text"),
        (("-",), "give one file of LIBSVM text"),
        (("-l", "1", "-u", "1", "train"), "the range is from 1 to 1; it must ascend"),
        (("-y", "1", "train"), "give one file"),
        (("-s", "a", "-r", "b", "train"), "give one of -s and -r"),
    ],
)
def test_words_that_mean_nothing_are_refused(words, message):
    assert message in run_here("svm-scale", *words, code=2).stderr


def test_files_that_are_wrong_are_refused(folder):
    (folder / "letter").write_text("Dear\n")
    assert "is not a file of svm-scale" in error_of("svm-scale", "-s", "letter", "train")
    assert "does not begin with x" in error_of("svm-scale", "-r", "letter", "train")
    assert "the label 'Dear' is a word" in error_of("svm-scale", "letter")
    (folder / "cut").write_text("y\n0 1\n")
    assert "cut off" in error_of("svm-scale", "-r", "cut", "train")


def test_a_store_is_scaled_by_the_saved_limits(folder):
    run_here("svm-scale", "-s", "train.range", "train")
    run_here("scale", "train", "out.zarr", "--like", "train.range")
