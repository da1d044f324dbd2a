"""Reading a store block by block: as training does, without `zarrs`, and by zarr-python alone.

    python -m tools.benchmarks reading [--repeats 5] [--megabytes 200]

Each run is a process that imports what it needs, opens a store and reads all of its rows, with the
budget of 64 MiB for two blocks. ``training`` computes the blocks of `RowSource.blocks`, the next
one ahead; every chunk is verified. ``own codecs`` is the same, where chunks are decoded by
zarr-python's own codecs instead of `zarrs`. ``zarr alone`` reads the same spans of the arrays by
zarr-python and `zarrs`: nothing is verified, and there is no Dask. The stores are made here and are
in the page cache.

The limits say what verification and Dask may add to the CPU time of reading, and what may be
imported to read a store.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import Case, Limit, Results, at_most, made_up, ratio_to, spread, who

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAINING, OWN, ALONE = "training", "own codecs", "zarr alone"
LAYOUTS = ("dense", "csr")
N_COLUMNS = 100
BLOCK_BYTES = 64 << 20
MOST_TIME, MOST_START = 1.6, 0.3


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Read a store once; make it where it is not there."""
    path = Path(job["folder"]) / f"{job['name']}.zarr"
    if not path.exists():
        # In another process: this one has imported nothing yet.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(write, job["name"], path, 1e6 * job["parameters"]["megabytes"]).result()
    import bigsvm.data.store

    began = time.process_time()
    # What training on rows in memory does not import.
    from bigsvm.data import zarr_arrays

    imported = time.process_time()
    zarr_arrays.HAS_ZARRS &= job["who"] != OWN
    rows = bigsvm.data.store.open_store(path).rows
    wall, cpu = time.perf_counter(), time.process_time()
    blocks = by_zarr(path, rows) if job["who"] == ALONE else by_training(rows)
    n_read = sum(blocks)
    return {
        "n_rows": n_read,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "import_seconds": imported - began,
    }


def by_training(rows: Any) -> Iterator[int]:  # noqa: ANN401 (StoreRows)
    """Yield the sizes of the blocks that training reads."""
    for block in rows.blocks(BLOCK_BYTES):
        yield int(block.values.shape[0])


def by_zarr(path: Path, rows: Any) -> Iterator[int]:  # noqa: ANN401 (StoreRows)
    """Read the same spans by zarr-python alone."""
    import zarr

    options = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1}
    with zarr.config.set(options):
        X = zarr.open_group(path, mode="r")["X"]
        arrays = [X[name] for name in ("data", "indices")] if rows.is_sparse else [X]
    indptr = rows.indptr() if rows.is_sparse else None
    for start, stop in rows.spans(BLOCK_BYTES):
        low, high = (start, stop) if indptr is None else (int(indptr[start]), int(indptr[stop]))
        for array in arrays:
            array[low:high]
        yield stop - start


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
    """Compare training's reading with zarr-python alone."""
    found = []
    for row in results.rows(TRAINING):
        ratio = row.ratio(ALONE, "cpu_seconds")
        found.append(at_most(f"{row.case.name}: training ÷ zarr alone", ratio, limit=MOST_TIME))
        imports = row.median("import_seconds")
        if imports is not None:
            found.append(at_most(f"{row.case.name}: s of imports", imports, limit=MOST_START))
    return found


def cases(options: Any) -> list[Case]:  # noqa: ANN401 (a namespace)
    """List the layouts."""
    return [made_up(layout, megabytes=options.megabytes) for layout in LAYOUTS]


SUITE = Suite(
    cases=cases,
    contestants=(ALONE, TRAINING, OWN),
    columns=(
        ("rows", lambda row: row.case.name),
        ("read by", who),
        ("CPU s", spread("cpu_seconds")),
        ("wall s", spread("seconds")),
        ("CPU ÷ zarr alone", ratio_to(ALONE, "cpu_seconds")),
        ("CPU s of imports", spread("import_seconds")),
        ("peak MB", spread("peak_rss", digits=0, scale=1e-6)),
    ),
    limits=limits,
    do="tools.benchmarks.suites.reading:read",
    repeats=5,
    more=(("--megabytes", {"type": float, "default": 200.0}),),
)
