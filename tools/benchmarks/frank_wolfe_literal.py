"""``frank_wolfe.py literal``: algorithms 1, 2 and 3 of frank-wolfe.txt beside its tables 2 and 3.

    python tools/benchmarks/frank_wolfe.py literal [--data a1a … w8a] [--seeds 5]
    python tools/benchmarks/frank_wolfe.py flat [--rows 10000 100000 1000000 5000000]

``literal`` trains ``solver="cvm"``, ``"fw"`` and ``"mfw"`` on the rows as they are, with samples of
59 rows and the first empty sample as the end, and prints accuracy, CPU seconds, steps and support
vectors. An accuracy is reproduced if the mean over the seeds is within two of the paper's standard
deviations + 0.05 points of the paper's mean. gamma is 2 / the average squared distance of two rows,
with which the certified accuracies agree with the paper's (see ``frank_wolfe.py tables``). C is one
value of the paper's grid for each series; the paper does not print which it chose.

``flat`` prints the CPU time of a step against the number of rows of two made classes that overlap.
The aim is 20 µs, and 1 ns for each row of a sample and point, of which there are half as many on
average as in the end.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import TYPE_CHECKING, NamedTuple

import frank_wolfe_paper as paper
from common import table
from timed_fits import PAIRS_ONCE, SAMPLING, gamma_of, is_there, mean_and_deviation, read, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from timed_fits import Parts

C_OF_SERIES = {"w": 8.0, "a": 2.0}
"""C of each series of sets: a value of the paper's grid, 1, 2, 4 … 4096."""
SLACK = 0.05
"""Points of accuracy beyond two standard deviations that still count as reproduced."""
FLAT_STEPS = 1500


class Run(NamedTuple):
    """One training: CPU seconds of the fit, accuracy in %, steps, support vectors."""

    seconds: float
    accuracy: float
    steps: int
    n_support: int


def train(parts: Parts, solver: str, *, C: float, gamma: float, seed: int) -> Run:
    """Train once, in one thread, and test."""
    import bigsvm

    model = bigsvm.L2SVC(
        C=C, gamma=gamma, solver=solver, sampling=SAMPLING, certify=False, random_state=seed,
        n_jobs=1,
    )  # fmt: skip
    started = time.process_time()
    model.fit(parts.x, parts.y)
    seconds = time.process_time() - started
    accuracy = 100 * float(model.score(parts.test_x, parts.test_y))
    return Run(seconds, accuracy, model.n_iter_, len(model.support_))


def is_reproduced(runs: Sequence[Run], reported: paper.Reported) -> bool:
    """Whether the mean accuracy is within two of the paper's deviations and SLACK of its mean."""
    mean = statistics.fmean(run.accuracy for run in runs)
    return abs(mean - reported.mean) <= 2 * reported.deviation + SLACK


def row(name: str, solver: str, runs: Sequence[Run], cvm: float | None) -> list[str]:
    """Lay one set and solver out: ours beside the paper's."""
    theirs, took = paper.ACCURACY[name][solver], paper.SECONDS[name]
    seconds = statistics.fmean(run.seconds for run in runs)
    return [
        name,
        solver,
        f"{C_OF_SERIES[name[0]]:g}",
        mean_and_deviation([run.accuracy for run in runs]),
        f"{theirs.mean:.2f} ± {theirs.deviation:.2f}",
        "yes" if is_reproduced(runs, theirs) else "no",
        mean_and_deviation([run.seconds for run in runs], digits=3),
        f"{took[solver].mean:g}",
        "-" if cvm is None else f"{cvm / seconds:.1f}",
        f"{took['cvm'].mean / took[solver].mean:.1f}",
        f"{statistics.fmean(run.steps for run in runs):.0f}",
        f"{statistics.fmean(run.n_support for run in runs):.0f}",
    ]


HEADER = (
    "set", "solver", "C", "accuracy %", "paper's", "reproduced", "CPU s", "paper's s",
    "CVM ÷ it", "paper's ratio", "steps", "SVs",
)  # fmt: skip


def literal(options: argparse.Namespace) -> bool:
    """Print the table; True if four fifths of the accuracies of fw and mfw are reproduced."""
    warnings.simplefilter("ignore")  # of models that are not certified
    lines, held = [], []
    for name in options.data:
        if not is_there(name):
            continue
        parts = read(name)
        gamma, C = gamma_of(parts.x, PAIRS_ONCE), C_OF_SERIES[name[0]]
        runs: dict[str, list[Run]] = {solver: [] for solver in options.solvers}
        if not lines:
            for solver in options.solvers:  # compiled before it is timed
                train(parts, solver, C=1.0, gamma=gamma, seed=0)
        for seed in range(options.seeds):
            for solver, found in runs.items():
                found.append(train(parts, solver, C=C, gamma=gamma, seed=seed))
                say(f"{name} {solver} {found[-1]}")
        cvm = statistics.fmean(run.seconds for run in runs["cvm"]) if "cvm" in runs else None
        for solver, found in runs.items():
            lines.append(row(name, solver, found, cvm))
            if solver != "cvm":
                held.append(is_reproduced(found, paper.ACCURACY[name][solver]))
    print(table(HEADER, lines))
    print(f"{sum(held)} of {len(held)} accuracies of fw and mfw are the paper's")
    return sum(held) >= 0.8 * len(held)


def flat(options: argparse.Namespace) -> bool:
    """Print the time of a step against the rows; True if the largest is at most twice the least."""
    import numpy as np

    from bigsvm.data.sources import as_row_source
    from bigsvm.duals.ball import L2SVC, BallDual, Solver
    from bigsvm.duals.box import SelectionRule
    from bigsvm.estimators.fitting import hold_and_plan
    from bigsvm.estimators.parameters import TrainingParameters
    from bigsvm.kernels import RBF
    from bigsvm.tiles import KernelTiles
    from bigsvm.training.searches import search_of
    from bigsvm.training.state import Limits

    rng = np.random.default_rng(0)
    y = rng.choice(np.array([-1, 1], np.int8), max(options.rows))
    x = rng.standard_normal((max(options.rows), 20), dtype=np.float32)
    x[:, 0] += 1.5 * y
    lines, times = [], []
    for n in sorted(options.rows):
        for solver in ("fw", "mfw"):
            taken = []
            for _ in range(3):
                source = as_row_source(x[:n])
                dual = BallDual(
                    L2SVC(sign=y[:n], C=10.0), SelectionRule.SECOND_ORDER, Solver(solver), 2.1
                )
                parameters = TrainingParameters(formulation="l2-svc", memory="4GB", threads=1)
                source, plan = hold_and_plan(parameters, source, resident_bytes=0)
                with KernelTiles(RBF(gamma=0.05), threads=1, offset=1.0) as tiles:
                    search = search_of(dual.solver)(
                        source, dual, tiles, plan, ball_tol=1e-6, sampling=SAMPLING, certify=False,
                        seed=0, limits=Limits(max_iter=FLAT_STEPS), checkpoint=None,
                        empty_samples=10**6,
                    )  # fmt: skip
                    started = time.process_time()
                    search.run()
                    taken.append((time.process_time() - started) / search.count.n_iter)
            points = len(search.core)
            times.append(min(taken))
            aim = 20 + 1e-3 * SAMPLING * points / 2
            lines.append(
                [f"{n}", solver, f"{search.count.n_iter}", f"{points}", f"{1e6 * min(taken):.0f}",
                 f"{aim:.0f}"]
            )  # fmt: skip
            say(" ".join(lines[-1]))
    print(table(("rows", "solver", "steps", "points", "µs of CPU a step", "aim"), lines))
    return max(times[0::2]) <= 2 * min(times[0::2]) and max(times[1::2]) <= 2 * min(times[1::2])


def run(options: argparse.Namespace) -> int:
    """Run either part; 0 if what it promises holds."""
    return 1 - (flat(options) if options.command == "flat" else literal(options))
