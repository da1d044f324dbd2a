"""Speed of ``bigsvm convert``, beside another checkout and scikit-learn's `load_svmlight_file`.

    python tools/benchmarks/conversion.py [--base CHECKOUT] [--files ten twelve images wide]
                                          [--megabytes 100] [--repeats 3] [--threads 2]

Every conversion is a process of its own, started by `python -m bigsvm` in its checkout, and its
start-up counts. scikit-learn only parses, in a process of its own too, and only that call counts.
All take turns. CPU seconds are those of all threads; wall seconds include waiting for the disk, and
for other processes of the machine.

Files, all made here: ``ten`` rows; rows of ``twelve`` entries of six digits in 1200 columns; rows
of ``images``, some 150 bytes in 784 columns; ``wide`` rows of 60 entries in three million columns.

Checked: the fingerprints of the stores are the same with one thread, with --threads, and by the
other checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import REPOSITORY, Check, environment, machine, median_range, table, verdicts

PARSE = """
import json, sys, time
from sklearn.datasets import load_svmlight_file
wall, cpu = time.perf_counter(), time.process_time()
load_svmlight_file(sys.argv[1])
print(json.dumps({"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))
"""
FILES = ("ten", "twelve", "images", "wide")
_ROWS = 10_000
"""Rows that are made at a time."""


class Taken(NamedTuple):
    """Seconds of a run."""

    cpu: float
    wall: float


def entries_file(path: Path, *, n_bytes: float, n_entries: int, n_columns: int) -> None:
    """Rows of `n_entries` values of six digits, one in each equal part of the columns."""
    rng = np.random.default_rng(0)
    part = n_columns // n_entries
    line = "%+d " + " ".join(["%d:%g"] * n_entries) + "\n"
    with path.open("w") as file:
        while file.tell() < n_bytes:
            words = np.empty((_ROWS, 1 + 2 * n_entries), object)
            words[:, 0] = 2 * rng.integers(0, 2, _ROWS) - 1
            words[:, 1::2] = rng.integers(1, part + 1, (_ROWS, n_entries))
            words[:, 1::2] += part * np.arange(n_entries)
            words[:, 2::2] = rng.random((_ROWS, n_entries)).round(6)
            file.writelines(line % tuple(row) for row in words)


def images_file(path: Path, *, n_bytes: float) -> None:
    """Rows of 784 columns, a fifth of which hold whole numbers from 1 to 255."""
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
    entries_file(path, n_bytes=n_bytes, n_entries=n_entries, n_columns=n_columns)
    if name == "ten":
        with path.open() as file:
            rows = [next(file) for _ in range(10)]
        path.write_text("".join(rows))


def convert(checkout: Path, text: Path, threads: int) -> tuple[Taken, str]:
    """Convert by a checkout; what it took, and the fingerprint of the store."""
    store = text.with_suffix(".zarr")
    shutil.rmtree(store, ignore_errors=True)
    command = [sys.executable, "-m", "bigsvm", "convert", str(text), str(store), "--json"]
    variables = environment(threads) | {"PYTHONPATH": str(checkout)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        [*command, "--quiet", "--threads", str(threads)],
        capture_output=True,
        text=True,
        check=False,
        cwd=checkout,
        env=variables,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {ended.returncode}:\n{ended.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(cpu, wall), json.loads(ended.stdout)["fingerprint"]


def parse(text: Path) -> Taken:
    """Parse by scikit-learn; only the call counts."""
    ended = subprocess.run(
        [sys.executable, "-c", PARSE, str(text)], capture_output=True, text=True, check=True
    )
    taken = json.loads(ended.stdout)
    return Taken(taken["cpu"], taken["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(machine(arguments.threads), end="\n\n")
    checkouts = {"this": REPOSITORY}
    if arguments.base is not None:
        checkouts["base"] = arguments.base.resolve()
    rows, found = [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        for label in arguments.files:
            text = Path(name, f"{label}.libsvm")
            make(label, text, 1.0 if label == "ten" else 1e6 * arguments.megabytes)
            size = text.stat().st_size / 1e6
            prints = {convert(REPOSITORY, text, 1)[1]}
            runs: dict[str, list[Taken]] = {who: [] for who in (*checkouts, "scikit-learn")}
            for _ in range(arguments.repeats):
                for who, checkout in checkouts.items():
                    taken, fingerprint = convert(checkout, text, arguments.threads)
                    runs[who].append(taken)
                    prints.add(fingerprint)
                runs["scikit-learn"].append(parse(text))
            found.append(
                Check(f"{label}: fingerprints", str(len(prints)), "1", holds=len(prints) == 1)
            )
            for who, times in runs.items():
                over = [t.cpu / o.cpu for t, o in zip(times, runs["this"], strict=True)]
                waited = [t.wall / o.wall for t, o in zip(times, runs["this"], strict=True)]
                rows.append(
                    [
                        *(label, f"{size:.1f}", who),
                        median_range([t.cpu for t in times]),
                        median_range([t.wall for t in times]),
                        median_range([size / t.wall for t in times], digits=0),
                        median_range(over),
                        median_range(waited),
                    ]
                )
    header = ["file", "MB", "by", "CPU s", "wall s", "MB/s (wall)", "CPU ÷ this", "wall ÷ this"]
    print(table(header, rows), verdicts(found), sep="\n\n")
    if not all(check.holds for check in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
