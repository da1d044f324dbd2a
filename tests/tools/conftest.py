"""The tools are run from the root of the repository, some of them by their paths."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "tools"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture
def in_process(monkeypatch):
    """Do the jobs of a suite here, in one thread, so that nothing has to start up."""
    from tools.benchmarks import bench, contestants
    from tools.benchmarks.children import Finished

    def run_checked(command, **options):
        answers = [json.dumps(contestants.do(job)) for job in json.loads(command[-1])]
        return Finished(0, 1.0, 10**6, json.loads(answers[-1]), "\n".join(answers), "")

    monkeypatch.setattr(bench, "run_checked", run_checked)
    monkeypatch.setattr(contestants, "GEMM_SIZE", 20)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def classes(monkeypatch, tmp_path):
    """Write both parts of a data set whose classes overlap: labels from 0, or ±1 of two."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("BIGSVM_DATA", str(tmp_path / "data"))

    def write(name, n_rows, *, n_classes=2, n_columns=5, largest=1.0):
        centres = np.random.default_rng(9).random((n_classes, n_columns))
        for seed, part in enumerate(("", ".t")):
            rng = np.random.default_rng(seed)
            y = np.arange(n_rows) % n_classes
            x = largest * (0.7 * centres[y] + 0.3 * rng.random((n_rows, n_columns)))
            x[0, 0] = largest
            labels = y if n_classes > 2 else 2 * y - 1
            lines = (
                f"{label} " + " ".join(f"{k}:{v:.4f}" for k, v in enumerate(row, 1))
                for label, row in zip(labels, x, strict=True)
            )
            path = tmp_path / "data" / f"{name}{part}.libsvm.gz"
            path.write_bytes(gzip.compress("\n".join(lines).encode()))
        return tmp_path / "data"

    return write


@pytest.fixture
def table_of():
    """Find the lines of tables that begin with some cells: the other cells of each."""

    def lines(text, *of):
        found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
        return [cells[len(of) :] for cells in found if tuple(cells[: len(of)]) == of]

    return lines


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
