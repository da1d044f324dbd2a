"""A slow float64 check of fitted estimators, from their attributes and the data alone.

The problem is written down once more as scikit-learn and LIBSVM state it: variables with bounds,
groups of variables with a constant sum. From the coefficients follow the box, the sums, the KKT
gap, the objective and the duality gap, which are held against what the certificate says.

Rounding is allowed for by formula, not by taste. A kernel value is known to `EPS` times
``|K| + |dK/ds| s``, where s is the size of the terms of its product; an output to the sum of
that times the sizes of the coefficients. Certificates and predictions of float64 rows have EPS of
float64, predictions of float32 rows that of float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    F8 = NDArray[np.float64]

TIMES = 32.0
"""Units in the last place that a value may be off by: dots of some dozens of columns lose a few."""
ENOUGH = 1e-3
"""Error of a decision value in float32 that the library goes on with."""
UNDERFLOW = 1e-30
"""Kernel values that float32 may take for 0, in units of its last place."""
AT_BOUND = 1e-9
"""Share of its bound by which a coefficient may miss it: see `Standing`."""


class Gram(NamedTuple):
    """Kernel values, (m, p), and the size of what they are rounded from."""

    values: F8
    terms: F8


def gram(A: F8, B: F8, description: dict[str, Any], *, centre: F8 | None = None) -> Gram:
    """Kernel values of rows by the formulas, differences before squares.

    Parameters
    ----------
    A, B : (m, d), (p, d) float64
        For "precomputed": kernel values, and numbers of columns (p,).
    description : dict
        As `bigsvm.Kernel.describe` gives it.
    centre : (d,) float64, optional
        What the library takes off both before it multiplies.
    """
    name = description["name"]
    if name == "precomputed":
        values = A[:, B.astype(int)]
        return Gram(values, np.abs(values))
    gamma, coef0 = description.get("gamma", 1.0), description.get("coef0", 0.0)
    if name == "rbf-by-column":
        factors = np.sqrt(np.asarray(gamma, np.float64))
        A, B = A * factors, B * factors
        name, gamma, centre = "rbf", 1.0, None if centre is None else centre * factors
    if name in ("intersection", "tanimoto", "chi2", "cosine"):
        return _of_fields(A, B, name, gamma)
    if name in ("rbf", "laplacian", "cauchy of attacks", "matern32", "matern52"):
        power = 1 if name == "laplacian" else 2
        apart = (np.abs(A[:, None, :] - B[None, :, :]) ** power).sum(axis=2)
        shift = 0.0 if centre is None else centre
        size = np.add.outer(*[(np.abs(M - shift) ** power).sum(axis=1) for M in (A, B)])
        if name == "cauchy of attacks":
            values = 1 / (1 + apart / description["width"] ** 2)
            return Gram(values, values + values**2 * size / description["width"] ** 2)
        if name.startswith("matern"):
            # Of values by x = 2 gamma |a - b|²; the slopes are exact, also at 0.
            x = 2 * gamma * apart
            root = np.sqrt((3 if name == "matern32" else 5) * x)
            factor = 1 + root + (0 if name == "matern32" else root**2 / 3)
            slope = 1.5 if name == "matern32" else 5 / 6 * (1 + root)
            values = factor * np.exp(-root)
            return Gram(values, values + slope * np.exp(-root) * 2 * gamma * (size + apart))
        values = np.exp(-gamma * apart)
        return Gram(values, values * (1 + gamma * (size + apart)))
    dots, size = A @ B.T, np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
    if name == "linear":
        return Gram(dots, size)
    base, size = gamma * dots + coef0, gamma * size + abs(coef0)
    if name == "poly":
        degree = int(description["degree"])
        return Gram(base**degree, degree * size * np.abs(base) ** max(degree - 1, 0) + 1)
    values = np.tanh(base)
    # tanh is a ratio of exponentials around 1.
    return Gram(values, 1.0 + (1 - values**2) * size)


def _of_fields(A: F8, B: F8, name: str, gamma: float) -> Gram:
    """Kernel values of sums over two rows, and of their angle; see `gram`."""
    if name == "cosine":
        lengths = np.outer(np.linalg.norm(A, axis=1), np.linalg.norm(B, axis=1))
        dots = A @ B.T
        values = np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)
        return Gram(values, np.ones_like(values))
    least = np.minimum(A[:, None, :], B[None, :, :]).sum(axis=2)
    if name == "intersection":
        return Gram(least, least)
    if name == "tanimoto":
        most = np.maximum(A[:, None, :], B[None, :, :]).sum(axis=2)
        values = np.divide(least, most, out=np.ones_like(least), where=most > 0)
        return Gram(values, 2 * values)
    apart, both = np.abs(A[:, None, :] - B[None, :, :]), A[:, None, :] + B[None, :, :]
    total = np.divide(apart**2, both, out=np.zeros_like(both), where=both > 0).sum(axis=2)
    values = np.exp(-gamma * total)
    return Gram(values, values * (1 + 2 * gamma * total))


class Variables(NamedTuple):
    """Variables of some rows: their places in the function's rows, and their boxes, (v,) each."""

    row: NDArray[np.int64]
    alpha: F8
    linear: F8
    lower: F8
    upper: F8
    group: NDArray[np.int64]
    ridge: F8
    thresholds: tuple[float, ...]
    sums: tuple[float, ...] | None


def variables(
    formulation: str,
    beta: F8,
    intercept: float,
    target: F8,
    bound: F8,
    parameters: dict[str, Any],
    found: dict[str, Any],
) -> Variables:
    """Return the variables of one function; `target` is its signs, its targets or ones.

    Parameters
    ----------
    beta : (m,) float64
        Coefficients of the decision function, zeros included.
    bound : (m,) float64
        C times the weights, or the weights where there is no C.
    found : dict
        ``rho`` or ``epsilon`` of the certificate.
    """
    n = len(beta)
    row, group, zeros = np.arange(n), np.zeros(n, np.int64), np.zeros(n)
    lower, upper = np.where(target > 0, 0.0, -bound), np.where(target > 0, bound, 0.0)
    if formulation in ("eps-svr", "nu-svr"):
        epsilon = parameters["epsilon"] if formulation == "eps-svr" else found["epsilon"]
        alpha = np.concatenate([np.maximum(beta, 0), np.minimum(beta, 0)])
        linear = np.concatenate([target - epsilon, target + epsilon])
        box = np.concatenate([zeros, -bound]), np.concatenate([bound, zeros])
        return Variables(
            np.tile(row, 2), alpha, linear, *box, np.tile(group, 2), np.zeros(2 * n),
            (intercept,), (0.0,),
        )  # fmt: skip
    if formulation == "nu-svc":
        rho = found["rho"] or 1.0
        total = [bound[target < 0].sum(), bound[target > 0].sum()]
        each = min(0.5 * parameters["nu"] * sum(total), *total)
        middle = intercept * rho
        return Variables(
            row, beta * rho, zeros, lower, upper, (target > 0).astype(np.int64), zeros,
            (middle + found["rho"], middle - found["rho"]), (-each, each),
        )  # fmt: skip
    if formulation == "one-class":
        sums = (parameters["nu"] * bound.sum(),)
        return Variables(row, beta, zeros, zeros, bound, group, zeros, (intercept,), sums)
    if formulation == "c-svc":
        return Variables(row, beta, target, lower, upper, group, zeros, (intercept,), (0.0,))
    # Squared losses: no upper bound, and 1 / (2 C) or 1 / C on the diagonal.
    share = 0.5 if formulation == "c-svc squared hinge" else 1.0
    ridge = np.divide(share, bound, out=np.zeros(n), where=bound > 0)
    far = np.where(bound > 0, np.inf, 0.0)
    box = np.where(target > 0, 0.0, -far), np.where(target > 0, far, 0.0)
    is_ball = formulation in ("l2-svc", "l2-one-class")
    thresholds, sums = ((0.0,), None) if is_ball else ((intercept,), (0.0,))
    return Variables(row, beta, target, *box, group, ridge, thresholds, sums)


class Standing(NamedTuple):
    """What follows from a point, and by how much rounding may change each.

    Variables that are within `AT_BOUND` of a bound may be at it or not: `gap` is that of a point
    where they are, and `most_gap` that of a point where they are not.
    """

    gap: float
    most_gap: float
    objective: float
    duality_gap: float
    gap_error: float
    objective_error: float
    duality_gap_error: float
    faults: list[str]


def standing(K: Gram, v: Variables) -> Standing:
    """Look at a point: inside its box, sums, gap and objectives."""
    faults = []
    size = np.where(np.isfinite(v.upper - v.lower), v.upper - v.lower, np.abs(v.alpha))
    outside = np.maximum(v.lower - v.alpha, v.alpha - v.upper)
    if not (outside <= AT_BOUND * size).all():
        i = int(np.argmax(outside - AT_BOUND * size))
        faults.append(f"box: alpha of row {v.row[i]} is {v.alpha[i]:.9g}, outside by {outside[i]}")
    if v.sums is not None:
        for g, goal in enumerate(v.sums):
            of = v.alpha[v.group == g]
            # A coefficient may be the difference of two variables.
            rounding = TIMES * np.finfo(np.float64).eps * size[v.group == g].sum()
            if not abs(of.sum() - goal) <= AT_BOUND * max(np.abs(of).sum(), abs(goal)) + rounding:
                faults.append(f"sums: group {g} adds up to {of.sum():.9g}, not {goal:.9g}")
    n = len(K.values)
    beta = np.bincount(v.row, v.alpha, n)
    f, unsure = (K.values @ beta)[v.row], (K.terms @ np.abs(beta))[v.row]
    g = v.linear - f - v.ridge * v.alpha
    eps = TIMES * np.finfo(np.float64).eps
    unsure = eps * (unsure + np.abs(v.linear) + np.abs(v.ridge * v.alpha) + abs(v.thresholds[0]))
    movable = v.lower < v.upper
    gap, most_gap = (_gap(v, g, near * size) for near in (AT_BOUND, 0.0))
    threshold = np.asarray(v.thresholds)[v.group]
    excess = v.linear - f - threshold
    with_ridge = v.ridge > 0
    best = np.clip(excess / np.where(with_ridge, v.ridge, 1.0), v.lower, v.upper)
    bounded = np.where(movable & ~with_ridge, np.where(excess > 0, v.upper, v.lower), 0.0)
    at = np.where(with_ridge, best, bounded)
    has_bounds = bool(np.isfinite(at).all())  # not where C is infinite
    at = np.where(np.isfinite(at), at, 0.0)
    slack = float(at @ excess - 0.5 * (v.ridge * at) @ at)
    quadratic = float(v.alpha @ f)
    objective = float(v.linear @ v.alpha) - 0.5 * (quadratic + float((v.ridge * v.alpha) @ v.alpha))
    duality_gap = 0.5 * quadratic + slack + float(threshold @ v.alpha) - objective
    # One class lowers its threshold by 1e-9 of it, so that rows on the margin are inside.
    lowered = 2e-9 * np.abs(threshold)
    # Rows that are as near to the threshold as that may lose at their bound, or nothing.
    tied = ~with_ridge & movable & (np.abs(excess) <= unsure + lowered)
    most = np.where(tied & has_bounds, np.maximum(np.abs(v.lower), np.abs(v.upper)), np.abs(at))
    of_slack = float((unsure + lowered) @ most + lowered @ np.abs(v.alpha))
    of_objective = float(unsure @ np.abs(v.alpha)) + 4 * eps * abs(objective)
    return Standing(
        gap, most_gap, objective, duality_gap, 2 * float(unsure[movable].max(initial=0.0)),
        of_objective,
        2 * of_objective + of_slack if has_bounds else np.inf, faults,
    )  # fmt: skip


def _gap(v: Variables, g: F8, near: F8) -> float:
    """KKT gap of gradients, (v,); variables that are `near` a bound, (v,), are at it."""
    gap, movable = 0.0, v.lower < v.upper
    rises, falls = movable & (v.alpha < v.upper - near), movable & (v.alpha > v.lower + near)
    for group in np.unique(v.group):
        up, low = g[rises & (v.group == group)], g[falls & (v.group == group)]
        if v.sums is None:
            # As if a free variable had the gradient 0.
            gap = max(gap, up.max(initial=0.0) - low.min(initial=0.0))
        elif len(up) and len(low):
            gap = max(gap, up.max() - low.min())
    return float(gap)


def standing_of_classes(K: Gram, alpha: F8, codes: NDArray[np.int64], bound: F8) -> Standing:
    """`standing` of Crammer and Singer's machine; alpha (n, k)."""
    (n, k), places, faults = alpha.shape, np.arange(len(alpha)), []
    upper = np.zeros((n, k))
    upper[places, codes] = bound
    slack = AT_BOUND * bound[:, None]
    if not (alpha <= upper + slack).all():
        faults.append(f"box: alpha is above its bound by {(alpha - upper).max():.3g}")
    if not (np.abs(alpha.sum(axis=1)) <= 1e-8 * np.maximum(bound, 1e-300)).all():
        faults.append(f"sums: those of a row add up to {np.abs(alpha.sum(axis=1)).max():.3g}")
    f, unsure = K.values @ alpha, K.terms @ np.abs(alpha)
    g = np.eye(k)[codes] - f
    eps = TIMES * np.finfo(np.float64).eps
    unsure = eps * (unsure + 1.0)
    movable = bound > 0
    gap, most_gap = (
        float((rising.max(axis=1) - g.min(axis=1))[movable].max(initial=0.0))
        for rising in (np.where(alpha < upper - near, g, -np.inf) for near in (slack, 0.0))
    )
    losses = g[places, codes] - g.min(axis=1)
    quadratic = float(np.vdot(alpha, f))
    objective = float(alpha[places, codes].sum()) - 0.5 * quadratic
    primal = 0.5 * quadratic + float(bound @ losses)
    of_objective = float(np.vdot(unsure, np.abs(alpha))) + 4 * eps * abs(objective)
    return Standing(
        gap, most_gap, objective, primal - objective,
        2 * float(unsure[movable].max(initial=0.0)), of_objective,
        2 * of_objective + 2 * float(bound @ unsure.max(axis=1)), faults,
    )  # fmt: skip


def outputs(K: Gram, beta: F8, intercept: Any, *, single: bool) -> tuple[F8, F8]:
    """Values of functions, (m,) or (m, k), and how far they may be off.

    Of float32 rows they are computed in float32 while that is off by `ENOUGH` at most, for rows
    that are like the support vectors, and in float64 otherwise.
    """
    values = K.values @ beta + intercept
    error = (K.terms + UNDERFLOW) @ np.abs(beta) + np.abs(values) + np.abs(intercept)
    exact: F8 = TIMES * np.finfo(np.float64).eps * error
    if not single:
        return values, exact
    typical = float(np.median(K.terms)) if K.terms.size else 1.0
    unlike = K.terms.max(axis=1, initial=1.0) / max(typical, 1e-300)
    most = TIMES * ENOUGH * np.maximum(unlike, 1.0)
    most = most[:, None] if values.ndim > 1 else most
    return values, np.maximum(np.minimum(TIMES * np.finfo(np.float32).eps * error, most), exact)


def pairs(k: int) -> Iterator[tuple[int, int]]:
    """Pairs of classes in LIBSVM's order."""
    return ((i, j) for i in range(k) for j in range(i + 1, k))


def decide(values: F8, rule: str, k: int) -> NDArray[np.int64]:
    """Classes by the values of several functions, row by row; those of pairs are for the second."""
    if rule in ("ovr", "crammer-singer"):
        return values.argmax(axis=1)
    numbered = {pair: place for place, pair in enumerate(pairs(k))}
    codes = np.empty(len(values), np.int64)
    for row, of_row in enumerate(values):
        if rule == "ddag":
            left = list(range(k))
            while len(left) > 1:
                left.pop(0 if of_row[numbered[left[0], left[-1]]] > 0 else -1)
            codes[row] = left[0]
            continue
        votes = class_values(of_row, k)
        codes[row] = int(np.argmax(votes if rule == "ovo-break-ties" else np.rint(votes)))
    return codes


def class_values(of_row: F8, k: int) -> F8:
    """scikit-learn's values of the classes, from those of the pairs of one row."""
    votes, sums = np.zeros(k), np.zeros(k)
    for (first, second), value in zip(pairs(k), of_row, strict=True):
        votes[second if value > 0 else first] += 1
        sums[second] += value
        sums[first] -= value
    return votes + sums / (3 * (np.abs(sums) + 1))
