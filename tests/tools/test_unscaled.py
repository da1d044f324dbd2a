"""The benchmark of features as they come: what it says of fits that end and that do not."""

import numpy as np
import pytest
import unscaled
from sklearn.datasets import dump_svmlight_file
from unscaled import Fit, Measured


def test_who_is_given_up_is_said_to_be():
    fits = {"bigsvm": [Fit(0.5, 0.9, "converged")] * 2, "sklearn": []}
    slow = Measured("spambase", (100, 5), "linear, C 1", fits, frozenset({"sklearn"}))
    fits = {"bigsvm": [Fit(0.5, 0.9, "stalled")], "sklearn": [Fit(2.0, 0.8, "")]}
    fast = Measured("letter", (100, 5), "linear, C 100", fits, frozenset())
    text = unscaled.report([slow, fast], ["bigsvm", "sklearn"], 2, 20.0)
    assert "| > 20 " in text
    assert "stalled" in text
    assert "sklearn ends in 1 of 2; there sklearn ÷ ours has the geometric mean 4.00" in text
    assert "faster in 0" in text


def test_many_classes_are_made_two():
    np.testing.assert_array_equal(unscaled.of_two(np.array([7.0, 3, 9, 3])), [1, 0, 0, 0])


def test_a_data_set_that_is_not_there_is_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert unscaled.main(["--data", "none", "--repeats", "1"]) == 0
    assert "skipped none" in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    dump_svmlight_file(rng.normal(size=(200, 3)) + y[:, None], y, str(tmp_path / "tiny.libsvm"))
    import gzip

    text = (tmp_path / "tiny.libsvm").read_bytes()
    (tmp_path / "tiny.libsvm.gz").write_bytes(gzip.compress(text))
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    monkeypatch.delitem(unscaled.MODULES, "sklearnex")
    assert unscaled.main(["--data", "tiny", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("| tiny ") == len(unscaled.PROBLEMS)
    assert "converged" in out
