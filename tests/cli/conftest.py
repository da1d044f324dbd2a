"""Text, stores and a model for the commands that are run in this process."""

import pytest
from command_line import libsvm_text, run_here, two_clouds

from bigsvm import write_store


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Text and stores of the same two clouds, 300 rows to train on and 100 others."""
    folder = tmp_path_factory.mktemp("data")
    X, y = two_clouds(400)
    (folder / "train.libsvm").write_text(libsvm_text(X[:300], y[:300]))
    (folder / "test.libsvm").write_text(libsvm_text(X[300:], y[300:]))
    run_here("convert", folder / "train.libsvm", folder / "train.zarr")
    run_here("convert", folder / "test.libsvm", folder / "test.zarr")
    run_here("train", folder / "train.zarr", folder / "model", "--C", "2", "--gamma", "0.3")
    return folder


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """A store and LIBSVM text of the same rows, in a folder."""
    folder = tmp_path_factory.mktemp("many")
    X, y = two_clouds(5000)
    write_store(folder / "many.zarr", X, y)
    (folder / "many.libsvm").write_text(libsvm_text(X, y))
    return folder


@pytest.fixture
def rows():
    return two_clouds(400)
