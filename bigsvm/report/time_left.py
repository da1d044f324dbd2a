"""How long a training run still takes, from how far it is."""

from __future__ import annotations

import time

from bigsvm.training import events

SHARES = (1.5, 0.8, 0.6)
"""Seconds left for each second so far, before the first complete sweep, after it, and later. Most
runs end after three to five sweeps; ``python -m tools.benchmarks time_left`` prints what it was."""


class TimeLeft:
    """Listens to one run; how long it still takes is known within a factor of two or three."""

    def __init__(self) -> None:
        self._sweeps, self._of_pairs = 0, False
        self._began: float | None = None

    def __call__(self, event: events.Event) -> None:
        """Take an event of the run."""
        match event:
            case events.PairsUnderWay():
                self._of_pairs = True
            case events.Planned():
                self._began = None if event.resumed_sweeps else time.monotonic()
                self._sweeps = 0
            case events.Swept():
                # The seconds of earlier processes count: a resumed run says them here first.
                self._began = time.monotonic() - event.seconds
                self._sweeps = event.sweep

    @property
    def seconds(self) -> float | None:
        """Seconds that are left; None where nothing is known, as for the runs of class pairs."""
        if self._began is None or self._of_pairs:
            return None
        return SHARES[min(self._sweeps, len(SHARES) - 1)] * (time.monotonic() - self._began)
