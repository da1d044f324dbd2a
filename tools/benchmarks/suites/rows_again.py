"""Whether kernel rows on disk would pay in a default run: columns × memory, counts and CPU seconds.

    python -m tools.benchmarks rows_again [--columns 10 100 1000 10000] [--factors 1 1.25 2 4]

A default run solves working sets among active rows, and its kernel rows are as long as the working
set. Each cell trains from a store with a multiple of the least memory that is allowed, on one
thread, and counts kernel rows: all that were fetched, those fetched again while the same working
set was solved, those fetched again before the active rows were chosen anew, and those fetched again
in the run. Two tiers below memory are possible. One keeps rows that are as long as the working set,
among the same active rows; it writes each row that it reads. The other keeps rows among all rows of
the data, which outlive the active rows; it computes and writes each of them once. The CPU seconds
that they can save at most are

    short rows   again among active · (computing − reading − writing)
    whole rows   again in the run · (computing − reading a whole row)
                 − distinct rows · (computing the rest of it + writing it)

Reading and writing are measured in a `RowFile` in the system's memory: no disk is faster. Nothing
is written in vain here, and a real tier does not know what it will need. A cell wins where one of
the two saves more than 2 % of the run.

dense      rows of ``many`` of `synthetic.py`, half of them positive, C 10, gamma 0.3 · 50 / columns
sparse     the first rows of mnist as CSR, C 50
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DATA_SETS, FAMILIES, DataSet
from tools.benchmarks.results import Case, Results, Row

if TYPE_CHECKING:
    import argparse

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.gram.row_cache import RowBuffer, RowTier
    from bigsvm.training.run import Run
    from bigsvm.working_sets.subproblem import Memory

COLUMNS, FACTORS = (10, 100, 1000, 10_000), (1.0, 1.25, 2.0, 4.0)
MANY_COLUMNS = 1000
"""With more columns a fifth of the rows are trained on."""
WORTH = 0.02
"""Least share of a run's CPU seconds that counts as won: runs differ by as much."""
PROBED_ROWS = 200
SPARSE = "mnist, sparse"


def cases(options: argparse.Namespace) -> list[Case]:
    """List columns and memory."""
    problems = [
        (f"{d} dense", DataSet(f"{d} dense", d, n_made=1, layouts=()),
         options.rows if d <= MANY_COLUMNS else options.rows // 5)
        for d in options.columns
    ]  # fmt: skip
    problems.append((SPARSE, DATA_SETS["mnist"]._replace(layouts=()), options.sparse_rows))
    return [
        Case(f"{name}, {factor:g} times the least", data,
             {"problem": name, "columns": data.n_columns, "rows": n, "factor": factor})
        for name, data, n in problems
        for factor in options.factors
    ]  # fmt: skip


class Counted:
    """Counts of a run, by tiers put over the computation of kernel rows."""

    def __init__(self) -> None:
        self.fetched = self.again = self.again_active = self.values = 0
        self.ever: set[int] = set()
        self.seconds = 0.0
        self._active: NDArray[np.int64] | None = None
        self._known: set[int] = set()

    def begin(self, active: NDArray[np.int64], rows: NDArray[np.int64]) -> CountingTier:
        """Note a working set: `rows` of the rows `active`."""
        if self._active is None or not (
            len(active) == len(self._active) and (active == self._active).all()
        ):
            self._active, self._known = active.copy(), set()
        return CountingTier(self, rows)

    def note(self, rows: NDArray[np.int64], here: set[int], length: int) -> None:
        """Count rows that are fetched, `length` values long."""
        for row in rows.tolist():
            self.fetched += 1
            self.values += length
            self.again += row in here
            self.again_active += row in self._known
            here.add(row)
            self._known.add(row)
        self.ever.update(rows.tolist())


class CountingTier:
    """A tier that counts rows, and the CPU seconds of those below."""

    n_hits = 0
    keeps = True

    def __init__(self, counted: Counted, rows: NDArray[np.int64]) -> None:
        self._counted, self._rows = counted, rows
        self._here: set[int] = set()

    def over(self, below: RowTier) -> CountingTier:
        """Put it over a tier."""
        self._below = below
        return self

    def fetch(
        self, variables: NDArray[np.int64], rows: NDArray[np.float32], slots: NDArray[np.int64]
    ) -> None:
        """Fetch rows from below."""
        began = time.process_time()
        self._below.fetch(variables, rows, slots)
        self._counted.seconds += time.process_time() - began
        self._counted.note(self._rows[variables], self._here, len(self._rows))

    def offer(self, *_: object) -> None:
        """Keep nothing."""

    def drain(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Close the tier below."""
        self._below.close()


def problem_of(given: dict[str, Any]) -> Any:  # noqa: ANN401 (a whole_runs.Problem)
    """Read or make the rows of a case; distances grow with the columns, so gamma falls."""
    from tools.benchmarks import synthetic, whole_runs

    if given["problem"] == SPARSE:
        return whole_runs.problem_of("mnist", given["rows"])
    x, y = synthetic.make("many", given["rows"], given["columns"])
    known, C, gamma = FAMILIES["many"]
    return whole_runs.Problem(x, y, C, gamma * known / given["columns"])


def run(store: Path, problem: Any, memory: int, **limits: Any) -> tuple[Counted, float]:  # noqa: ANN401
    """Train from a store; returns what was counted, and CPU seconds."""
    from unittest import mock

    from bigsvm import open_store
    from bigsvm.fit import choices
    from bigsvm.fit.train import train_model
    from bigsvm.parameters import TrainingParameters
    from bigsvm.working_sets.choice import Choice
    from tools.benchmarks.contestants import TOL

    counted = Counted()

    class CountedChoice(Choice):
        """The plain choice of rows, with a counting tier below memory."""

        def __init__(self, run: Run, tol: float) -> None:
            super().__init__(run.dual, run.source, run.plan, tol=tol, rng=run.rng)
            self._run = run

        def memory(self, buffer: RowBuffer) -> Memory:
            state = self._run.state
            tier = counted.begin(state.active, state.working).over
            return super().memory(buffer)._replace(tier=tier)

    def choice_of(run: Run, *, tol: float, **_: object) -> Choice:
        return CountedChoice(run, tol)

    opened = open_store(store)
    parameters = TrainingParameters(
        C=problem.C, gamma=problem.gamma, tol=TOL, memory=memory, threads=1, **limits
    )
    began = time.process_time()
    with mock.patch.object(choices, "choice_of", choice_of):
        train_model(opened.rows, opened.labels(), None, parameters)
    return counted, time.process_time() - began


def least_memory(store: Path, problem: Any) -> int:  # noqa: ANN401
    """Bytes that a refused run asks for."""
    from bigsvm.budget import parse_bytes
    from bigsvm.errors import MemoryBudgetError

    memory, needed = 1000, 0
    while memory > needed:
        try:
            run(store, problem, memory, max_iter=0)
        except MemoryBudgetError as error:
            size = str(error).rsplit("at least about ", 1)[1]
            needed, memory = memory, parse_bytes(size)
        else:
            return memory
    raise RuntimeError(f"refused with the {memory} bytes that it asked for")


def time_disk(length: int, parent: Path) -> dict[str, float]:
    """Measure CPU seconds to write `length` values, and to read them from the system's memory."""
    import numpy as np

    from bigsvm.papers.row_file import RowFile

    rows = np.random.default_rng(0).random((PROBED_ROWS, length), np.float32)
    out, capacity = np.empty(length, np.float32), 8 * PROBED_ROWS * length + 10**6
    with tempfile.TemporaryDirectory(dir=parent) as made:
        file = RowFile(Path(made), "probe", n_variables=length, capacity_bytes=capacity)
        count = min(file.n_slots, PROBED_ROWS)
        began = time.process_time()
        for slot in range(count):
            file.write(slot, slot, rows[slot])
        written = time.process_time()
        for slot in range(count):
            if not file.read(slot, slot, out):
                raise RuntimeError("a row is not as it was written")
        read = time.process_time()
        file.close(remove=True)
    return {"writing": (written - began) / count, "reading": (read - written) / count}


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train with a multiple of the least memory, and see what a tier could save."""
    import scipy.sparse as sp

    from bigsvm import write_store

    given, folder = job["parameters"], Path(job["folder"])
    problem = problem_of(given)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        store = Path(made) / "rows.zarr"
        warm = problem_of({"problem": "warm-up", "columns": 10, "rows": 400})
        rows = sp.csr_matrix(warm.x) if sp.issparse(problem.x) else warm.x
        write_store(Path(made) / "warm.zarr", rows, warm.y)
        run(Path(made) / "warm.zarr", warm, 10**9)
        write_store(store, problem.x, problem.y)
        memory = int(given["factor"] * least_memory(store, problem))
        counted, seconds = run(store, problem, memory)
    n_rows, fetched, distinct = len(problem.y), counted.fetched, len(counted.ever)
    length = counted.values / max(fetched, 1)
    answer = {
        "memory": memory, "n_rows": n_rows, "fetched": fetched, "again": counted.again,
        "again_active": counted.again_active, "again_in_run": fetched - distinct,
        "distinct": distinct, "length": length, "computing": counted.seconds / max(fetched, 1),
        "row_seconds": counted.seconds, "seconds": seconds,
        "short": time_disk(max(int(length), 1), folder), "whole": time_disk(n_rows, folder),
    }  # fmt: skip
    return answer | saved(answer)


def saved(a: dict[str, Any]) -> dict[str, float]:
    """Give the CPU seconds that each tier could save, less than 0 where it costs."""
    short, whole = a["short"], a["whole"]
    rest = a["computing"] * (a["n_rows"] / max(a["length"], 1) - 1)
    by_short = a["again_active"] * (a["computing"] - short["reading"] - short["writing"])
    by_whole = a["again_in_run"] * (a["computing"] - whole["reading"])
    return {
        "saved_by_short": by_short,
        "saved_by_whole": by_whole - a["distinct"] * (rest + whole["writing"]),
    }


def shares(row: Row) -> tuple[float, float]:
    """Give what the two tiers could save, as shares of the run."""
    seconds = row.last("seconds")
    return row.last("saved_by_short") / seconds, row.last("saved_by_whole") / seconds


def winners(results: Results) -> str:
    """Name the cells in which a tier could save something."""
    names = [row.case.name for row in results.rows() if max(shares(row)) > WORTH]
    return (
        f"cells in which kernel rows on disk could save more than {WORTH:.0%}: "
        f"{', '.join(names) or 'none'}"
    )


def read_and_write(row: Row, name: str) -> str:
    disk = row.last(name)
    return f"{1e6 * disk['reading']:.1f} / {1e6 * disk['writing']:.1f}"


SUITE = Suite(
    cases=cases,
    contestants=("this",),
    columns=(
        ("rows", lambda row: row.case.parameters["problem"]),
        ("of least", lambda row: f"{row.case.parameters['factor']:g}"),
        ("MB", lambda row: f"{row.last('memory') / 1e6:.1f}"),
        ("fetched", "fetched"),
        ("again in a set", "again"),
        ("again among active", "again_active"),
        ("again in the run", "again_in_run"),
        ("length", "length:.0f"),
        ("µs to compute", lambda row: f"{1e6 * row.last('computing'):.1f}"),
        ("to read / write", lambda row: read_and_write(row, "short")),
        ("whole rows", lambda row: read_and_write(row, "whole")),
        ("CPU s of rows", "row_seconds:.2f"),
        ("CPU s", "seconds:.2f"),
        ("saved by short rows", lambda row: f"{shares(row)[0]:+.1%}"),
        ("by whole rows", lambda row: f"{shares(row)[1]:+.1%}"),
    ),
    after=winners,
    do="tools.benchmarks.suites.rows_again:fit",
    repeats=1,
    threads=1,
    more=(
        ("--columns", {"type": int, "nargs": "+", "default": list(COLUMNS)}),
        ("--factors", {"type": float, "nargs": "+", "default": list(FACTORS)}),
        ("--rows", {"type": int, "default": 8000,
                    "help": "a fifth of them of more than 1000 columns"}),
        ("--sparse-rows", {"type": int, "default": 4000}),
    ),
)  # fmt: skip
