"""How busy threads are in the passes over rows: by a clock, over a resume, within bounds."""

import time
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from support.problems import blobs, decomposition

from bigsvm.data.in_memory import ArrayRows
from bigsvm.executors.executor import Partial
from bigsvm.training import events, run
from bigsvm.training.run import Watch
from bigsvm.training.state import Counters, Limits, idle_share


class Clock:
    """Time of the wall and of the processor, as the test says."""

    def __init__(self):
        self.wall, self.cpu = 100.0, 3.0

    def pass_by(self, wall, cpu):
        self.wall += wall
        self.cpu += cpu

    def monotonic(self):
        return self.wall

    def process_time(self):
        return self.cpu


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(run, "time", clock)
    return clock


def watch_of(count, *, threads):
    tiles = SimpleNamespace(threads=threads, n_evaluations=0)
    return Watch(count, source=SimpleNamespace(bytes_read=0), tiles=tiles, limits=Limits())


def block(wall, cpu, evaluations=0):
    """A block of a pass."""
    return Partial(0, 1, None, np.zeros(1), evaluations, wall, cpu)


def test_evaluations_of_blocks_are_added_to_those_of_the_run():
    count = Counters(n_kernel_evaluations=100)
    watching = watch_of(count, threads=1)
    for _ in range(2):
        watching.add(block(1, 1, evaluations=20), threads=1)
        watching.account()
    assert count.n_kernel_evaluations == 140


def test_only_blocks_of_passes_count_and_a_resumed_run_goes_on_from_them(clock):
    count = Counters()
    watching = watch_of(count, threads=2)
    assert count.cpu_idle() is None
    assert count.end_sweep() is None
    for wall, cpu in ((3, 6), (1, 0)):
        watching.add(block(wall, cpu), threads=2)
        clock.pass_by(50, 100)  # solving, saving
    assert count.end_sweep() == pytest.approx(1 - 6 / 8)

    watching.add(block(2, 1), threads=2)
    count = Counters(**asdict(count))
    watching = watch_of(count, threads=1)
    watching.add(block(1, 0.5), threads=1)
    assert count.end_sweep() == pytest.approx(1 - 1.5 / 5)
    assert count.end_sweep() is None
    assert count.cpu_idle() == pytest.approx(1 - 7.5 / 13)


def take_steps(watching, clock, seconds):
    """Steps that end by an error."""
    with watching.timing("step"):
        clock.pass_by(seconds, 0)
        raise KeyError


def test_phases_add_up_over_a_resume_and_after_an_error(clock):
    count = Counters()
    for seconds in (2, 3):
        watching = watch_of(count, threads=2)
        with watching.timing("certificate"):
            clock.pass_by(seconds, 0)
        clock.pass_by(1, 0)
        with pytest.raises(KeyError):
            take_steps(watching, clock, 4)
        clock.pass_by(7, 0)
        watching.add(block(7, 0), threads=2)
        watching.account()
        count = Counters(**asdict(count))
    expected = {"certificate": 5.0, "sweeps": 14.0, "kernel_rows": 0.0, "steps": 8.0, "rest": 2.0}
    assert count.seconds_by_phase() == pytest.approx(expected)


def test_run_reports_seconds_by_phase():
    X, y = blobs(1200)
    certificate = decomposition(X, y, working_set=300).run().certificate
    phases = certificate.seconds_by_phase
    assert all(seconds > 0 for seconds in phases.values())
    assert sum(phases.values()) == pytest.approx(certificate.seconds)


@pytest.mark.parametrize(
    ("cpu", "threads", "share"), [(0, 2, 1.0), (1, 2, 0.5), (3, 2, 0.0), (0, 0, None), (1, 0, None)]
)
def test_idle_share_of_processors(cpu, threads, share):
    assert idle_share(cpu, threads) == share


class SlowRows(ArrayRows):
    """Rows that are not in memory, take a while to come, and no processor."""

    def __init__(self, X):
        super().__init__(X)
        self.row_alignment = 100

    def read(self, start, stop):
        time.sleep(0.02)
        return super().read(start, stop)


def swept(X, y, **options):
    """Idle shares of the sweeps of a run, and of all of it."""
    seen = []
    result = decomposition(X, y, listener=seen.append, **options).run()
    each = [event.cpu_idle for event in seen if isinstance(event, events.Swept)]
    assert len(each) == result.certificate.n_sweeps
    return each, result.certificate.cpu_idle


def test_a_run_whose_rows_come_slowly_is_mostly_idle():
    X, y = blobs(1200)
    each, idle = swept(X, y)  # compiles
    assert all(share is None or 0 <= share <= 1 for share in each)
    assert 0 <= idle <= 1
    each, idle = swept(SlowRows(X), y)
    assert idle > 0.5
    assert max(share for share in each if share is not None) > 0.5


def test_no_idle_share_without_a_pass():
    X, y = blobs(300)
    assert swept(X, y) == ([None], None)
