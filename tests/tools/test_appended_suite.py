"""The suite of fits after rows were appended, on tiny data."""

from types import SimpleNamespace

import pytest

from tools.benchmarks.suites import appended


@pytest.mark.parametrize(("share", "code"), [(100.0, 0), (0.0, 1)])
def test_three_fits_and_what_must_hold(monkeypatch, capsys, share, code):
    def here(command, **_):
        given = eval(command[-1].partition("fit(*")[2].rpartition("))")[0][:-1])
        answers.append(appended.fit(*given))
        return SimpleNamespace(answer=answers[-1])

    answers = []
    monkeypatch.setattr(appended, "run_checked", here)
    monkeypatch.setattr(appended, "SHARE", share)
    options = SimpleNamespace(rows=1500, added=150, memory="100MB", threads=1)
    assert appended.program(options) == code
    printed = capsys.readouterr().out
    assert [answer["n_rows"] for answer in answers] == [1500, 1650, 1650]
    assert answers[2]["objective"] == pytest.approx(answers[1]["objective"], rel=1e-3)
    assert ("does not hold" in printed) == bool(code)
