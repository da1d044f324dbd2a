"""The parts of the suite ``hmg``, which says what they are."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from bigsvm.data.sources import as_row_source
from bigsvm.estimators.fitting import train_model
from bigsvm.parameters import TrainingParameters
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load
from tools.benchmarks.results import table

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    F8 = NDArray[np.float64]

SPAMBASE = DataSet("spambase", 57, 50.0, 1 / (2 * 10**2), (1.0,))
CACHE = 0.472
"""Share of the kernel rows that the paper's cache holds (table 1)."""
TOL = 1e-3
RULES = ("second-order", "hmg")
DEGENERATE = 0.99
STRATEGIES = {"one row": 1, "two rows": 2, "whole cache": 0}
PAPER = {
    "one row": (14_023, 27_019.134), "two rows": (10_563, 27_019.140),
    "whole cache": (7_280, 27_019.143),
}  # fmt: skip
"""Iterations and objectives of tables 6 and 7, with LIBSVM's shrinking."""
MOST_STEPS = 2_000_000


class Fit(NamedTuple):
    """One training by a rule; support vectors and those at C as shares of the rows."""

    values: int
    seconds: float
    support: float
    bounded: float


def spambase() -> tuple[F8, F8]:
    """Read the rows, each column brought to mean 0 and variance 1, and labels of ±1."""
    x, y = load(SPAMBASE, data_folder())
    x = x.toarray().astype(np.float64)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def fit(x: F8, y: F8, rule: str, *, C: float, gamma: float, share: float) -> Fit:
    """Train on all rows as one working set, with memory for a share of the kernel rows."""
    parameters = TrainingParameters(
        C=C, gamma=gamma, tol=TOL, selection=rule, working_set="all", shrinking=True, threads=1,
        memory="8GB", kernel_rows=max(8, round(share * len(x))),
    )  # fmt: skip
    began = time.process_time()
    found = train_model(as_row_source(x.astype(np.float32)), y, None, parameters).certificate
    seconds = time.process_time() - began
    if not found["converged"]:
        raise SystemExit(f"{rule} at C {C:g}, gamma {gamma:g} ended with {found['stop_reason']}")
    n_support = found["n_support"]
    bounded = found["n_bounded"] / max(n_support, 1)
    return Fit(found["n_kernel_evaluations"], seconds, n_support / len(x), bounded)


def regimes(options: argparse.Namespace) -> str:
    """Compare HMG and the second-order rule over C and gamma."""
    x, y = spambase()
    lines = []
    for rule in RULES:  # compiles
        fit(x[::9], y[::9], rule, C=1.0, gamma=SPAMBASE.gamma, share=options.share)
    for c, g in itertools.product(options.factors, repeat=2):
        given = {"C": c * SPAMBASE.C, "gamma": g * SPAMBASE.gamma, "share": options.share}
        second, hmg = (fit(x, y, rule, **given) for rule in RULES)
        support, bounded = hmg.support, hmg.bounded
        marks = ["all"] * (support >= DEGENERATE) + ["bounded"] * (bounded >= DEGENERATE)
        lines.append(
            [
                f"{given['C']:g}", f"{given['gamma']:g}", f"{support:.1%}", f"{bounded:.1%}",
                ", ".join(marks), f"{hmg.values / 1e6:.2f}", f"{second.values / 1e6:.2f}",
                f"{second.values / hmg.values:.2f}", f"{hmg.seconds:.2f}",
                f"{second.seconds:.2f}", f"{second.seconds / hmg.seconds:.2f}",
            ]
        )  # fmt: skip
        print(f"  {lines[-1]}", file=sys.stderr, flush=True)
    header = [
        "C", "gamma", "SVs", "of them at C", "degenerate", "HMG, million values", "second order",
        "÷ HMG", "HMG, CPU s", "second order", "÷ HMG",
    ]  # fmt: skip
    return table(header, lines)


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


def rows(options: argparse.Namespace) -> str:
    """Compare HMG with one kernel row, with two, and with the whole cache."""
    x, y = spambase()
    squares = (x * x).sum(axis=1)
    gram = np.exp(-SPAMBASE.gamma * np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0))
    np.fill_diagonal(gram, 1.0)
    rng = np.random.default_rng(0)
    ends = [np.flatnonzero(y > 0), np.flatnonzero(y < 0)]
    pairs = [(int(rng.choice(ends[0])), int(rng.choice(ends[1]))) for _ in range(options.trials)]
    steps: dict[str, list[int]] = {}
    lines = []
    for name, n_rows in STRATEGIES.items():
        n_trials = options.trials if n_rows else options.whole_trials
        found = []
        for pair in pairs[:n_trials]:
            found.append(solve(gram, y, SPAMBASE.C, TOL, n_rows, round(CACHE * len(y)), pair))
            print(f"  {name} {found[-1]}", file=sys.stderr, flush=True)
            if found[-1][0] < 0:
                raise SystemExit(f"{name} has not converged in {MOST_STEPS} steps")
        steps[name] = [one for one, _ in found]
        objective = statistics.median(one for _, one in found)
        lines.append([name, n_trials, steps[name], objective, *PAPER[name]])
    two = statistics.median(steps["two rows"])
    header = [
        "rows", "trials", "steps, median", "least to most", "÷ two rows", "objective",
        "paper's steps", "÷ two rows", "paper's objective",
    ]  # fmt: skip
    return table(
        header,
        [
            [
                name, n, f"{statistics.median(each):.0f}", f"{min(each)} to {max(each)}",
                f"{statistics.median(each) / two:.2f}", f"{objective:.3f}", theirs,
                f"{theirs / PAPER['two rows'][0]:.2f}", f"{best:.3f}",
            ]
            for name, n, each, objective, theirs, best in lines
        ],
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the table of a part; 0 also where the data are not there, which is said."""
    if not is_skipped(SPAMBASE):
        print({"regimes": regimes, "rows": rows}[options.part](options))
    return 0
