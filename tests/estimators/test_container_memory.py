"""Memory that containers take, watched from outside: the budget and 40 bytes a row, or refused.

120 MB of rows, or a container of them, in 50 MB. What is measured is memory that no file stands
behind; pages of a memory map are the system's to take back.
"""

import subprocess
import sys
import time
from pathlib import Path

import container_memory as child
import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.fault("containers")]

MEMORY = 50_000_000
LIMIT = MEMORY + 40 * child.N_ROWS
REFUSED = {
    "csc": "X.tocsr()",
    "coo": "X.tocsr()",
    "list_of_lists": "numpy.asarray",
    "pandas_sparse": "X.sparse.to_coo().tocsr()",
    "dask_one_chunk": "chunks of fewer rows",
    "zarr_one_chunk": "chunks of fewer rows",
}
"""Containers that nothing is done with in so little memory, and the way out that is named."""
ONCE = ("zarr_columns", "hdf5_columns")
"""Containers that only `write_store` reads: every slice of rows decodes all chunks."""
LIBRARIES = {
    "pandas": "pandas", "polars": "polars", "arrow": "pyarrow", "hdf5": "h5py",
    "anndata": "anndata", "csr_dataset": "anndata", "dask_frame": "dask.dataframe",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((child.N_ROWS, child.N_COLUMNS)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
    X[:, 0] += 2 * y
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", y)
    return folder


def anonymous_bytes(process):
    """Memory of a process that is not that of a file; 0 where it has just ended."""
    status = Path(f"/proc/{process.pid}/status").read_text().split()
    return 1024 * int(status[status.index("RssAnon:") + 1]) if "RssAnon:" in status else 0


def watched(folder, name, action):
    """Most memory that the action took, and what it said at its end."""
    command = [sys.executable, child.__file__, folder, name, action, str(MEMORY)]
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, text=True)
    try:
        while process.poll() is None and not log.read_text():
            time.sleep(0.05)
        assert log.read_text() == "ready\n"
        before = most = anonymous_bytes(process)
        process.stdin.write("\n")
        process.stdin.flush()
        while process.poll() is None:
            most = max(most, anonymous_bytes(process))
            time.sleep(0.003)
    finally:
        process.kill()
        process.communicate()
    return most - before, log.read_text().removeprefix("ready\n")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("action", ["fit", "predict", "write_store"])
@pytest.mark.parametrize("name", child.CONTAINERS)
def test_memory(folder, name, action):
    for start, library in LIBRARIES.items():
        if name.startswith(start):
            pytest.importorskip(library)
    taken, said = watched(folder, name, action)
    assert taken <= LIMIT
    if name in REFUSED:
        assert said.startswith("refused MemoryBudgetError")
        assert REFUSED[name] in said
    elif name in ONCE and action != "write_store":
        assert said.startswith("refused MemoryBudgetError")
        assert "bigsvm.write_store" in said
    else:
        assert said == "done\n"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_of_a_single_pass_over_the_largest_blocks(folder):
    """A run of training refuses such blocks: it has more of them in memory."""
    taken, said = watched(folder, "dask_large_chunks", "write_store")
    assert said == "done\n"
    assert taken <= LIMIT
    _, said = watched(folder, "dask_large_chunks", "fit")
    assert said.startswith("refused MemoryBudgetError")
