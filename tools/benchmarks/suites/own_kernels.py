"""Kernel values on disk in a default run with a slow kernel of one's own: CPU time.

    python -m tools.benchmarks own_kernels [--sizes 6000] [--memory 40MB] [--families few ...]
        [--working-set all]

The kernel is rbf, written as a formula and made as slow as --microseconds a value. Memory holds a
part of the kernel rows. Contestants are runs without and with `disk_cache`; results must have the
same bits. With --working-set all the rows are one working set, and whole kernel rows are kept.

cold       nothing is on disk
another C  an eighth of C, started from the solution, with the file of the first run
resumed    a run that was stopped after half of its steps, with its own file; the second half counts
C path     fits with an eighth of C, a third and C, each started from the one before: all count

CPU seconds of slower kernels follow from the counts. A limit is a fifth of the CPU seconds saved.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
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


WITHOUT, WITH = "without", "with"
COLD, ANOTHER_C, RESUMED, C_PATH = RUNS = ("cold", "another C", "resumed", "C path")
ANOTHER = 1 / 8
"""Times C, in the run with another C."""
PATH = (1 / 8, 1 / 3, 1.0)
"""Times C, in the runs of a path."""
FAMILIES = ("few", "many", "crowded")
SLOWER = (0.3, 1.0, 5.0)
"""Microseconds of a kernel value for which CPU seconds are computed from the counts."""
LEAST_SAVED = 20.0


def cases(options: argparse.Namespace) -> list[Case]:
    """List rows and runs."""
    each = options.microseconds
    return [
        Case(f"{data.name}, {run}", data,
             {"C": data.C, "gamma": data.gamma, "run": run, "microseconds": each,
              "working_set": options.working_set})
        for n in options.sizes
        for data in (made(family, n) for family in options.families)
        for run in options.runs
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


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train with or without `disk_cache`; CPU seconds and kernel values of the run that counts."""
    import numpy as np

    from tools.benchmarks.contestants import estimator, own_solver, read_rows, tiny

    warnings.simplefilter("ignore")  # one fit is stopped
    x, y = read_rows(job), np.load(Path(job["folder"]) / f"{job['name']}.y.npy")
    given, kind = job["parameters"], slow_kernel()
    passes = passes_of(1e-6 * given["microseconds"])
    same = {"memory": job["memory"], "working_set": given["working_set"]}
    ours = job | {"who": "memory", "parameters": {"C": given["C"], **same}}
    with own_solver():
        estimator(ours, kernel=kind()).fit(*tiny("dense", x.shape[1], np.float32))
    with tempfile.TemporaryDirectory(dir=job["folder"]) as name:
        disk = {}
        if job["who"] == WITH:
            disk = {"disk_cache": "1GB", "cache_dir": str(Path(name) / "rows")}
        model = estimator(ours, kernel=kind(gamma=given["gamma"], passes=passes), **disk)
        if given["run"] == ANOTHER_C:
            model.set_params(warm_start=True).fit(x, y)
        elif given["run"] == RESUMED:
            # As many steps as with the slow kernel: its values are the same.
            quick = estimator(ours, kernel=kind(gamma=given["gamma"])).fit(x, y)
            half = quick.certificate_["n_iter"] // 2
            model.set_params(checkpoint=str(Path(name) / "run"), max_iter=half).fit(x, y)
            model.set_params(max_iter=-1)
        costs = [given["C"]]
        if given["run"] == C_PATH:
            costs = [factor * given["C"] for factor in PATH]
            model.set_params(warm_start=True)
        elif given["run"] == ANOTHER_C:
            costs = [given["C"] * ANOTHER]
        n_read, began = 0, time.process_time()
        with counted() as n_values:
            for C in costs:
                n_read += model.set_params(C=C).fit(x, y).certificate_["row_reads"]
        spent = time.process_time() - began
    certificate = model.certificate_
    return {
        "seconds": spent, "cpu_seconds": spent,
        "n_values": sum(n_values),
        "n_read": n_read, "objective": certificate["objective"],
        "bits": hash_of(model), "n_support": len(model.support_), "converged": model.converged_,
    }  # fmt: skip


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Count the kernel values that are computed: those of each call."""
    from bigsvm.gram import KernelTiles

    counts: list[int] = []
    compute = KernelTiles._for_each_span

    def computed(*given: Any) -> None:  # noqa: ANN401 (as the method takes them)
        counts.append(given[-1])
        compute(*given)

    with mock.patch.object(KernelTiles, "_for_each_span", computed):
        yield counts


def hash_of(model: Any) -> str:  # noqa: ANN401 (an estimator)
    """Hash the numbers of a model."""
    parts = (model.support_, model.dual_coef_, model.intercept_)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:12]


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
        name, bits = row.case.name, set(row.values("bits"))
        found += [
            at_least(f"{name}: saved, %", saved(row), limit=LEAST_SAVED, digits=0),
            must(f"{name}: results", len(bits), 1, len(bits) == 1),
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
        ("with disk_cache", values_of(WITH)),
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
        ("--runs", {"nargs": "+", "choices": RUNS, "default": list(RUNS)}),
        ("--working-set", {"choices": ("auto", "all"), "default": "auto"}),
        ("--families", {"nargs": "+", "choices": FAMILIES, "default": list(FAMILIES)}),
        ("--microseconds", {"type": float, "default": 0.1, "help": "of a kernel value"}),
    ),
)
