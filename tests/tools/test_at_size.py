"""Regression and one class out of core, at a size that takes a second; cpusmall if it is there."""

import at_size
import pytest


def test_a_small_run_holds(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    assert at_size.main(["--rows", "6000", "--memory", "30MB"]) == 0
    printed = capsys.readouterr()
    assert "skipped cpusmall" in printed.err
    lines = [line for line in printed.out.splitlines() if line.startswith("| made-6000")]
    assert [line.split()[2] for line in lines[:2]] == ["eps-svr", "one-class"]
    assert sum("holds" in line for line in lines) == 6


def test_what_does_not_hold_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path))
    monkeypatch.setattr(at_size, "MOST_SWEEPS", 0)
    assert at_size.main(["--rows", "3000", "--memory", "30MB"]) == 1
    assert "does not hold" in capsys.readouterr().out


def test_a_tenth_of_the_targets_is_outside_the_tube():
    rows, targets = at_size.rows_and_targets(20_000)
    assert rows.shape == (20_000, at_size.N_COLUMNS)
    assert targets.std() > 0.33
    assert (abs(rows).max(axis=1) > 6).mean() == pytest.approx(0.01, abs=0.01)
