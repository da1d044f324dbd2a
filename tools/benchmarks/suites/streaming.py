"""What it costs to train out of core: the same store streamed from disk, and held in memory.

    python -m tools.benchmarks streaming [--data few-100000 mnist] [--repeats 3] [--share 0.2]

A store is trained in turns, each run in a process of its own and timed after a tiny one:

streamed  its rows are read from disk at every pass, under a budget of which they would take
          --share: more than the share up to which a run keeps them
held      its rows are in memory before the clock starts, the budget is the same: the difference is
          what reading and decoding cost
memory    so too, with the budget --memory: what somebody gets who has memory to spare

Every pass of ``streamed`` has to come from the disk: the parent drops the store's pages from the
system's cache twenty times a second while it is under way. How much the disk did deliver to the run
is what the system counts; where it counts nothing, what was dropped came back from a cache outside
this system. What the disk can deliver is measured before each such run by one
sequential read of the store's files, dropped from the cache before. ``read`` are bytes of rows, as
decoded; ``idle`` is the share of their time in which the threads of a sweep waited.

The limit is the promise that out of core takes at most 1.3 times as long as in memory where the
disk delivers at least 0.5 GB/s. `out_of_core` has data that are larger than the budget.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import data_set
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    at_least,
    at_most,
    case_of,
    median_range,
    megabytes,
    noise,
    spread,
    who,
)

if TYPE_CHECKING:
    import argparse
    import subprocess
    from collections.abc import Callable, Sequence

STREAMED, HELD, MEMORY = "streamed", "held", "memory"
SHARE = 0.2
"""So that few-100000 has room for a working set of its 1 537 free support vectors: with 0.25 a run
takes twenty times as long, for want of memory and not of disk speed."""
MOST_TIMES = 1.3
LEAST_DISK = 0.5
"""GB a second from which on the promise is made."""
LEAST_PASSES = 1.5
SAME_OBJECTIVE = 1e-5
"""Both end within a KKT gap of 1e-3, at objectives that agree to some 1e-7 of their size."""
DROP_EVERY = 0.05
READ_BYTES = 1 << 20


def files_of(store: Path) -> list[Path]:
    """List the files of a store."""
    return sorted(path for path in store.rglob("*") if path.is_file())


class PageCache:
    """The pages that the system has of some files; opened once, to be dropped often."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [os.open(path, os.O_RDONLY) for path in files]
        for file in self._files:
            os.fsync(file)  # what is not written yet cannot be dropped

    def __enter__(self) -> PageCache:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            os.close(file)

    def drop(self) -> None:
        """Have the system forget them."""
        for file in self._files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def drop_while(self, child: subprocess.Popen[bytes]) -> None:
        """Drop them again and again until the child has ended; it is left to be waited for."""
        ended = None
        while ended is None:
            self.drop()
            time.sleep(DROP_EVERY)
            ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def read_speed(files: Sequence[Path], cache: PageCache) -> float:
    """Bytes a second that reading the files one after the other gets from the disk."""
    cache.drop()
    n_bytes = 0
    started = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                n_bytes += len(piece)
    return n_bytes / (time.perf_counter() - started)


def store_of(folder: Path, name: str, layout: str) -> Path:
    return folder / f"{name}.{layout}.zarr"


def dropping(
    case: Case, name: str, layout: str, folder: Path
) -> Callable[[subprocess.Popen[bytes]], None] | None:
    """Give what the parent does while a run is under way."""
    if name != STREAMED:
        return None

    def drop(child: subprocess.Popen[bytes]) -> None:
        with PageCache(files_of(store_of(folder, case.data.name, layout))) as cache:
            cache.drop_while(child)

    return drop


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train once, with a cold cache."""
    from bigsvm import open_store
    from tools.benchmarks import contestants

    store = store_of(Path(job["folder"]), job["name"], job["layout"])
    rows, files = open_store(store).rows, files_of(store)
    row_bytes = round(rows.n_rows * rows.bytes_per_row)
    budget = int(row_bytes / job["parameters"].pop("share"))
    with PageCache(files) as cache:
        known = {
            "row_bytes": row_bytes,
            "stored_bytes": sum(path.stat().st_size for path in files),
            "budget": budget,
            "disk": read_speed(files, cache) if job["who"] == STREAMED else None,
        }
        cache.drop()
    asked = {"who": "this", "rows": "streamed" if job["who"] == STREAMED else "memory"}
    memory = job["memory"] if job["who"] == MEMORY else budget
    return known | contestants.fit(job | asked | {"memory": memory})


def heading(row: Row) -> str:
    """Describe a store."""
    facts, one = row.case.facts, row.runs[0].answer
    return (
        f"{row.case.name}: {facts['n_rows']} rows x {facts['n_columns']}, "
        f"{megabytes(one['row_bytes'])} MB of rows, {megabytes(one['stored_bytes'])} MB stored; "
        f"budget {megabytes(one['budget'])} MB"
    )


def below(row: Row) -> str:
    """Compare the kinds, and say what the disk delivered."""
    streamed = row.of(STREAMED)
    ratios = ", ".join(
        f"÷ {name}: {median_range(streamed.ratios(name))}" for name in (HELD, MEMORY)
    )
    disk = median_range([speed / 1e9 for speed in streamed.values("disk")])
    return (
        f"seconds streamed {ratios}\ndisk: a cold sequential read got {disk} GB/s\n"
        f"{noise(row.values('gemm'))}"
    )


def from_disk(row: Row) -> str:
    delivered = row.values("from_disk")
    return megabytes(statistics.median(delivered)) if delivered else "-"


def limits(results: Results) -> list[Limit]:
    """Hold each store against what is promised of it."""
    found = []
    for row in results.rows():
        name, streamed, memory = row.case.name, row.of(STREAMED), row.of(MEMORY)
        passes = streamed.last("bytes_read") / streamed.last("row_bytes")
        apart = abs(streamed.last("objective") / memory.last("objective") - 1)
        found += [
            at_least(f"{name}: disk, GB/s", (streamed.median("disk") or 0) / 1e9, limit=LEAST_DISK),
            at_most(f"{name}: streamed ÷ memory", streamed.ratio(MEMORY), limit=MOST_TIMES),
            at_least(f"{name}: times that rows were read", passes, limit=LEAST_PASSES, digits=1),
            at_most(f"{name}: objectives differ by", apart, limit=SAME_OBJECTIVE, digits=7),
        ]
    return found


def cases(options: argparse.Namespace) -> list[Case]:
    """List the stores: of each data set, one in each layout."""
    from bigsvm.budget import HELD_SHARE

    if not hasattr(os, "posix_fadvise"):
        print("skipped: this system does not let pages be dropped from its cache", file=sys.stderr)
        return []
    if not options.share > HELD_SHARE:
        raise ValueError(f"--share must be above {HELD_SHARE}: up to there rows are kept in memory")
    found = []
    for data in map(data_set, options.data):
        chosen = [layout for layout in data.layouts if layout in options.layouts]
        for layout in chosen or data.layouts:
            case = case_of(data._replace(layouts=(layout,)))
            parameters = {**case.parameters, "share": options.share}
            found.append(case._replace(name=f"{data.name}, {layout}", parameters=parameters))
    return found


SUITE = Suite(
    cases=cases,
    data=("few-100000", "mnist"),
    contestants=(STREAMED, HELD, MEMORY),
    columns=(
        ("rows", who),
        *("seconds", "sweeps", "evaluations in floors"),
        ("read MB", lambda row: megabytes(row.last("bytes_read"))),
        ("from disk MB", from_disk),
        ("idle %", spread("cpu_idle", digits=0, scale=100)),
        "peak RSS MB",
    ),
    limits=limits,
    do="tools.benchmarks.suites.streaming:train",
    table_of_each_case=True,
    heading=heading,
    below=below,
    while_running=dropping,
    stores=True,
    layout="last",
    memory="1GB",
    more=(
        ("--layouts", {"nargs": "+", "choices": ("dense", "csr"), "default": ["dense", "csr"]}),
        ("--share", {"type": float, "default": SHARE, "help": "of the budget that rows take"}),
    ),
)
