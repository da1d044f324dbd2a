"""Where training starts: nested random samples, each solved loosely from the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.sampling import sample_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource
    from bigsvm.duals.formulations import CSVC

DIRECT_ROWS = 8192
"""Up to so many rows the first working set is all of them: on spambase half of the pair steps."""
FIRST_SAMPLE = 2000
SAMPLE_GROWTH = 3
SAMPLE_SHARE = 0.25
"""The largest nested sample is this share of the rows. One run each on a9a and w8a, 1 and 2 GB:
0.2 cost the fewest evaluations overall (2.3 and 5.8 to 6.6 floors), 0.06 the most on a9a (2.7 to
3.2), 0.33 and 0.5 the most on w8a under 1 GB (8.6). 0.25 itself was not run, nor other seeds."""
RARE_ROWS = 100
"""Rows of each class in a first working set that no random sample would bring both into."""


def draw_sample(source: RowSource, capacity: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the largest nested sample, in random order; all rows in their order of a small problem.

    Returns
    -------
    (m,) int64
        m at most `capacity`; the smaller samples are its prefixes.
    """
    n = source.n_rows
    if n <= min(DIRECT_ROWS, capacity):
        return np.arange(n)
    size = max(FIRST_SAMPLE, int(SAMPLE_SHARE * n))
    return sample_rows(source, min(size, capacity), rng)


def first_working_set(
    formulation: CSVC, sample: NDArray[np.int64], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the smallest sample in which rows of both classes may move.

    Where a class is too rare for any sample, some of its rows are put in.

    Returns
    -------
    working_set, sample : (m,) and (s,) int64
        `working_set` is a prefix of `sample`.
    """
    size = len(sample) if len(sample) == n_rows else min(FIRST_SAMPLE, len(sample))
    while size < len(sample) and not _has_both(formulation, sample[:size]):
        size = min(size * SAMPLE_GROWTH, len(sample))
    if _has_both(formulation, sample[:size]):
        return sample[:size], sample
    share = min(RARE_ROWS, len(sample) // 2)
    rare = np.concatenate(
        [np.flatnonzero(movable)[:share] for movable in formulation.movable_by_class()]
    )
    rest = sample[~np.isin(sample, rare)]
    rest = rest[: max(0, min(FIRST_SAMPLE, len(sample)) - len(rare))]
    sample = np.concatenate([rare, rest])
    return sample, sample


def _has_both(formulation: CSVC, rows: NDArray[np.int64]) -> bool:
    box = formulation.box(rows)
    return bool((box.upper > 0).any() and (box.lower < 0).any())
