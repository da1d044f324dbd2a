"""Advice in what commands print."""

import pytest
from command_line import answer, libsvm_text, run_here, two_clouds

WORDS = "so large that no row is near another one"
LARGE = ("--gamma", "1e6")


@pytest.fixture
def text(tmp_path):
    X, y = two_clouds(200)
    path = tmp_path / "rows.libsvm"
    path.write_text(libsvm_text(X, y))
    return path


def test_training_shows_and_keeps_it(text, tmp_path):
    ended = run_here("train", text, tmp_path / "m", *LARGE)
    assert ended.stderr.count(WORDS) == 1
    assert f"bigsvm: warning: --gamma is 1e+06, {WORDS}" in ended.stderr
    assert f"gamma is 1e+06, {WORDS}" in ended.stdout
    assert WORDS in run_here("info", tmp_path / "m").stdout
    [said] = answer("info", tmp_path / "m")["certificate"]["advice"]
    assert answer("train", text, tmp_path / "m", *LARGE)["advice"] == [said]


def test_a_good_fit_shows_none(text, tmp_path):
    ended = run_here("train", text, tmp_path / "m")
    assert "advice" not in ended.stdout
    assert answer("info", tmp_path / "m")["certificate"]["advice"] == []


def test_a_cross_validation_says_it_once(text):
    ended = run_here("cv", text, *LARGE, "--folds", "3")
    assert (ended.stdout + ended.stderr).count(WORDS) == 1
    assert "said of 3 of 3 fits" in ended.stdout


def test_a_search_says_it_of_its_model(text, tmp_path):
    ended = run_here("search", text, tmp_path / "m", *LARGE, "--log2-C", "0,1,1", "--folds", "3")
    assert (ended.stdout + ended.stderr).count(WORDS) == 1


@pytest.mark.parametrize("folds", [(), ("-v", "3")])
def test_svm_train_says_it(text, folds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run_here("svm-train", "-g", "1e6", *folds, text)
    assert ended.stderr.count(f"bigsvm: warning: -g is 1e+06, {WORDS}") == 1
