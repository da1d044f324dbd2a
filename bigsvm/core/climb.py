"""Going uphill along many variables of Crammer and Singer's dual at once.

Row steps are coordinate ascent: where C is large and rows are alike, the free variables follow one
another in millions of ever smaller steps. Here they move together, those at a bound staying there:
conjugate gradients find where the objective is largest among them (Nocedal & Wright, Numerical
Optimization, algorithm 16.2, with the projection on Σ_r d_ir = 0 of each row), and they go there as
far as the bounds let them, either all by the same share or each row by its own, whichever gains
more. What has met its bound stays there from then on. As long as bounds are met, a search ends when
it gains little (Moré & Toraldo 1991, "On the solution of large quadratic programming problems with
bound constraints", section 4); then each goes further than the one before. Variables that are at a
bound and should not be are left to row steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.compilation import compiled, inner

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    B: TypeAlias = NDArray[np.bool_]
    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]

LEAST_CURVATURE = 1e-7
"""Least curvature of a direction, relative to its squared length and the largest K_ii. A smaller
one is due to rounding to float32."""
ENOUGH = 0.25
"""A search ends when it gains less than this share of the most that it has gained."""
DEEPER = 0.1
"""Factor of that share for the next search, if no bound was met."""
DEEPEST = 1e-6
"""The least such share."""
NEAR_BOUND = 1e-12
"""Share of the distance between two bounds: a variable closer to a bound is put there."""


@inner
def _project(v: F8, room: B) -> None:
    """Make each row's part of v, (k, q), one of sum 0 among the variables that have room."""
    for i in range(v.shape[1]):
        total, n = 0.0, 0
        for r in range(v.shape[0]):
            if room[r, i]:
                total += v[r, i]
                n += 1
        mean = total / n if n > 0 else 0.0
        for r in range(v.shape[0]):
            v[r, i] = v[r, i] - mean if room[r, i] and n > 1 else 0.0


@inner
def _multiply(gram: F4, v: F8, out: F8) -> int:
    """``out = v K``, (k, q); returns how many values of K that has taken."""
    out[:] = 0.0
    n = 0
    for r in range(v.shape[0]):
        sums = out[r]
        for j in range(v.shape[1]):
            factor = v[r, j]
            if factor != 0.0:
                n += 1
                row = gram[j]
                for i in range(np.uint64(len(sums))):
                    sums[i] += factor * row[i]
    return int(n * v.shape[1])


@inner
def _dot(a: F8, b: F8) -> float:
    total = 0.0
    for r in range(a.shape[0]):
        for i in range(a.shape[1]):
            total += a[r, i] * b[r, i]
    return total


@inner(allocates=True)
def _ascend(
    gram: F4, gradient: F8, room: B, tol: float, least: float, enough: float, work: int
) -> tuple[F8, int]:
    """Find by conjugate gradients how far the largest objective is; and the work that is left."""
    d = np.zeros(gradient.shape)
    residual = gradient.copy()
    _project(residual, room)
    q, product = residual.copy(), np.empty(gradient.shape)
    squared, largest = _dot(residual, residual), 0.0
    while work > 0 and np.abs(residual).max() > tol:
        work -= _multiply(gram, q, product)
        _project(product, room)
        curvature = _dot(q, product)
        rounding = least * _dot(q, q)
        length = squared / max(curvature, rounding)
        d += length * q
        if not curvature > rounding:
            break
        gain = 0.5 * length * squared
        largest = max(largest, gain)
        if gain < enough * largest:
            break
        residual -= length * product
        before, squared = squared, _dot(residual, residual)
        q *= squared / before
        q += residual
    return d, work


@inner
def _reach(alpha: F8, upper: F8, d: F8, i: int) -> float:
    """How far row i can go along d: 1, or less where a bound comes before."""
    share = 1.0
    for r in range(d.shape[0]):
        if d[r, i] > 0.0:
            share = min(share, (upper[r, i] - alpha[r, i]) / d[r, i])
    return share


@inner
def _go(gram: F4, gradient: F8, d: F8, most: float, product: F8) -> tuple[float, float]:
    """How far along d it is best to go, up to `most`, and what that gains; ``product = d K``."""
    _multiply(gram, d, product)
    rise, curvature = _dot(gradient, d), _dot(product, d)
    length = most if curvature * most <= rise else rise / curvature
    return length, length * (rise - 0.5 * length * curvature)


@compiled(allocates=True)
def climb(
    gram: F4, alpha: F8, upper: F8, gradient: F8, diagonal: float, tol: float, work: int
) -> None:
    """Move alpha uphill, in place, and the gradient with it.

    `gram` is (q, q), and alpha, upper and gradient are (k, q); columns of alpha have sum 0.
    `diagonal` is the largest K_ii. The gradients of a row's variables are made equal to within
    `tol`. About `work` values of `gram` may be looked at.
    """
    k, q = alpha.shape
    room = alpha < upper
    enough = ENOUGH
    shares, product, product_own = np.empty(q), np.empty((k, q)), np.empty((k, q))
    while work > 0:
        d, work = _ascend(gram, gradient, room, tol, LEAST_CURVATURE * diagonal, enough, work)
        for i in range(q):
            shares[i] = _reach(alpha, upper, d, i)
        together = shares.min()
        length, gain = _go(gram, gradient, d, together, product)
        if together < 1.0:
            own = d * shares
            work -= 2 * k * q * q
            length_own, gain_own = _go(gram, gradient, own, 1.0, product_own)
            if gain_own > gain:
                d, length, gain = own, length_own, gain_own
                product[:] = product_own
        if not gain > 0.0:
            break
        alpha += length * d
        gradient -= length * product
        for i in range(q):
            near = NEAR_BOUND * upper[:, i].max()
            for r in range(k):
                if room[r, i] and upper[r, i] - alpha[r, i] <= near:
                    room[r, i] = False
                    alpha[r, i] = upper[r, i]
        enough = ENOUGH if together < 1.0 else DEEPER * enough
        if enough < DEEPEST:
            break
    for i in range(q):
        farthest = np.argmax(upper[:, i] - alpha[:, i])
        alpha[farthest, i] = 0.0
        alpha[farthest, i] = 0.0 - alpha[:, i].sum()


@compiled
def follow(gradient: F8, rows: F4, change: F8) -> None:
    """``gradient −= changeᵀ rows``, (k, m); as row steps do it, kernel row after kernel row."""
    for j in range(change.shape[0]):
        row = rows[j]
        for r in range(change.shape[1]):
            step, of_class = change[j, r], gradient[r]
            if step != 0.0:
                for t in range(np.uint64(len(of_class))):
                    of_class[t] -= step * row[t]
