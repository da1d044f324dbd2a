"""HMG in its plainest form, with the gain computed from one kernel row, from two or from a cache.

Glasmachers and Igel compare these three rules in tables 6 and 7. Training has that with two rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F8 = NDArray[np.float64]

MOST_STEPS = 2_000_000


@njit(cache=True)
def _gain(i: int, t: int, k: F8, g: F8, beta: F8, upper: F8, C: float) -> tuple[float, float]:
    """Return the step μ of beta_i += μ, beta_t −= μ, and what it gains; k is kernel row i."""
    difference = g[i] - g[t]
    eta = max(k[i] + 1.0 - 2.0 * k[t], 1e-12)
    step = difference / eta
    # beta is in [upper − C, upper].
    step = min(step, upper[i] - beta[i], beta[t] - (upper[t] - C))
    step = max(step, upper[i] - C - beta[i], beta[t] - upper[t])
    return step, step * difference - 0.5 * step * step * eta


@njit(cache=True)
def _most_violating(g: F8, beta: F8, upper: F8, C: float) -> tuple[int, int]:
    i = j = -1
    for t in range(len(g)):
        if beta[t] < upper[t] and (i < 0 or g[t] > g[i]):
            i = t
        if beta[t] > upper[t] - C and (j < 0 or g[t] < g[j]):
            j = t
    return i, j


@njit(cache=True)
def solve(
    gram: F8, y: F8, C: float, tol: float, n_rows: int, capacity: int, first: tuple[int, int]
) -> tuple[int, float]:
    """Solve C-SVC by HMG; return the pair steps, −1 if they were too many, and the objective.

    Parameters
    ----------
    gram : (n, n) float64
        1 on the diagonal.
    y : (n,) float64
        ±1.
    C, tol : float
    n_rows : int
        Kernel rows that gains are computed with: 1 is that of the newer variable, 2 those of the
        last pair, 0 all that the cache holds.
    capacity : int
        Rows that the cache holds; the least recently used makes room.
    first : tuple of int
        Initial pair.
    """
    n = len(y)
    g, beta = y.copy(), np.zeros(n)
    upper = np.where(y > 0, C, 0.0)
    used = np.zeros(n, np.int64)
    cached = np.empty(capacity, np.int64)
    n_cached, clock = 0, 0
    i, j = first
    for step in range(MOST_STEPS):
        worst = _most_violating(g, beta, upper, C)
        if g[worst[0]] - g[worst[1]] <= tol:
            return step, 0.5 * (beta @ y + beta @ g)
        if step:
            margin = 1e-8 * C
            last = (i, j)
            at_bounds = True
            for b in last:
                at_bounds &= beta[b] - (upper[b] - C) < margin or upper[b] - beta[b] < margin
            best = 0.0
            if not at_bounds or n_rows == 0:
                if n_rows == 0:
                    rows = cached[:n_cached].copy()
                elif n_rows == 1:
                    rows = np.array([j])
                else:
                    rows = np.array([i, j])
                for b in rows:
                    for t in range(n):
                        _, gain = _gain(b, t, gram[b], g, beta, upper, C)
                        if gain > best and t != b:
                            best, i, j = gain, b, t
            if best <= 0.0:
                i, j = worst
        mu, _ = _gain(i, j, gram[i], g, beta, upper, C)
        beta[i] = min(max(beta[i] + mu, upper[i] - C), upper[i])
        beta[j] = min(max(beta[j] - mu, upper[j] - C), upper[j])
        for t in range(n):
            g[t] -= mu * (gram[i, t] - gram[j, t])
        for b in (i, j):
            clock += 1
            if used[b] == 0:
                if n_cached == capacity:
                    oldest = 0
                    for c in range(capacity):
                        if used[cached[c]] < used[cached[oldest]]:
                            oldest = c
                    used[cached[oldest]] = 0
                    cached[oldest] = b
                else:
                    cached[n_cached] = b
                    n_cached += 1
            used[b] = clock
    return -1, 0.0
