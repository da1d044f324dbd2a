"""Clusters of Dask on this machine, for the tests of a module."""

import logging

import pytest


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of one thread each; they listen on 127.0.0.1."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, memory_limit="600MB",
        dashboard_address="127.0.0.1:0",  # with None Dask warns where its port is taken
        silence_logs=logging.CRITICAL,
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture
def client(cluster):
    """A client of the cluster; Dask computes with it."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster) as client:
        yield client
