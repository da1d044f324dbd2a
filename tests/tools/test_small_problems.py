"""The benchmark of small problems: its report, and a run on a file of a few rows."""

import gzip

import numpy as np
import pytest
import small_problems
from sklearn.datasets import dump_svmlight_file
from small_problems import Measured, Turn


def turn(ours, theirs):
    return Turn({"bigsvm": ours, "sklearn": theirs}, {"bigsvm": 12, "sklearn": 13}, 0.07)


def test_ratios_are_taken_turn_by_turn_and_their_medians_are_counted():
    fast = Measured("one", 100, 2, 1.0, 0.5, [turn(1.0, 4.0), turn(2.0, 4.0), turn(1.0, 3.0)])
    slow = Measured("other", 50, 3, 32.0, 8.0, [turn(1.0, 0.75)] * 3)
    assert fast.ratios("sklearn") == [4.0, 2.0, 3.0]
    text = small_problems.report([fast, slow], ["bigsvm", "sklearn"], 3)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    assert rows[0][-2:] == ["seconds", "sklearn ÷ ours"]
    assert rows[2] == [
        "one", "100", "2", "1", "0.5", "12", "1.00 [1.00-2.00]", "3.00 [2.00-4.00]"
    ]  # fmt: skip
    assert rows[3][-1] == "0.75 [0.75-0.75]"
    assert "sklearn ÷ ours: geometric mean 1.50; sklearn is faster in 1 of 2" in text


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_it_reads_and_trains_what_is_there_and_says_what_is_not(
    share, tmp_path, monkeypatch, capsys
):
    rng = np.random.default_rng(0)
    x = rng.random((60, 8)) * (rng.random((60, 8)) < share)
    with gzip.open(tmp_path / "tiny.libsvm.gz", "wb") as file:
        dump_svmlight_file(x, np.repeat([1, 2, 3], 20), file)
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    monkeypatch.delitem(small_problems.MODULES, "sklearnex")
    assert small_problems.main(["--data", "tiny", "none", "--repeats", "1"]) == 0
    printed = capsys.readouterr()
    assert "skipped none" in printed.err
    assert sum(line.startswith("| tiny") for line in printed.out.splitlines()) == 4
    read, _ = small_problems.read("tiny")
    assert isinstance(read, np.ndarray) == (share == 1.0)
