"""Reading a store block by block: plain Zarr, and the same through a lazy Dask array.

    python -m tools.benchmarks reading [--repeats 5] [--megabytes 200]

Each run is a process that imports what it needs, opens a store and reads all of its rows, with the
budget of 64 MiB for two blocks and the next block read ahead, as training does. ``zarr`` reads with
`StoreRows.blocks`. ``dask`` computes the blocks of `StoreRows.as_dask` with the threaded scheduler;
every chunk is verified in both. The stores are made here and are in the page cache.

The limits are those from which a single source of rows, through Dask, would be worth having: at
most 3 % more CPU time of reading, and at most 0.3 s more CPU time for imports.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    at_most,
    made_up,
    ratio_to,
    spread,
    who,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ZARR, DASK = "zarr", "dask"
LAYOUTS = ("dense", "csr")
N_COLUMNS = 100
BLOCK_BYTES = 64 << 20
MOST_TIME, MOST_START = 1.03, 0.3


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Read a store once; make it where it is not there."""
    path = Path(job["folder"]) / f"{job['name']}.zarr"
    if not path.exists():
        # In another process: this one has imported nothing yet.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(write, job["name"], path, 1e6 * job["parameters"]["megabytes"]).result()
    began = time.process_time()
    import bigsvm.data.store

    if job["who"] == DASK:
        import dask.array  # noqa: F401 (its time counts)
    imported = time.process_time()
    rows = bigsvm.data.store.open_store(path).rows
    wall, cpu = time.perf_counter(), time.process_time()
    n_read = sum(
        int(block.shape[0]) for block in (by_dask(rows) if job["who"] == DASK else by_zarr(rows))
    )
    return {
        "n_rows": n_read,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "import_seconds": imported - began,
    }


def by_zarr(rows: Any) -> Iterator[Any]:  # noqa: ANN401 (StoreRows)
    """Yield the blocks as training reads them."""
    for block in rows.blocks(BLOCK_BYTES):
        yield block.values


def by_dask(rows: Any) -> Iterator[Any]:  # noqa: ANN401 (StoreRows)
    """Yield the blocks of the lazy array, the next one computed ahead."""
    blocks = rows.as_dask(block_bytes=BLOCK_BYTES // 2).blocks
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(lambda: blocks[0].compute(scheduler="threads"))
        for k in range(blocks.size):
            values = ahead.result()
            if k + 1 < blocks.size:
                ahead = reader.submit(lambda k=k: blocks[k + 1].compute(scheduler="threads"))
            yield values


def write(layout: str, path: Path, n_bytes: float) -> None:
    """Write a store of dense rows, or of CSR rows of which a fifth is not 0."""
    import numpy as np
    import scipy.sparse as sp

    import bigsvm

    random = np.random.default_rng(0)
    if layout == "dense":
        X: Any = random.random((int(n_bytes / (4 * N_COLUMNS)), N_COLUMNS), dtype=np.float32)
    else:
        n_rows = int(n_bytes / (8 * 0.2 * N_COLUMNS))
        X = sp.random_array(
            (n_rows, N_COLUMNS), density=0.2, format="csr", dtype=np.float32, rng=random
        )
    y = np.where(random.random(X.shape[0]) < 0.5, -1.0, 1.0)
    bigsvm.write_store(path, X, y, layout="sparse" if layout == "csr" else "dense")


def limits(results: Results) -> list[Limit]:
    """Compare Dask with plain Zarr."""
    found = []
    for row in results.rows(DASK):
        ratio = row.ratio(ZARR, "cpu_seconds")
        found.append(at_most(f"{row.case.name}: dask ÷ zarr", ratio, limit=MOST_TIME))
        plain = results.row(row.case, ZARR).median("import_seconds")
        ours = row.median("import_seconds")
        if plain is not None and ours is not None:
            found.append(
                at_most(f"{row.case.name}: s of imports more", ours - plain, limit=MOST_START)
            )
    return found


def cases(options: Any) -> list[Case]:  # noqa: ANN401 (a namespace)
    """List the layouts."""
    return [made_up(layout, megabytes=options.megabytes) for layout in LAYOUTS]


SUITE = Suite(
    cases=cases,
    contestants=(ZARR, DASK),
    columns=(
        ("rows", lambda row: row.case.name),
        ("read by", who),
        ("CPU s", spread("cpu_seconds")),
        ("wall s", spread("seconds")),
        ("CPU ÷ zarr", ratio_to(ZARR, "cpu_seconds")),
        ("CPU s of imports", spread("import_seconds")),
        ("peak MB", spread("peak_rss", digits=0, scale=1e-6)),
    ),
    limits=limits,
    do="tools.benchmarks.suites.reading:read",
    repeats=5,
    more=(("--megabytes", {"type": float, "default": 200.0}),),
)
