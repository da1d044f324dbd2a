"""Whether kernel rows on disk would pay in a default run with a slow kernel of one's own: CPU time.

    python -m tools.benchmarks own_kernels [--sizes 6000] [--memory 40MB] [--families few ...]

The kernel is rbf, written as a formula and made as slow as --microseconds a value. Memory holds a
part of the kernel rows. The tier is a sketch on the real loop: every kernel row that is needed, of
a row of a working set or of a row that moved in a sum, is computed once among all rows and kept in
a `bigsvm.papers.row_file.RowFile`; from then on rows and sums take its values from there. Kernel
values have the same bits, and so do the results. The memory of the sketch is not in the budget.

"for sets alone" are the values if the rows of working sets are kept, and sums are computed as they
are without the tier.

cold       nothing is on disk
another C  an eighth of C, started from the solution, with the rows of the first run on disk
resumed    a run that was stopped after half of its steps, with its own rows on disk; the second
           half counts

Sweeps in float64 and a first product among all rows are computed. CPU seconds of slower kernels
follow from the counts. A limit is a fifth of the CPU seconds saved.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import made
from tools.benchmarks.results import Case, Limit, Results, Row, at_least, median_range, must

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.gram import KernelTiles

WITHOUT, WITH = "without", "with"
COLD, ANOTHER_C, RESUMED = RUNS = ("cold", "another C", "resumed")
ANOTHER = 1 / 8
"""Times C, in the run with another C."""
FAMILIES = ("few", "many", "crowded")
SLOWER = (0.3, 1.0, 5.0)
"""Microseconds of a kernel value for which CPU seconds are computed from the counts."""
LEAST_SAVED = 20.0
ROWS_OF_SUM = 252
"""Rows whose values are turned together, as many as a span has."""


def cases(options: argparse.Namespace) -> list[Case]:
    """List rows and runs."""
    each = options.microseconds
    return [
        Case(f"{data.name}, {run}", data,
             {"C": data.C, "gamma": data.gamma, "run": run, "microseconds": each})
        for n in options.sizes
        for data in (made(family, n) for family in options.families)
        for run in RUNS
    ]  # fmt: skip


@functools.cache
def slow_kernel() -> type[Any]:
    """Define the kernel, once bigsvm may be imported."""
    import numpy as np

    import bigsvm

    @dataclass(frozen=True, kw_only=True)
    class Slow(bigsvm.Kernel):
        """rbf, after so many passes over the distances."""

        name = "slow-rbf"
        gamma: float = 1.0
        passes: int = 0

        def from_products(self, dots: Any, norms_rows: Any, norms_columns: Any) -> Any:  # noqa: ANN401
            distances = np.maximum(np.add.outer(norms_rows, norms_columns) - 2 * dots, 0)
            for _ in range(self.passes):
                np.cos(distances)
            return np.exp(-self.gamma * distances)

    return Slow


def passes_of(seconds: float) -> int:
    """Count the passes that make a kernel value take so long."""
    import numpy as np

    values, least = np.random.default_rng(0).random((200, 500)), float("inf")
    for _ in range(20):
        began = time.process_time()
        np.cos(values)
        least = min(least, time.process_time() - began)
    return max(1, round(seconds * values.size / least))


class Kept:
    """Kernel rows among all rows x, (n, d), in a file; rows are recognised by their bytes."""

    def __init__(self, x: NDArray[np.float32], folder: Path | None) -> None:
        self.x, self.folder = x, folder
        self.number = {row.tobytes(): i for i, row in enumerate(x)}
        self.n_values = self.n_read = self.n_alone = 0
        self._fetched: set[int] = set()
        self._all: Any = None

    def count(self, n_values: int) -> None:
        """Count values that are computed with any tier."""
        self.n_values += n_values
        self.n_alone += n_values

    def numbers(self, rows: Any) -> NDArray[np.int64]:  # noqa: ANN401 (as `KernelTiles` takes them)
        """Find the places of rows in x."""
        import numpy as np

        from bigsvm.gram.partners import rows_at

        base, places = rows_at(rows)
        return np.array([self.number[base[place].tobytes()] for place in places.tolist()], np.int64)

    def rows(
        self, numbers: NDArray[np.int64], compute: Callable[..., None], tiles: KernelTiles
    ) -> NDArray[np.float32]:
        """Read kernel rows (q, n), or compute and write them."""
        import numpy as np

        from bigsvm.data.rows import RowsAt
        from bigsvm.gram import Partners

        found = np.empty((len(numbers), len(self.x)), np.float32)
        held = np.array([number in self._slots for number in numbers.tolist()], np.bool_)
        for i in np.flatnonzero(held).tolist():
            number = int(numbers[i])
            if not self._file.read(self._slots[number], number, found[i]):
                raise RuntimeError(f"kernel row {number} is not as it was written")
        self.n_read += int(held.sum())
        if not held.all():
            if self._all is None:
                everything = RowsAt(self.x, np.arange(len(self.x)))
                self._all = Partners.of_rows_like(tiles.values, everything)
            places = np.flatnonzero(~held)
            compute(tiles, RowsAt(self.x, numbers[places]), self._all, found, slots=places)
            self.n_values += len(places) * len(self.x)
            for i in places.tolist():
                slot = self._slots.setdefault(int(numbers[i]), len(self._slots))
                self._file.write(slot, int(numbers[i]), found[i])
        return found

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Count kernel values, and take them from the file, where there is a folder for it."""
        import numpy as np

        from bigsvm.core import gram
        from bigsvm.gram import Partners
        from bigsvm.gram.tiles import KernelTiles

        multiply, evaluate, half, init = (
            KernelTiles.multiply, KernelTiles.evaluate, KernelTiles.multiply_half,
            Partners.__init__,
        )  # fmt: skip
        passes_on = self.folder is None

        def named(partners: Any, values: Any, rows: Any, **given: Any) -> None:  # noqa: ANN401
            init(partners, values, rows, **given)
            if not passes_on and values.dtype == np.float32:
                partners.numbers = self.numbers(rows)

        def summed(tiles: Any, rows: Any, partners: Any, weights: Any, out: Any) -> None:  # noqa: ANN401
            if passes_on or tiles.dtype != np.float32:
                self.count(len(out) * partners.n)
                multiply(tiles, rows, partners, weights, out)
                return
            self.n_alone += len(out) * partners.n
            rounded, at = tiles.prepared(partners, weights), self.numbers(rows)
            for tile in partners:
                part = slice(tile.start, tile.stop)
                found = self.rows(partners.numbers[part], evaluate, tiles)
                for low in range(0, len(at), ROWS_OF_SUM):
                    some = slice(low, low + ROWS_OF_SUM)
                    values = np.ascontiguousarray(found[:, at[some]].T)
                    gram.weighted_sums(values, rounded[part], out[some])

        def valued(tiles: Any, rows: Any, partners: Any, out: Any, *, slots: Any = None) -> None:  # noqa: ANN401
            n_rows = len(out) if slots is None else len(slots)
            if passes_on or tiles.dtype != np.float32:
                self.count(n_rows * partners.n)
                evaluate(tiles, rows, partners, out, slots=slots)
                return
            numbers = self.numbers(rows)
            self.n_alone += len(self.x) * len(set(numbers.tolist()) - self._fetched)
            self._fetched.update(numbers.tolist())
            found = self.rows(numbers, evaluate, tiles)
            out[np.arange(n_rows) if slots is None else slots, : partners.n] = found[
                :, partners.numbers
            ]

        def halved(tiles: Any, rows: Any, partners: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401
            self.count(partners.n * (partners.n + 1) // 2)
            half(tiles, rows, partners, *given, **named)

        with contextlib.ExitStack() as stack:
            for kind, name, changed in (
                (KernelTiles, "multiply", summed), (KernelTiles, "evaluate", valued),
                (KernelTiles, "multiply_half", halved), (Partners, "__init__", named),
            ):  # fmt: skip
                stack.enter_context(mock.patch.object(kind, name, changed))
            if not passes_on:
                self._open()
                stack.callback(lambda: self._file.close())
            yield

    def _open(self) -> None:
        from bigsvm.papers.row_file import RowFile

        assert self.folder is not None
        n = len(self.x)
        self._file = RowFile(
            self.folder, "slow", n_variables=n, capacity_bytes=8 * n * n + (1 << 20)
        )
        owners = self._file.owners().tolist()
        self._slots = {owner: slot for slot, owner in enumerate(owners) if owner >= 0}


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train with or without the tier; CPU seconds and kernel values of the run that counts."""
    import numpy as np

    from tools.benchmarks.contestants import estimator, own_solver, read_rows, tiny

    warnings.simplefilter("ignore")  # one fit is stopped
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    given, kind = job["parameters"], slow_kernel()
    passes = passes_of(1e-6 * given["microseconds"])
    ours = job | {"who": "memory", "parameters": {"C": given["C"], "memory": job["memory"]}}
    model = estimator(ours, kernel=kind(gamma=given["gamma"], passes=passes))
    with own_solver():
        estimator(ours, kernel=kind()).fit(*tiny("dense", x.shape[1], np.float32))
    with tempfile.TemporaryDirectory(dir=job["folder"]) as name:
        kept = Kept(x, Path(name) / "rows" if job["who"] == WITH else None)
        with kept.used():
            if given["run"] == ANOTHER_C:
                model.set_params(warm_start=True).fit(x, y)
                model.set_params(C=given["C"] * ANOTHER)
            elif given["run"] == RESUMED:
                # As many steps as with the slow kernel: its values are the same.
                quick = estimator(ours, kernel=kind(gamma=given["gamma"])).fit(x, y)
                half = quick.certificate_["n_iter"] // 2
                model.set_params(checkpoint=str(Path(name) / "run"), max_iter=half).fit(x, y)
                model.set_params(max_iter=-1)
        kept.n_values = kept.n_read = kept.n_alone = 0
        began = time.process_time()
        with kept.used():
            model.fit(x, y)
        spent = time.process_time() - began
    return {
        "seconds": spent, "cpu_seconds": spent, "n_values": kept.n_values, "n_read": kept.n_read,
        "n_alone": kept.n_alone,
        "objective": model.certificate_["objective"], "n_support": len(model.support_),
        "converged": model.converged_,
    }  # fmt: skip


def seconds_at(row: Row, microseconds: float) -> float:
    """CPU seconds with a kernel as slow as that: the least that was measured, and the count."""
    slower = 1e-6 * (microseconds - row.case.parameters["microseconds"])
    return float(min(row.values("cpu_seconds")) + slower * row.last("n_values"))


def saved(row: Row, microseconds: float | None = None) -> float:
    """Share of the CPU seconds that the tier saves, in %."""
    each = row.case.parameters["microseconds"] if microseconds is None else microseconds
    return 100 * (1 - seconds_at(row.of(WITH), each) / seconds_at(row.of(WITHOUT), each))


def limits(results: Results) -> list[Limit]:
    """Hold what is saved against a fifth, and the results against one another."""
    found = []
    for row in results.rows():
        name, objectives = row.case.name, sorted(set(row.values("objective")))
        found += [
            at_least(f"{name}: saved, %", saved(row), limit=LEAST_SAVED, digits=0),
            must(f"{name}: objectives", len(objectives), 1, len(objectives) == 1),
        ]
    return found


def values_of(who: str) -> Callable[[Row], str]:
    """Make the column of kernel values of a contestant."""
    return lambda row: f"{1e-6 * row.of(who).last('n_values'):.1f}"


SUITE = Suite(
    cases=cases,
    sizes=(6000,),
    contestants=(WITHOUT, WITH),
    columns=(
        ("run", lambda row: row.case.name),
        ("SVs", "n_support"),
        ("million values", values_of(WITHOUT)),
        ("with rows on disk", values_of(WITH)),
        ("for sets alone", lambda row: f"{1e-6 * row.of(WITH).last('n_alone'):.1f}"),
        ("rows read", lambda row: row.of(WITH).last("n_read")),
        ("CPU s", lambda row: median_range(row.of(WITHOUT).values("cpu_seconds"))),
        ("with", lambda row: median_range(row.of(WITH).values("cpu_seconds"))),
        ("saved %", lambda row: f"{saved(row):.0f}"),
        *((f"at {each:g} µs", lambda row, each=each: f"{saved(row, each):.0f}") for each in SLOWER),
    ),
    limits=limits,
    do="tools.benchmarks.suites.own_kernels:fit",
    wide=True,
    repeats=1,
    threads=1,
    memory="40MB",
    more=(
        ("--families", {"nargs": "+", "choices": FAMILIES, "default": list(FAMILIES)}),
        ("--microseconds", {"type": float, "default": 0.1, "help": "of a kernel value"}),
    ),
)
