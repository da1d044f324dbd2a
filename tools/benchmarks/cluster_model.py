"""A model of what a run on workers costs, held against a run, and told for more rows.

Used by ``cluster --part model``; see there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.cluster_parts import PARTS
from tools.benchmarks.results import Case, Limit, Results, Row, at_most, spread, table

if TYPE_CHECKING:
    import argparse

MOST_OFF = 0.15
"""A part that is off by more than this share of what was measured is not explained."""
TASKS_PER_WORKER = 8
"""Tasks of a pass for a worker of one thread."""
EVERY = 5.0
"""Seconds between checkpoints of the measured runs, so that there are several."""
SIZES = ((10**6, 10**5), (10**7, 10**5), (10**8, 10**5), (10**8, 10**6), (10**9, 10**6))
"""Rows and support vectors that the table tells of."""


class Work(NamedTuple):
    """What the seconds of a run's parts are in proportion to; see `counts_of`."""

    rows: float
    support: float
    workers: float
    evaluations: float
    passes: float
    swept: float
    saved: float
    tasks: float

    @classmethod
    def of(cls, row: Row) -> Work:
        """Count the work of a measured run."""
        return cls(
            row.case.facts["n_rows"], row.last("n_support"), 1, row.last("evaluations"),
            row.last("n_passes"), row.last("swept"), row.last("saved"),
            row.last("n_tasks"),
        )  # fmt: skip


class Model(NamedTuple):
    """Seconds of the parts, from two measured runs; `scaled` tells the work of another size.

    Attributes
    ----------
    work, seconds : Work and dict
        Of the larger run: seconds are in proportion to its work.
    per_support, constant : float
        Seconds of the ends: of a support vector, and besides.
    empty : float
        Seconds of a pass without kernel values, with one worker.
    """

    work: Work
    seconds: dict[str, float]
    per_support: float
    constant: float
    empty: float

    @classmethod
    def of(cls, small: Row, large: Row) -> Model:
        """Find the unit costs."""
        work, least = Work.of(large), {part: min(large.values(part)) for part in PARTS}
        more = work.support - Work.of(small).support
        slope = max(0.0, least["ends"] - min(small.values("ends"))) / more
        return cls(work, least, slope, least["ends"] - slope * work.support, empty_of(large))

    def parts(self, work: Work, *, growth: float = 1.0) -> dict[str, float]:
        """Tell the seconds of some work; scheduling takes `growth` times as long a task."""
        own, base = self.work, self.seconds
        value = (base["passes"] - self.empty * own.passes) / own.evaluations
        return {
            "passes": value * work.evaluations / work.workers + self.empty * work.passes,
            "steps": base["steps"] / own.support * work.support,
            "scans": base["scans"] / own.swept * work.swept,
            "labels": base["labels"] / own.rows * work.rows,
            "checkpoints": base["checkpoints"] / own.saved * work.saved,
            "scheduling": base["scheduling"] / own.tasks * work.tasks * growth,
            "tasks": base["tasks"] / own.tasks * work.tasks,
            "ends": self.constant + self.per_support * work.support,
        }


def empty_of(row: Row) -> float:
    """Seconds of a pass without kernel values: the least of the turns."""
    return float(min(row.values("empty")))


def scaled(by: Work, rows: float, support: float, workers: float = 1) -> Work:
    """Tell the work of another size: as many floors, and as many looks at each row."""
    from bigsvm.executors.cluster import EVALUATIONS_PER_TASK

    passes = by.passes * support / by.support
    of_passes = by.tasks / by.passes * passes * workers
    evaluations = by.evaluations / (by.rows * by.support) * rows * support
    return Work(
        rows, support, workers, evaluations, passes, by.swept / by.rows * rows,
        by.saved / by.rows * rows, max(of_passes, evaluations / EVALUATIONS_PER_TASK),
    )  # fmt: skip


class Checked(NamedTuple):
    """What was measured, beside what the model says of it."""

    name: str
    modelled: float
    measured: float

    @property
    def is_explained(self) -> bool:
        """Whether they are near."""
        return abs(self.measured - self.modelled) <= MOST_OFF * self.measured

    def cells(self, digits: str) -> tuple[str, ...]:
        """Show them in a table."""
        ratio = f"{self.modelled / self.measured:.2f}" if self.measured else "-"
        verdict = "" if self.is_explained else "not explained"
        shown = (f"{self.modelled:{digits}}", f"{self.measured:{digits}}")
        return (self.name, *shown, ratio, verdict)


class Findings(NamedTuple):
    """The model of two runs, held against a third one, which is larger."""

    model: Model
    largest: Row
    parts: list[Checked]
    counts: list[Checked]
    whole: Checked

    @classmethod
    def of(cls, results: Results) -> Findings:
        """Check parts by the counts of the largest run, and all by those of the one before."""
        small, large, largest = sorted(results.rows(), key=lambda row: row.case.facts["n_rows"])
        model, work = Model.of(small, large), Work.of(largest)
        told = model.parts(work)
        parts = [Checked(part, told[part], min(largest.values(part))) for part in PARTS]
        guess = scaled(model.work, work.rows, work.support)
        counts = [
            Checked(name, getattr(guess, name), getattr(work, name))
            for name in ("evaluations", "passes", "swept", "tasks")
        ]
        measured = sum(part.measured for part in parts)
        whole = Checked("whole run", sum(model.parts(guess).values()), measured)
        return cls(model, largest, parts, counts, whole)

    def faulty(self) -> set[str]:
        """List the parts that are not explained, or whose counts are not."""
        needs = {
            "passes": ("evaluations", "passes"), "scans": ("swept",), "scheduling": ("tasks",),
            "tasks": ("tasks",),
        }  # fmt: skip
        wrong = {count.name for count in self.counts if not count.is_explained}
        return {
            part.name for part in self.parts
            if not part.is_explained or wrong & set(needs.get(part.name, ()))
        }  # fmt: skip


def findings_shown(results: Results) -> str:
    """Show the model beside the largest run, and what it tells of more rows and workers."""
    found, options = Findings.of(results), results.options
    work = Work.of(found.largest)
    header = ("modelled", "measured", "ratio", "")
    texts = [
        f"The run of {work.rows:.0f} rows by the costs of the one before, and its own counts:",
        table(("seconds", *header), [part.cells(".2f") for part in found.parts]),
        "Its counts, and the whole run, by those of the one before:",
        table(
            ("count", *header),
            [*(count.cells(".4g") for count in found.counts), found.whole.cells(".4g")],
        ),
    ]
    told, left_out = at_size(found, options)
    if told:
        texts += [
            f"Of 54 columns, on a link of {options.link / 1e9:g} GB/s; all rows fit "
            "on the workers. How far each line is from what was measured is on its right:",
            table(
                ("rows", "SVs", "workers", *PARTS, "bytes", "whole run", "checkpoint, GB",
                 "times the values", "times the workers"),
                told,
            ),
        ]  # fmt: skip
    texts += left_out
    return "\n\n".join(texts)


def at_size(found: Findings, options: argparse.Namespace) -> tuple[list[Any], list[str]]:
    """Tell what runs with more rows and workers take; and those that cannot be told."""
    from tools.fake_workers import measured as of_fakes

    work, last = Work.of(found.largest), found.largest
    base = scaled(work, work.rows, work.support)
    results = {p: of_fakes(p, TASKS_PER_WORKER)["result"] for p in (10, *options.workers)}
    told, left_out = [], []
    moved = last.last("moved") / work.support
    returned = last.last("returned") / work.rows
    for rows, support in SIZES:
        for workers in options.workers:
            other = scaled(base, rows, support, workers)
            growth = results[workers] / results[10]
            parts = found.model.parts(other._replace(saved=0.0), growth=growth)
            n_bytes = (moved * support + returned * rows) / options.link
            generation = last.last("saved") / last.last("saves") / work.rows * rows
            once = found.model.seconds["checkpoints"] / found.model.work.saved * generation
            parts["checkpoints"] = once * (1 + sum(parts.values()) / options.every)
            whole = sum(parts.values()) + n_bytes
            name = f"{rows:.0e} rows, {support:.0e} SVs, {workers} workers"
            unknown = sum(parts[part] for part in found.faulty()) / whole
            if unknown > MOST_OFF or not found.whole.is_explained:
                left_out.append(f"{name}: left out, {unknown:.0%} of it is not explained")
                continue
            told.append((
                f"{rows:.0e}", f"{support:.0e}", workers,
                *(duration(seconds) for seconds in (*parts.values(), n_bytes, whole)),
                f"{generation / 1e9:.2g}", f"{rows * support / work.rows / work.support:.0f}",
                workers,
            ))  # fmt: skip
    return told, left_out


def duration(seconds: float) -> str:
    """Show seconds as a person would say them."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s"


def model_limits(results: Results) -> list[Limit]:
    """Hold the model against the largest run."""
    found = Findings.of(results)
    return [
        at_most(f"{each.name}: off by", abs(each.modelled / each.measured - 1), limit=MOST_OFF)
        for each in (*found.parts, *found.counts, found.whole)
    ]


def sizes(options: argparse.Namespace) -> list[Case]:
    """List the rows that are trained, few first."""
    from tools.benchmarks.suites.cluster import problem

    given, found = vars(options), []
    for rows in sorted(options.sizes):
        case = problem(type(options)(**{**given, "rows": rows}))
        found.append(case._replace(parameters={**case.parameters, "every": EVERY}))
    return found


MODEL = Suite(
    cases=sizes,
    contestants=("one worker",),
    columns=(
        ("rows", lambda row: row.case.facts["n_rows"]),
        *("seconds", "SVs"),
        *((part, spread(part)) for part in PARTS),
        ("empty pass, ms", spread("empty", digits=0, scale=1e3)),
        ("passes counted", "n_passes"),
        ("tasks counted", "n_tasks"),
        ("saves", "saves"),
    ),
    after=findings_shown,
    limits=model_limits,
    do="tools.benchmarks.cluster_parts:timed_run",
    stores=True,
    memory="300MB",
    repeats=2,
    threads=1,
    sizes=(220_000, 440_000, 880_000),
    more=(
        ("--workers", {"type": int, "nargs": "+", "default": [10, 100]}),
        ("--every", {"type": float, "default": 60.0, "help": "seconds between checkpoints"}),
        ("--link", {"type": float, "default": 1.25e9, "help": "bytes a second"}),
    ),
)
