"""How many rows workers read together, and how much memory a run needs on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bigsvm.gram.partners import PARTNERS_PER_TILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.data.row_source import RowSource

UNIT_BYTES = 64 << 20
"""Most bytes of the rows of a unit: a worker reads and keeps it as a whole."""
SENT_UNIT_BYTES = 4 << 20
"""The same where rows are sent: Dask warns of tasks that are larger than 10 MB."""
UNITS_PER_THREAD = 8
"""Units of a pass for each thread, so that all threads end at about the same time."""
SHARE_MOVED = 3
"""Weighted rows take 1 / this of a worker's memory at most; they are there packed as well."""


class WorkerMemory(NamedTuple):
    """Bytes of `worker_memory` of a run.

    Attributes
    ----------
    least : int
        With less, what a worker has to have at a time takes more than it may.
    once : int
        From here on workers read each row once; with less, some of the rows again in each pass.
    """

    least: int
    once: int


def rows_of_units(source: RowSource, n_threads: int, *, most_bytes: int, align: int) -> int:
    """Rows of a unit of so many threads of workers: whole blocks of `align` rows."""
    most = most_bytes / max(source.bytes_per_row, 1e-9)
    few = source.n_rows / (UNITS_PER_THREAD * n_threads)
    return max(1, int(min(most, few) // align)) * align


def worker_memory_for(source: RowSource, n_support: float, threads: Sequence[int]) -> WorkerMemory:
    """Say what a run needs of workers that have so many threads.

    A worker has a unit of rows in each thread, its share of all rows, and the support vectors as
    they are sent and packed. Of these it takes as many at a time as SHARE_MOVED leaves room for.
    """
    of_row = max(source.bytes_per_row, 1.0)
    portable, blocks = source.portable(), source.remote_blocks()
    if portable is None and blocks is not None:
        unit = float((blocks.edges[1:] - blocks.edges[:-1]).max())
    else:
        most = UNIT_BYTES if portable is not None else SENT_UNIT_BYTES
        align = max(1, (portable or source).row_alignment)
        unit = rows_of_units(source, sum(threads), most_bytes=most, align=align)
    under_way = max(threads) * min(unit, source.n_rows) * of_row
    share = source.n_rows * of_row * max(threads) / sum(threads)
    moved = n_support * of_row
    least = under_way + SHARE_MOVED * PARTNERS_PER_TILE * of_row
    once = under_way + share + (SHARE_MOVED - 1) * min(moved, share)
    return WorkerMemory(int(least), int(max(least, once)))
