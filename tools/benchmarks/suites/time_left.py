"""The estimate of the time that a run still takes, beside what it then took.

    python -m tools.benchmarks time_left [--data few-800000 many-250000 …]

Every fit is a process of its own, with rows in memory. It is asked for the estimate at each event;
those at 25, 50 and 75 % of its time are shown with what was left, in seconds. Some sets have a
larger C or another problem than elsewhere, so that runs take long. The aim is a factor of at most
2.5 in four of five places.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import data_set
from tools.benchmarks.results import Case, Limit, Results, Row, at_least, median_range

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from bigsvm.training import events

PLACES = (25, 50, 75)
"""Where estimates are read, in % of the time."""
FACTOR, LEAST_SHARE = 2.5, 80.0
PROBLEMS: dict[str, dict[str, Any]] = {
    "a9a": {"formulation": "NuSVC", "nu": 0.2, "gamma": 0.05},
    "w8a": {"C": 100.0, "gamma": 0.5},
}
"""Parameters of sets whose own run is short; regressions are `smooth`."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List the data sets with their parameters."""
    found = []
    for name in options.data:
        data = data_set(name)
        parameters = PROBLEMS.get(name, {"C": data.C, "gamma": data.gamma})
        if name.startswith("smooth"):
            parameters = {**parameters, "formulation": "SVR", "C": 10.0, "epsilon": 0.01}
        found.append(Case(name, data, parameters))
    return found


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, and note each estimate with its time."""
    import numpy as np

    from bigsvm.callbacks import Callback
    from bigsvm.report.time_left import TimeLeft
    from tools.benchmarks.contestants import estimator, few_of_each, read_rows

    left, noted = TimeLeft(), list[tuple[float, float]]()

    class Notes(Callback):
        def listener(self, estimator: object) -> Callable[[events.Event], None]:
            def note(event: events.Event) -> None:
                left(event)
                if left.seconds is not None:
                    noted.append((time.monotonic(), left.seconds))

            return note

    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    few = few_of_each(y) if len(np.unique(y)) == 2 else np.arange(100)
    estimator({**job, "who": "this"}, max_iter=100).fit(x[few], y[few])
    model = estimator({**job, "who": "this"}).set_callbacks(Notes())
    began = time.monotonic()
    model.fit(x, y)
    ended = time.monotonic()
    answer = {"seconds": ended - began}
    for place in PLACES:
        moment = began + place / 100 * (ended - began)
        known = [(when, seconds) for when, seconds in noted if when <= moment] or noted[:1]
        # Between two events the last estimate is shown.
        answer |= {f"said {place}": known[-1][1], f"left {place}": ended - moment}
    return answer


def column(place: int) -> tuple[str, Callable[[Row], str]]:
    """Make the column of a place."""

    def text(row: Row) -> str:
        said, left = row.values(f"said {place}"), row.values(f"left {place}")
        return ", ".join(f"{a:.1f} / {b:.1f}" for a, b in zip(said, left, strict=True))

    return f"said / left at {place} %", text


def limits(results: Results) -> list[Limit]:
    """Count the places where the estimate is near."""
    ratios = [
        a / b
        for row in results.rows()
        for place in PLACES
        for a, b in zip(row.values(f"said {place}"), row.values(f"left {place}"), strict=True)
    ]
    near = sum(1 / FACTOR <= ratio <= FACTOR for ratio in ratios)
    what = f"places within a factor of {FACTOR}: {near} of {len(ratios)}, %"
    return [at_least(what, 100 * near / len(ratios), limit=LEAST_SHARE, digits=0)]


SUITE = Suite(
    cases=cases,
    data=(
        "few-800000",
        "many-250000",
        "many-400000",
        "crowded-200000",
        "smooth-60000",
        "words-25000",
    ),
    contestants=("this",),
    columns=(
        "data",
        ("seconds", lambda row: median_range(row.values("seconds"))),
        *(column(place) for place in PLACES),
    ),
    limits=limits,
    do="tools.benchmarks.suites.time_left:fit",
    wide=True,
    layout="last",
    threads=1,
)
