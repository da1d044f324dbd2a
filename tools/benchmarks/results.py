"""What a benchmark has found: runs, the rows of its tables, limits, and how they are shown.

Figures of several turns are shown as "median [min-max]"; ratios are taken within a turn. Where a
contestant was stopped, its seconds are a lower bound, ">", and a limit above it is "not known" to
hold.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tools.benchmarks.data import DataSet, data_set

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not known"
BYTES_PER_ROW = 40
"""What a run may keep per row beside its budget: the state, outputs, labels, bounds, scores."""


class Case(NamedTuple):
    """A problem that is fitted.

    Attributes
    ----------
    name : str
        Name of the case in its suite.
    data : DataSet
    parameters : dict
        Parameters of an estimator. ``times`` stands for gamma = times / the average squared
        distance of two rows.
    labels : str
        "even against odd": number the classes and make two of them.
    facts : dict
        What `contestants.prepare` says of the rows; of data without layouts nothing is prepared.
    """

    name: str
    data: DataSet
    parameters: Mapping[str, Any]
    labels: str = ""
    facts: Mapping[str, Any] = {}


def case_of(data: DataSet) -> Case:
    """Train a data set with its own C and gamma."""
    return Case(data.name, data, {"C": data.C, "gamma": data.gamma})


def data_cases(options: argparse.Namespace) -> list[Case]:
    """Train the data sets that ``--data`` names, each with its own C and gamma."""
    return [case_of(data_set(name)) for name in options.data]


def made_up(name: str, **parameters: Any) -> Case:  # noqa: ANN401 (what JSON has)
    """Describe a case whose rows a suite's own function makes, if it needs any."""
    return Case(name, DataSet(name, n_made=1, layouts=()), parameters)


class Run(NamedTuple):
    """One fit.

    Attributes
    ----------
    case : Case
    who, layout : str
    turn : int
    answer : dict
        Of the child; seconds and peak_rss alone where it was stopped.
    gemm : float
        Seconds of a fixed matrix product just before it.
    gave_up : bool
        Whether it was stopped.
    """

    case: Case
    who: str
    layout: str
    turn: int
    answer: Mapping[str, Any]
    gemm: float
    gave_up: bool = False

    @property
    def seconds(self) -> float:
        """Wall seconds of the fit alone."""
        return float(self.answer["seconds"])

    @property
    def evaluations_in_floors(self) -> float | None:
        """Kernel evaluations ÷ (n · n_SV), which has no noise; None where they were not counted."""
        if "n_kernel_evaluations" not in self.answer:
            return None
        floor = self.case.facts["n_rows"] * max(self.answer["n_support"], 1)
        return float(self.answer["n_kernel_evaluations"] / floor)


class Number(NamedTuple):
    """Something measured; `at_least` where it would have been more, had one waited."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'> ' * self.at_least}{self.value:.2f}"


class Row(NamedTuple):
    """The runs that a line of a table is made of: of one case, by one contestant or by all."""

    case: Case
    who: str | None
    runs: tuple[Run, ...]
    whole: Results

    def of(self, who: str | None) -> Row:
        """Give the line of another contestant on the same case."""
        return self.whole.row(self.case, who)

    def values(self, name: str) -> list[Any]:
        """Give a value of each run that has it: an entry of its answer, or its own attribute."""
        found = [
            getattr(r, name, None) if hasattr(Run, name) else r.answer.get(name) for r in self.runs
        ]
        return [value for value in found if value is not None]

    def median(self, name: str) -> float | None:
        """Give the median over the turns; None where no run has the value."""
        values = self.values(name)
        return statistics.median(values) if values else None

    def last(self, name: str, otherwise: Any = "-") -> Any:  # noqa: ANN401 (what it is)
        """Give the value of the last run that has it."""
        return next(reversed(self.values(name)), otherwise)

    @property
    def gave_up(self) -> bool:
        """Whether one of the runs was stopped."""
        return any(run.gave_up for run in self.runs)

    def ratios(self, who: str, name: str = "seconds") -> list[float]:
        """Divide by another contestant's value, turn by turn."""
        theirs = {run.turn: run for run in self.of(who).runs}
        pairs = [(run, theirs[run.turn]) for run in self.runs if run.turn in theirs]
        return [
            a.answer[name] / b.answer[name]
            for a, b in pairs
            if name in a.answer and name in b.answer
        ]

    def in_floors(self) -> list[float]:
        """Divide seconds by those of a floor: its own, or that of one of ours in the same turn."""
        found = []
        for run in self.runs:
            same = [self] + [self.of(name) for name in ("memory", "store")]
            floors = [
                r.answer.get("floor_seconds")
                for row in same
                for r in row.runs
                if r.turn == run.turn
            ]
            floor = next(filter(None, floors), None)
            if floor:
                found.append(run.seconds / floor)
        return found

    @property
    def median_in_floors(self) -> float | None:
        """Give the median of `in_floors`."""
        found = self.in_floors()
        return statistics.median(found) if found else None

    def ratio(self, who: str | None, name: str = "seconds") -> Number | None:
        """Divide by another contestant's value: the median over the turns."""
        ratios = [] if who is None else self.ratios(who, name)
        return Number(statistics.median(ratios), self.gave_up) if ratios else None


class Results(NamedTuple):
    """All runs of a suite.

    Attributes
    ----------
    runs : tuple of Run
    options : argparse.Namespace
    interpreter : int
        Peak bytes of a tiny problem, where the suite asks for it.
    notes : tuple of str
        Who was stopped, and was not asked for larger cases.
    asked : tuple of str
        Contestants in the order of the tables; those of the runs as they come by default.
    """

    runs: tuple[Run, ...]
    options: argparse.Namespace
    interpreter: int = 0
    notes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def budget(self) -> int:
        """Bytes of ``--memory``."""
        from bigsvm.budget import parse_bytes

        return parse_bytes(self.options.memory)

    @property
    def cases(self) -> list[Case]:
        """In the order in which they were fitted."""
        return list({run.case.name: run.case for run in self.runs}.values())

    @property
    def contestants(self) -> list[str]:
        """Those that have runs."""
        ran = dict.fromkeys(run.who for run in self.runs)
        return [name for name in self.asked or ran if name in ran]

    def row(self, case: Case, who: str | None = None) -> Row:
        """Give the runs of a case; of one contestant or of all."""
        runs = [r for r in self.runs if r.case.name == case.name and who in (None, r.who)]
        return Row(case, who, tuple(runs), self)

    def rows(self, who: str | None = None) -> list[Row]:
        """Give the lines of a contestant, or the lines of all cases."""
        return [row for row in (self.row(case, who) for case in self.cases) if row.runs]

    def lines(self, *, wide: bool, by_contestant: bool) -> list[Row]:
        """Give the lines of a table: one of each case, or one of each contestant on each case."""
        if wide:
            return self.rows()
        pairs = [(case, who) for case in self.cases for who in self.contestants]
        if by_contestant:
            pairs.sort(key=lambda pair: self.contestants.index(pair[1]))
        return [row for row in (self.row(*pair) for pair in pairs) if row.runs]


Shown: TypeAlias = "str | Callable[[Row], object]"
"""Makes a cell of a line; a string names a value of the last run, ``gap`` or ``gap:.2e``."""
Column: TypeAlias = "str | tuple[str, Shown]"
"""A header, and what is below it where it is none of `COLUMNS`."""


class Limit(NamedTuple):
    """Something that must hold.

    Attributes
    ----------
    name : str
    found : tuple of str
        One for each of the suite's variants; one in all where it has none.
    limit : str
    holds : tuple of bool or None
        None: not known.
    """

    name: str
    found: tuple[str, ...]
    limit: str
    holds: tuple[bool | None, ...]


def at_most(
    name: str, *found: Number | float | None, limit: float, digits: int = 2, shown: str = "≤ {:g}"
) -> Limit:
    """Hold values against a limit that they must not pass."""
    values = [_number(value) for value in found]
    holds = tuple(None if v is None or v.at_least else v.value <= limit for v in values)
    return Limit(name, tuple(_shown(v, digits) for v in values), shown.format(limit), holds)


def at_least(
    name: str, *found: Number | float | None, limit: float, digits: int = 2, shown: str = "≥ {:g}"
) -> Limit:
    """Hold values against a limit that they must reach; a lower bound below it decides nothing."""
    values = [_number(value) for value in found]
    holds = tuple(
        None if v is None or (v.at_least and v.value < limit) else v.value >= limit for v in values
    )
    return Limit(name, tuple(_shown(v, digits) for v in values), shown.format(limit), holds)


def must(name: str, found: object, limit: object, holds: bool) -> Limit:
    """Hold something against a limit in words."""
    return Limit(name, (str(found),), str(limit), (holds,))


def _number(value: Number | float | None) -> Number | None:
    return value if value is None or isinstance(value, Number) else Number(value)


def _shown(value: Number | None, digits: int) -> str:
    return "-" if value is None else f"{'> ' * value.at_least}{value.value:.{digits}f}"


def verdicts(limits: Sequence[Limit], variants: Sequence[str] = ()) -> str:
    """Lay out what was held against limits."""
    words = {True: HOLDS, False: FAILS, None: UNKNOWN}
    if not variants:
        rows = [[m.name, m.found[0], m.limit, words[m.holds[0]]] for m in limits]
        return table(["check", "found", "limit", ""], rows)
    rows: list[list[object]] = []
    for m in limits:
        pairs = zip(m.found, m.holds, strict=True)
        cells = ["-" if found == "-" else f"{found}, {words[holds]}" for found, holds in pairs]
        rows.append([m.name, m.limit, *cells])
    return table(["what", "limit", *variants], rows)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out a Markdown table, its columns padded to be read as text."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def median_range(values: Sequence[float], *, digits: int = 2) -> str:
    """'median [min-max]', or the value alone where there is one, or '-' where there is none."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):.{digits}f}-{max(values):.{digits}f}]"


def megabytes(n_bytes: float) -> str:
    """Show bytes as megabytes."""
    return f"{n_bytes / 1e6:.0f}"


def noise(gemm_seconds: Sequence[float]) -> str:
    """Say how steady the machine was, by what a fixed GEMM took before each run."""
    milliseconds = [1e3 * seconds for seconds in gemm_seconds]
    return (
        f"noise: a fixed GEMM before each run took {median_range(milliseconds, digits=0)} ms, "
        f"spread {max(gemm_seconds) / statistics.median(gemm_seconds) - 1:.0%} over the median"
    )


def geometric_mean(values: Iterable[Number | float | None]) -> Number | None:
    """Geometric mean; None where a value is missing, a lower bound where one is a bound."""
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return None
    bounded = any(number.at_least for number in known)
    if min(number.value for number in known) == 0:  # stopped before its fit began
        return Number(0.0, bounded)
    return Number(statistics.geometric_mean([number.value for number in known]), bounded)


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Slope of the line through (log n, log value) by least squares; None of fewer than two."""
    if len(points) < 2:
        return None
    logs = [(math.log(n), math.log(value)) for n, value in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def memory_limit(budget: int, *, n_rows: int, baseline: int) -> int:
    """Bytes that a run's resident set may reach; the baseline is what the interpreter takes."""
    return budget + BYTES_PER_ROW * n_rows + baseline


# Columns that several suites have.


def spread(name: str, *, digits: int = 2, scale: float = 1.0) -> Callable[[Row], str]:
    """Show a value as "median [min-max]"; a lower bound where a run was stopped."""

    def shown(row: Row) -> str:
        values = [scale * value for value in row.values(name)]
        return "> " * (row.gave_up and bool(values)) + median_range(values, digits=digits)

    return shown


def ratio_to(who: str, name: str = "seconds", *, digits: int = 2) -> Callable[[Row], str]:
    """Show by how many times a value is that of another contestant."""

    def shown(row: Row) -> str:
        ratios = row.ratios(who, name)
        return "> " * (row.gave_up and bool(ratios)) + median_range(ratios, digits=digits)

    return shown


def spread_in_floors(row: Row) -> str:
    """Show seconds in floors."""
    found = row.in_floors()
    return "> " * (row.gave_up and bool(found)) + median_range(found)


def cell(row: Row, shown: Shown) -> object:
    """Make a cell."""
    if not isinstance(shown, str):
        return shown(row)
    name, _, form = shown.partition(":")
    values = row.values(name)
    return format(values[-1], form) if values else "-"


def most_megabytes(row: Row) -> str:
    """Show the peak of the resident set, the most over the turns."""
    return megabytes(max(row.values("peak_rss")))


def who(row: Row) -> str:
    """Show the contestant."""
    return str(row.who)


def of(name: str, shown: Shown) -> Callable[[Row], object]:
    """Show a value of one contestant, where all share a line."""
    return lambda row: cell(row.of(name), shown)


def given(name: str, shown: str = "{:g}") -> Callable[[Row], str]:
    """Show a parameter of a case."""
    return lambda row: shown.format(row.case.parameters[name])


def fact(name: str, shown: str = "{}") -> Callable[[Row], str]:
    """Show what is known of the rows of a case."""
    return lambda row: shown.format(row.case.facts[name])


COLUMNS: dict[str, Shown] = {
    "who": who,
    "data": lambda row: row.case.name,
    "rows": fact("n_rows"),
    "seconds": spread("seconds"),
    "CPU seconds": spread("cpu_seconds"),
    "SVs": "n_support",
    "steps": "n_iter",
    "sweeps": "n_sweeps",
    "evaluations in floors": "evaluations_in_floors:.2f",
    "test accuracy %": "accuracy:.2f",
    "peak RSS MB": most_megabytes,
    "stopped": "stopped",
    "converged": "converged",
}
"""Columns that a suite names by their headers."""
