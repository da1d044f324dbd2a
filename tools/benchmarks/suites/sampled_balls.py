"""Core vector machine, Frank-Wolfe and modified Frank-Wolfe as a paper has them, beside its tables.

    python -m tools.benchmarks sampled_balls [--data a1a … w8a] [--C 1 …] [--kernel poly]

Algorithms 1, 2 and 3 of Frandi et al. 2013 are ``solver="cvm"``, ``"fw"`` and ``"mfw"`` without a
certificate: samples of 59 rows, and the first empty sample ends the search. Rows are as the files
have them, repeats have different seeds, and each fit has one thread. The kernel is exp(-gamma d²),
gamma 2 / the average squared distance of two rows, with which the certified accuracies agree with
the paper's (it does not print which reading it takes), or with --kernel poly (gamma x'z)² with
gamma 1 / that average, which the core vector machine cannot use (section 5.8). C is one value of
the paper's grid for each series, as it does not print which it chose; --C names others, whose
influence is then seen (section 5.7). A search is stopped after --give-up seconds. usps,
letter.scale, pendigits and mnist, where --data names them, are trained one class against one, as in
the paper. ``pairwise`` and ``certified``, where --contestants names them, are the package's own
solver from samples and with a certificate.

Tables: accuracy, CPU seconds and support vectors beside tables 2 and 3 (8 with poly); CPU seconds
of the core vector machine ÷ those of the other two, and how that and the seconds grow from w1a to
w8a (figure 3); Friedman tests with the correction of Iman and Davenport and Wilcoxon signed-ranks
tests (ties by Pratt) over the data sets, as in section 5.6, of what is measured here and of the
paper's means of the same sets.

Limits, with the rbf kernel and one C for each set: fw and mfw have the paper's accuracy within two
of its standard deviations + 0.05 points on four fifths of the sets; they take at most a third of
the core vector machine's time on w7a and w8a; and what they gain there is twice that on w1a.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from tools.benchmarks import frank_wolfe_paper as paper
from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import (
    Case,
    Limit,
    Number,
    Results,
    Row,
    at_least,
    exponent,
    table,
    who,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

CVM, FW, MFW = paper.METHODS
WEB = tuple(name for name in paper.ACCURACY if name[0] == "w")
ADULT = tuple(name for name in paper.ACCURACY if name[0] == "a")
C_OF_ADULT, C_OF_OTHERS = 2.0, 8.0
"""Values of the paper's grid with which certified test accuracies are nearest to the paper's."""
READINGS = {"rbf": 2.0, "poly": 1.0}
"""What gamma is multiplied by where it would be 1 / the average squared distance."""
SAMPLING = 59
WIDTHS = dict.fromkeys(WEB, 300) | dict.fromkeys(ADULT, 123) | {"reuters_moneyfx": 8315}
SLACK, LEAST_SHARE = 0.05, 0.8
"""Points of accuracy beyond two standard deviations; share of the sets that must be within."""
LEAST_GAIN, LEAST_GROWTH = 3.0, 2.0
LARGE, SMALL = ("w7a", "w8a"), "w1a"
GUESTS: dict[str, dict[str, Any]] = {
    "pairwise": {"solver": "pairwise", "certify": False}, "certified": {"solver": "pairwise"},
}  # fmt: skip
"""The package's own solver, which the paper has not, from samples and with a certificate."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List the data sets with each C."""
    found = []
    for name in options.data:
        costs = options.C or [C_OF_ADULT if name in ADULT else C_OF_OTHERS]
        kernel = {"kernel": "poly", "degree": 2, "coef0": 0.0} if options.kernel == "poly" else {}
        for C in costs:
            given = {"C": C, "times": READINGS[options.kernel], **kernel}
            found.append(Case(f"{name}, C {C:g}", DataSet(name, WIDTHS.get(name, 0)), given))
    return found


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, and test on the test part."""
    import bigsvm
    from tools.benchmarks.contestants import train_and_test

    given = GUESTS.get(job["who"], {"solver": job["who"], "certify": False})
    model = bigsvm.L2SVC(
        **job["parameters"], **given, sampling=SAMPLING, n_jobs=1, random_state=job["turn"]
    )
    return train_and_test(job, model)


def reported(row: Row, seconds: bool = False) -> paper.Reported | None:
    """Find what the paper has of a line."""
    poly = "kernel" in row.case.parameters
    known: Mapping[str, Mapping[str, paper.Reported]] = {
        (False, False): paper.ACCURACY, (False, True): paper.SECONDS,
        (True, False): paper.POLYNOMIAL_ACCURACY, (True, True): paper.POLYNOMIAL_SECONDS,
    }[poly, seconds]  # fmt: skip
    return known.get(row.case.data.name, {}).get(str(row.who))


def mean_and_deviation(values: Sequence[float]) -> str:
    """'mean ± standard deviation', or the value alone where there is one."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.2f}"


def told(row: Row) -> str:
    one = reported(row)
    return "-" if one is None else f"{one.mean:.2f} ± {one.deviation:.2f}"


def told_seconds(row: Row) -> str:
    one = reported(row, seconds=True)
    return "-" if one is None else f"{one.mean:g}"


def is_reproduced(row: Row) -> bool | None:
    """Whether the mean accuracy is the paper's; None where the paper, or a fit, has none."""
    one, found = reported(row), row.values("accuracy")
    if one is None or not found:
        return None
    return abs(statistics.fmean(found) - one.mean) <= 2 * one.deviation + SLACK


def gain(row: Row, name: str) -> Number | None:
    """Divide the CPU seconds of the core vector machine by those of another solver."""
    cvm = row.of(CVM)
    return cvm.ratio(name, "cpu_seconds") or cvm.ratio(name)


def paper_gain(row: Row, name: str) -> float | None:
    """Divide the paper's seconds."""
    cvm, other = reported(row.of(CVM), seconds=True), reported(row.of(name), seconds=True)
    return cvm.mean / other.mean if cvm and other else None


def gains(results: Results) -> str:
    """Lay out CVM ÷ FW and CVM ÷ MFW, and how they grow over the Web series."""
    names = [name for name in (FW, MFW) if name in results.contestants]
    if CVM not in results.contestants or not names:
        return ""
    lines = []
    for row in results.rows():
        cells = [
            cell for name in names for cell in (shown_gain(row, name), shown(paper_gain(row, name)))
        ]
        lines.append([row.case.name, row.case.facts["n_rows"], *cells])
    header = ["data", "rows", *(text for n in names for text in (f"cvm ÷ {n}", "the paper's"))]
    text = table(header, lines)
    for name in names:
        grown = growth(results, name)
        if grown is not None:
            text += f"\n\ncvm ÷ {name} on {LARGE[-1]} is {grown:.2f} times that on {SMALL}"
    return text


def growths(results: Results) -> str:
    """Lay out the powers of the number of rows that CPU seconds grow with, over the Web series."""
    if not has_one_case_of_each_set(results):
        return ""
    lines = []
    for name in results.contestants:
        points = [
            (float(row.case.facts["n_rows"]), seconds)
            for row in results.rows(name)
            if row.case.data.name in WEB and (seconds := row.median("cpu_seconds"))
        ]
        if (power := exponent(points)) is not None:
            lines.append([name, f"{power:.2f}"])
    return table(["solver", "CPU seconds ~ n^"], lines) if lines else ""


def shown_gain(row: Row, name: str) -> str:
    """Show a gain; an upper bound where the other solver was stopped."""
    found, cvm, other = gain(row, name), row.of(CVM), row.of(name)
    if found is None or not other.gave_up:
        return shown(found)
    return "-" if cvm.gave_up else f"< {found.value:.2f}"


def shown(value: Number | float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, Number) else f"{value:.2f}"


def growth(results: Results, name: str) -> float | None:
    """By how much the gain is larger on the largest set of the Web series than on the smallest."""
    by_data = {row.case.data.name: gain(row, name) for row in results.rows()}
    first, end = by_data.get(SMALL), by_data.get(LARGE[-1])
    return end.value / first.value if first and end else None


def friedman(columns: Sequence[Sequence[float]]) -> tuple[float, float]:
    """F of Iman and Davenport, and its p, of measurements (methods, data sets)."""
    from scipy import stats

    n, k = len(columns[0]), len(columns)
    chi2 = float(stats.friedmanchisquare(*columns).statistic)
    rest = n * (k - 1) - chi2
    F = (n - 1) * chi2 / rest if rest > 0 else float("inf")
    return F, float(stats.f.sf(F, k - 1, (k - 1) * (n - 1)))


def wilcoxon(a: Sequence[float], b: Sequence[float], alternative: str) -> tuple[float, float]:
    """Give the smaller sum of signed ranks, and p of the alternative: a is less, or differs."""
    from scipy import stats

    if list(a) == list(b):
        return 0.0, 1.0
    both = stats.wilcoxon(a, b, zero_method="pratt")
    one = stats.wilcoxon(a, b, zero_method="pratt", alternative=alternative)
    return float(both.statistic), float(one.pvalue)


PAIRS = ((FW, CVM, "less", "less"), (MFW, CVM, "less", "less"), (FW, MFW, "two-sided", "less"))
"""A pair, and the alternatives for its seconds and its accuracies: table 4."""


def tests(results: Results) -> str:
    """Lay out the tests of all methods and of each pair, as tables 5 and 6 do."""
    rows = [
        [results.row(case, name) for name in paper.METHODS]
        for case in results.cases
        if all(
            reported(row := results.row(case, name)) and row.values("accuracy")
            for name in paper.METHODS
        )
    ]
    # Nothing is tested on fewer sets, nor on several C of one set, which depend on one another.
    if len(rows) < 3 or not has_one_case_of_each_set(results):
        return ""
    measured = {
        "seconds": [[row.median("cpu_seconds") or 0.0 for row in each] for each in rows],
        "accuracy": [[statistics.fmean(row.values("accuracy")) for row in each] for each in rows],
    }
    printed = {
        what: [[reported(row, seconds=what == "seconds").mean for row in each] for each in rows]  # type: ignore[union-attr]
        for what in measured
    }
    lines = []
    for source, values in (("measured", measured), ("the paper's", printed)):
        for what, of_sets in values.items():
            by_method = dict(zip(paper.METHODS, zip(*of_sets, strict=True), strict=True))
            cells = ["{:.2f}, p {:.2g}".format(*friedman(list(by_method.values())))]
            for a, b, *alternatives in PAIRS:
                found = wilcoxon(by_method[a], by_method[b], alternatives[what == "accuracy"])
                cells.append("{:g}, p {:.2g}".format(*found))
            lines.append([source, what, len(of_sets), *cells])
    header = ["source", "of", "sets", "Friedman F", *(f"W, {a} against {b}" for a, b, *_ in PAIRS)]
    return table(header, lines)


def has_one_case_of_each_set(results: Results) -> bool:
    """Whether no data set has several C."""
    names = [case.data.name for case in results.cases]
    return len(set(names)) == len(names)


def limits(results: Results) -> list[Limit]:
    """Hold what the paper claims of its algorithms against what was measured."""
    if results.options.kernel != "rbf" or not has_one_case_of_each_set(results):
        return []
    found = []
    for name in (FW, MFW):
        verdicts = [v for row in results.rows(name) if (v := is_reproduced(row)) is not None]
        if verdicts:
            share = sum(verdicts) / len(verdicts)
            text = f"{name}: accuracies reproduced, share of {len(verdicts)} sets"
            found.append(at_least(text, share, limit=LEAST_SHARE))
        for row in results.rows():
            if row.case.data.name in LARGE:
                text = f"cvm ÷ {name}, {row.case.data.name}"
                found.append(at_least(text, gain(row, name), limit=LEAST_GAIN))
        grown = growth(results, name)
        if grown is not None:
            text = f"cvm ÷ {name}: {LARGE[-1]} ÷ {SMALL}"
            found.append(at_least(text, grown, limit=LEAST_GROWTH))
    return found


def within(row: Row) -> str:
    verdict = is_reproduced(row)
    return "-" if verdict is None else "yes" if verdict else "no"


def after(results: Results) -> str:
    return "\n\n".join(filter(None, (gains(results), growths(results), tests(results))))


def takes_part(name: str, case: Case, options: argparse.Namespace) -> bool:
    return options.kernel == "rbf" or name != CVM


SUITE = Suite(
    cases=cases,
    data=(*ADULT, *WEB, "reuters_moneyfx"),
    contestants=paper.METHODS,
    guests=tuple(GUESTS),
    takes_part=takes_part,
    columns=(
        ("data", lambda row: row.case.data.name),
        "rows",
        ("C", lambda row: f"{row.case.parameters['C']:g}"),
        ("solver", who),
        ("accuracy %", lambda row: mean_and_deviation(row.values("accuracy"))),
        ("the paper's", told),
        ("within", within),
        "CPU seconds",
        ("the paper's seconds", told_seconds),
        *("steps", "SVs", "stopped"),
    ),
    after=after,
    limits=limits,
    do="tools.benchmarks.suites.sampled_balls:fit",
    layout="suitable",
    distances=True,
    repeats=5,
    threads=1,
    give_up=300.0,
    more=(
        ("--C", {"type": float, "nargs": "+", "default": []}),
        ("--kernel", {"choices": tuple(READINGS), "default": "rbf"}),
    ),
)
