"""Speed of ``bigsvm convert``, beside another checkout and scikit-learn's `load_svmlight_file`.

    python -m tools.benchmarks conversion [--base CHECKOUT] [--megabytes 100] [--repeats 3]

Every conversion is a process of its own, started by `python -m bigsvm` in its checkout, and its
start-up counts. scikit-learn only parses, in a process of its own too, and only that call counts.
CPU seconds are those of all threads; wall seconds include waiting for the disk, and for other
processes of the machine.

Files, all made here: ``ten`` rows; rows of ``twelve`` entries of six digits in 1200 columns; rows
of ``images``, some 150 bytes in 784 columns; ``wide`` rows of 60 entries in three million columns.

The limit: the fingerprints of the stores are the same with one thread, with --threads, and by the
other checkout.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import (
    Case,
    Limit,
    Results,
    Row,
    made_up,
    median_range,
    must,
    ratio_to,
    spread,
    who,
)

OURS, ONE_THREAD, PEER = "this", "one thread", "scikit-learn"
FILES = ("ten", "twelve", "images", "wide")
ROWS = 10_000
"""Rows that are made at a time."""


def entries_file(path: Path, *, n_bytes: float, n_entries: int, n_columns: int) -> None:
    """Rows of `n_entries` values of six digits, one in each equal part of the columns."""
    import numpy as np

    rng = np.random.default_rng(0)
    part = n_columns // n_entries
    line = "%+d " + " ".join(["%d:%g"] * n_entries) + "\n"
    with path.open("w") as file:
        while file.tell() < n_bytes:
            words = np.empty((ROWS, 1 + 2 * n_entries), object)
            words[:, 0] = 2 * rng.integers(0, 2, ROWS) - 1
            words[:, 1::2] = rng.integers(1, part + 1, (ROWS, n_entries))
            words[:, 1::2] += part * np.arange(n_entries)
            words[:, 2::2] = rng.random((ROWS, n_entries)).round(6)
            file.writelines(line % tuple(row) for row in words)


def images_file(path: Path, *, n_bytes: float) -> None:
    """Rows of 784 columns, a fifth of which hold whole numbers from 1 to 255."""
    import numpy as np

    rng = np.random.default_rng(0)
    with path.open("w") as file:
        while file.tell() < n_bytes:
            columns = np.flatnonzero(rng.random(784) < 0.2) + 1
            values = rng.integers(1, 256, len(columns))
            entries = " ".join(f"{j}:{v}" for j, v in zip(columns, values, strict=True))
            file.write(f"{rng.integers(10)} {entries}\n")


def make(name: str, path: Path, n_bytes: float) -> None:
    """Make one of `FILES`, of about `n_bytes`."""
    if name == "images":
        images_file(path, n_bytes=n_bytes)
        return
    n_entries, n_columns = (60, 3_000_000) if name == "wide" else (12, 1200)
    n_bytes = 1.0 if name == "ten" else n_bytes
    entries_file(path, n_bytes=n_bytes, n_entries=n_entries, n_columns=n_columns)
    if name == "ten":
        with path.open() as file:
            rows = [next(file) for _ in range(10)]
        path.write_text("".join(rows))


def convert(job: dict[str, Any]) -> dict[str, Any]:
    """Convert or parse once; makes the file where it is not there."""
    from tools.benchmarks.children import REPOSITORY, bigsvm_command, run_checked
    from tools.benchmarks.contestants import threads

    text = Path(job["folder"]) / f"{job['name']}.libsvm"
    if not text.exists():
        make(job["name"], text, 1e6 * job["parameters"]["megabytes"])
    size = {"megabytes": text.stat().st_size / 1e6}
    if job["who"] == PEER:
        from sklearn.datasets import load_svmlight_file

        wall, cpu = time.perf_counter(), time.process_time()
        load_svmlight_file(str(text))
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        return size | seconds
    store = text.with_suffix(".zarr")
    shutil.rmtree(store, ignore_errors=True)
    used = 1 if job["who"] == ONE_THREAD else threads()
    child = run_checked(
        bigsvm_command("convert", text, store, "--json", "--quiet", "--threads", used),
        threads=used,
        checkout=Path(job["checkout"] or REPOSITORY),
    )
    found = {"seconds": child.seconds, "cpu_seconds": child.cpu_seconds}
    return size | found | {"fingerprint": child.answer["fingerprint"]}


def per_second(row: Row) -> str:
    """Show megabytes of text a second."""
    size = row.last("megabytes")
    return median_range([size / seconds for seconds in row.values("seconds")], digits=0)


def limits(results: Results) -> list[Limit]:
    """Demand the same store from each contestant that converts a file."""
    prints = {row.case.name: len(set(row.values("fingerprint"))) for row in results.rows()}
    return [must(f"{name}: fingerprints", n, 1, n == 1) for name, n in prints.items()]


def cases(options: Any) -> list[Case]:  # noqa: ANN401 (a namespace)
    """List the files."""
    return [made_up(name, megabytes=options.megabytes) for name in options.files]


SUITE = Suite(
    cases=cases,
    contestants=(OURS, ONE_THREAD, PEER),
    columns=(
        ("file", lambda row: row.case.name),
        ("MB", lambda row: f"{row.last('megabytes'):.1f}"),
        ("by", who),
        ("CPU s", spread("cpu_seconds")),
        ("wall s", spread("seconds")),
        ("MB/s (wall)", per_second),
        ("CPU ÷ this", ratio_to(OURS, "cpu_seconds")),
        ("wall ÷ this", ratio_to(OURS)),
    ),
    limits=limits,
    do="tools.benchmarks.suites.conversion:convert",
    once=(ONE_THREAD,),
    base=True,
    more=(
        ("--files", {"nargs": "+", "choices": FILES, "default": list(FILES)}),
        ("--megabytes", {"type": float, "default": 100.0}),
    ),
)
