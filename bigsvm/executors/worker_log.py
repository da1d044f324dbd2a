"""What a worker says in its log of the runs that it takes part in: when one begins, ends or fails.

The logger is below that of Dask's workers. So the lines are on the worker's standard error, and in
what `client.get_worker_logs()` and the dashboard show.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bigsvm.budget import show_bytes

if TYPE_CHECKING:
    from bigsvm.data.row_source import RowSource
    from bigsvm.executors.messages import SentJob


logger = logging.getLogger("distributed.worker.bigsvm")

SHOWN = 8
"""Characters of the name of a run: enough to tell those of one cluster apart."""


def begins(run: str, memory: int, limit: int) -> None:
    """Say that a run begins, and what it may take."""
    of_limit = f" of the limit of {show_bytes(limit)}" if limit else ""
    logger.info("run %s begins: it may take %s%s here", run[:SHOWN], show_bytes(memory), of_limit)


def opens(run: str, source: RowSource | None) -> None:
    """Say whose rows a job of a run has."""
    rows = "rows that it is sent" if source is None else str(source)
    logger.info("run %s works on %s", run[:SHOWN], rows)


def ends(run: str, n_calls: int, bytes_read: int, bytes_kept: int) -> None:
    """Say that a run has ended, and what it has done here."""
    logger.info(
        "run %s has ended: %d calls, %s of rows read, %s of rows kept", run[:SHOWN], n_calls,
        show_bytes(bytes_read), show_bytes(bytes_kept),
    )  # fmt: skip


def ends_unused(run: str) -> None:
    """Say that a run has ended that had no task here."""
    logger.info("run %s has ended: it had no task here", run[:SHOWN])


def goes(run: str) -> None:
    """Say that a run is taken for ended, as several have begun since it had its last task."""
    logger.info("run %s has had no task for long, and what it kept here is dropped", run[:SHOWN])


def fails(sent: SentJob, task: str, error: BaseException) -> None:
    """Say that a task of a run has failed."""
    logger.warning("run %s: %s failed, %s: %s", sent.run[:SHOWN], task, type(error).__name__, error)
