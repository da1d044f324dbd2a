"""Checks of a client of a Dask cluster, where a user gives one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.errors import ClusterError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.executors.messages import WorkerTerms
    from bigsvm.executors.workforce import Workforce


def check_client(client: Any) -> None:
    """Refuse what is no client of a running cluster, or one that cannot be used.

    Raises
    ------
    ParameterError
        It is something else, or asynchronous.
    ClusterError
        It is closed, or `distributed` is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            f"a client needs the package distributed ({error}); pip install 'bigsvm[cluster]'"
        ) from None
    if not isinstance(client, Client):
        raise ParameterError(
            f"client is {client!r}; it must be a distributed.Client, as in: client = "
            "Client('tcp://10.0.0.5:8786'), or None for this process alone"
        )
    if client.asynchronous:
        raise ParameterError(
            "client is asynchronous, and training waits for results; make one without "
            "asynchronous=True, outside of coroutines"
        )
    if client.status != "running":
        raise ClusterError(f"client is {client.status}; make a new one")


def worker_terms(client: Any, worker_memory: Any, worker_wait: Any = None) -> WorkerTerms | None:
    """Check a client, and the terms of its workers, as a user gave them; None without a client.

    The memory may be a size such as ``"4GB"``.

    Raises
    ------
    ParameterError, ClusterError
        As `check_client`; or one has no meaning, or there are terms without a client.
    """
    if client is not None:
        check_client(client)
    for name, value in (("worker_memory", worker_memory), ("worker_wait", worker_wait)):
        if client is None and value is not None:
            raise ParameterError(
                f"{name} is {value!r}, but there are no workers without a client; give client "
                "too, or leave it out"
            )
    if client is None:
        return None
    from bigsvm.executors.messages import WorkerTerms  # few have a cluster

    memory = None if worker_memory is None else parse_bytes(worker_memory, "worker_memory")
    if worker_wait is not None and not (
        isinstance(worker_wait, int | float | np.number) and worker_wait >= 0
    ):
        raise ParameterError(
            f"worker_wait is {worker_wait!r}; it must be a number of seconds, or None to wait "
            "without limit"
        )
    return WorkerTerms(memory, None if worker_wait is None else float(worker_wait))


@contextmanager
def workers_of(client: Any, terms: WorkerTerms | None = None) -> Iterator[Workforce | None]:
    """Open the workers of a client for a while.

    A `Workforce` is open already, and stays so; None stands for no workers.
    """
    if client is None:
        yield None
        return
    # Imported here, as few have a cluster, and it takes Numba.
    from bigsvm.executors.workforce import Workforce

    if isinstance(client, Workforce):
        yield client
        return
    check_client(client)
    workforce = Workforce(client, terms)
    try:
        yield workforce
    finally:
        workforce.close()
