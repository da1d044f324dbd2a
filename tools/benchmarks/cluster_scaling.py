"""Training on more and more workers in slowed-down time, and the cost model; see `cluster`."""

from __future__ import annotations

import functools
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.children import machine
from tools.benchmarks.clusters import GAMMA, N_COLUMNS, C, Watched, local_cluster
from tools.benchmarks.results import at_least, at_most, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

LEAST_EFFICIENT, MOST_WRONG = 0.8, 0.15
NANOSECONDS, RATE, LINK = 20.0, 62.5e6, 1.25e9
"""Nanoseconds of a kernel value and bytes a second, both slowed down; bytes a second of a link."""
SIZES = ((10**6, 10**4), (10**7, 10**5), (10**8, 10**5), (10**8, 10**6), (10**9, 10**6))
"""Rows and support vectors of the table of costs."""
TABLE_WORKERS = (1, 10, 100, 1000)
TABLE_COLUMNS = 100
EMPTY_PASSES = 15
"""The first of them read the rows; their median does not."""


class Spent(NamedTuple):
    """What a run with workers has taken.

    Attributes
    ----------
    far, near : float
        Seconds of waiting for workers, and all others.
    evaluations : int
        Kernel values that workers computed.
    moved, returned : int
        Bytes that each worker was sent, and those that came back from all.
    passes : int
        Products, and times that rows were taken.
    empty_pass : float
        Seconds of a product of one row of each unit and one partner.
    n_support : int
    """

    far: float
    near: float
    evaluations: int
    moved: int
    returned: int
    passes: int
    empty_pass: float
    n_support: int


def slow_down(nanoseconds: float, rate: float) -> None:
    """Make the tasks of this process take their time: those of a worker, by its own call."""
    from bigsvm.data.rows import bytes_of
    from bigsvm.executors import tasks

    pieces_seen: set[str] = set()

    def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def sleep_on(*given: Any) -> Any:  # noqa: ANN401 (as what it stands for)
            began = time.perf_counter()
            done = function(*given)
            n_bytes = bytes_of(done.values)
            for piece in given[1] if isinstance(given[1], list) else ():
                if piece.name not in pieces_seen:
                    pieces_seen.add(piece.name)
                    n_bytes += piece.nbytes
            seconds = done.evaluations * nanoseconds * 1e-9 + n_bytes / rate
            time.sleep(max(0.0, began + seconds - time.perf_counter()))
            return done._replace(seconds=seconds)

        return sleep_on

    for name in ("add_up", "add_up_halves", "take_rows"):
        function = getattr(tasks, name)
        setattr(tasks, name, slowed(function))


def slowed_run(store: Any, options: argparse.Namespace, n_workers: int) -> Spent:  # noqa: ANN401
    """Train on slow workers."""
    import bigsvm
    from tools.benchmarks.contestants import TOL

    watched = Watched()
    model = bigsvm.SVC(C=C, gamma=GAMMA, tol=TOL, memory=options.memory, n_jobs=1)
    with ExitStack() as stack:
        client = local_cluster(stack, n_workers)
        client.run(slow_down, options.nanoseconds, options.rate)
        for patch in watched.patches():
            stack.enter_context(patch)
        began = time.perf_counter()
        model.fit(store, client=client)
        seconds = time.perf_counter() - began
        far, passes = watched.far, watched.passes
        empty_pass = seconds_of_empty_pass(store, client)
    traffic = watched.workforce.traffic
    return Spent(
        far, seconds - far, traffic.evaluations, traffic.bytes_moved, traffic.bytes_returned,
        passes, empty_pass, len(model.support_),
    )  # fmt: skip


def seconds_of_empty_pass(store: Any, client: Any) -> float:  # noqa: ANN401
    """Measure a product that needs a message to each worker, and next to no kernel values."""
    import numpy as np

    from bigsvm.data.rows import rows_at
    from bigsvm.executors.cluster import ClusterExecutor
    from bigsvm.executors.executor import WeightedRows
    from bigsvm.executors.workforce import Workforce
    from bigsvm.gram import KernelTiles
    from bigsvm.kernels import RBF

    workforce, seconds = Workforce(client), []
    try:
        workforce.wait_for_workers()
        with KernelTiles(RBF(gamma=GAMMA), threads=1) as tiles:
            executor = ClusterExecutor(workforce, store.rows, tiles, block_bytes=1 << 26)
            rows = np.arange(0, store.rows.n_rows, executor.unit_rows)
            partner = rows_at(store.rows.read(0, 1))
            for _ in range(EMPTY_PASSES):
                began = time.perf_counter()
                weighted = WeightedRows.held(partner, np.ones(1))
                executor.at_rows(rows, weighted, exact=False)
                seconds.append(time.perf_counter() - began)
    finally:
        workforce.close()
    return float(np.median(seconds))


class Costs(NamedTuple):
    """Constants of the cost model, as one run has them.

    Attributes
    ----------
    floors : float
        Kernel values on workers, in floors: one floor is rows × support vectors.
    moved_times, returned_times : float
        Bytes moved, in bytes of the support vectors; bytes returned, in 8 bytes a row.
    near_per_support : float
        Seconds of the coordinator for each support vector, in one thread.
    """

    floors: float
    moved_times: float
    returned_times: float
    near_per_support: float

    @classmethod
    def of(cls, spent: Spent, *, n_rows: int, n_columns: int) -> Costs:
        """Find the constants of a run."""
        return cls(
            spent.evaluations / (n_rows * spent.n_support),
            spent.moved / (spent.n_support * (4 * n_columns + 8)),
            spent.returned / (8 * n_rows),
            spent.near / spent.n_support,
        )

    def far(
        self, n_rows: int, n_support: int, n_columns: int, n_workers: int, *, value: float,
        rate: float,
    ) -> tuple[float, float]:  # fmt: skip
        """Seconds of kernel values, and of bytes, with `n_workers` threads."""
        values = self.floors * n_rows * n_support * value / n_workers
        moved = self.moved_times * n_support * (4 * n_columns + 8) / rate
        back = self.returned_times * 8 * n_rows / rate / n_workers
        return values, moved + back


def seconds_of(value: float) -> str:
    """Show a time in the unit that suits it."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2g} s"


def cost_table(costs: Costs, *, value: float, link: float) -> str:
    """Lay out what far work takes on P threads, and what does not shrink with P."""
    rows = []
    for n_rows, n_support in SIZES:
        far = [
            sum(costs.far(n_rows, n_support, TABLE_COLUMNS, p, value=value, rate=link))
            for p in TABLE_WORKERS
        ]
        moved = costs.moved_times * n_support * (4 * TABLE_COLUMNS + 8)
        near = costs.near_per_support * n_support
        rows.append(
            [
                f"{n_rows:.0e}", f"{n_support:.0e}", *map(seconds_of, far),
                f"{moved / 1e9:.2g}", seconds_of(near),
            ]
        )  # fmt: skip
    header = ["rows", "SVs", *(f"P = {p}" for p in TABLE_WORKERS), "moved, GB", "coordinator"]
    return table(header, rows)


def scaling(options: argparse.Namespace) -> int:
    """Train on more and more slow workers, and print the cost model."""
    import tempfile

    import bigsvm
    from bigsvm.gram.tiles import SECONDS_PER_ENTRY, SECONDS_PER_VALUE
    from tools.benchmarks import synthetic

    with tempfile.TemporaryDirectory() as folder:
        x, y = synthetic.make("few", options.rows, N_COLUMNS)
        store = bigsvm.write_store(Path(folder) / "rows.zarr", x, y)
        del x, y
        runs = {p: slowed_run(store, options, p) for p in options.workers}
    # The more workers there are, the more products are worth sending: each run has its own counts.
    costs = {
        p: Costs.of(spent, n_rows=options.rows, n_columns=N_COLUMNS) for p, spent in runs.items()
    }
    most, n_support = costs[max(runs)], runs[max(runs)].n_support
    each = options.nanoseconds * 1e-9
    own = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[False] * N_COLUMNS
    slower = each / own
    lines, limits = [], []
    for p, spent in sorted(runs.items()):
        efficiency = each * spent.evaluations / (p * spent.far)
        values, n_bytes = costs[p].far(
            options.rows, spent.n_support, N_COLUMNS, p, value=each, rate=options.rate
        )
        beside = spent.passes * spent.empty_pass
        predicted = values + n_bytes + beside
        lines.append(
            [
                p, f"{spent.far:.1f}", f"{costs[p].floors:.2f}", spent.passes,
                f"{values:.1f} + {n_bytes:.1f} + {beside:.1f}",
                f"{1e3 * spent.empty_pass:.0f}", f"{spent.near:.1f}",
                f"{slower * spent.near:.0f}", f"{efficiency:.0%}",
            ]
        )  # fmt: skip
        limits += [
            at_least(f"{p} workers: efficiency of far work", efficiency, limit=LEAST_EFFICIENT),
            at_most(f"{p} workers: model off by", abs(predicted / spent.far - 1), limit=MOST_WRONG),
        ]
    print(machine(1))
    print(
        f"\n{options.rows} rows x {N_COLUMNS}, {n_support} support vectors; a kernel value "
        f"takes {options.nanoseconds:g} ns, {slower:.0f} times as long as it would; "
        f"{options.rate / 1e6:g} MB/s\n"
    )
    header = [
        "workers",
        "far, s",
        "floors",
        "passes",
        "model: values + bytes + passes",
        "empty pass, ms",
        "near, s",
        "near, slowed",
        "efficiency",
    ]
    print(table(header, lines))
    value = SECONDS_PER_VALUE + SECONDS_PER_ENTRY[False] * TABLE_COLUMNS
    print(
        f"\nCosts with {max(runs)} workers: {most.floors:.2f} floors on workers, "
        f"{most.moved_times:.2f} times the support vectors moved, {most.returned_times:.2f} x 8 "
        f"bytes a row back, {1e3 * most.near_per_support:.2f} ms of the coordinator a support "
        "vector.\n"
        f"Of {TABLE_COLUMNS} columns, {1e9 * value:.1f} ns a value, a link of "
        f"{options.link / 1e9:g} GB/s, P threads:\n"
    )
    print(cost_table(most, value=value, link=options.link))
    print(f"\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1
