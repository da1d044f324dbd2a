"""Training by workers from an S3 server on this machine; see `cluster`."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.children import machine
from tools.benchmarks.results import megabytes, table

if TYPE_CHECKING:
    import argparse

N_COLUMNS = 54
CLOUD_BLOCK = 100_000
CLOUD_OFFSET = 0.4
"""Mean of each column, up to its sign: the clouds overlap, so that training takes some passes."""


def clouds(
    n_rows: int, n_columns: int = N_COLUMNS, offset: float = CLOUD_OFFSET
) -> tuple[Any, Any]:
    """Make a Dask array of rows around two centres, and labels."""
    import dask.array as da
    import numpy as np

    y = np.random.default_rng(0).integers(0, 2, n_rows)
    sides = da.from_array((offset * (2 * y - 1)).astype(np.float32), chunks=CLOUD_BLOCK)
    noise = da.random.default_rng(1).standard_normal(
        (n_rows, n_columns), dtype=np.float32, chunks=(CLOUD_BLOCK, n_columns)
    )
    return noise + sides[:, None], y.astype(float)


def peak_bytes() -> int:
    """Peak memory of this process."""
    import os

    from tools.benchmarks.children import peak_so_far

    return peak_so_far(os.getpid())


def storage(options: argparse.Namespace) -> int:
    """Write a store to object storage, and train it with two workers."""
    import subprocess
    import sys

    from tools.benchmarks.suites.cluster import WORKER_MEMORY, local_cluster
    from tools.benchmarks.suites.object_storage import URL, object_server

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(object_server(Path(folder)))
        began = time.perf_counter()
        # In a process of its own, whose memory is not that of the training.
        call = f"from {__name__} import write; write({URL!r}, {options.rows}, {options.memory!r})"
        subprocess.run([sys.executable, "-c", call], check=True)
        written = time.perf_counter() - began
        import bigsvm

        model = bigsvm.SVC(C=1.0, gamma=1 / N_COLUMNS, memory=options.memory)
        client = local_cluster(stack, 2)
        began = time.perf_counter()
        model.fit(URL, client=client)
        seconds = time.perf_counter() - began
        peaks = client.run(peak_bytes)
        certificate = model.certificate_
        print(machine(1))
        print(
            f"\n{options.rows} rows x {N_COLUMNS}, {4 * N_COLUMNS * options.rows / 1e9:.1f} GB: "
            f"written in {written:.0f} s, trained in {seconds:.0f} s, "
            f"{certificate['stop_reason']}, {certificate['n_support']} support vectors, "
            f"{certificate['n_sweeps']} sweeps\n"
        )
        lines = [["coordinator", options.memory, megabytes(peak_bytes())]]
        lines += [[address, WORKER_MEMORY, megabytes(peak)] for address, peak in peaks.items()]
        print(table(["process", "memory", "peak RSS MB"], lines))
    return 0 if certificate["converged"] else 1


def write(url: str, n_rows: int, memory: str) -> None:
    """Write the clouds to a store."""
    import bigsvm

    bigsvm.write_store(url, *clouds(n_rows), memory=memory)
