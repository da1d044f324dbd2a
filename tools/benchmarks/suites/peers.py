"""Training time on real data, beside scikit-learn, scikit-learn-intelex and the floor.

    python -m tools.benchmarks peers [--data a9a w8a mnist few-100000] [--repeats 3]

store      ``bigsvm train`` of a Zarr store, out of core; its own count of seconds
memory     ``bigsvm.SVC().fit`` of float32 arrays
sklearn    scikit-learn's SVC, cache 200 MB
sklearnex  scikit-learn-intelex's SVC, float32, cache 200 MB: its best setting
libsvm     LIBSVM's own Python interface, where it is asked for and installed
floor      what ``decision_function`` of the training set takes: one sweep with the final support
           vectors over the same rows, of ``memory`` in its process, of ``store`` over the store
           right after it; the seconds of others are counted in floors of ``memory``

The first turn tries every contestant with dense and with CSR rows; the faster layout is kept.
scikit-learn's SVC and LIBSVM, the slowest by far, take part in the first turn only, with the last
layout: CSR (a9a: 28 s, against 41 s dense). They are stopped after --give-up times the seconds of
the slower of ``store`` and ``memory``, and their figures are then lower bounds, ">". Peak memory is
that of a process until its fit ends; of ``store``, until the process ends. What is printed last
holds all data sets against limits, for each of ours and for the faster of both.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DATA_SETS
from tools.benchmarks.results import (
    Limit,
    Number,
    Results,
    Row,
    Run,
    at_least,
    at_most,
    data_cases,
    geometric_mean,
    median_range,
    ratio_to,
    spread_in_floors,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SLOW, BOTH = ("sklearn", "libsvm"), ("store", "memory")
LEAST_PATIENCE = 10.0
"""Seconds: tiny problems are for trying this suite."""
RATIO_EACH, RATIO_LARGE, LARGE_ROWS = 1.5, 4.0, 100_000
RATIO_MEAN = {"sklearnex": 3.0, "sklearn": 15.0}
MEMORY_SHARE = 0.5
MANY_SUPPORT_VECTORS = 0.2
"""Share of the rows from which on a floor is most of what there is to do."""
FLOORS_OF_MANY, FLOORS_OF_FEW = (1.5, 2.5), (3.0, 6.0)
"""Kernel evaluations and seconds, in floors."""


def patience(name: str, runs: Sequence[Run], options: argparse.Namespace) -> float | None:
    """Stop a contestant after this many times our seconds; None never stops it."""
    ours = [[run.seconds for run in runs if run.who == own] for own in BOTH]
    slower = max((min(seconds) for seconds in ours if seconds), default=None)
    if slower is None or name not in SLOW:
        return None
    return max(options.give_up * slower, LEAST_PATIENCE)


def peak_share(row: Row) -> float | None:
    """Peak of memory ÷ that of sklearnex, largest over the turns."""
    own, others = row.values("peak_rss"), row.of("sklearnex").values("peak_rss")
    return max(own) / max(others) if own and others else None


def share_shown(row: Row) -> str:
    share = peak_share(row)
    return "-" if share is None else f"{share:.0%}"


def floor_rows(rows: Sequence[Row]) -> list[list[object]]:
    """Lay out the floors of a case below its fits."""
    lines: list[list[object]] = []
    for row in rows:
        seconds = row.values("floor_seconds")
        if seconds:
            layout = row.runs[0].layout
            shown = median_range(seconds)
            lines.append([f"floor of {row.who}", layout, shown, *["-"] * 7, "1.00", "1.00"])
    return lines


def variants(results: Results, row: Row) -> list[str | None]:
    """Name ``store``, ``memory`` and the faster of both, as far as they took part."""
    medians = {name: m for name in BOTH if (m := row.of(name).median("seconds")) is not None}
    faster = min(medians, key=lambda name: medians[name]) if medians else None
    return [*(name if name in medians else None for name in BOTH), faster]


def limits(results: Results) -> list[Limit]:
    """Hold every data set, and the means over them, against what the project promises itself."""
    rows, found = results.rows(), []
    who_of = {row.case.name: variants(results, row) for row in rows}

    def ratios(row: Row, peer: str) -> list[Number | None]:
        return [row.of(peer).ratio(own) for own in who_of[row.case.name]]

    for row in rows:
        large = row.case.name == "mnist" or row.case.facts["n_rows"] >= LARGE_ROWS
        limit = RATIO_LARGE if large else RATIO_EACH
        found.append(
            at_least(f"sklearnex ÷ ours, {row.case.name}", *ratios(row, "sklearnex"), limit=limit)
        )
    for peer, limit in RATIO_MEAN.items():
        means = [
            geometric_mean(each) for each in zip(*(ratios(row, peer) for row in rows), strict=True)
        ]
        found.append(at_least(f"{peer} ÷ ours, geometric mean of {len(rows)}", *means, limit=limit))
    for row in rows:
        ours = [row.of(own) if own else None for own in who_of[row.case.name]]
        shares = [own and peak_share(own) for own in ours]
        found.append(
            at_most(f"peak RSS ÷ sklearnex's, {row.case.name}", *shares, limit=MEMORY_SHARE)
        )
    for row in rows:
        ours = [row.of(own) if own else None for own in who_of[row.case.name]]
        counts = [n for own in BOTH for n in row.of(own).values("n_support")]
        many = counts and statistics.median(counts) >= (
            MANY_SUPPORT_VECTORS * row.case.facts["n_rows"]
        )
        most = FLOORS_OF_MANY if many else FLOORS_OF_FEW
        evaluations = [own and own.median("evaluations_in_floors") for own in ours]
        seconds = [own and own.median_in_floors for own in ours]
        found += [
            at_most(f"evaluations in floors, {row.case.name}", *evaluations, limit=most[0]),
            at_most(f"seconds in floors, {row.case.name}", *seconds, limit=most[1]),
        ]
    return found


SUITE = Suite(
    cases=data_cases,
    data=tuple(DATA_SETS),
    contestants=("store", "memory", "sklearnex", "sklearn"),
    guests=("libsvm",),
    columns=(
        "who",
        ("rows", lambda row: row.runs[0].layout),
        "seconds",
        ("ratio to store", ratio_to("store")),
        ("ratio to memory", ratio_to("memory")),
        "peak RSS MB",
        ("of sklearnex's", share_shown),
        ("dual objective", "objective:.3f"),
        *("SVs", "sweeps", "evaluations in floors"),
        ("seconds in floors", spread_in_floors),
    ),
    limits=limits,
    more_rows=floor_rows,
    variants=("store", "memory", "faster of both"),
    table_of_each_case=True,
    layout="best",
    memory="1GB",
    give_up=20.0,
    patience=patience,
    once=SLOW,
    floors=True,
    base=True,
)
