import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from support.stores import N_ROWS, make_chunks_small, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.store import open_store


@pytest.fixture(autouse=True)
def never_flushed(no_flushing):
    """Hundreds of stores are written without flushing; one test asks whether they would be."""


@pytest.fixture
def text(tmp_path):
    """A file of 3000 rows whose smallest index, 0 or 1, can be chosen."""

    def text(n_rows=3000, zero_based=False, density=0.2, seed=0, name="x.libsvm"):
        rng = np.random.default_rng(seed)
        X = sp.random_array((n_rows, 40), density=density, rng=rng, format="csr", dtype=np.float64)
        y = rng.integers(0, 3, n_rows)
        path = tmp_path / name
        dump_svmlight_file(X, y, str(path), zero_based=zero_based)
        return path

    return text


@pytest.fixture(scope="session", params=["dense", "sparse"])
def original(request, tmp_path_factory):
    """A store that nobody changes."""
    matrix = make_matrix(N_ROWS, density=0.6)
    rng = np.random.default_rng(1)
    y, weights = rng.integers(0, 3, N_ROWS), rng.random(N_ROWS)
    path = tmp_path_factory.mktemp("original") / "s.zarr"
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        patch.setattr(os, "fsync", lambda descriptor: None)
        write_store(path, matrix, y, weights, layout=request.param)
    return path


@pytest.fixture
def store(original, tmp_path):
    """A copy of it, to be damaged."""
    return open_store(shutil.copytree(original, tmp_path / "s.zarr"))
