"""Options that name a Dask cluster, and the client of it that a command uses."""

from __future__ import annotations

import logging
import re
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLError
from typing import TYPE_CHECKING, Any

from bigsvm.budget import parse_bytes
from bigsvm.cli.options import OptionGroup, given, local
from bigsvm.cli.panels import CLUSTER
from bigsvm.errors import ClusterError, ParameterError
from bigsvm.files import open_regular, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed.security import Security

    from bigsvm.cli.signals import Interruption
    from bigsvm.executors.messages import WorkerTerms
    from bigsvm.report.progress import Display

ANSWER_SECONDS = 10.0
"""How long a scheduler may take to answer: many round trips, and a person waits for it."""
MOST_FILE_BYTES = 1 << 20
"""Largest file of a scheduler in bytes; Dask writes some hundred, and some for each worker."""
_LOCAL = re.compile(r"local:([1-9][0-9]{0,3})")


@dataclass(frozen=True)
class ClusterOptions(OptionGroup):
    """A cluster as the options of a command name it; none if all are None."""

    panel = CLUSTER
    scheduler: str | None = given(
        None,
        "Have the workers of a Dask cluster compute the passes over the rows; this is its "
        "scheduler, such as tcp://10.0.0.5:8786. local:N starts N workers on this machine, to try "
        "it out. The result is the same.",
        metavar="ADDRESS|local:N",
    )  # fmt: skip
    scheduler_file: Path | None = given(
        None,
        "The same, of the scheduler that has written this file: `dask scheduler --scheduler-file "
        "FILE`.",
        callback=local, metavar="FILE",
    )  # fmt: skip
    worker_memory: str | None = given(
        None, "Memory that the run may take on each worker.",
        metavar="SIZE", show_default="half of its limit",
    )  # fmt: skip
    wait_for_workers: float | None = given(
        None, "Seconds to wait for a first worker, or for another one when all are gone.",
        metavar="SECONDS", show_default="no limit",
    )  # fmt: skip

    tls_ca_file: Path | None = given(
        None,
        "Certificate of the authority, for a scheduler at tls://. Without the three files those of "
        "Dask's configuration are taken.",
        callback=local, metavar="FILE",
    )  # fmt: skip
    tls_cert: Path | None = given(
        None, "Certificate of this client, in PEM.", callback=local, metavar="FILE"
    )
    tls_key: Path | None = given(
        None, "Private key of this client, in PEM.", callback=local, metavar="FILE"
    )

    def __post_init__(self) -> None:
        self.terms()

    @property
    def is_given(self) -> bool:
        """Whether there is to be one."""
        return self.scheduler is not None or self.scheduler_file is not None

    @property
    def _tls(self) -> dict[str, Path | None]:
        return {
            "--tls-ca-file": self.tls_ca_file, "--tls-cert": self.tls_cert,
            "--tls-key": self.tls_key,
        }  # fmt: skip

    def security(self) -> Security | None:
        """Return what Dask takes of the files for TLS; None for those of its configuration."""
        missing = [option for option, path in self._tls.items() if path is None]
        if len(missing) == len(self._tls):
            return None
        if missing:
            raise ParameterError(f"{' and '.join(missing)} left out; TLS needs all three files")
        for option, path in self._tls.items():
            try:
                open_regular(Path(str(path)), follow_links=True).close()
            except OSError as error:
                raise ParameterError(
                    f"{option} {path} cannot be read ({error.strerror or error}); give a PEM file"
                ) from error
        from distributed.security import Security

        return Security(
            tls_ca_file=str(self.tls_ca_file), tls_client_cert=str(self.tls_cert),
            tls_client_key=str(self.tls_key), require_encryption=True,
        )  # fmt: skip

    def terms(self) -> WorkerTerms | None:
        """Return what a run may take of the workers."""
        if self.scheduler is not None and self.scheduler_file is not None:
            raise ParameterError("--scheduler and --scheduler-file name two clusters; give one")
        given = {
            "--worker-memory": self.worker_memory, "--wait-for-workers": self.wait_for_workers,
            **self._tls,
        }  # fmt: skip
        for option, value in given.items():
            if value is not None and not self.is_given:
                raise ParameterError(
                    f"{option} is for the workers of a cluster; name its --scheduler too, or leave "
                    "it out"
                )
        if self.wait_for_workers is not None and not self.wait_for_workers >= 0:
            raise ParameterError(
                f"--wait-for-workers is {self.wait_for_workers}; it must be a number of seconds"
            )
        if not self.is_given:
            return None
        from bigsvm.executors.messages import WorkerTerms  # few have a cluster

        memory = None
        if self.worker_memory is not None:
            memory = parse_bytes(self.worker_memory, "--worker-memory")
        return WorkerTerms(memory, self.wait_for_workers)


@contextmanager
def opened_client(
    cluster: ClusterOptions, display: Display, interruption: Interruption
) -> Iterator[Any | None]:
    """Give a client of the cluster that options name, or None; it is closed at the end.

    Workers on this machine are started, and ended with the client.
    """
    if not cluster.is_given:
        yield None
        return
    try:
        from distributed import Client
        from distributed.utils import silence_logging_cmgr
    except ImportError as error:
        raise ClusterError(
            f"--scheduler needs the package distributed ({error}); pip install 'bigsvm[cluster]'"
        ) from None
    n_workers, address = _scheduler_of(cluster)
    security = cluster.security()
    with ExitStack() as stack:
        # Lines on standard error have one form, and what Dask would log is raised as well.
        stack.enter_context(silence_logging_cmgr(logging.CRITICAL))
        where: Any = address
        if n_workers:
            # Not left in the middle: half of a cluster cannot be closed.
            where = stack.enter_context(_local_workers(n_workers))
        with interruption.raising():
            try:
                client = Client(
                    where, timeout=ANSWER_SECONDS, set_as_default=False, security=security
                )
            except (TypeError, ValueError, RuntimeError, SSLError) as error:
                raise ClusterError(
                    f"cannot connect to {address} ({_first_line(error)}); a scheduler at tls:// "
                    "needs --tls-ca-file, --tls-cert and --tls-key, or Dask's variables "
                    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …__TLS__CLIENT__CERT and "
                    "…__TLS__CLIENT__KEY"
                ) from error
            except OSError as error:
                raise ClusterError(
                    f"no scheduler answers at {address} within {ANSWER_SECONDS:g} s "
                    f"({_first_line(error)}); start it, as with: dask scheduler, or check the "
                    "address"
                ) from error
            stack.enter_context(client)
        if not client.scheduler_info()["workers"]:
            display.line(f"{client.scheduler.address} has no workers yet; the run waits for them")
        yield client


def _scheduler_of(cluster: ClusterOptions) -> tuple[int, str]:
    """Return how many workers are to be started here, or 0 and the address of a scheduler."""
    if cluster.scheduler_file is not None:
        option = f"--scheduler-file {cluster.scheduler_file}"
        address = _address_in(cluster.scheduler_file)
    else:
        address = cluster.scheduler or ""
        option = f"--scheduler {address!r}"
        if address.partition(":")[0] == "local":
            match = _LOCAL.fullmatch(address)
            if match is None:
                raise ParameterError(
                    f"{option} is no number of workers on this machine; write local:2 for two"
                )
            return int(match[1]), ""
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)
    except ValueError as error:
        raise ParameterError(
            f"{option} has no address of a scheduler ({error}); write it like tcp://10.0.0.5:8786"
        ) from error
    return 0, address


def _address_in(path: Path) -> str:
    """Read the address in the file of a scheduler."""
    try:
        with open_regular(path, follow_links=True) as file:
            record = parse_json(file.read(MOST_FILE_BYTES))
        if not isinstance(record, dict) or not isinstance(record.get("address"), str):
            raise ValueError("no object with an address")
    except (OSError, ValueError) as error:
        wrong = f"has no address ({error})"
        if isinstance(error, OSError):
            wrong = f"cannot be read ({error.strerror or error})"
        raise ParameterError(
            f"--scheduler-file {path} {wrong}; it must be the file that `dask scheduler "
            "--scheduler-file` has written"
        ) from error
    address: str = record["address"]
    return address


@contextmanager
def _local_workers(n_workers: int) -> Iterator[Any]:
    """Start workers on this machine, processes of one thread each; they end with the block."""
    from multiprocessing import resource_tracker

    from distributed import LocalCluster
    from distributed.system import MEMORY_LIMIT

    # A terminal sends Ctrl-C to all processes, and this one alone is to act on it: a thread that
    # blocks a signal hands that on to the threads and processes it starts. Python's tracker of
    # resources would unblock it if it were started later.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # A share of the machine's memory for each worker, and one for this process.
        started = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True,
            memory_limit=MEMORY_LIMIT // (n_workers + 1), dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )  # fmt: skip
    except (OSError, RuntimeError) as error:
        raise ClusterError(
            f"{n_workers} workers on this machine do not start ({_first_line(error)}); start fewer"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with started:
        yield started


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
