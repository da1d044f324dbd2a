"""Training from an S3 server on this machine: seconds, requests, and bytes of a request.

    python -m tools.benchmarks object_storage [--rows 10000000] [--memory 1GB] [--threads 2]

Rows are two clouds of 50 columns that hardly overlap, so that few of them become support vectors.
They are made block by block and written to a store at a URL; then that is trained on, with a budget
that does not hold the rows. Each is a process of its own. The server is `tools.object_server`,
which answers requests for ranges in constant time; its CPU seconds stand apart.

Requests are those of a whole step, opening the store and reading its labels included. Bytes are
those of rows, as decoded; a pass reads all rows once.

The limits are those of the issue: certified, at most 10⁴ support vectors, at most one request for
each 8 MB of rows, and 30 minutes for 10⁷ rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine, run_checked
from tools.benchmarks.results import at_most, megabytes, must, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

N_COLUMNS, OFFSET, C, GAMMA = 50, 0.6, 1.0, 1 / 50
"""Centres are 8.5 standard deviations apart."""
URL = "s3://bucket/rows.zarr"
MOST_SUPPORT, BYTES_OF_A_REQUEST = 10_000, 8e6
MOST_SECONDS, ROWS = 1800.0, 10_000_000
"""Both are those of the issue; other numbers of rows get as many seconds."""


class Server:
    """A running `tools.object_server`; `counts` asks it for what it has counted."""

    def __init__(self, address: str) -> None:
        self.address = address

    def counts(self) -> dict[str, float]:
        """Ask for what it has counted so far."""
        with urllib.request.urlopen(self.address) as answer:
            found: dict[str, float] = json.load(answer)
        return found

    def since(self, before: dict[str, float]) -> dict[str, float]:
        """Ask for what it has counted since then."""
        return {name: n - before.get(name, 0) for name, n in self.counts().items()}


@contextmanager
def object_server(folder: Path) -> Iterator[Server]:
    """Start a server in a process of its own, and name it in the environment."""
    (folder / "bucket").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tools.object_server", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            server = Server(process.stdout.readline().strip())
            os.environ.update(
                AWS_ENDPOINT_URL=server.address, AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-east-1",
            )  # fmt: skip
            yield server
        finally:
            process.kill()


def write(n_rows: int, memory: str) -> dict[str, Any]:
    """Write the clouds to the store."""
    import bigsvm
    from tools.benchmarks.cluster_storage import clouds

    x, y = clouds(n_rows, N_COLUMNS, OFFSET)
    bigsvm.write_store(URL, x, y, memory=memory)
    return {}


def train(memory: str, threads: int) -> dict[str, Any]:
    """Train on the store."""
    import bigsvm

    store = bigsvm.open_store(URL)
    model = bigsvm.SVC(C=C, gamma=GAMMA, memory=memory, n_jobs=threads).fit(store)
    about = model.certificate_
    return {
        "n_support": int(about["n_support"]),
        "certified": bool(about["converged"]),
        "sweeps": int(about["n_sweeps"]),
        "passes": store.rows.bytes_read / (store.rows.n_rows * store.rows.bytes_per_row),
        "bytes_read": store.rows.bytes_read,
    }


def program(options: argparse.Namespace) -> int:
    """Write the store, and train on it."""
    from pathlib import Path

    memory, threads = options.memory, options.threads
    steps = {"write": (options.rows, memory), "train": (memory, threads)}
    lines, seconds, answer = [], 0.0, dict[str, Any]()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with object_server(Path(folder)) as server:
            for name, given in steps.items():
                before = server.counts()
                call = f"import json; from {__name__} import {name}; "
                call += f"print(json.dumps({name}(*{given!r})))"
                child = run_checked([sys.executable, "-c", call], threads=threads)
                counts, answer = server.since(before), child.answer
                seconds += child.seconds
                lines.append(
                    [
                        name, f"{child.seconds:.0f}", f"{child.cpu_seconds:.0f}",
                        f"{counts['cpu_seconds']:.0f}", megabytes(child.peak_rss),
                        *(f"{counts.get(method, 0):.0f}" for method in ("GET", "PUT")),
                        megabytes(counts.get("sent", 0)), megabytes(counts.get("received", 0)),
                    ]
                )  # fmt: skip
    passes, read = answer["passes"], answer["bytes_read"]
    requests = counts["GET"]
    header = [
        "step", "seconds", "CPU s", "CPU s of the server", "peak RSS MB", "GET", "PUT",
        "MB sent", "MB received",
    ]  # fmt: skip
    limits = [
        must("certified", answer["certified"], True, answer["certified"]),
        at_most("support vectors", answer["n_support"], limit=MOST_SUPPORT, digits=0),
        at_most("requests for 8 MB", requests / (read / BYTES_OF_A_REQUEST), limit=1.0),
        at_most("seconds", seconds, limit=MOST_SECONDS, digits=0),
    ]
    print(
        f"{machine(threads)}\n\n{options.rows} rows x {N_COLUMNS}, "
        f"{4e-6 * N_COLUMNS * options.rows:.0f} MB, memory {memory}: "
        f"{answer['n_support']} support vectors, {answer['sweeps']} sweeps, {passes:.1f} passes, "
        f"{requests / passes:.0f} requests a pass, {megabytes(read / requests)} MB of rows a "
        f"request\n\n{table(header, lines)}\n\n{verdicts(limits)}"
    )
    return 0 if all(all(limit.holds) for limit in limits) else 1


SUITE = Suite(
    program=program,
    memory="1GB",
    threads=2,
    more=(("--rows", {"type": int, "default": ROWS}),),
)
