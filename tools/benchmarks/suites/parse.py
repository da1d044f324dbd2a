"""Speed of reading LIBSVM text, beside scikit-learn's `load_svmlight_file` on the same files.

    python -m tools.benchmarks parse [--repeats 5] [--megabytes 60] [--fresh-memory]

All read the same uncompressed file (in the page cache after the first reading), with the number of
features given. ``chunks`` is what conversion reads: CSR chunks, each given up for the next, so that
a file of any size is read in bounded memory. ``whole`` puts them together in memory, as
scikit-learn's function does.

On a virtual machine the first touch of a page can cost more than parsing what is put there. So
all read a file in one process, whose memory stays with it for the next reading, after a turn that
does not count; with --fresh-memory it goes back to the system before every reading.

Files: dense rows of decimals with six and with seventeen digits, sparse binary rows, and the data
sets mnist, a9a and reuters_moneyfx, if they are there. The readers must agree.
"""

from __future__ import annotations

import ctypes
import functools
import gzip
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet, data_folder
from tools.benchmarks.results import Case, Row, made_up, median_range

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import numpy as np
    import scipy.sparse as sp

CHUNKS, WHOLE, PEER = "chunks", "whole", "scikit-learn"
REAL = {"mnist": 784, "a9a": 123, "reuters_moneyfx": 8315}
MADE = {"dense, 6 digits": 100, "dense, 17 digits": 100, "sparse, binary": 20_000}
"""Columns."""


def make(name: str, path: Path, megabytes: float) -> None:
    """Write one of `MADE`, of about `megabytes`."""
    import numpy as np

    rng = np.random.default_rng(0)
    with path.open("w") as file:
        if name == "sparse, binary":
            for i in range(int(megabytes * 1e6 / 420)):
                columns = np.unique(rng.integers(1, 20001, 60))
                file.write(f"{2 * (i % 2) - 1:+d} " + " ".join(f"{j}:1" for j in columns) + "\n")
            return
        digits, width = (6, 12) if "6" in name else (17, 23)
        for i in range(int(megabytes * 1e6 / (100 * width))):
            values = rng.standard_normal(100)
            entries = " ".join(f"{j + 1}:{v:.{digits}g}" for j, v in enumerate(values))
            file.write(f"{i % 2} {entries}\n")


def text_of(name: str, folder: Path, megabytes: float) -> tuple[Path, int]:
    """Give the path of a file, made or decompressed where it is not there, and its columns."""
    path = folder / f"{name}.libsvm"
    if name in MADE:
        if not path.exists():
            make(name, path, megabytes)
        return path, MADE[name]
    root = data_folder()
    if not path.exists() and root is not None:
        with gzip.open(root / f"{name}.libsvm.gz") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    return path, REAL[name]


def read_ours(path: Path, n_features: int, threads: int) -> tuple[sp.csr_array, np.ndarray]:
    """Read to CSR in memory, as scikit-learn's function does."""
    import numpy as np
    import scipy.sparse as sp

    from bigsvm.conversion.libsvm import LibsvmReader

    # Room for the shortest entries and rows there can be; pages that are not filled cost nothing.
    size = path.stat().st_size
    indices, values = np.empty(size // 4, np.int32), np.empty(size // 4)
    labels, indptr = np.empty(size // 2 + 1), np.zeros(size // 2 + 2, np.int64)
    n = nnz = 0
    for rows in LibsvmReader([path], dtype=np.dtype(np.float64), threads=threads):
        m, entries = len(rows.labels), len(rows.values)
        np.subtract(rows.indices, 1, out=indices[nnz : nnz + entries])
        values[nnz : nnz + entries] = rows.values
        labels[n : n + m] = rows.labels
        np.add(rows.indptr[1:], nnz, out=indptr[n + 1 : n + m + 1])
        n, nnz = n + m, nnz + entries
    parts = (values[:nnz], indices[:nnz], indptr[: n + 1])
    return sp.csr_array(parts, shape=(n, n_features)), labels[:n]


def read_chunks(path: Path, n_features: int, threads: int) -> int:
    """Read as conversion does: each chunk is given up for the next. The number of rows."""
    import numpy as np

    from bigsvm.conversion.libsvm import LibsvmReader

    del n_features
    reader = LibsvmReader([path], dtype=np.dtype(np.float64), threads=threads)
    return sum(len(rows.labels) for rows in reader)


def read_theirs(path: Path, n_features: int, threads: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Read by scikit-learn, which has one thread."""
    from sklearn.datasets import load_svmlight_file

    del threads
    return load_svmlight_file(str(path), n_features=n_features, zero_based=False)


READERS: dict[str, Callable[[Path, int, int], Any]] = {
    CHUNKS: read_chunks, WHOLE: read_ours, PEER: read_theirs
}  # fmt: skip


@functools.cache
def kept_memory() -> ctypes.CDLL:
    """Let malloc keep what is freed, from now on; the C library can give it back."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        raise SystemExit("this benchmark needs the GNU C library: it measures parsing, not malloc")
    trim_threshold, mmap_max = -1, -4  # the GNU C library's names for them begin with M_
    if not (libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, 2**31 - 1)):
        raise SystemExit("mallopt refused: the readings would not be comparable")
    return libc


@functools.cache
def check(path: Path, n_features: int, threads: int) -> None:
    """End the benchmark where the readers disagree."""
    import numpy as np

    ours, theirs = read_ours(path, n_features, threads), read_theirs(path, n_features, 1)
    same = (abs(ours[0] - theirs[0]) > 0).nnz == 0 and np.array_equal(ours[1], theirs[1])
    if not same or read_chunks(path, n_features, threads) != len(ours[1]):
        raise SystemExit(f"{path.name}: the two readers disagree")


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Read once."""
    from tools.benchmarks.contestants import threads

    given, libc = job["parameters"], kept_memory()
    path, n_features = text_of(job["name"], Path(job["folder"]), given["megabytes"])
    check(path, n_features, threads())
    if given["fresh"]:
        libc.malloc_trim(0)
    start = time.perf_counter()
    result = READERS[job["who"]](path, n_features, threads())
    seconds = time.perf_counter() - start
    del result
    size = path.stat().st_size / 1e6
    return {"seconds": seconds, "megabytes": size, "rate": size / seconds}


def cases(options: argparse.Namespace) -> list[Case]:
    """List the files; those of real data are skipped where they are not there."""
    given = {"megabytes": options.megabytes, "fresh": options.fresh_memory}
    real = [Case(name, DataSet(name, layouts=()), given) for name in REAL]
    return [made_up(name, **given) for name in MADE] + real


def rate(name: str) -> tuple[str, Callable[[Row], str]]:
    return f"{name}, MB/s", lambda row: median_range(row.of(name).values("rate"))


def ratio(name: str) -> tuple[str, Callable[[Row], str]]:
    return f"ratio, {name}", lambda row: median_range(row.of(name).ratios(PEER, "rate"))


SUITE = Suite(
    cases=cases,
    contestants=(CHUNKS, WHOLE, PEER),
    columns=(
        ("file", lambda row: row.case.name),
        ("MB", lambda row: f"{row.last('megabytes'):.1f}"),
        rate(CHUNKS),
        rate(WHOLE),
        rate(PEER),
        ratio(CHUNKS),
        ratio(WHOLE),
    ),
    do="tools.benchmarks.suites.parse:read",
    wide=True,
    one_process=True,
    repeats=5,
    more=(
        ("--megabytes", {"type": float, "default": 60.0}),
        ("--fresh-memory", {"action": "store_true", "default": False}),
    ),
)
