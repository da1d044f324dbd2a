"""Time to compute and to read a kernel row, and the decision whether rows are kept on disk."""

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
"""Rows computed together when measuring, as a full memory tier asks for them."""
PROBE_BATCHES = 3
PROBE_SECONDS = 0.2
PROBE_BYTES = 16 << 20
"""Most bytes written and read back when measuring."""
LEAST_READ_SECONDS = 2e-6
"""Least seconds to read a row, from any disk."""
MOST_READ_SPEED = 5e9
"""Most bytes a second of any disk."""
WORTH_KEEPING = 1.5
"""A row is kept if computing it takes this many times as long as reading it: a few reads then repay
the time to write it."""


class TierDecision(NamedTuple):
    """Seconds to compute, read and write a kernel row, and whether rows are kept on disk.

    `read_seconds` is for a row that is not in the system's memory. If even the fastest disk would
    be too slow, it is the time of that disk, and no disk was measured. Other times that were not
    measured are NaN.
    """

    compute_seconds: float
    read_seconds: float
    write_seconds: float
    keep: bool
    reason: str


def least_read_seconds(row_bytes: int) -> float:
    """Least seconds to read a row, from any disk."""
    return LEAST_READ_SECONDS + row_bytes / MOST_READ_SPEED


def decide(
    *, compute_seconds: float, read_seconds: float, write_seconds: float, at_least: bool = False
) -> TierDecision:
    """Keep rows if reading one is clearly cheaper than computing it; all times per row.

    With `at_least`, `read_seconds` is a lower bound; if rows are kept, the disk should be measured.
    """
    keep = compute_seconds >= WORTH_KEEPING * read_seconds
    reason = (
        f"a kernel row takes {1e3 * compute_seconds:.2g} ms to compute and "
        f"{'at least ' if at_least else ''}{1e3 * read_seconds:.2g} ms to read: rows are "
        f"{'kept on disk' if keep else 'computed again, not kept on disk'}"
    )
    return TierDecision(compute_seconds, read_seconds, write_seconds, keep, reason)


def not_kept(error: OSError) -> TierDecision:
    """Return the decision after an error of the disk, and log it."""
    reason = f"the disk cannot be used ({error}): kernel rows are computed again"
    logger.warning("%s", reason)
    return TierDecision(math.nan, math.nan, math.nan, keep=False, reason=reason)


def time_computing(below: RowTier, variables: I8, rows: F4, *, quick: float) -> tuple[int, float]:
    """Measure the time to compute the rows of `variables` (q,) into `rows` (≥ q, n).

    Parameters
    ----------
    quick : float
        Stop once a batch takes fewer seconds per row: such rows are not worth keeping.

    Returns
    -------
    n_computed : int
        Number of rows computed, the first of `variables`.
    seconds : float
        Seconds per row in the fastest batch.
    """
    size = min(PROBE_BATCH, len(variables))
    # The first row may compile code, or start threads.
    below.fetch(variables[:1], rows, np.zeros(1, np.int64))
    n_computed, spent, best = 0, 0.0, math.inf
    while best >= quick and spent < PROBE_SECONDS and n_computed + size <= len(variables):
        batch = np.arange(n_computed, n_computed + size)
        rows[batch] = 0  # so that the first use of the memory is not measured
        begun = time.perf_counter()
        below.fetch(variables[batch], rows, batch)
        seconds = time.perf_counter() - begun
        n_computed, spent, best = n_computed + size, spent + seconds, min(best, seconds / size)
    return n_computed, best
