"""Whether kernel rows on disk would pay in a default run: columns × memory, counts and CPU seconds.

    python tools/benchmarks/rows_again.py [--columns 10 100 1000 10000] [--factors 1 1.25 2 4]

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

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import synthetic
from common import machine, table
from data_sets import DATA_SETS, FAMILIES, is_skipped
from fit_once import TOL
from whole_runs import Problem, sparse

from bigsvm import open_store, write_store
from bigsvm.budget import parse_bytes
from bigsvm.cache.row_file import RowFile
from bigsvm.errors import MemoryBudgetError
from bigsvm.estimators import running
from bigsvm.estimators.fitting import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.decomposition import Decomposition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bigsvm.cache.resident import RowTier

MNIST = DATA_SETS["mnist"]
COLUMNS, FACTORS = (10, 100, 1000, 10_000), (1.0, 1.25, 2.0, 4.0)
WORTH = 0.02
"""Least share of a run's CPU seconds that counts as won: runs differ by as much."""
PROBED_ROWS = 200


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
        if self._active is None or not np.array_equal(active, self._active):
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


class CountedRun(Decomposition):
    """The outer loop, with a counting tier where the disk tier would be."""

    counted: Counted

    def _over_disk(self, computed: RowTier) -> RowTier:
        active = self.state.active
        return self.counted.begin(active, active[self.state.working]).over(computed)


class Disk(NamedTuple):
    """CPU seconds of a row that is written, and read back from the system's memory."""

    writing: float
    reading: float


class Cell(NamedTuple):
    """What one run did.

    Attributes
    ----------
    memory : int
        Bytes.
    n_rows : int
        Of the data.
    fetched, again, again_active, distinct : int
        Kernel rows.
    length : float
        Mean values of a row.
    row_seconds, seconds : float
        CPU: of the kernel rows, and of all.
    """

    name: str
    factor: float
    memory: int
    n_rows: int
    fetched: int
    again: int
    again_active: int
    distinct: int
    length: float
    row_seconds: float
    seconds: float

    @property
    def computing(self) -> float:
        """CPU seconds of a row."""
        return self.row_seconds / max(self.fetched, 1)

    @property
    def again_in_run(self) -> int:
        """Rows fetched again at any time."""
        return self.fetched - self.distinct

    def saved_by_short_rows(self, disk: Disk) -> float:
        """CPU seconds that a tier of short rows could save, less than 0 where it costs."""
        return self.again_active * (self.computing - disk.reading - disk.writing)

    def saved_by_whole_rows(self, disk: Disk) -> float:
        """CPU seconds that a tier of whole rows could save."""
        rest = self.computing * (self.n_rows / max(self.length, 1) - 1)
        again = self.again_in_run * (self.computing - disk.reading)
        return again - self.distinct * (rest + disk.writing)


def dense_problem(n_columns: int, n_rows: int) -> Problem:
    """Rows of ``many``; distances grow with the columns, so gamma falls."""
    x, y = synthetic.make("many", n_rows, n_columns)
    known, C, gamma = FAMILIES["many"]
    return Problem(x, y, C, gamma * known / n_columns)


def parameters_of(problem: Problem, memory: int) -> TrainingParameters:
    return TrainingParameters(C=problem.C, gamma=problem.gamma, tol=TOL, memory=memory, threads=1)


def least_memory(problem: Problem, folder: Path) -> int:
    """Bytes that a refused run asks for."""
    memory, needed = 1000, 0
    while memory > needed:
        try:
            run(problem, memory, folder, max_iter=0)
        except MemoryBudgetError as error:
            size = str(error).rsplit("at least about ", 1)[1]
            needed, memory = memory, parse_bytes(size)
        else:
            return memory
    raise RuntimeError(f"refused with the {memory} bytes that it asked for")


def run(problem: Problem, memory: int, folder: Path, **limits: Any) -> tuple[Counted, float]:  # noqa: ANN401
    """Train from the store in `folder`; returns what was counted, and CPU seconds."""
    counted = Counted()
    kind = type("ThisRun", (CountedRun,), {"counted": counted})
    store = open_store(folder / "rows.zarr")
    parameters = parameters_of(problem, memory)
    if limits:
        parameters = TrainingParameters(**{**vars(parameters), **limits})
    began = time.process_time()
    with mock.patch.object(running, "Decomposition", kind):
        train_model(store.rows, store.labels(), None, parameters)
    return counted, time.process_time() - began


def cells(name: str, problem: Problem, factors: Sequence[float], parent: Path) -> list[Cell]:
    """Train with each multiple of the least memory."""
    with tempfile.TemporaryDirectory(dir=parent) as made:
        folder = Path(made)
        write_store(folder / "rows.zarr", problem.x, problem.y)
        least = least_memory(problem, folder)
        found = []
        for factor in factors:
            memory = int(factor * least)
            counted, seconds = run(problem, memory, folder)
            cell = Cell(
                name, factor, memory, len(problem.y), counted.fetched, counted.again,
                counted.again_active, len(counted.ever),
                counted.values / max(counted.fetched, 1), counted.seconds, seconds,
            )  # fmt: skip
            print(f"  {cell}", file=sys.stderr, flush=True)
            found.append(cell)
    return found


def time_disk(length: int, parent: Path) -> Disk:
    """Write and read rows of so many values."""
    rows = np.random.default_rng(0).random((PROBED_ROWS, length), np.float32)
    out = np.empty(length, np.float32)
    with tempfile.TemporaryDirectory(dir=parent) as made:
        file = RowFile(
            Path(made), "probe", n_variables=length, capacity_bytes=8 * PROBED_ROWS * length + 10**6
        )
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
    return Disk((written - began) / count, (read - written) / count)


def report(found: Sequence[Cell], parent: Path) -> tuple[str, list[Cell]]:
    """Lay out the cells, and list those that win."""
    lines, winners = [], []
    for cell in found:
        short, whole = (
            time_disk(length, parent) for length in (max(int(cell.length), 1), cell.n_rows)
        )
        saved = [cell.saved_by_short_rows(short), cell.saved_by_whole_rows(whole)]
        shares = [seconds / cell.seconds for seconds in saved]
        if max(shares) > WORTH:
            winners.append(cell)
        lines.append(
            [
                cell.name, f"{cell.factor:g}", f"{cell.memory / 1e6:.1f}",
                cell.fetched, cell.again, cell.again_active, cell.again_in_run,
                f"{cell.length:.0f}", f"{1e6 * cell.computing:.1f}",
                *(f"{1e6 * d.reading:.1f} / {1e6 * d.writing:.1f}" for d in (short, whole)),
                f"{cell.row_seconds:.2f}", f"{cell.seconds:.2f}",
                *(f"{share:+.1%}" for share in shares),
            ]
        )  # fmt: skip
    header = [
        "rows", "of least", "MB", "fetched", "again in a set", "again among active",
        "again in the run", "length", "µs to compute", "to read / write", "whole rows",
        "CPU s of rows", "CPU s", "saved by short rows", "by whole rows",
    ]  # fmt: skip
    return table(header, lines), winners


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS)
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS)
    parser.add_argument(
        "--rows", type=int, default=8000, help="a fifth of them of more than 1000 columns"
    )
    parser.add_argument("--sparse-rows", type=int, default=4000)
    parser.add_argument("--folder", type=Path, help="for stores and row files")
    options = parser.parse_args(arguments)
    print(machine(1), flush=True)
    problems = [
        (f"{d} dense", partial(dense_problem, d, options.rows if d <= 1000 else options.rows // 5))
        for d in options.columns
    ]
    if not is_skipped(MNIST):
        problems.append(("mnist, sparse", partial(sparse, MNIST, options.sparse_rows)))
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        parent = Path(made)
        warm = dense_problem(10, 400)
        cells("warm-up", warm, (4.0,), parent)
        found = [
            cell for name, make in problems for cell in cells(name, make(), options.factors, parent)
        ]
        laid_out, winners = report(found, parent)
    print(f"\n{laid_out}\n")
    names = ", ".join(f"{cell.name}, {cell.factor:g} times the least" for cell in winners) or "none"
    print(f"cells in which kernel rows on disk could save more than {WORTH:.0%}: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
