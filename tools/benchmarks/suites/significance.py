"""Friedman's and Wilcoxon's tests over all data sets that `sampled_balls` has printed.

    python -m tools.benchmarks significance

Trains nothing. It reads the tables of ``tools/benchmarks/sampled_balls.txt`` with the rbf kernel
and the C of each series. Of a data set and a solver that were printed more than once, the run with
the most repeats counts, and of those the last. The tests are those of section 5.6 of Frandi et al.
2013, as `sampled_balls` has them: over the sets on which all three algorithms were run to their
ends, here and in the paper. "Better on" counts those on which the first of a pair was the better.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tools.benchmarks import frank_wolfe_paper as paper
from tools.benchmarks.bench import Suite
from tools.benchmarks.results import table
from tools.benchmarks.suites.sampled_balls import (
    ADULT,
    C_OF_ADULT,
    C_OF_OTHERS,
    PAIRS,
    friedman,
    wilcoxon,
)

if TYPE_CHECKING:
    import argparse

MEASURES = ("seconds", "accuracy")


class Found(NamedTuple):
    """What was printed of a data set and a solver."""

    repeats: int
    seconds: float
    accuracy: float


def printed() -> dict[str, dict[str, Found]]:
    """Read the figures of each data set and solver."""
    from tools.measured import cells, read, tables

    found: dict[str, dict[str, Found]] = {}
    for each in tables(read("sampled_balls")):
        head, _, *rows = each.lines
        names = cells(head)
        if "solver" not in names or "accuracy %" not in names or "--kernel poly" in each.command:
            continue
        repeats = int((re.search(r"--repeats (\d+)", each.command) or [0, 5])[1])
        for line in rows:
            row = dict(zip(names, cells(line), strict=True))
            usual = C_OF_ADULT if row["data"] in ADULT else C_OF_OTHERS
            if float(row["C"]) != usual or row["CPU seconds"].startswith(("-", ">")):
                continue
            one = Found(repeats, *(float(row[name].split()[0])
                                   for name in ("CPU seconds", "accuracy %")))  # fmt: skip
            before = found.setdefault(row["data"], {}).get(row["solver"])
            if before is None or before.repeats <= repeats:
                found[row["data"]][row["solver"]] = one
    return found


def lines_of(found: dict[str, dict[str, Found]]) -> tuple[list[str], list[list[object]]]:
    """Name the sets with all three algorithms, and lay out the tests over them."""
    sets = [name for name, solvers in found.items()
            if name in paper.ACCURACY and set(paper.METHODS) <= solvers.keys()]  # fmt: skip
    lines: list[list[object]] = []
    for source in ("measured", "the paper's"):
        for what in MEASURES:
            stated = paper.SECONDS if what == "seconds" else paper.ACCURACY
            values = {
                method: [getattr(found[name][method], what) if source == "measured"
                         else stated[name][method].mean for name in sets]
                for method in paper.METHODS
            }  # fmt: skip
            cells = ["{:.2f}, p {:.2g}".format(*friedman(list(values.values())))]
            for a, b, *alternatives in PAIRS:
                pairs = list(zip(values[a], values[b], strict=True))
                better = sum(x < y if what == "seconds" else x > y for x, y in pairs)
                tested = wilcoxon(values[a], values[b], alternatives[what == "accuracy"])
                cells.append("{:g}, p {:.2g}; better on {}".format(*tested, better))
            lines.append([source, what, len(sets), *cells])
    return sets, lines


def run(options: argparse.Namespace) -> int:
    """Print the tests."""
    sets, lines = lines_of(printed())
    header = ["source", "of", "sets", "Friedman F", *(f"W, {a} against {b}" for a, b, *_ in PAIRS)]
    print(f"sets: {', '.join(sets)}\n\n{table(header, lines)}")
    return 0


SUITE = Suite(program=run, folder=False)
