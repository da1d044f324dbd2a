"""Random rows of a source, cheaply: whole blocks where the rows are shuffled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.rows import RowSource


def sample_rows(source: RowSource, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` distinct rows in random order; every prefix is a random sample too.

    From a shuffled source they come from as few blocks as hold them, which costs reading those
    blocks only; from others they are drawn one by one.

    Returns
    -------
    (min(count, n_rows),) int64
    """
    n = source.n_rows
    count = min(count, n)
    if not source.is_shuffled or source.row_alignment <= 1:
        return rng.choice(n, count, replace=False)
    size = source.row_alignment
    blocks = rng.permutation(-(-n // size))[: -(-count // size) + 1]
    rows = np.concatenate([np.arange(b * size, min((b + 1) * size, n)) for b in blocks])
    return rng.permutation(rows)[:count]
