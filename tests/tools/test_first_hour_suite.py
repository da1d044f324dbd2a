"""The suite of small fits and first processes, with few of them."""

from types import SimpleNamespace

import pytest

from tools.benchmarks.suites import first_hour


@pytest.mark.parametrize(("least", "code"), [(0.0, 0), (1e6, 1)])
def test_what_is_printed(monkeypatch, capsys, least, code):
    answers = iter([2.0, 1.0, 3.0] + [0.5] * 9)
    monkeypatch.setattr(first_hour, "LEAST", {"iris": least, 60: 0.0})
    monkeypatch.setattr(first_hour, "MOST_OF_A_ROW", 10.0)
    monkeypatch.setattr(first_hour, "process_seconds", lambda words, folder: next(answers))
    monkeypatch.setattr(
        first_hour, "run_checked", lambda words, threads: SimpleNamespace(answer=first_hour.fits(1))
    )
    assert first_hour.program(SimpleNamespace(repeats=1)) == code
    printed = capsys.readouterr().out
    assert "svm-train, first process" in printed
    assert ("does not hold" in printed) == bool(code)
