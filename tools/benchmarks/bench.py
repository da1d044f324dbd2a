"""The benchmark harness: the cases of a suite are fitted in turns, and a report is printed.

`suites` has what is measured and how a suite is added, `contestants.py` who takes part, and
`results.py` what is made of the runs. Each fit is a process of its own, and contestants take turns
(A B C A B C …), because the machine's speed drifts; a fixed matrix product before each fit says how
steady it was.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.children import REPOSITORY, bigsvm_command, machine, run_checked
from tools.benchmarks.contestants import OURS, TOL, is_installed
from tools.benchmarks.data import is_skipped
from tools.benchmarks.results import (
    COLUMNS,
    Case,
    Column,
    Limit,
    Results,
    Row,
    Run,
    cell,
    geometric_mean,
    median_range,
    megabytes,
    noise,
    spread,
    table,
    verdicts,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from tools.benchmarks.children import Finished

BASE = "base"
TINY_ROWS = 1000
"""Rows of a problem that shows what the interpreter takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """What is measured, and what is printed of it; see `suites` for an example.

    Attributes
    ----------
    cases : callable
        options → cases; those without a file are skipped.
    contestants, guests : tuple of str
        Of `contestants.py`; guests take part only where ``--contestants`` names them.
    columns : tuple of str or (str, str or callable)
        Headers of `results.COLUMNS`, or `results.Shown` below a header of the suite's own.
    limits : callable
        `Results` → what must hold.
    before, after : callable
        `Results` → more text, printed above and below the tables.
    more_rows : callable
        A case's lines → further lines of its table.
    heading, below : callable
        `Row` of a case → text above and below its table, where each has one.
    while_running : callable
        (case, contestant, layout, folder) → what this process does while the fit is under way, as
        `children.run_child` has it, or None.
    stores : bool
        Whether stores are written for a function of the suite's own.
    do : str
        The job of a fit; ``module:function`` for one of the suite's own, which is given the job and
        returns a JSON object with ``seconds``.
    table_of_each_case, wide, by_contestant : bool
        One table a case; one line a case, and not one a contestant; all lines of a contestant
        together.
    variants : tuple of str
        Headers of the columns of the verdicts, where there are several.
    data, sizes : tuple
        What ``--data`` and ``--sizes`` are by default; without, there is no such option.
    layout : str
        "dense", "csr"; "last": the last of the data set; "best": both are tried in the first turn
        and the faster one is kept; "suitable": CSR where two thirds of the values are 0.
    peer_layout : str or None
        Of other libraries, where it is another one.
    repeats, threads : int
    memory : str or None
        Budget of our fits, as ``--memory``; None: there is no such option.
    give_up : float or None
        As ``--give-up``: seconds of a fit, of a command from its start, after which it is stopped,
        or what `patience` makes of them. Who is stopped is not asked again for that case; where
        cases grow (`growing`), not for any after it, and its runs of that case do not count.
    patience : callable or None
        (contestant, its case's runs so far, options) → seconds, None for ever.
    once : tuple of str
        Contestants that take part in the first turn only.
    takes_part : callable
        (contestant, case, options) → whether it is asked to fit the case.
    one_process : bool
        All fits of a case are done by one process, one after the other: where start-up would take
        far longer than they do. Nobody can be stopped then.
    uncounted : bool
        Whether such a process begins with a turn that does not count, in which it compiles.
    accuracy, floors, distances : bool
        What `contestants.fit` and `contestants.prepare` do besides.
    cache : int
        Megabytes of the kernel cache of other libraries.
    interpreter : Case or None
        A tiny problem whose peak memory is what the interpreter takes.
    base : bool
        Whether ``--base CHECKOUT`` lets our contestants of another checkout take turns too; not
        with `one_process`, which can import one bigsvm only.
    more : tuple
        Further options: arguments of ``add_argument``.
    folder : bool
        Whether there is something to keep in a folder, as ``--folder``.
    program : callable or None
        options → exit code: a suite that goes its own way, with the parts of this module.
    """

    cases: Callable[[argparse.Namespace], Sequence[Case]] = lambda options: ()
    contestants: tuple[str, ...] = ()
    guests: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    limits: Callable[[Results], Sequence[Limit]] = lambda results: ()
    before: Callable[[Results], str] = lambda results: ""
    after: Callable[[Results], str] = lambda results: ""
    more_rows: Callable[[Sequence[Row]], Sequence[Sequence[object]]] = lambda rows: ()
    heading: Callable[[Row], str] = lambda row: (
        f"{row.case.name}: {row.case.facts['n_rows']} rows x {row.case.facts['n_columns']}, "
        f"density {row.case.facts['density']:.3f}"
    )
    below: Callable[[Row], str] = lambda row: noise(row.values("gemm"))
    while_running: Callable[[Case, str, str, Path], Callable[..., None] | None] = (
        lambda case, who, layout, folder: None
    )
    stores: bool = False
    do: str = "fit"
    table_of_each_case: bool = False
    wide: bool = False
    by_contestant: bool = False
    variants: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    layout: str = "dense"
    peer_layout: str | None = None
    repeats: int = 3
    threads: int = 2
    memory: str | None = None
    give_up: float | None = None
    patience: Callable[[str, Sequence[Run], argparse.Namespace], float | None] | None = None
    growing: bool = False
    once: tuple[str, ...] = ()
    takes_part: Callable[[str, Case, argparse.Namespace], bool] = lambda who, case, options: True
    one_process: bool = False
    uncounted: bool = True
    accuracy: bool = False
    floors: bool = False
    distances: bool = False
    cache: int = 200
    interpreter: Case | None = None
    base: bool = False
    more: tuple[tuple[str, dict[str, Any]], ...] = ()
    folder: bool = True
    program: Callable[[argparse.Namespace], int] | None = None


class Bench:
    """Runs a suite.

    Parameters
    ----------
    suite : Suite
    options : argparse.Namespace
        Of `__main__.parse`.
    folder : Path
        For rows, stores and models.
    """

    def __init__(self, suite: Suite, options: argparse.Namespace, folder: Path) -> None:
        self.suite, self.options, self.folder = suite, options, folder
        asked = [who for who in options.contestants if is_installed(who)]
        ours = [who for who in asked if who in OURS]
        self._bases = {}
        if getattr(options, "base", None):
            self._bases = {BASE if len(ours) == 1 else f"{BASE} {who}": who for who in ours}
        places = {of: name for name, of in self._bases.items()}
        self.contestants = [
            name for who in asked for name in (who, places.get(who)) if name is not None
        ]

    def measure(self) -> Results:
        """Fit all cases."""
        interpreter, runs, notes = self._interpreter(), list[Run](), list[str]()
        asked, prepared = self.contestants, None
        for case in self.suite.cases(self.options):
            if is_skipped(case.data):
                continue
            if not case.data.layouts:
                self._remove(prepared)
                prepared = None
            elif prepared is None or (prepared.data, prepared.labels) != (case.data, case.labels):
                self._remove(prepared)
                prepared = self._prepare(case)
            if prepared is not None:
                case = self._resolved(case._replace(facts=prepared.facts))
            _say(case.name)
            takes_part = self.suite.takes_part
            found = self._turns(
                case, [name for name in asked if takes_part(name, case, self.options)]
            )
            if self.suite.growing:
                stopped = {run.who: run.seconds for run in found if run.gave_up}
                notes += [
                    f"{name} was given up at {case.facts['n_rows']} rows after {seconds:.0f} s"
                    for name, seconds in sorted(stopped.items())
                ]
                asked = [name for name in asked if name not in stopped]
                found = [run for run in found if run.who not in stopped]
            runs += found
            if not asked:
                break
        self._remove(prepared)
        return Results(
            tuple(runs), self.options, interpreter, tuple(notes), tuple(self.contestants)
        )

    def _interpreter(self) -> int:
        """Measure what a tiny problem takes; it also compiles, which takes memory of its own."""
        if self.suite.interpreter is None:
            return 0
        case = self._prepare(self.suite.interpreter)
        ours = next(name for name in self.contestants if name in OURS)
        peaks = [self._fit(case, ours, self._layouts(case)[-1], 0, None) for _ in range(2)]
        self._remove(case)
        return int(peaks[-1].answer["peak_rss"])

    def _turns(self, case: Case, asked: list[str]) -> list[Run]:
        """Fit a case in turns: every layout in the first, each contestant's faster one after it."""
        layouts, runs = self._layouts(case), list[Run]()
        if self.suite.one_process:
            return self._one_process(case, asked, layouts[-1])
        for layout in layouts:
            for name in asked:
                if self._kind(name) == "store":  # fills the cache of compiled code on disk
                    self._command_line(case, name, layout, tiny=True)
        kept = {name: self.suite.peer_layout for name in asked if self._kind(name) not in OURS}
        for turn in range(self.options.repeats):
            for layout in layouts if turn == 0 else layouts[-1:]:
                for name in asked:
                    once = name in self.suite.once
                    stopped = any(run.gave_up for run in runs if run.who == name)
                    if (once and (turn or layout != layouts[-1])) or (turn and stopped):
                        continue
                    runs.append(
                        self._fit(
                            case, name, kept.get(name) or layout, turn, self._patience(name, runs)
                        )
                    )
            for name in asked:
                mine = [run for run in runs if run.who == name]
                kept[name] = min(mine, key=lambda run: run.seconds).layout
            runs = [run for run in runs if run.layout == kept[run.who]]
        return runs

    def _patience(self, name: str, runs: Sequence[Run]) -> float | None:
        seconds = getattr(self.options, "give_up", None)
        if self.suite.patience is None:
            return seconds
        return self.suite.patience(name, runs, self.options)

    def _fit(self, case: Case, name: str, layout: str, turn: int, patience: float | None) -> Run:
        gemm = self._job({"do": "calibrate"}).answer["seconds"]
        if self._kind(name) == "store":
            child = self._command_line(case, name, layout, patience=patience)
        else:
            child = self._job(
                self._described(case, name, layout, turn),
                give_up_after=patience,
                of_the_fit=True,
                while_running=self.suite.while_running(case, name, layout, self.folder),
            )
        answer = dict(child.answer)
        answer.setdefault("peak_rss", child.peak_rss)
        answer.setdefault("cpu_seconds", child.cpu_seconds)
        if child.gave_up:
            # A command counts from its start; a child that was stopped earlier has fitted nothing.
            unknown = child.ended - child.seconds * (self._kind(name) == "store")
            seconds = child.ended - (child.fit_began or unknown)
            answer = {"seconds": seconds, "peak_rss": child.peak_rss}
        elif self.suite.floors and self._kind(name) == "store":
            job = self._described(case, name, layout) | {"do": "floor"}
            answer["floor_seconds"] = self._job(job).answer["seconds"]
        run = Run(case, name, layout, turn, answer, gemm, child.gave_up)
        _say(
            f"  turn {turn + 1} {name} {layout}: {'> ' * child.gave_up}{run.seconds:.2f} s, "
            f"peak {megabytes(answer['peak_rss'])} MB"
        )
        return run

    def _one_process(self, case: Case, asked: list[str], layout: str) -> list[Run]:
        """Fit a case in turns in one child."""
        names = [
            (turn, name)
            for turn in range(self.options.repeats)
            for name in asked
            if not (turn and name in self.suite.once)
        ]
        fits = [(0, name) for name in asked * self.suite.uncounted] + names
        jobs = [
            job
            for turn, name in fits
            for job in ({"do": "calibrate"}, self._described(case, name, layout, turn))
        ]
        child = self._children(jobs)
        answers = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        pairs = list(zip(answers[::2], answers[1::2], strict=True))[len(fits) - len(names) :]
        runs = [
            Run(case, name, layout, turn, answer, gemm["seconds"])
            for (turn, name), (gemm, answer) in zip(names, pairs, strict=True)
        ]
        _say("  " + ", ".join(f"{run.who} {run.seconds:.2f} s" for run in runs[-len(asked) :]))
        return runs

    def _kind(self, name: str) -> str:
        return self._bases.get(name, name)

    def _checkout(self, name: str) -> Path:
        return self.options.base.resolve() if name in self._bases else REPOSITORY

    def _layouts(self, case: Case) -> list[str]:
        layout = self.suite.layout
        if not case.data.layouts:
            return [""]
        if layout == "suitable":
            return ["csr" if case.facts["density"] <= 1 / 3 else "dense"]
        if layout == "last":
            return [case.data.layouts[-1]]
        if layout != "best":
            return [layout]
        chosen = [one for one in case.data.layouts if one in self.options.layouts]
        return chosen or list(case.data.layouts)

    def _prepare(self, case: Case) -> Case:
        layouts = ["dense", "csr"]
        if self.suite.layout != "suitable":
            layouts = sorted({*self._layouts(case), self.suite.peer_layout or ""} - {""})
        job = {
            "do": "prepare",
            "data": list(case.data),
            "labels": case.labels,
            "layouts": layouts,
            "distances": self.suite.distances,
            "stores": self.suite.stores
            or any(self._kind(name) in ("store", "this") for name in self.contestants),
            "folder": str(self.folder),
        }
        return case._replace(facts=self._job(job).answer)

    def _resolved(self, case: Case) -> Case:
        parameters = dict(case.parameters)
        if "times" in parameters:
            parameters["gamma"] = parameters.pop("times") / case.facts["mean_distance"]
        return case._replace(parameters=parameters)

    def _described(self, case: Case, name: str, layout: str, turn: int = 0) -> dict[str, Any]:
        """Write down the job of a fit."""
        return {
            "do": self.suite.do,
            "who": self._kind(name),
            "name": case.data.name,
            "positive": list(case.data.positive),
            "n_made": case.data.n_made,
            "layout": layout,
            "turn": turn,
            "parameters": dict(case.parameters),
            "n_columns": case.facts.get("n_columns"),
            "n_classes": case.facts.get("n_classes"),
            "folder": str(self.folder),
            "checkout": str(self._checkout(name)) if name in self._bases else None,
            "memory": getattr(self.options, "memory", None),
            "rows": getattr(self.options, "rows", "memory"),
            "give_up": getattr(self.options, "give_up", None),
            "accuracy": self.suite.accuracy,
            "floors": self.suite.floors,
            "cache": self.suite.cache,
        }

    def _job(self, job: Mapping[str, Any], **options: Any) -> Finished:  # noqa: ANN401
        return self._children([job], **options)

    def _children(self, jobs: Sequence[Mapping[str, Any]], **options: Any) -> Finished:  # noqa: ANN401
        command = [sys.executable, "-m", "tools.benchmarks.contestants", json.dumps(jobs)]
        return run_checked(command, threads=self.options.threads, **options)

    def _command_line(
        self,
        case: Case,
        name: str,
        layout: str,
        *,
        tiny: bool = False,
        patience: float | None = None,
    ) -> Finished:
        """Train out of core through the command line."""
        store = f"{case.data.name}.{layout}{'.tiny' * tiny}.zarr"
        parameters = {"tol": TOL, **case.parameters, "memory": self.options.memory}
        flags = [x for key, value in parameters.items() for x in (_flag(key), value)]
        flags += ["--threads", self.options.threads, "--json"]
        model = self.folder / "model.safetensors"
        command = bigsvm_command("train", self.folder / store, model, *flags)
        return run_checked(
            command,
            threads=self.options.threads,
            give_up_after=patience,
            checkout=self._checkout(name),
        )

    def _remove(self, case: Case | None) -> None:
        """Make room for the next data set."""
        for path in self.folder.glob(f"{case.data.name}.*") if case else ():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _say(line: str) -> None:
    """Report progress."""
    print(line, file=sys.stderr, flush=True)


def report(suite: Suite, results: Results) -> str:
    """Lay out the tables of a suite."""
    columns = [(c, COLUMNS[c]) if isinstance(c, str) else c for c in suite.columns]
    header = [name for name, _ in columns]
    lines = results.lines(wide=suite.wide, by_contestant=suite.by_contestant)
    if not suite.table_of_each_case:
        return table(header, [[cell(row, shown) for _, shown in columns] for row in lines])
    texts = []
    for case in results.cases:
        of_case = [row for row in lines if row.case.name == case.name]
        cells = [[cell(row, shown) for _, shown in columns] for row in of_case]
        below = table(header, [*cells, *suite.more_rows(of_case)])
        whole = results.row(case)
        texts.append(f"{suite.heading(whole)}\n\n{below}\n\n{suite.below(whole)}")
    return "\n\n".join(texts)


def beside_base(results: Results) -> str:
    """Lay out CPU seconds and kernel evaluations beside those of the other checkout."""
    rows, means = [], []
    for case in results.cases:
        for name in results.contestants:
            ours = next(
                (
                    who
                    for who in (name.removeprefix(BASE).strip(), *OURS)
                    if who in results.contestants
                ),
                None,
            )
            if not name.startswith(BASE) or ours is None:
                continue
            base, this = results.row(case, name), results.row(case, ours)
            ratio = this.ratio(name, "cpu_seconds")
            means.append(ratio)
            evaluations = [row.last("n_kernel_evaluations") for row in (this, base)]
            rows.append(
                [
                    case.name, ours, spread("cpu_seconds")(this), spread("cpu_seconds")(base),
                    median_range(this.ratios(name, "cpu_seconds")),
                    "the same" if evaluations[0] == evaluations[1] else "others",
                ]
            )  # fmt: skip
    header = ["case", "who", "CPU seconds", "of base", "÷ base", "evaluations"]
    return f"{table(header, rows)}\n\nCPU seconds ÷ base: geometric mean {geometric_mean(means)}"


def run(suite: Suite, options: argparse.Namespace) -> tuple[str, bool]:
    """Run a suite; what is to be printed, and whether nothing was found not to hold."""
    with tempfile.TemporaryDirectory(dir=getattr(options, "folder", None)) as folder:
        results = Bench(suite, options, Path(folder)).measure()
    if not results.runs:
        return "", True
    limits = suite.limits(results)
    above = "\n".join(filter(None, (*results.notes, suite.before(results))))
    texts = [machine(options.threads), above, report(suite, results), suite.after(results)]
    if any(name.startswith(BASE) for name in results.contestants):
        texts.append(beside_base(results))
    if limits:
        texts.append(verdicts(limits, suite.variants))
    if not suite.table_of_each_case:
        texts.append(noise([run.gemm for run in results.runs]))
    fails = any(holds is False for limit in limits for holds in limit.holds)
    return "\n\n".join(text for text in texts if text), not fails
