"""Training from an S3 server on this machine: seconds, requests, and bytes of a request.

    python -m tools.benchmarks object_storage --part training [--rows 10000000] [--memory 1GB]
    python -m tools.benchmarks object_storage --part clients [--rows 1000000] [--repeats 5]

Rows are two clouds of 50 columns that hardly overlap, so that few of them become support vectors.
They are made block by block and written to a store at a URL. The server is `tools.object_server`,
which answers requests for ranges in constant time. Each step is a process of its own.

training  The store is trained on, with a budget that does not hold the rows. Requests are those of
          a whole step, opening the store and reading its labels included. Bytes are those of rows,
          as decoded; a pass reads all rows once. Limits: certified, at most 10⁴ support vectors, at
          most one request for each 8 MB of rows, and 30 minutes for 10⁷ rows.
clients   CPU seconds that this process takes to read, by s3fs and by obstore, which has to be
          installed: all rows of the store, and a shard without decoding it, by large and by small
          requests. They take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine, run_checked
from tools.benchmarks.results import at_most, median_range, megabytes, must, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from tools.benchmarks.children import Finished

N_COLUMNS, OFFSET, C, GAMMA = 50, 0.6, 1.0, 1 / 50
"""Centres are 8.5 standard deviations apart."""
URL = "s3://bucket/rows.zarr"
MOST_SUPPORT, BYTES_OF_A_REQUEST = 10_000, 8e6
MOST_SECONDS, ROWS = 1800.0, 10_000_000
CLIENT_ROWS = 1_000_000
SHARD, SHARD_BYTES = "X/c/0/0", 16 << 20
"""A shard of the store, and how much of it is read."""
LARGE, SMALL = 8 << 20, 1 << 18
"""Bytes of requests."""


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


def child(function: str, *given: object, threads: int) -> Finished:
    """Call a function of this module in a process of its own."""
    call = f"import json; from {__name__} import {function}; "
    call += f"print(json.dumps({function}(*{given!r})))"
    return run_checked([sys.executable, "-c", call], threads=threads)


def training(options: argparse.Namespace) -> int:
    """Write the store, and train on it."""
    memory, threads = options.memory, options.threads
    steps = {"write": (options.rows, memory), "train": (memory, threads)}
    lines, seconds, answer = [], 0.0, dict[str, Any]()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        with object_server(Path(folder)) as server:
            for name, given in steps.items():
                before = server.counts()
                done = child(name, *given, threads=threads)
                counts, answer = server.since(before), done.answer
                seconds += done.seconds
                lines.append(
                    [
                        name, f"{done.seconds:.0f}", f"{done.cpu_seconds:.0f}",
                        f"{counts['cpu_seconds']:.0f}", megabytes(done.peak_rss),
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


def obstore_range() -> Callable[..., bytes]:
    """Make what reads a range of an object by obstore, in place of `Prefix._range`."""
    import obstore

    store = obstore.store.S3Store(
        "bucket", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True}
    )

    def read(_place: object, _fs: object, url: str, start: int, end: int | None) -> bytes:
        key = url.removeprefix("s3://bucket/")
        if end is not None:
            return bytes(obstore.get_range(store, key, start=start, end=end))
        return bytes(obstore.get(store, key, options={"range": {"suffix": -start}}).bytes())

    return read


def read_in_turns(repeats: int) -> dict[str, list[list[float]]]:
    """Read in each way by each client; CPU seconds by s3fs and obstore in each turn."""
    import bigsvm
    from bigsvm.data import place

    def rows() -> None:
        for _ in bigsvm.open_store(URL).rows.blocks(128 << 20):
            pass

    def shard(size: int) -> None:
        for start in range(0, SHARD_BYTES, size):
            place.Place.of(URL).part(SHARD, start, size)

    ways = {
        "all rows": rows,
        "16 MB, 8 MB a request": lambda: shard(LARGE),
        "16 MB, 256 kB a request": lambda: shard(SMALL),
    }
    clients = (place.Prefix._range, obstore_range())
    taken: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(1 + repeats):
        for name, way in ways.items():
            taken[name].append([])
            for client in clients:
                with mock.patch.object(place.Prefix, "_range", client):
                    began = time.process_time()
                    way()
                    taken[name][-1].append(time.process_time() - began)
    return {name: turns[1:] for name, turns in taken.items()}  # the first one imports and connects


def clients(options: argparse.Namespace) -> int:
    """Write the store, and compare clients that read it."""
    if find_spec("obstore") is None:
        raise SystemExit("obstore is not installed; install it to compare it with s3fs")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, object_server(Path(folder)):
        child("write", options.rows, options.memory, threads=options.threads)
        taken = child("read_in_turns", options.repeats, threads=options.threads).answer
    lines = [
        [
            name,
            *(median_range(list(seconds), digits=3) for seconds in zip(*turns, strict=True)),
            median_range([theirs / ours for ours, theirs in turns]),
        ]
        for name, turns in taken.items()
    ]
    header = ["read", "s3fs, CPU s", "obstore, CPU s", "obstore ÷ s3fs"]
    print(f"{machine(options.threads)}\n\n{options.rows} rows\n\n{table(header, lines)}")
    return 0


PARTS = {
    "training": Suite(
        program=training,
        memory="1GB",
        threads=2,
        more=(("--rows", {"type": int, "default": ROWS}),),
    ),
    "clients": Suite(
        program=clients,
        memory="1GB",
        threads=2,
        more=(
            ("--rows", {"type": int, "default": CLIENT_ROWS}),
            ("--repeats", {"type": int, "default": 5}),
        ),
    ),
}
