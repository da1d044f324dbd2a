"""The variance that ``gamma="scale"`` stands for where rows have weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows, RowSource

    Values = NDArray[np.float64]

_VALUES_AT_ONCE = 1 << 17
"""Values looked at together: 1 MiB of float64, which stays in the L2 cache between the passes."""


def weighted_variance(
    source: RowSource,
    weights: NDArray[np.float64],
    *,
    block_bytes: int,
    interrupted: Callable[[], bool] = lambda: False,
) -> float:
    """Compute the variance of all entries, each row counted by its weight: 2 is the row twice.

    Sums over entries alone, column by column, so that sparse rows stay sparse. With the weight w,
    the mean m and the weighted sum M of squared deviations of two parts, both together have (Chan,
    Golub, LeVeque 1983; weights instead of counts), delta being m_b - m_a::

        m = m_a + delta w_b / w,    M = M_a + M_b + delta**2 w_a w_b / w

    Parameters
    ----------
    source : RowSource
        (n, d).
    weights : (n,) float64
        In [0, ∞), not all 0.
    block_bytes : int
        For the two blocks of rows that exist at once.
    interrupted : callable, optional
        Asked several times a second.

    Returns
    -------
    float

    Raises
    ------
    KeyboardInterrupt
        Where interrupted: without gamma there is no model yet, and nothing to save.
    """
    total = 0.0
    mean, deviations = np.zeros(source.n_columns), np.zeros(source.n_columns)
    for first, block in source.blocks(block_bytes):
        for low, rows in _parts(block):
            if interrupted():
                raise KeyboardInterrupt
            part = weights[first + low : first + low + rows.shape[0]]
            added = float(part.sum())
            if added == 0:
                continue
            moments = _dense_moments if isinstance(rows, np.ndarray) else _sparse_moments
            part_mean, part_deviations = moments(rows, part, added)
            delta = part_mean - mean
            share = added / (total + added)
            mean += delta * share
            deviations += part_deviations + delta**2 * (total * share)
            total += added
    total_mean = mean.sum() / source.n_features
    sums = (deviations / total + (mean - total_mean) ** 2).sum()
    sums += (source.n_features - len(mean)) * total_mean**2
    return float(sums / source.n_features)


def _parts(block: Rows) -> Iterator[tuple[int, Rows]]:
    """Cut a block where its float64 copies would leave the cache, but not below a row's width."""
    n, d = block.shape
    if n == 0:
        return
    values_per_row = d if isinstance(block, np.ndarray) else block.nnz / n
    step = max(1, int(max(_VALUES_AT_ONCE, d) / max(values_per_row, 1)))
    for low in range(0, n, step):
        yield low, block[low : low + step]


def _dense_moments(rows: Any, weights: Values, total: float) -> tuple[Values, Values]:
    """Mean and weighted sum of squared deviations of each column, (d,) both."""
    values = np.asarray(rows, np.float64)
    mean = weights @ values / total
    values = values - mean
    return mean, np.einsum("i,ij,ij->j", weights, values, values)


def _sparse_moments(rows: Any, weights: Values, total: float) -> tuple[Values, Values]:
    """`_dense_moments` of CSR rows; what is not stored is 0."""
    d = rows.shape[1]
    of_entry = np.repeat(weights, np.diff(rows.indptr))
    values = rows.data.astype(np.float64)

    def sums(terms: Values) -> Values:
        return np.bincount(rows.indices, terms, minlength=d).astype(np.float64)

    mean = sums(of_entry * values) / total
    deviations = sums(of_entry * (values - mean[rows.indices]) ** 2)
    # Rounding may leave a full column a little less than nothing.
    absent = np.maximum(total - sums(of_entry), 0.0)
    return mean, deviations + absent * mean**2
