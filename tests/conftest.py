"""What all tests share. It also puts this folder on the path: ``import naive``."""

import gc
import os
from pathlib import Path
from unittest import mock

import faults
import pytest
import scipy.linalg  # noqa: F401 (so that its library is found)
from hypothesis import HealthCheck, settings
from nightly import VARIANTS_IN_CI, nightly
from threadpoolctl import threadpool_limits

pytest.register_assert_rewrite("support")
pytest_plugins = ["support.clusters", "support.object_storage"]

# Most tests are of our own solver, on small problems. Those of tests/small/ set this themselves.
# The nightly target runs those of estimators once more as users have them, with "auto".
os.environ.setdefault("BIGSVM_SMALL", "never")

# As in fits of estimators. Processes of pytest-xdist have all processors already: threads of BLAS
# that wait for each other there take many times the time of one.
threadpool_limits(1, user_api="blas")

# The first example of a property may compile a kernel, and a machine may be busy.
settings.register_profile("bigsvm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bigsvm")


def pytest_addoption(parser):
    parser.addoption("--fault-table", action="store_true", help="print tests by kind of fault")


def pytest_configure(config):
    if config.getoption("--fault-table"):
        config.pluginmanager.register(faults.FaultTable(), "fault-table")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    variants = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            file = item.path.relative_to(Path(__file__).parent).as_posix()
            variants.setdefault(f"{file}::{item.originalname}", []).append(item)
    for name, most in VARIANTS_IN_CI.items():
        of_test = variants.get(name, [])
        for place in nightly(of_test, most):
            of_test[place].add_marker(pytest.mark.slow)
    for item in items:
        for mark in item.iter_markers("fault"):
            [kind] = mark.args
            if kind not in faults.KINDS:
                raise pytest.UsageError(f"{item.nodeid}: {kind!r} is no kind of fault")
            item.user_properties.append(("fault", kind))
    # One cluster then serves all of them, and only for a while: idle workers take time too.
    items.sort(key=lambda item: "cluster" in item.fixturenames)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Do not look for garbage among all tests, now and whenever many objects have been made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def no_flushing(monkeypatch):
    """Stores of tests need not survive a loss of power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def own_solver(monkeypatch):
    """Small problems are our own solver's, whatever the environment says."""
    monkeypatch.setenv("BIGSVM_SMALL", "never")


@pytest.fixture
def small_chunks(monkeypatch):
    """Make stores of small data have many chunks in several shards."""
    from support.stores import make_chunks_small  # which imports bigsvm

    make_chunks_small(monkeypatch)


@pytest.fixture
def pairs_by_runs(monkeypatch):
    """Pairs of classes have runs of their own, however small they are."""
    monkeypatch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 0)


@pytest.fixture
def no_own_kernels():
    """Names of kernels that other tests have defined are free."""
    from bigsvm import kernels

    with mock.patch.dict(kernels.KERNELS):
        for name, kind in list(kernels.KERNELS.items()):
            if kind.__module__ != kernels.__name__:
                del kernels.KERNELS[name]
        yield


@pytest.fixture
def compiled_predictions(monkeypatch):
    """Let compiled code predict whatever models there are, also those of few numbers."""
    monkeypatch.setattr("bigsvm.models.prediction.FEW_NUMBERS", 0)
