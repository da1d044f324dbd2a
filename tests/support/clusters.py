"""Clusters of Dask on this machine, for the tests of a module."""

import logging

import pytest


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of one thread each; they listen on 127.0.0.1."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
        memory_limit="600MB", silence_logs=logging.CRITICAL,
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture
def client(cluster):
    """A client of the cluster; Dask computes with it."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster) as client:
        yield client
