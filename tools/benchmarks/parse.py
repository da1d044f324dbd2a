"""Speed of reading LIBSVM text, beside scikit-learn's `load_svmlight_file` on the same files.

    python tools/benchmarks/parse.py [--repeats 5] [--threads 2] [--megabytes 60] [--fresh-memory]

Both sides read the same uncompressed file (in the page cache after the first reading), with the
number of features given. `chunks` is what conversion reads: CSR chunks, each given up for the next,
so that a file of any size is read in bounded memory. `whole` puts them together in memory, as
scikit-learn's function does.

On a virtual machine the first touch of a page can cost more than parsing what is put there. So each
side's memory stays with the process for its next reading, after one that is not timed; with
``--fresh-memory`` it goes back to the system before every reading, and both sides pay for it.

Files: dense rows of decimals with six and with seventeen digits, sparse binary rows, and the data
sets ``mnist``, ``a9a`` and ``reuters_moneyfx`` from the folder BIGSVM_DATA, or ``../shared/data``
beside the repository, if they are there.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from common import machine, median_range, table
from data_sets import data_folder
from sklearn.datasets import load_svmlight_file

from bigsvm.data.libsvm import LibsvmReader

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = {"mnist": 784, "a9a": 123, "reuters_moneyfx": 8315}


def made_files(folder: Path, megabytes: float) -> dict[str, tuple[Path, int]]:
    """Write the three made files, each of about `megabytes`."""
    rng = np.random.default_rng(0)
    files = {}
    for name, digits, width in (("dense, 6 digits", 6, 12), ("dense, 17 digits", 17, 23)):
        path = folder / f"dense{digits}.libsvm"
        rows = int(megabytes * 1e6 / (100 * width))
        with path.open("w") as file:
            for i in range(rows):
                values = rng.standard_normal(100)
                file.write(f"{i % 2} ")
                file.write(" ".join(f"{j + 1}:{v:.{digits}g}" for j, v in enumerate(values)))
                file.write("\n")
        files[name] = (path, 100)
    path = folder / "binary.libsvm"
    with path.open("w") as file:
        for i in range(int(megabytes * 1e6 / 420)):
            columns = np.unique(rng.integers(1, 20001, 60))
            file.write(f"{2 * (i % 2) - 1:+d} " + " ".join(f"{j}:1" for j in columns) + "\n")
    files["sparse, binary"] = (path, 20000)
    return files


def real_files(folder: Path) -> dict[str, tuple[Path, int]]:
    """Decompress the data sets that are there."""
    root = data_folder()
    if root is None:
        print("skipped the real data sets: name their folder in BIGSVM_DATA")
        return {}
    files = {}
    for name, n_features in REAL.items():
        packed = root / f"{name}.libsvm.gz"
        if not packed.is_file():
            print(f"skipped {name}: not in the data folder (set BIGSVM_DATA)")
            continue
        path = folder / f"{name}.libsvm"
        with gzip.open(packed) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        files[name] = (path, n_features)
    return files


def read_ours(path: Path, n_features: int, threads: int) -> tuple[sp.csr_array, np.ndarray]:
    """Read to CSR in memory, as scikit-learn's function does."""
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


def read_chunks(path: Path, threads: int) -> int:
    """Read as conversion does: each chunk is given up for the next. The number of rows."""
    reader = LibsvmReader([path], dtype=np.dtype(np.float64), threads=threads)
    return sum(len(rows.labels) for rows in reader)


def keep_memory() -> Callable[[], object]:
    """Let malloc keep what is freed, from now on; what it returns gives all of that back."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        raise SystemExit("this benchmark needs the GNU C library: it measures parsing, not malloc")
    trim_threshold, mmap_max = -1, -4  # the GNU C library's names for them begin with M_
    if not (libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, 2**31 - 1)):
        raise SystemExit("mallopt refused: the readings would not be comparable")
    return lambda: libc.malloc_trim(0)


def read_theirs(path: Path, n_features: int) -> tuple[sp.csr_matrix, np.ndarray]:
    return load_svmlight_file(str(path), n_features=n_features, zero_based=False)


def measure(
    path: Path, n_features: int, repeats: int, threads: int, before: Callable[[], object]
) -> list[list[float]]:
    """Seconds of each repeat: our chunks, our whole and theirs, in turns, `before` not counted."""
    ours, theirs = read_ours(path, n_features, threads), read_theirs(path, n_features)
    same = (abs(ours[0] - theirs[0]) > 0).nnz == 0 and np.array_equal(ours[1], theirs[1])
    if not same or read_chunks(path, threads) != len(ours[1]):
        raise SystemExit(f"{path.name}: the two readers disagree")
    del ours, theirs
    readings: list[Callable[[], object]] = [
        lambda: read_chunks(path, threads),
        lambda: read_ours(path, n_features, threads),
        lambda: read_theirs(path, n_features),
    ]
    seconds: list[list[float]] = [[] for _ in readings]
    for _ in range(repeats):
        for read, taken in zip(readings, seconds, strict=True):
            before()
            start = time.perf_counter()
            result = read()
            taken.append(time.perf_counter() - start)
            del result
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--fresh-memory", action="store_true")
    arguments = parser.parse_args()
    print(machine(arguments.threads), end="\n\n")
    give_back = keep_memory()
    before = give_back if arguments.fresh_memory else lambda: None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = made_files(folder, arguments.megabytes) | real_files(folder)
        lines = []
        for label, (path, n_features) in files.items():
            size = path.stat().st_size / 1e6
            sides = measure(path, n_features, arguments.repeats, arguments.threads, before)
            rates = [[size / seconds for seconds in side] for side in sides]
            chunks, whole, theirs = rates
            ratios = [
                [a / b for a, b in zip(side, theirs, strict=True)] for side in (chunks, whole)
            ]
            lines.append([label, f"{size:.1f}", *map(median_range, (*rates, *ratios))])
        header = ["file", "MB", "chunks, MB/s", "whole, MB/s", "scikit-learn, MB/s"]
        header += ["ratio, chunks", "ratio, whole"]
        print(table(header, lines))


if __name__ == "__main__":
    main()
