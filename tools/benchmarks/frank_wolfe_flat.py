"""``frank_wolfe.py flat``: the time of a step of Frank-Wolfe against the number of rows.

    python tools/benchmarks/frank_wolfe.py flat [--rows 10000 100000 1000000 5000000]

The rows are two made classes that overlap; a search takes 1500 steps, and the least CPU time of
three counts. The aim is 20 µs, and 1 ns for each row of a sample and point, of which there are half
as many on average as in the end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from common import table
from timed_fits import SAMPLING, say

if TYPE_CHECKING:
    import argparse

FLAT_STEPS = 1500


def run(options: argparse.Namespace) -> int:
    """Print the time of a step against the rows; 0 if the largest is at most twice the least."""
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
    fw, mfw = times[0::2], times[1::2]
    return int(max(fw) > 2 * min(fw) or max(mfw) > 2 * min(mfw))
