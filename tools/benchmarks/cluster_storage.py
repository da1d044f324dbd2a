"""Training by workers from an S3 server on this machine; see `cluster`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.children import machine
from tools.benchmarks.results import at_most, megabytes, must, table, verdicts

if TYPE_CHECKING:
    import argparse

N_COLUMNS = 54
CLOUD_BLOCK = 100_000
CLOUD_OFFSET = 0.6
"""Mean of each column, up to its sign: centres are 8.8 standard deviations apart. With 0.4, where
0.16 % of the rows are nearer to the other centre, each of these is a support vector for any C."""
MOST_SUPPORT, MOST_SECONDS, PENALTY = 10_000, 1200.0, 1.0
HERE = "coordinator, scheduler"


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


def write(url: str, n_rows: int, memory: str) -> float:
    """Write the clouds to a store; returns the CPU seconds."""
    import bigsvm

    bigsvm.write_store(url, *clouds(n_rows), memory=memory)
    return time.process_time()


def storage(options: argparse.Namespace) -> int:
    """Write a store to object storage, and train it with two workers."""
    import bigsvm
    from tools.benchmarks.suites.cluster import WORKER_MEMORY, Watched, local_cluster
    from tools.benchmarks.suites.object_storage import URL, object_server

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        server = stack.enter_context(object_server(Path(folder)))
        began = time.perf_counter()
        # In a process of its own, whose memory is not that of the training.
        given = URL, options.rows, options.memory
        call = f"from {__name__} import write; print(write{given!r})"
        done = subprocess.run([sys.executable, "-c", call], check=True, stdout=subprocess.PIPE)
        written, cpu_written = time.perf_counter() - began, float(done.stdout.split()[-1])
        counted = server.counts()
        model = bigsvm.SVC(C=options.C, gamma=1 / N_COLUMNS, memory=options.memory)
        client = local_cluster(stack, 2)
        watched = Watched()
        for patch in watched.patches():
            stack.enter_context(patch)
        cpu = {HERE: time.process_time(), **client.run(time.process_time)}
        began = time.perf_counter()
        model.fit(URL, client=client)
        seconds = time.perf_counter() - began
        ended = {HERE: time.process_time(), **client.run(time.process_time)}
        peaks = {HERE: peak_bytes(), **client.run(peak_bytes)}
        asked = server.since(counted)
    certificate, traffic = model.certificate_, watched.workforce.traffic
    n_bytes = 4 * N_COLUMNS * options.rows
    spent = sum(ended.values()) - sum(cpu.values())
    of_workers = sum(traffic.bytes_read.values())
    read = [f"{n / n_bytes:.2f}" for n in (certificate["bytes_read"], of_workers)]
    lines = [
        ["write", f"{written:.0f}", f"{cpu_written:.0f}", *of_server(counted), "", ""],
        ["train", f"{seconds:.0f}", f"{spent:.0f}", *of_server(asked), *read],
    ]
    limits = [
        must("certified", certificate["converged"], True, bool(certificate["converged"])),
        at_most("support vectors", certificate["n_support"], limit=MOST_SUPPORT, digits=0),
        at_most("seconds", written + seconds, limit=MOST_SECONDS, digits=0),
    ]
    print(
        f"{machine(1)}\n\n{options.rows} rows x {N_COLUMNS}, {n_bytes / 1e9:.1f} GB, "
        f"C {options.C:g}: {certificate['n_support']} support vectors, "
        f"{certificate['n_sweeps']} sweeps, {watched.passes} passes of workers, "
        f"{traffic.tasks} tasks, {certificate['n_kernel_evaluations']:.3g} kernel values; "
        f"{watched.far:.0f} s of the training the coordinator waits for workers\n"
    )
    header = ["step", "seconds", "CPU s", "CPU s of the server", "GET", "MB sent"]
    print(table([*header, "rows read here ÷ all", "by workers"], lines) + "\n")
    processes = [
        [name, options.memory if name == HERE else WORKER_MEMORY, f"{ended[name] - cpu[name]:.0f}",
         megabytes(peaks[name])]
        for name in ended
    ]  # fmt: skip
    print(table(["process, training", "memory", "CPU s", "peak RSS MB"], processes))
    print(f"\n{verdicts(limits)}")
    return 0 if all(all(limit.holds) for limit in limits) else 1


def of_server(counts: dict[str, float]) -> list[str]:
    """Lay out what the server has counted."""
    return [
        f"{counts['cpu_seconds']:.0f}", f"{counts.get('GET', 0):.0f}",
        megabytes(counts.get("sent", 0)),
    ]  # fmt: skip
