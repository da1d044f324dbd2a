"""Training time where features are as they come, or C is large: linear and polynomial kernels.

    python -m tools.benchmarks unscaled [--data spambase pendigits …] [--give-up 60] [--repeats 3]

Pair steps take millions on such problems, and LIBSVM's users wait for them without an end. A fit is
stopped after --give-up seconds, and who is stopped is not asked again for the problem. Classes of
even number are trained against those of odd number where there are more than two. Accuracy is that
on the training rows: it shows that all solve the same problem. Other libraries get a cache of
1000 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import Case, Results, Row, fact, geometric_mean, median_range, of

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "bigsvm"
WHO = (OURS, "sklearnex", "sklearn")
PROBLEMS: tuple[dict[str, Any], ...] = (
    {"kernel": "linear", "C": 1.0},
    {"kernel": "linear", "C": 100.0},
    {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": "scale", "C": 100.0},
)


def problem(row: Row) -> str:
    """Name the kernel and its parameters."""
    given = dict(row.case.parameters)
    words = ", ".join(f"{key} {value}" for key, value in given.items() if key != "kernel")
    return f"{given['kernel']}, {words}"


def seconds(name: str) -> tuple[str, Callable[[Row], str]]:
    """Make the column of a library."""

    def shown(row: Row) -> str:
        theirs = row.of(name)
        if theirs.gave_up:
            return f"> {row.whole.options.give_up:g}"
        return median_range(theirs.values("seconds"))

    return name, shown


def right(row: Row) -> str:
    """Show the accuracy of each that ended at least once."""
    found = [values[-1] for name in WHO if (values := row.of(name).values("accuracy"))]
    return " ".join(f"{accuracy:.2f}" for accuracy in found)


def ended(results: Results) -> str:
    """Say how often the others end, and how they compare where both do."""
    lines = []
    for name in results.contestants:
        rows = results.rows(name)
        both = [(row, row.of(OURS)) for row in rows if not (row.gave_up or row.of(OURS).gave_up)]
        if name == OURS:
            continue
        ratios = [(a.median("seconds") or 0) / (b.median("seconds") or 1) for a, b in both]
        lines.append(
            f"{name} ends in {sum(not row.gave_up for row in rows)} of {len(rows)}; there {name} ÷ "
            f"ours has the geometric mean {geometric_mean(ratios) or '-'}, and it is faster in "
            f"{sum(ratio < 1 for ratio in ratios)}"
        )
    return "\n".join(lines)


SUITE = Suite(
    cases=lambda options: [
        Case(f"{name}, {given['kernel']}, C {given['C']:g}", DataSet(name), given,
             "even against odd")
        for name in options.data
        for given in PROBLEMS
    ],
    data=("spambase", "pendigits", "letter", "satimage.scale", "usps"),
    contestants=WHO,
    columns=(
        ("data", lambda row: row.case.data.name),
        "rows",
        ("columns", fact("n_columns")),
        ("kernel", problem),
        *(seconds(name) for name in WHO),
        ("ours stopped", of(OURS, "stopped")),
        ("right %", right),
    ),
    before=lambda results: (
        f"seconds; {results.options.repeats} turns, given up after {results.options.give_up:g} s"
    ),
    after=ended,
    wide=True,
    layout="suitable",
    give_up=60.0,
    accuracy=True,
    cache=1000,
    base=True,
)  # fmt: skip
