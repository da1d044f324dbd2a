"""Checks of a client of a Dask cluster, where a user gives one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bigsvm.budget import parse_bytes
from bigsvm.errors import ClusterError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def worker_bytes(client: Any, worker_memory: Any) -> int | None:
    """Check a client and the memory of its workers, as a user gave them; returns the bytes.

    The memory may be a size such as ``"4GB"``; None stands for half of the worker's limit.

    Raises
    ------
    ParameterError, ClusterError
        As `check_client`; or one has no meaning, or there is a `worker_memory` without a client.
    """
    if client is not None:
        check_client(client)
    elif worker_memory is not None:
        raise ParameterError(
            f"worker_memory is {worker_memory!r}, but there are no workers without a client; give "
            "client too, or leave it out"
        )
    return None if worker_memory is None else parse_bytes(worker_memory, "worker_memory")


@contextmanager
def workers_of(client: Any, *, memory: int | None = None) -> Iterator[Workforce | None]:
    """Open the workers of a client for a while.

    A `Workforce` is open already, and stays so; None stands for no workers. `memory` is that of
    `Workforce`.
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
    workforce = Workforce(client, memory=memory)
    try:
        yield workforce
    finally:
        workforce.close()
