"""Speed of reading LIBSVM text, beside scikit-learn's `load_svmlight_file` on the same files.

    python tools/benchmarks/parse.py [--repeats 5] [--threads 2] [--megabytes 60]

Both sides read the same uncompressed file (in the page cache after the first reading) to CSR rows
in memory, with the number of features given. Files: dense rows of decimals with six and with
seventeen digits, sparse binary rows, and the data sets ``mnist``, ``a9a`` and ``reuters_moneyfx``
from the folder BIGSVM_DATA, or ``../shared/data`` beside the repository, if they are there.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import data_folder
from sklearn.datasets import load_svmlight_file

from bigsvm.data.libsvm import LibsvmReader

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
    pieces, labels = [], []
    for rows in LibsvmReader([path], dtype=np.dtype(np.float64), threads=threads):
        pieces.append(rows)
        labels.append(rows.labels)
    indices = np.concatenate([rows.indices for rows in pieces])
    indices -= 1
    values = np.concatenate([rows.values for rows in pieces])
    lengths = np.concatenate([np.diff(rows.indptr) for rows in pieces])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_array((values, indices, indptr), shape=(len(lengths), n_features))
    return matrix, np.concatenate(labels)


def read_theirs(path: Path, n_features: int) -> tuple[sp.csr_matrix, np.ndarray]:
    return load_svmlight_file(str(path), n_features=n_features, zero_based=False)


def measure(path: Path, n_features: int, repeats: int, threads: int) -> list[list[float]]:
    """Seconds of each repeat, ours and theirs, taken in turns."""
    ours, theirs = read_ours(path, n_features, threads), read_theirs(path, n_features)
    same = (abs(ours[0] - theirs[0]) > 0).nnz == 0 and np.array_equal(ours[1], theirs[1])
    if not same:
        raise SystemExit(f"{path.name}: the two readers disagree")
    del ours, theirs
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for i, read in enumerate((lambda: read_ours(path, n_features, threads), None)):
            start = time.perf_counter()
            result = read() if read else read_theirs(path, n_features)
            seconds[i].append(time.perf_counter() - start)
            del result
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--megabytes", type=float, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = made_files(folder, arguments.megabytes) | real_files(folder)
        print(
            f"{'MB/s: min median max':<18}{'MB':>8}{'bigsvm':>22}{'scikit-learn':>22}{'ratio':>8}"
        )
        for label, (path, n_features) in files.items():
            size = path.stat().st_size / 1e6
            seconds = measure(path, n_features, arguments.repeats, arguments.threads)
            cells = []
            for side in seconds:
                rates = (size / max(side), size / statistics.median(side), size / min(side))
                cells.append("".join(f"{rate:>7.0f}" for rate in rates))
            ratio = statistics.median(seconds[1]) / statistics.median(seconds[0])
            print(f"{label:<18}{size:>10.1f}{cells[0]:>22}{cells[1]:>22}{ratio:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
