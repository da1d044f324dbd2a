"""Kernel values times the weights of several functions: all weights, or the nonzero ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

# Reassociation lets sums vectorise; NaN and infinity keep their meaning, unlike under
# fastmath=True.
FAST = {"reassoc", "contract", "arcp", "nsz"}

ROWS_AT_ONCE = 64
"""Rows whose values with a tile, in float64, stay in the second-level cache while the weights of
every function are multiplied with them."""
TRANSPOSED_STRIDE = ROWS_AT_ONCE + 8
"""Distance between the transposed values of two partners. With a power of two, all of them would
share a few sets of the first-level cache."""


@compiled(fastmath=FAST)
def add_all(
    values: Floats, functions: NDArray[np.int64], weights: Floats, out: NDArray[np.float64]
) -> None:
    """Add ``Σ_j values_ij weights_cj`` to out_ci, summed in float64, zeros as well.

    The inner loop goes along the partners, for two functions at a time, so that a value is loaded
    and converted half as often. The order of a sum depends on the number of partners alone.

    Values are (m, ≥ p), weights (q, p), and `out` is (n_functions, m). The q `functions` are the c
    that have weights in this tile.
    """
    (n, p), m = weights.shape, values.shape[0]
    for q in range(0, n, 2):
        other = min(q + 1, n - 1)
        w0, w1 = weights[q], weights[other]
        for i in range(m):
            row = values[i]
            s0, s1 = 0.0, 0.0
            for j in range(p):
                value = np.float64(row[j])
                s0 += value * np.float64(w0[j])
                s1 += value * np.float64(w1[j])
            out[functions[q], i] += s0
            if other != q:
                out[functions[other], i] += s1


@compiled
def add_some(
    values: Floats,
    functions: NDArray[np.int64],
    starts: NDArray[np.int64],
    places: NDArray[np.int32],
    weights: Floats,
    transposed: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Add ``Σ_j values_ij weight_jc`` to out_ci, summed in float64, over nonzero weights.

    The inner loop goes along the rows, so that it is vectorised even if a function has few weights.
    A sum is one chain over the partners of the function in order, so its bits do not depend on the
    other rows.

    Values, functions and `out` are as for `add_all`. `out` is transposed, so that the rows of a
    function are beside each other.

    Parameters
    ----------
    starts : (q + 1,) int64
        Where the weights of each function begin, and those of the last one end.
    places, weights : (n_weights,)
        Partner j of each weight, below p, and the weight.
    transposed : (p, ≥ ROWS_AT_ONCE) float64
        Scratch, fastest with a width of TRANSPOSED_STRIDE.
    """
    m, p = values.shape[0], transposed.shape[0]
    for low in range(0, m, ROWS_AT_ONCE):
        size = min(ROWS_AT_ONCE, m - low)
        for i in range(size):
            for j in range(p):
                transposed[j, i] = values[low + i, j]
        for q in range(functions.shape[0]):
            row = out[functions[q], low : low + size]
            start, stop = starts[q], starts[q + 1]
            # Four at a time, so that the row of `out` is passed over a quarter as often.
            fours = start + (stop - start) // 4 * 4
            for k in range(start, fours, 4):
                w0, w1 = np.float64(weights[k]), np.float64(weights[k + 1])
                w2, w3 = np.float64(weights[k + 2]), np.float64(weights[k + 3])
                v0, v1 = transposed[places[k]], transposed[places[k + 1]]
                v2, v3 = transposed[places[k + 2]], transposed[places[k + 3]]
                for i in range(size):
                    row[i] = (((row[i] + w0 * v0[i]) + w1 * v1[i]) + w2 * v2[i]) + w3 * v3[i]
            for k in range(fours, stop):
                w0 = np.float64(weights[k])
                v0 = transposed[places[k]]
                for i in range(size):
                    row[i] += w0 * v0[i]


@compiled
def add_down(values: Floats, weights: Floats, out: NDArray[np.float64]) -> None:
    """Add ``Σ_i weights_ci values_ij`` to out_cj, summed in float64 in the order of the rows.

    values (m, ≥ p), weights (k, m), out (k, p).
    """
    (n, m), p = weights.shape, out.shape[1]
    # Four rows at a time, so that the row of `out` is passed over a quarter as often.
    fours = m // 4 * 4
    for i in range(0, fours, 4):
        v0, v1, v2, v3 = values[i], values[i + 1], values[i + 2], values[i + 3]
        for c in range(n):
            row = out[c]
            w0, w1 = np.float64(weights[c, i]), np.float64(weights[c, i + 1])
            w2, w3 = np.float64(weights[c, i + 2]), np.float64(weights[c, i + 3])
            for j in range(p):
                row[j] = (
                    ((row[j] + w0 * np.float64(v0[j])) + w1 * np.float64(v1[j]))
                    + w2 * np.float64(v2[j])
                ) + w3 * np.float64(v3[j])
    for i in range(fours, m):
        v0 = values[i]
        for c in range(n):
            row, w0 = out[c], np.float64(weights[c, i])
            for j in range(p):
                row[j] += w0 * np.float64(v0[j])
