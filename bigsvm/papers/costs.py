"""Time to compute and to read a kernel row, and the decision whether rows are kept on disk.

Both are estimates from constants: a measurement would decide otherwise from run to run, and with it
which rows a run leaves out.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

logger = logging.getLogger(__name__)

LATENCY = 2e-6
"""Seconds to read a row, besides those of its bytes."""
READ_SPEED = 1e9
"""Bytes a second of a local solid-state disk."""
OF_TILES = 4.0
"""A kernel row, a dozen at a time, takes this many times its seconds in large tiles."""
WORTH_KEEPING = 1.5
"""A row is kept if computing it takes this many times as long as reading it: a few reads then repay
the time to write it."""


class TierDecision(NamedTuple):
    """Whether rows are kept on disk, and why, in a sentence."""

    keep: bool
    reason: str


def decide(*, compute_seconds: float, row_bytes: int) -> TierDecision:
    """Keep rows if reading one is clearly cheaper than computing it."""
    read_seconds = LATENCY + row_bytes / READ_SPEED
    keep = compute_seconds >= WORTH_KEEPING * read_seconds
    reason = (
        f"a kernel row takes about {1e3 * compute_seconds:.2g} ms to compute and "
        f"{1e3 * read_seconds:.2g} ms to read: rows are "
        f"{'kept on disk' if keep else 'computed again, not kept on disk'}"
    )
    return TierDecision(keep, reason)


def kept_earlier() -> TierDecision:
    """Keep rows, as an earlier run has."""
    return TierDecision(True, "kernel rows of an earlier run are on disk: rows are kept on disk")


def not_kept(error: OSError) -> TierDecision:
    """Return the decision after an error of the disk, and log it."""
    reason = f"the disk cannot be used ({error}): kernel rows are computed again"
    logger.warning("%s", reason)
    return TierDecision(False, reason)
