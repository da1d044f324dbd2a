"""What ``gamma="scale"`` of weighted rows and ``"mean-distance"`` stand for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.statistics import beyond_rounding
from bigsvm.executors.clients import workers_of
from bigsvm.executors.replies import Expected
from bigsvm.interruption import check_interrupt, checked_between
from bigsvm.processors import one_blas_thread
from bigsvm.training.events import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows


SAMPLE = 4096
"""Rows that distances are taken from."""
ROUNDING = 1e-13
"""Share of squares below which their difference is one of rounding."""
_VALUES_AT_ONCE = 1 << 17
"""Values looked at together: 1 MiB of float64, which stays in the L2 cache between the passes."""


def mean_distance(source: RowSource, sample_weight: F8 | None, *, seed: int) -> float:
    """Average squared distance of two rows of a sample: σ² of Frandi et al. 2013, section 5.2.1.

    Parameters
    ----------
    source : RowSource
        (n, d); the sample is all rows with a weight if they are no more than 4096.
    sample_weight : (n,) float64 or None
        A row counts by its weight.
    seed : int

    Returns
    -------
    float
        ``2 Σ variances of the columns``, 0 where all rows are equal.
    """
    weighted = None if sample_weight is None else np.flatnonzero(sample_weight)
    chosen = source.sample_indices(SAMPLE, seed=seed, candidates=weighted)
    rows = sampled_rows(source, chosen)
    weights = np.ones(len(chosen)) if sample_weight is None else sample_weight[chosen]
    share = weights / max(weights.sum(), np.finfo(np.float64).tiny)
    values = rows.astype(np.float64)
    if not isinstance(values, np.ndarray):
        mean = np.asarray(share @ values).ravel()
        squared = float(share @ np.asarray(values.multiply(values).sum(axis=1)).ravel())
        spread = squared - float(mean @ mean)
        return 2.0 * spread if spread > ROUNDING * squared else 0.0
    values -= values[0].copy()  # so that nothing is left of rows that are equal
    return 2.0 * float(share @ np.square(values - share @ values).sum(axis=1))


def sampled_rows(source: RowSource, indices: I8) -> Rows:
    """Rows at ascending, distinct indices, at least one; a run of them is read as such."""
    first, stop = int(indices[0]), int(indices[-1]) + 1
    return source.read(first, stop) if stop - first == len(indices) else source.take(indices)


def weighted_variance(
    source: RowSource,
    weights: F8,
    *,
    block_bytes: int,
    hooks: Hooks | None = None,
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
    hooks : Hooks, optional
        Asked several times a second whether the run is to end. Where they have a client, its
        workers compute, if they can read the rows; the result has the same bits.

    Raises
    ------
    KeyboardInterrupt
        Where interrupted: without gamma there is no model yet, and nothing to save.
    """
    total = 0.0
    mean, deviations = np.zeros(source.n_columns), np.zeros(source.n_columns)
    for added, part_mean, part_deviations in _moments(
        source, weights, block_bytes, hooks or Hooks()
    ):
        delta = part_mean - mean
        share = added / (total + added)
        mean += delta * share
        deviations += part_deviations + delta**2 * (total * share)
        total += added
    total_mean = mean.sum() / source.n_features
    sums = (deviations / total + (mean - total_mean) ** 2).sum()
    sums += (source.n_features - len(mean)) * total_mean**2
    return beyond_rounding(float(sums / source.n_features), float(total_mean))


def _moments(
    source: RowSource, weights: F8, block_bytes: int, hooks: Hooks
) -> Iterator[tuple[float, F8, F8]]:
    """Yield the weight of the rows of each part that has one, their means and deviations.

    Workers compute them if there are any, and they can read the rows.
    """
    with workers_of(hooks.client, hooks.terms) as workforce:
        in_memory = source.row_alignment <= 1 and not source.is_fetched
        portable = None if workforce is None or in_memory else source.portable()
        if workforce is None or portable is None:
            with one_blas_thread():
                for first, block in checked_between(source.blocks(block_bytes)):
                    stop = first + block.shape[0]
                    yield from _moments_of_block(block, weights[first:stop])
            return
        from bigsvm.executors.folding import fold  # runs without a cluster do without

        of_blocks = fold(
            workforce, portable, source.spans(block_bytes), _array_of_moments,
            lambda start, stop: (weights[start:stop],),
            # Deviations of large values overflow.
            expected=Expected((None, 1 + 2 * source.n_columns), may_overflow=True),
        )  # fmt: skip
        for added, *of_columns in itertools.chain.from_iterable(of_blocks):
            part_mean, part_deviations = np.split(np.asarray(of_columns), 2)
            yield float(added), part_mean, part_deviations


def _array_of_moments(block: Rows, weights: F8) -> F8:
    """Weight, means and deviations of the parts of a block, (parts, 1 + 2 d)."""
    rows = [np.concatenate([[a], b, c]) for a, b, c in _moments_of_block(block, weights)]
    return np.stack(rows) if rows else np.empty((0, 1 + 2 * block.shape[1]))


def _moments_of_block(block: Rows, weights: F8) -> Iterator[tuple[float, F8, F8]]:
    for low, rows in _parts(block):
        check_interrupt()
        part = weights[low : low + rows.shape[0]]
        added = float(part.sum())
        if added == 0:
            continue
        moments = _dense_moments if isinstance(rows, np.ndarray) else _sparse_moments
        yield added, *moments(rows, part, added)


def _parts(block: Rows) -> Iterator[tuple[int, Rows]]:
    """Cut a block where its float64 copies would leave the cache, but not below a row's width."""
    n, d = block.shape
    if n == 0:
        return
    values_per_row = d if isinstance(block, np.ndarray) else block.nnz / n
    step = max(1, int(max(_VALUES_AT_ONCE, d) / max(values_per_row, 1)))
    for low in range(0, n, step):
        yield low, block[low : low + step]


def _dense_moments(rows: Any, weights: F8, total: float) -> tuple[F8, F8]:
    """Mean and weighted sum of squared deviations of each column, (d,) both."""
    values = np.asarray(rows, np.float64)
    mean = weights @ values / total
    values = values - mean
    return mean, np.einsum("i,ij,ij->j", weights, values, values)


def _sparse_moments(rows: Any, weights: F8, total: float) -> tuple[F8, F8]:
    """`_dense_moments` of CSR rows; what is not stored is 0."""
    d = rows.shape[1]
    of_entry = np.repeat(weights, np.diff(rows.indptr))
    values = rows.data.astype(np.float64)

    def sums(terms: F8) -> F8:
        return np.bincount(rows.indices, terms, minlength=d).astype(np.float64)

    mean = sums(of_entry * values) / total
    deviations = sums(of_entry * (values - mean[rows.indices]) ** 2)
    # Rounding must not leave a full column a little more or less than nothing.
    is_full = np.bincount(rows.indices, minlength=d) == rows.shape[0]
    absent = np.where(is_full, 0.0, np.maximum(total - sums(of_entry), 0.0))
    return mean, deviations + absent * mean**2
