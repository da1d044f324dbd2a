"""Nested random samples of rows, spread over all folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bigsvm.arrays import I8
    from bigsvm.data.row_source import RowSource

SEED = 0
"""Seed of samples of rows that are not in random order."""
RUNS = 64
"""Runs of neighbours that a sample of shuffled rows has: many in each fold of consecutive rows, and
few enough that most chunks of a large store are not read."""


def sample_rows(source: RowSource, n_rows: int) -> I8:
    """Choose random rows, ascending, (n_rows,) int64; those of a smaller sample are among them.

    Rows that are shuffled already are taken in runs at equal distances: folds may be consecutive
    rows, and the first ones would all be in one of them.

    Parameters
    ----------
    source : RowSource
    n_rows : int
        At most all of them.
    """
    if not source.is_shuffled:
        return np.sort(np.random.default_rng(SEED).permutation(source.n_rows)[:n_rows])
    run = np.arange(RUNS)
    starts = run * (source.n_rows // RUNS) + np.minimum(run, source.n_rows % RUNS)
    sizes = n_rows // RUNS + (run < n_rows % RUNS)
    return np.concatenate(
        [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    )
