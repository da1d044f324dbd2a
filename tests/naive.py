"""Slow, obvious oracles in float64: each is its definition, written as loops."""

import math

import numpy as np


def kernel_value(a, b, name, *, gamma=1.0, coef0=0.0, degree=3):
    """k(a, b) of two vectors, by the formulas of `bigsvm.kernels`."""
    a, b = [float(x) for x in a], [float(x) for x in b]
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    if name == "linear":
        return dot
    if name == "poly":
        return (gamma * dot + coef0) ** degree
    if name == "sigmoid":
        return math.tanh(gamma * dot + coef0)
    if name == "rbf":
        return math.exp(-gamma * math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    if name == "cosine":
        lengths = math.hypot(*a) * math.hypot(*b)
        return dot / lengths if lengths else 0.0
    if name in ("matern32", "matern52"):
        d = math.dist(a, b) * math.sqrt(2 * gamma)
        if name == "matern32":
            return (1 + math.sqrt(3) * d) * math.exp(-math.sqrt(3) * d)
        return (1 + math.sqrt(5) * d + 5 * d * d / 3) * math.exp(-math.sqrt(5) * d)
    if name == "intersection":
        return math.fsum(map(min, a, b))
    if name == "tanimoto":
        either = math.fsum(map(max, a, b))
        return math.fsum(map(min, a, b)) / either if either else 1.0
    if name == "chi2":
        terms = [(x - y) ** 2 / (x + y) for x, y in zip(a, b, strict=True) if x + y > 0]
        return math.exp(-gamma * math.fsum(terms))
    raise ValueError(f"no kernel is named {name!r}")


def kernel_matrix(A, B, name, **parameters):
    """K (m, p) float64, row by row."""
    return np.array([[kernel_value(a, b, name, **parameters) for b in B] for a in A]).reshape(
        len(A), len(B)
    )


def csr_product(data, indices, indptr, dense):
    """CSR rows times a dense matrix (d, p), entry by entry."""
    out = np.zeros((len(indptr) - 1, dense.shape[1]))
    for i in range(len(out)):
        for k in range(indptr[i], indptr[i + 1]):
            for j in range(dense.shape[1]):
                out[i, j] += float(data[k]) * float(dense[indices[k], j])
    return out


# -- the dual: maximise linear'α − ½ α'Kα, lower ≤ α ≤ upper, Σ α constant ----------------------


def objective(K, linear, alpha):
    return float(linear @ alpha - 0.5 * alpha @ K @ alpha)


def kkt_gap(K, linear, lower, upper, alpha):
    """max_up g − min_low g, or 0 where a set is empty or the difference is negative."""
    g = linear - K @ alpha
    up = [g[v] for v in range(len(g)) if alpha[v] < upper[v]]
    low = [g[v] for v in range(len(g)) if alpha[v] > lower[v]]
    return max(max(up) - min(low), 0.0) if up and low else 0.0


def duality_gap(K, sign, bounds, alpha, threshold):
    """Primal minus dual objective of the soft-margin classifier; bounds = C_i."""
    f = K @ alpha
    slack = [max(0.0, 1 - y * (v + threshold)) for y, v in zip(sign, f, strict=True)]
    primal = 0.5 * alpha @ f + math.fsum(c * s for c, s in zip(bounds, slack, strict=True))
    return primal - objective(K, sign.astype(float), alpha)


def pair_gain(K, g, alpha, lower, upper, i, j):
    """Most that moving μ ≥ 0 from j to i gains, within the box; 0 where it cannot gain."""
    room = min(upper[i] - alpha[i], alpha[j] - lower[j])
    slope, eta = g[i] - g[j], max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
    if i == j or slope <= 0 or room <= 0:
        return 0.0
    mu = min(slope / eta, room)
    return mu * slope - 0.5 * eta * mu * mu


def mvp_pair(K, g, alpha, lower, upper):
    """(argmax_up g, argmin_low g), None where one of the sets is empty."""
    up = [v for v in range(len(g)) if alpha[v] < upper[v]]
    low = [v for v in range(len(g)) if alpha[v] > lower[v]]
    if not up or not low:
        return None
    return max(up, key=lambda v: g[v]), min(low, key=lambda v: g[v])


def second_order_pair(K, g, alpha, lower, upper):
    """The same i; j of the largest (g_i − g_j)² / η_ij."""
    i, best = mvp_pair(K, g, alpha, lower, upper)
    scores = {}
    for j in range(len(g)):
        if alpha[j] > lower[j] and g[j] < g[i]:
            eta = max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
            scores[j] = (g[i] - g[j]) ** 2 / eta
    return (i, max(scores, key=scores.get)) if scores else (i, best)


def gain_pair(K, g, alpha, lower, upper, last):
    """Maximum gain among all pairs with a variable of the last; None if none gains."""
    pairs = [pair for b in last for t in range(len(g)) for pair in ((b, t), (t, b))]
    gains = {pair: pair_gain(K, g, alpha, lower, upper, *pair) for pair in pairs}
    best = max(gains, key=gains.get)
    return best if gains[best] > 0 else None


def hmg_pair(K, g, alpha, lower, upper, last):
    """HMG of Glasmachers & Igel 2006; before the first step, and where nothing gains, ``mvp``."""
    if last is not None:
        margin = 1e-8 * (np.asarray(upper) - lower)
        near = [alpha[b] <= lower[b] + margin[b] or alpha[b] >= upper[b] - margin[b] for b in last]
        pair = None if all(near) else gain_pair(K, g, alpha, lower, upper, last)
        if pair is not None:
            return pair
    return mvp_pair(K, g, alpha, lower, upper)


class NoOptimumError(AssertionError):
    """Pair steps did not get there, as where the kernel matrix is ill-conditioned."""


def solve(K, linear, lower, upper, alpha, *, group=None, tol=1e-10, most_steps=100_000):
    """The optimum by the steepest pair of all, the gradient computed anew at each step.

    Both are of one group of variables, where there are several.
    """
    alpha, group = np.array(alpha, np.float64), np.zeros(len(K)) if group is None else group
    for _ in range(most_steps):
        g = linear - K @ alpha
        worst, i = tol, None
        for one in np.unique(group):
            own = np.where(group == one, 0.0, np.nan)
            pair = mvp_pair(K, g, alpha + own, lower, upper)
            if pair is not None and g[pair[0]] - g[pair[1]] > worst:
                worst, i = g[pair[0]] - g[pair[1]], pair[0]
        if i is None:
            return alpha
        gains = [
            pair_gain(K, g, alpha, lower, upper, i, j) if group[j] == group[i] else 0.0
            for j in range(len(g))
        ]
        j = int(np.argmax(gains))
        mu = (g[i] - g[j]) / max(K[i, i] + K[j, j] - 2 * K[i, j], 1e-12)
        mu = min(mu, upper[i] - alpha[i], alpha[j] - lower[j])
        alpha[i] = min(alpha[i] + mu, upper[i])
        alpha[j] = max(alpha[j] - mu, lower[j])
    raise NoOptimumError(f"no optimum after {most_steps} steps")


# -- the ball: minimise a'Ka, a >= 0, sum a = 1 -------------------------------------------------


def ball_step(K, a, *, away):
    """One step of Frank and Wolfe with exact line search; whether it led away, and dropped."""
    Ka, R = K @ a, a @ K @ a
    i = int(np.argmin(Ka))
    j = max((t for t in range(len(a)) if a[t] > 0), key=lambda t: Ka[t])
    after = a.copy()
    if away and a[j] < 1 and Ka[j] - R > R - Ka[i]:
        most = a[j] / (1 - a[j])
        step = min((Ka[j] - R) / (R - 2 * Ka[j] + K[j, j]), most)
        after *= 1 + step
        after[j] = 0.0 if step == most else after[j] - step
        return after, True, step == most
    step = min((R - Ka[i]) / (R - 2 * Ka[i] + K[i, i]), 1.0)
    after *= 1 - step
    after[i] += step
    return after, False, False


def l2_svc(K, *, most_steps=200):
    """Maximise sum(a) - a'Ka / 2 with a >= 0, K being definite, to a duality gap of 1e-12 of it.

    The equations of the rows taken to have weight are solved exactly, and the rows chosen anew by
    sign, until that changes nothing.
    """
    a, inside = np.zeros(len(K)), np.ones(len(K), bool)
    for _ in range(most_steps):
        a[:] = 0.0
        a[inside] = np.linalg.solve(K[np.ix_(inside, inside)], np.ones(inside.sum()))
        wanted = np.where(inside, a > 0, K @ a < 1)
        if (wanted == inside).all():
            # Any a scaled to margins of 1 bounds the optimum from the other side.
            least = 0.5 * a.sum() / min(1.0, (K @ a).min())
            assert least - (a.sum() - 0.5 * a @ K @ a) <= 1e-10 * least
            return a
        inside = wanted
    raise AssertionError(f"no optimum after {most_steps} steps")


# -- Crammer and Singer: maximise Σ α_iy - ½ Σ K α·α, α_i <= C_i e_y, Σ_r α_ir = 0 --------------


def multiclass_objectives(K, label, n_classes, bounds, alpha):
    """Dual and primal objective of the definition, loss by loss."""
    f = K @ alpha
    half = 0.5 * math.fsum(float(a @ v) for a, v in zip(alpha, f, strict=True))
    losses = []
    for i, y in enumerate(label):
        margin = max(f[i, r] + (0.0 if r == y else 1.0) for r in range(n_classes)) - f[i, y]
        losses.append(bounds[i] * margin)
    return math.fsum(alpha[i, y] for i, y in enumerate(label)) - half, half + math.fsum(losses)


def multiclass_violations(gradient, label, bounds, alpha):
    """ψ of each row: its largest gradient with room less its smallest; 0 without room."""
    psi = np.zeros(len(label))
    for i, y in enumerate(label):
        upper = [bounds[i] if r == y else 0.0 for r in range(alpha.shape[1])]
        room = [gradient[i, r] for r in range(alpha.shape[1]) if alpha[i, r] < upper[r]]
        psi[i] = max(room) - min(gradient[i]) if room else 0.0
    return psi


def crammer_singer(K, label, n_classes, bounds, *, gap=1e-8):
    """The optimum by an interior point method on the dense problem of all n·k variables.

    ``η = C_i e_y - α >= 0`` with Σ_r η_ir = C_i; rows with bound 0 are left out. In units of the
    largest bound, by which K is multiplied.
    """
    rows, scale = np.flatnonzero(bounds), max(bounds)
    label, C, k = np.asarray(label)[rows], np.asarray(bounds)[rows] / scale, n_classes
    n = len(rows)
    K = K * scale
    H = np.kron(K[np.ix_(rows, rows)], np.eye(k))
    A = np.kron(np.eye(n), np.ones(k))
    upper = np.zeros((n, k))
    upper[np.arange(n), label] = C
    linear = np.eye(k)[label].ravel()
    c = linear - H @ upper.ravel()  # of -(dual objective) in eta
    x, z, v = np.repeat(C / k, k), np.ones(n * k), np.zeros(n)
    for _ in range(100):
        alpha = upper - x.reshape(n, k)
        dual, primal = multiclass_objectives(K[np.ix_(rows, rows)], label, k, C, alpha)
        if primal - dual <= gap * abs(primal):
            whole = np.zeros((len(K), k))
            whole[rows] = scale * alpha
            return whole
        mu = 0.1 * (x @ z) / len(x)
        M = H + np.diag(z / x)
        right = -(H @ x + c - A.T @ v) + mu / x
        solved = np.linalg.solve(M, np.column_stack([A.T, right]))
        step_v = np.linalg.solve(A @ solved[:, :n], C - A @ x - A @ solved[:, n])
        step_x = solved[:, n] + solved[:, :n] @ step_v
        step_z = mu / x - z - z / x * step_x
        most = min(
            [1.0] + [0.99 * s for p, d in ((x, step_x), (z, step_z)) for s in -p[d < 0] / d[d < 0]]
        )
        x, v, z = x + most * step_x, v + most * step_v, z + most * step_z
    raise AssertionError("no optimum after 100 rounds")
