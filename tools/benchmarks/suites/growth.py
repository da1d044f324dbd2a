"""Training time and peak memory against the number of rows, beside scikit-learn-intelex.

    python -m tools.benchmarks growth [--sizes 12500 25000 … 400000] [--give-up 900] [--repeats 1]

One family of problems, ``many`` of `synthetic.py`: 50 columns, every fifth row a support vector,
each size the first rows of the next. ``store`` is ``bigsvm train`` of a store, out of core under
--memory; ``sklearnex`` has float32 arrays and a cache of 200 MB, its best setting. Who takes longer
than --give-up seconds is not asked for larger sizes.

Exponents are those of the line through the logarithms by least squares: time ~ n^exponent. The
floor, one sweep with the final support vectors, grows as n · n_SV: its exponent is 1 plus that of
the support vectors. Memory per row is the slope of the peak from one size to the next. Limits are
what a run promises:

memory   its peak is at most the budget + 40 bytes a row + what the interpreter takes for a tiny
         store under the same budget, at every size
flat     the peak grows by at most 40 bytes a row, between the first size whose kernel matrix takes
         a hundred times the budget and the last: smaller problems need less than they may have
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.benchmarks.bench import TINY_ROWS, Suite
from tools.benchmarks.data import made
from tools.benchmarks.results import (
    BYTES_PER_ROW,
    Limit,
    Results,
    Row,
    at_most,
    case_of,
    exponent,
    megabytes,
    memory_limit,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILY = "many"
TIMES_THE_BUDGET = 100
"""Bytes of the kernel matrix from which on a run uses all that it may: those among the support
vectors, every fifth row, are then four times the budget."""


def peaks(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """(n, peak bytes), the largest over the turns."""
    return [(row.case.facts["n_rows"], max(row.values("peak_rss"))) for row in rows]


def slope(row: Row) -> str:
    """Bytes per row from the size before."""
    before = [r for r in peaks(row.whole.rows(row.who)) if r[0] < row.case.facts["n_rows"]]
    if not before:
        return "-"
    (n, peak), (m, less) = peaks([row])[0], before[-1]
    return f"{(peak - less) / (n - m):.0f}"


def in_floors(row: Row) -> str:
    found = row.median_in_floors
    return "-" if found is None else f"{found:.2f}"


def budget(results: Results) -> str:
    size = megabytes(results.budget)
    return f"budget of store {size} MB, interpreter {megabytes(results.interpreter)} MB"


def exponents(results: Results) -> str:
    """Lay out what grows as which power of n, over the sizes that each has done."""
    lines = []
    for name in results.contestants:
        rows = results.rows(name)
        if len(rows) < 2:
            continue
        sizes = [float(row.case.facts["n_rows"]) for row in rows]
        time, support = (
            exponent(
                [(n, float(row.median(value) or 0)) for n, row in zip(sizes, rows, strict=True)]
            )
            for value in ("seconds", "n_support")
        )
        lines.append([name, f"{sizes[0]:.0f} to {sizes[-1]:.0f}", f"{time:.2f}", f"{support:.2f}"])
    return table(["who", "rows", "time ~ n^", "SVs ~ n^"], lines) if lines else ""


def limits(results: Results) -> list[Limit]:
    """Hold the peaks of ``store`` against what a run promises."""
    found, most = peaks(results.rows("store")), results.budget
    if not found:
        return []
    worst, peak = max(found, key=lambda p: p[1] - memory_limit(most, n_rows=p[0], baseline=0))
    limit = memory_limit(most, n_rows=worst, baseline=results.interpreter)
    name = f"peak RSS, MB, at {worst} rows"
    checks = [at_most(name, peak / 1e6, limit=limit / 1e6, digits=0, shown="{:.0f}")]
    bound = [(n, peak) for n, peak in found if 4 * n**2 >= TIMES_THE_BUDGET * most]
    if len(bound) >= 2:
        grown = (bound[-1][1] - bound[0][1]) / (bound[-1][0] - bound[0][0])
        name = f"bytes a row more, {bound[0][0]} to {bound[-1][0]} rows"
        checks.append(at_most(name, grown, limit=BYTES_PER_ROW, digits=1, shown="{}"))
    return checks


SUITE = Suite(
    cases=lambda options: [case_of(made(FAMILY, n)) for n in options.sizes],
    sizes=tuple(12_500 << k for k in range(6)),
    contestants=("store", "sklearnex"),
    columns=(
        *("who", "rows", "seconds", "SVs"),
        ("of rows", lambda row: f"{row.last('n_support') / row.case.facts['n_rows']:.1%}"),
        "evaluations in floors",
        ("seconds in floors", in_floors),
        "peak RSS MB",
        ("bytes a row more", slope),
    ),
    before=budget,
    after=exponents,
    limits=limits,
    by_contestant=True,
    growing=True,
    repeats=1,
    memory="128MB",
    give_up=900.0,
    floors=True,
    interpreter=case_of(made(FAMILY, TINY_ROWS)),
    base=True,
)
