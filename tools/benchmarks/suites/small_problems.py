"""Training time on real problems of a few thousand rows, beside scikit-learn and its extension.

    python -m tools.benchmarks small_problems [--data spambase mushrooms …] [--repeats 3]

Such problems fit in any machine's memory: nothing is streamed, and what a run takes to begin and to
end counts. Each data set is trained with two C and two gamma: with the larger gamma nearly every
row is a support vector. bigsvm, scikit-learn-intelex and scikit-learn take turns in one process, on
arrays, or CSR matrices where two thirds of the values are 0; many classes are trained one against
one by all. A first turn that compiles and loads what is needed does not count. Other libraries get
a cache of 1000 MB, which most of these kernel matrices fit in. Ratios are taken within a turn.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import (
    Case,
    Results,
    Row,
    fact,
    geometric_mean,
    given,
    median_range,
    of,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "bigsvm"
COSTS = (1.0, 32.0)
GAMMAS = (1.0, 16.0)
"""Over the average squared distance of two rows."""


def over_ours(name: str) -> tuple[str, Callable[[Row], str]]:
    """Make the column of another library: its seconds ÷ ours."""
    return f"{name} ÷ ours", lambda row: median_range(row.of(name).ratios(OURS))


def means(results: Results) -> str:
    """Say how the others do over all problems."""
    lines = []
    for name in results.contestants:
        ratios = [row.ratio(OURS) for row in results.rows(name)]
        if name != OURS:
            faster = sum(ratio is not None and ratio.value < 1 for ratio in ratios)
            lines.append(
                f"{name} ÷ ours: geometric mean {geometric_mean(ratios)}; "
                f"{name} is faster in {faster} of {len(ratios)}"
            )
    return "\n".join(lines)


SUITE = Suite(
    cases=lambda options: [
        Case(f"{name}, C {C:g}, {times:g}", DataSet(name), {"C": C, "times": times})
        for name, C, times in itertools.product(options.data, COSTS, GAMMAS)
    ],
    data=(
        "svmguide1.scale", "satimage.scale", "spambase", "usps", "pendigits", "mushrooms",
        "letter.scale",
    ),
    contestants=(OURS, "sklearnex", "sklearn"),
    columns=(
        ("data", lambda row: row.case.data.name),
        "rows",
        ("classes", fact("n_classes")),
        ("C", given("C")),
        ("gamma", given("gamma", "{:.3g}")),
        ("SVs", of(OURS, "n_support")),
        ("seconds", of(OURS, spread("seconds"))),
        over_ours("sklearnex"),
        over_ours("sklearn"),
    ),
    before=lambda results: (
        f"seconds of bigsvm, and those of the others ÷ bigsvm's; {results.options.repeats} turns"
    ),
    after=means,
    wide=True,
    one_process=True,
    layout="suitable",
    distances=True,
    cache=1000,
)  # fmt: skip
