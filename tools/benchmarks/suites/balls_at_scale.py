"""Balls of millions of rows that look like KDD99's, out of core; and the time of a step.

    python -m tools.benchmarks balls_at_scale --part runs [--sizes 5000000] [--memory 700MB]
    python -m tools.benchmarks balls_at_scale --part steps [--sizes 10000 … 5000000] [--repeats 3]

Rows are those of `kdd_like.py`. C is 8, gamma 1 / the average squared distance of two rows, and
samples have 59 rows. A run ends after --give-up seconds.

runs     What two passes over the rows take is measured after each run, with whatever the system
         keeps of them in its cache. Sampled runs (certify=False) are to take no longer. Accuracy is
         that of 100 000 fresh rows. ``floors`` are kernel evaluations ÷ (rows × support vectors).
         The peak of every run is to be at most the budget + 40 bytes a row + what the process took
         for a tiny problem under the same budget; and under 1 GB
steps    The time of a step of sampled mfw, or fw, against the number of rows: all take
         --most-steps; and samples have 590 rows, as with 59 searches end earlier, each elsewhere.
         What is done once, before the end of the first round, is not in it. A step needs the kernel
         values of its sample with the core set: for each row of the sample and point of the core
         set, the slowest is to take at most twice as long as the fastest
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_most,
    median_range,
    megabytes,
    memory_limit,
    must,
    spread,
    who,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowsAt
    from bigsvm.training.events import Event

C = 8.0
RUNS = ("sampled fw", "sampled mfw", "sampled pairwise", "certified pairwise")
SAMPLING, STEPS_SAMPLING = 59, 590
READS, MOST_MEMORY, MOST_TIMES = 2.0, 10**9, 2.0
BLOCK_BYTES = 64 << 20
TINY_ROWS = 1000
FRESH_ROWS, FRESH_SEED = 100_000, 1


def cases(options: argparse.Namespace) -> list[Case]:
    """List the stores."""
    given = {"C": C, "sampling": SAMPLING}
    if hasattr(options, "most_steps"):
        given |= {"sampling": STEPS_SAMPLING, "max_iter": options.most_steps}
    return [
        Case(str(n), DataSet(f"connections-{n}", 127, n_made=n, layouts=("dense",)), given)
        for n in options.sizes
    ]


class Watching:
    """Counts what a search does: rows drawn, the largest core set, and the steps of its rounds.

    The first round is not counted: what is done once, which may depend on the number of rows, came
    before its end.
    """

    def __init__(self) -> None:
        self.rows_drawn = self.core = 0
        self._rounds: list[tuple[float, int]] = []

    def listen(self, event: Event) -> None:
        """Look at a round of the search."""
        from bigsvm.training.events import Searching

        if isinstance(event, Searching):
            self.core = max(self.core, event.size)
            self._rounds = [*self._rounds[:1], (time.perf_counter(), event.steps)]

    def seconds_per_step(self) -> float | None:
        """Return the time of a step after the first round; None where no step came after it."""
        if len(self._rounds) < 2 or self._rounds[1][1] == self._rounds[0][1]:
            return None
        (began, before), (ended, after) = self._rounds
        return (ended - began) / (after - before)

    def count_draws(self) -> None:
        """Have searches of this process draw rows that are counted; no result says how many."""
        from bigsvm.balls.random_rows import RandomRows

        draw = RandomRows.draw

        def counted(rows: RandomRows, count: int) -> Iterator[tuple[NDArray[np.int64], RowsAt]]:
            self.rows_drawn += count
            return draw(rows, count)

        RandomRows.draw = counted  # type: ignore[method-assign]


def fit(job: dict[str, Any]) -> dict[str, Any]:
    """Train once; where the search is looked at as a whole, test and read the rows too."""
    from bigsvm import open_store
    from bigsvm.data.sources import as_row_source
    from bigsvm.fit.gamma import mean_distance
    from bigsvm.fit.train import train_model
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks
    from tools.benchmarks import kdd_like
    from tools.benchmarks.children import peak_so_far
    from tools.benchmarks.contestants import threads

    opened = open_store(Path(job["folder"]) / f"{job['name']}.dense.zarr")
    kind, solver = job["who"].split()
    parameters = TrainingParameters(
        **job["parameters"], formulation="l2-svc", solver=solver, certify=kind == "certified",
        gamma=1 / mean_distance(opened.rows, None, seed=0), memory=job["memory"],
        max_seconds=job["give_up"], threads=threads(),
    )  # fmt: skip
    shape = {"n_rows": TINY_ROWS, "seed": FRESH_SEED}
    labels = kdd_like.block_draws(0, **shape).labels
    train_model(as_row_source(kdd_like.block_rows(0, **shape)), labels, None, parameters)
    interpreter, watching = peak_so_far(os.getpid()), Watching()
    watching.count_draws()
    source, labels = opened.rows, opened.labels()
    started = time.perf_counter()
    model = train_model(source, labels, None, parameters, Hooks(listener=watching.listen))
    seconds = time.perf_counter() - started
    names = (
        "converged", "stop_reason", "n_support", "n_iter", "n_sweeps", "bytes_read",
        "n_kernel_evaluations",
    )  # fmt: skip
    answer = {
        **{name: model.certificate[name] for name in names},
        "seconds": seconds, "peak_rss": peak_so_far(os.getpid()), "interpreter": interpreter,
        "core": watching.core, "rows_drawn": watching.rows_drawn,
    }  # fmt: skip
    if "max_iter" in job["parameters"]:
        each = watching.seconds_per_step()
        if each is None:
            raise SystemExit(f"{source.n_rows} rows: no steps after the first round; give more")
        return answer | {"microseconds": 1e6 * each}
    answer["accuracy"] = accuracy(model)
    return answer | {"read_seconds": min(read_seconds(source) for _ in range(2))}


def read_seconds(source: Any) -> float:  # noqa: ANN401 (a row source)
    """Time one pass over all rows."""
    started = time.perf_counter()
    for _ in source.blocks(BLOCK_BYTES):
        pass
    return time.perf_counter() - started


def accuracy(model: Any) -> float:  # noqa: ANN401 (a KernelExpansion)
    """Test on fresh rows: %."""
    from bigsvm.data.sources import as_row_source
    from tools.benchmarks import kdd_like
    from tools.benchmarks.contestants import threads

    right = 0
    for block, start in enumerate(range(0, FRESH_ROWS, kdd_like.BLOCK_ROWS)):
        shape = {"n_rows": min(kdd_like.BLOCK_ROWS, FRESH_ROWS - start), "seed": FRESH_SEED}
        rows = as_row_source(kdd_like.block_rows(block, **shape))
        values = model.decision_function(rows, threads=threads())
        right += int(((values > 0) == (kdd_like.block_draws(block, **shape).labels > 0)).sum())
    return 100 * right / FRESH_ROWS


def is_sampled(row: Row) -> bool:
    return str(row.who).startswith("sampled")


def in_reads(row: Row) -> str:
    """Show seconds ÷ those of two passes over the rows."""
    return f"{row.last('seconds') / (READS * row.last('read_seconds')):.2f}"


def floors(row: Row) -> str:
    return "-" if is_sampled(row) else f"{row.last('evaluations_in_floors'):.2f}"


def sweeps(row: Row) -> str:
    return "-" if is_sampled(row) else str(row.last("n_sweeps"))


def heading(row: Row) -> str:
    n, budget = row.case.facts["n_rows"], row.whole.budget
    return (
        f"{n} rows x 127 float32, {megabytes(n * 127 * 4)} MB, budget {megabytes(budget)} MB, "
        f"interpreter {megabytes(max(row.values('interpreter')))} MB; C {C:g}\n"
        f"reading them once: {min(row.values('read_seconds')):.2f} s"
    )


def limits(results: Results) -> list[Limit]:
    """Hold the runs against two reads, and their memory against what they promise."""
    found = []
    for case in results.cases:
        for name in results.contestants:
            row = results.row(case, name)
            if is_sampled(row):
                most = READS * row.last("read_seconds")
                found.append(
                    at_most(f"{name}: seconds", row.last("seconds"), limit=most, shown="≤ {:.2f}")
                )
            else:
                converged = bool(row.last("converged"))
                found.append(must(f"{name}: converged", converged, True, converged))
            base = row.last("interpreter")
            most = memory_limit(results.budget, n_rows=case.facts["n_rows"], baseline=base)
            peak, most = max(row.values("peak_rss")) / 1e6, min(most, MOST_MEMORY) / 1e6
            name_of_peak = f"{name}: peak RSS, MB"
            found.append(at_most(name_of_peak, peak, limit=most, digits=0, shown="{:.0f}"))
    return found


def solver(name: str | None) -> str:
    """Name the solver of a step where it is not mfw."""
    return ", fw" * (name == "sampled fw")


def nanoseconds_each(row: Row) -> float:
    """Return the time of a step for each row of its sample and point of the last core set."""
    values: int = STEPS_SAMPLING * row.last("core")
    return 1000 * (row.median("microseconds") or 0.0) / values


def step_limits(results: Results) -> list[Limit]:
    """Hold the slowest step of each solver against its fastest, for each row and point."""
    found = []
    for name in results.contestants:
        times = [nanoseconds_each(row) for row in results.rows(name)]
        label = f"slowest ÷ fastest, for each row and point{solver(name)}"
        found.append(at_most(label, max(times) / min(times), limit=MOST_TIMES))
    return found


DO = "tools.benchmarks.suites.balls_at_scale:fit"
PARTS = {
    "runs": Suite(
        cases=cases,
        sizes=(5_000_000,),
        contestants=RUNS,
        columns=(
            ("run", who),
            "seconds",
            ("÷ two reads", in_reads),
            ("core set", "core"),
            *("SVs", "steps"),
            ("rows drawn", "rows_drawn"),
            ("read MB", lambda row: megabytes(row.last("bytes_read"))),
            ("sweeps", sweeps),
            ("floors", floors),
            ("accuracy %", "accuracy:.2f"),
            "peak RSS MB",
            ("stopped", "stop_reason"),
        ),
        heading=heading,
        limits=limits,
        table_of_each_case=True,
        do=DO,
        repeats=1,
        memory="700MB",
        give_up=3600.0,
        patience=lambda who, runs, options: None,
    ),
    "steps": Suite(
        cases=cases,
        sizes=(10_000, 100_000, 1_000_000, 5_000_000),
        contestants=("sampled mfw",),
        guests=("sampled fw",),
        columns=(
            ("rows", lambda row: f"{row.case.name}{solver(row.who)}"),
            "steps",
            ("core set", "core"),
            ("µs per step", lambda row: median_range(row.values("microseconds"), digits=1)),
            ("ns per row and point", lambda row: f"{nanoseconds_each(row):.2f}"),
            ("seconds of all", spread("seconds")),
            ("stopped", "stop_reason"),
        ),
        limits=step_limits,
        by_contestant=True,
        do=DO,
        memory="700MB",
        give_up=3600.0,
        patience=lambda who, runs, options: None,
        more=(("--most-steps", {"type": int, "default": 2000}),),
    ),
}
