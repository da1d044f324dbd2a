"""A fit that is to end is over soon, also while the rows are read for the first time."""

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data import in_memory
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.sources import as_row_source
from bigsvm.errors import ParameterError
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training import state as limits
from bigsvm.training.events import Hooks

N, D, BLOCK = 4000, 20, 100
AT = 5
"""After so many blocks the fit is to end."""
X = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
Y = X[:, 0] > 0


def memory_map(folder):
    np.save(folder / "x.npy", X)
    return as_row_source(np.load(folder / "x.npy", mmap_mode="r"))


CONTAINERS = {
    "memory map": memory_map,
    "sparse": lambda folder: as_row_source(sp.csr_array(X * (X > 1))),
    "dask": lambda folder: as_row_source(da.from_array(X, chunks=(BLOCK, D))),
}


class Reads:
    """Counts the blocks that are read."""

    def __init__(self, monkeypatch, source):
        self.count, self.read = 0, source._block if hasattr(source, "_edges") else source.read
        monkeypatch.setattr(source, "_block" if hasattr(source, "_edges") else "read", self)

    def __call__(self, *given):
        self.count += 1
        return self.read(*given)


@pytest.fixture(params=CONTAINERS)
def source(request, tmp_path, monkeypatch):
    monkeypatch.setattr(in_memory, "_PASS_BYTES", BLOCK * 4 * D)
    return CONTAINERS[request.param](tmp_path)


@pytest.fixture
def reads(source, monkeypatch):
    return Reads(monkeypatch, source)


def parameters(gamma, **options):
    return TrainingParameters(gamma=gamma, memory="2MB", threads=1, **options)


@pytest.mark.parametrize("gamma", [0.1, "scale"])
def test_the_time_limit_ends_the_first_passes(source, reads, gamma, monkeypatch):
    """With a given gamma, the pass is that of the fingerprint."""
    clock = SimpleNamespace(monotonic=lambda: 100.0 * (reads.count >= AT))
    monkeypatch.setattr(limits, "time", clock)
    with pytest.raises(ParameterError, match=r"max_time.* is 50 and was over while the rows"):
        train_model(source, Y, None, parameters(gamma, max_seconds=50.0))
    assert AT <= reads.count <= AT + 2


@pytest.mark.parametrize("gamma", [0.1, "scale"])
def test_an_interruption_ends_the_first_passes(source, reads, gamma):
    hooks = Hooks(interrupted=lambda: reads.count >= AT)
    with pytest.raises(KeyboardInterrupt):
        train_model(source, Y, None, parameters(gamma), hooks)
    assert AT <= reads.count <= AT + 2


def test_weighted_variance_looks_too(source, reads, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 100.0 * (reads.count >= AT))
    monkeypatch.setattr(limits, "time", clock)
    with pytest.raises(ParameterError, match="before training"):
        train_model(source, Y, np.full(N, 0.5), parameters("scale", max_seconds=50.0))
    assert reads.count < N // BLOCK


def test_training_has_the_time_that_the_first_passes_leave(monkeypatch):
    """The first passes take 30 of 50 seconds, of which the run is told 20."""
    told, limits_of = [], limits.limits_of

    def noted(parameters, hooks):
        told.append(parameters.max_seconds)
        return limits_of(parameters, hooks)

    now = iter([0.0, 0.0, *[30.0] * 1000])
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr("bigsvm.fit.reduction.limits_of", noted)
    model = train_model(ArrayRows(X[:300]), Y[:300], None, parameters(0.1, max_seconds=50.0))
    assert told
    assert set(told) == {20.0}
    assert model.provenance["parameters"]["max_seconds"] == 50.0
