"""When a run is saved: no slice and no save of the length of late makes it lose an interval."""

import pytest

from bigsvm.training import saving
from bigsvm.training.saving import Saver
from bigsvm.training.state import Counters


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Slow:
    """A checkpoint whose saves take as long as it is told."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds
        self.taken, self.complete = [clock.now], [clock.now]

    def save(self, arrays, values):
        self.taken.append(self.clock.now)
        self.clock.now += next(self.seconds)
        self.complete.append(self.clock.now)
        return len(self.taken)


class Nothing:
    def _asdict(self):
        return {}


@pytest.mark.parametrize("slices", [[0.1], [0.1, 0.1, 1.5], [0.05] * 40 + [2.0]])
@pytest.mark.parametrize("saves", [[0.0], [0.2, 1.0]])
def test_kill_loses_at_most_one_checkpoint_interval(monkeypatch, slices, saves):
    clock = Clock()
    monkeypatch.setattr(saving, "time", clock)
    seconds = iter(saves * 1000)
    checkpoint = Slow(clock, seconds)
    saver = Saver(checkpoint, every=6.0, listener=lambda event: None)
    for i in range(2000):
        clock.now += slices[i % len(slices)]
        if saver.is_due():
            saver.save(Nothing(), Counters())
    costs = [
        complete - taken
        for taken, complete in zip(checkpoint.taken[:-1], checkpoint.complete[1:], strict=True)
    ]
    # The first intervals know nothing yet of how long slices and saves may take.
    assert max(costs[3:]) <= 0.9 * 6.0 + 1e-9
    assert len(costs) > 20
    assert min(costs[3:]) > 2.0


def test_a_run_that_is_asked_saves_once():
    asked, saved = [], []

    class Kept:
        def save(self, arrays, values):
            saved.append(values)
            return len(saved)

    saver = Saver(
        Kept(), every=1e6, listener=lambda event: None, times_asked=lambda: len(asked)
    )  # fmt: skip
    assert not saver.is_due()
    asked.append("now")
    assert saver.is_due()
    saver.save(Nothing(), Counters())
    assert not saver.is_due()
