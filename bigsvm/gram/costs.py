"""What a kernel row costs, and whether keeping it on disk is cheaper than computing it again."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from bigsvm.arrays import F4, I8
    from bigsvm.gram.row_cache import RowTier

logger = logging.getLogger(__name__)

PROBE_BATCH = 12
"""Rows computed together when measuring: as many as a full memory tier asks for, of dense rows."""
PROBE_BATCHES = 3
PROBE_SECONDS = 0.2
PROBE_BYTES = 16 << 20
"""Most bytes written and read back when measuring: 60 ms at the 0.28 GB/s of a slow disk."""
LEAST_READ_SECONDS = 2e-6
"""Seconds that reading a row takes at least, from any disk."""
MOST_READ_SPEED = 5e9
"""Bytes a second that no disk exceeds."""
WORTH_KEEPING = 1.5
"""A row is kept if computing it takes this many times as long as reading it: writing it costs about
as much as one read, which two or three reads then repay."""


class TierDecision(NamedTuple):
    """What a kernel row costs, in seconds, and whether rows are kept on disk.

    `read_seconds` is that of a row which the system has not in memory: what the system keeps beside
    the process is not this program's to count on. Where even the least that it can be is too long,
    it is that, and no disk was looked at. Any other time that was not measured is NaN.
    """

    compute_seconds: float
    read_seconds: float
    write_seconds: float
    keep: bool
    reason: str


def least_read_seconds(row_bytes: int) -> float:
    """Seconds that reading a row takes at least, from whatever disk."""
    return LEAST_READ_SECONDS + row_bytes / MOST_READ_SPEED


def decide(
    *, compute_seconds: float, read_seconds: float, write_seconds: float, at_least: bool = False
) -> TierDecision:
    """Keep rows if reading one is clearly cheaper than computing it; all times per row.

    With `read_seconds` only known to be `at_least` that, rows that are kept are worth a look at the
    disk.
    """
    keep = compute_seconds >= WORTH_KEEPING * read_seconds
    reason = (
        f"a kernel row takes {1e3 * compute_seconds:.2g} ms to compute and "
        f"{'at least ' if at_least else ''}{1e3 * read_seconds:.2g} ms to read: rows are "
        f"{'kept on disk' if keep else 'computed again, not kept on disk'}"
    )
    return TierDecision(compute_seconds, read_seconds, write_seconds, keep, reason)


def not_kept(error: OSError) -> TierDecision:
    """Do without a disk that fails, and say so."""
    reason = f"the disk cannot be used ({error}): kernel rows are computed again"
    logger.warning("%s", reason)
    return TierDecision(math.nan, math.nan, math.nan, keep=False, reason=reason)


def time_computing(below: RowTier, variables: I8, rows: F4, *, quick: float) -> tuple[int, float]:
    """Compute the rows of `variables` (q,) to `rows` (≥ q, n) in batches.

    Parameters
    ----------
    quick : float
        Seconds per row from which down a batch is the last one: rows are not worth keeping.

    Returns
    -------
    n_computed : int
        Those there was time for, the first of `variables`.
    seconds : float
        Per row, of the fastest batch.
    """
    size = min(PROBE_BATCH, len(variables))
    below.fetch(
        variables[:1], rows, np.zeros(1, np.int64)
    )  # the first may compile, or start threads
    n_computed, spent, best = 0, 0.0, math.inf
    while best >= quick and spent < PROBE_SECONDS and n_computed + size <= len(variables):
        batch = np.arange(n_computed, n_computed + size)
        rows[batch] = 0  # or the first use of the memory counts as computing
        begun = time.perf_counter()
        below.fetch(variables[batch], rows, batch)
        seconds = time.perf_counter() - begun
        n_computed, spent, best = n_computed + size, spent + seconds, min(best, seconds / size)
    return n_computed, best
