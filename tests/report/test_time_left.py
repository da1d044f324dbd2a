"""How long a run still takes, by what it has done."""

import time

import pytest

from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.report.time_left import SHARES, TimeLeft
from bigsvm.training import events

PLANNED = events.Planned(1000, 5, 100, {"rows": 5_000_000}, 0)


def swept(number, seconds):
    return events.Swept(number, 0.125, 1e-3, -1.5, 42, 7, seconds, None)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_follows_the_sweeps_that_are_complete(clock):
    left = TimeLeft()
    assert left.seconds is None
    left(PLANNED)
    clock[0] += 10
    assert left.seconds == pytest.approx(10 * SHARES[0])
    left(swept(1, 10.0))
    clock[0] += 2
    assert left.seconds == pytest.approx(12 * SHARES[1])
    for number in range(2, 6):
        left(swept(number, 12.0))
        assert left.seconds == pytest.approx(12 * SHARES[2])


def test_a_resumed_run_knows_nothing_before_a_sweep_tells_its_whole_time(clock):
    left = TimeLeft()
    left(PLANNED._replace(resumed_sweeps=3))
    clock[0] += 10
    assert left.seconds is None
    left(swept(4, 110.0))
    assert left.seconds == pytest.approx(110 * SHARES[2])


def test_runs_of_pairs_are_not_the_whole_run(clock):
    left = TimeLeft()
    left(PLANNED)
    clock[0] += 10
    left(events.PairsUnderWay(0, 3, 0.0, 100.0, *(-1.5, 1e-3, 42, 7, 75.0)))
    assert left.seconds is None


def test_a_person_is_told(clock, capsys):
    asked = []
    with Display(quiet=True, times_asked=lambda: len(asked)) as display:
        show = TrainingProgress(display)
        show(PLANNED)
        clock[0] += 0.1
        asked.append(None)
        show(events.Solving(100, 12345, 0.25))
        clock[0] += 99.9
        asked.append(None)
        show(events.Solving(100, 22345, 0.125))
    assert capsys.readouterr().err.splitlines() == [
        "solving 100 rows: 12 345 steps, gap of these rows 0.25",
        "solving 100 rows: 22 345 steps, gap of these rows 0.125, "
        "training ends in about 2 min 30 s",
    ]
