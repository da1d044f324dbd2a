"""``frank_wolfe.py solvers``: steps and seconds to the tolerance on one core set.

All rows of w1a and a1a, C 8, are one core set whose Gram matrix is in memory before the clock
starts. Every solver starts from the exact ball of the same 20 random rows and ends where the
Frank-Wolfe gap is at most ε (D - R), ε = 1e-6 times the squared radius: the tolerance of 1e-6, but
for its ε²/2. The gap is looked at each 64 steps, which is in the seconds of all of them.

fw               towards the farthest point
mfw              or away from the nearest
pairwise, mvp    from the nearest to the farthest
pairwise         from the partner that gains most by second order to the farthest: the solver

The gap in the table is computed from scratch in float64; a solver has float32 kernel values, and
the gradient that its steps have added up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from common import machine, table
from sklearn.metrics.pairwise import rbf_kernel
from timed_fits import UNHALVED, Parts, gamma_of, is_there, read, say

from bigsvm.core import ball, smo
from bigsvm.training.search import FIRST_POINTS

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

TOL = 1e-6
LOOK = 64
SOLVERS = {"fw": None, "mfw": None, "pairwise, mvp": smo.MVP, "pairwise": smo.SECOND_ORDER}

_ENDED = {smo.STEPS_SPENT: "too many steps", smo.CONVERGED: "converged", smo.STALLED: "stalled"}


class Problem(NamedTuple):
    """A core set: K̃ without its ridge, (n, n) float64, and the ridge 1 / C."""

    gram: NDArray[np.float64]
    ridge: float

    @property
    def largest(self) -> float:
        """D, the diagonal of K̃."""
        return 2.0 + self.ridge

    def gradient(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """``-K̃a``, (n,)."""
        return -(self.gram @ weights + self.ridge * weights)


class Run(NamedTuple):
    """What a solver took; its gap in units of the squared radius."""

    steps: int
    seconds: float
    gap: float
    n_support: int
    ended: str


def make_problem(parts: Parts, C: float) -> Problem:
    """Compute all kernel values, labels and bias in them."""
    sign = np.where(parts.y > 0, 1.0, -1.0)
    kernel = rbf_kernel(parts.x.astype(np.float64), gamma=gamma_of(parts.x, UNHALVED))
    return Problem(sign[:, None] * sign * (kernel + 1.0), 1.0 / C)


def first_weights(problem: Problem) -> NDArray[np.float64]:
    """Weights, (n,), of the ball of some random rows."""
    n = len(problem.gram)
    chosen = np.sort(np.random.default_rng(0).choice(n, min(FIRST_POINTS, n), replace=False))
    few = Problem(problem.gram[np.ix_(chosen, chosen)], problem.ridge)
    found, _ = solve(few, np.full(len(chosen), 1.0 / len(chosen)), "pairwise", 100_000)
    weights = np.zeros(n)
    weights[chosen] = found
    return weights


def solve(
    problem: Problem, weights: NDArray[np.float64], solver: str, most_steps: int
) -> tuple[NDArray[np.float64], Run]:
    """Take steps until the gap is at the tolerance; the weights then, and what it took."""
    n = len(problem.gram)
    rows = np.zeros((n, smo.row_width(n)), np.float32)
    rows[:, :n] = problem.gram
    state = smo.make_state(
        weights, problem.gradient(weights), np.zeros(n), np.full(n, np.inf),
        np.diag(problem.gram).copy(), ridge=problem.ridge,
    )  # fmt: skip
    points = ball.Points(*(getattr(state, name) for name in ball.Points._fields))
    slots = np.full(len(state.alpha), -1, np.int32)
    slots[:n] = np.arange(n)
    used = np.zeros(n, np.int64)
    rule, status = SOLVERS[solver], smo.STEPS_SPENT
    started = time.perf_counter()
    while True:
        a, g = state.alpha[:n], state.gradient[:n]
        energy = -float(a @ g)
        goal = TOL * (problem.largest - energy)
        left = most_steps - int(state.counters[0])
        if g.max() + energy <= goal or left <= 0 or status != smo.STEPS_SPENT:
            break
        if rule is None:
            status, _ = ball.run(points, rows, slots, used, solver == "mfw", goal, min(LOOK, left))
        else:
            # Where no pair differs by more, nor does the gap exceed it.
            status, _ = smo.run(state, rows, slots, used, rule, goal, min(LOOK, left))
    seconds = time.perf_counter() - started
    found = a / a.sum()
    gradient = problem.gradient(found)
    energy = -float(found @ gradient)
    ended = "at the tolerance" if g.max() - float(a @ g) <= goal else _ENDED[status]
    gap = (float(gradient.max()) + energy) / (problem.largest - energy)
    return found, Run(int(state.counters[0]), seconds, gap, int(np.count_nonzero(found)), ended)


def run(options: argparse.Namespace) -> int:
    """Measure the data sets that are there."""
    chosen = [name for name in options.data if is_there(name)]
    if not chosen:
        return 0
    print(f"{machine(1)}; C {options.C:g}, at most {options.most_steps} steps", end="\n\n")
    lines = []
    for name in chosen:
        problem = make_problem(read(name), options.C)
        weights = first_weights(problem)
        for solver in SOLVERS:
            solve(problem, weights, solver, LOOK)  # compiles
            _, found = solve(problem, weights, solver, options.most_steps)
            say(f"  {name} {solver}: {found.steps} steps, {found.seconds:.2f} s")
            lines.append(
                [
                    *(name, len(weights), solver, found.steps, f"{found.seconds:.3f}"),
                    *(f"{found.gap:.1e}", found.n_support, found.ended),
                ]
            )
    header = ["data", "points", "solver", "steps", "seconds", "gap ÷ radius²", "SVs", "ended"]
    print(table(header, lines))
    return 0
