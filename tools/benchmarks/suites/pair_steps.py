"""Nanoseconds of a pair step, per variable of the working set, by selection rule.

    python -m tools.benchmarks pair_steps [--sizes 2048 8192 16384] [--steps 10240] [--repeats 5]

One thread takes --steps pair steps from zero on a made-up problem of two classes with an rbf
kernel, all of whose kernel rows are in memory before the clock starts: nothing is measured but
selecting pairs, moving along them and reading their rows, which at 8192 variables (256 MB of rows)
come from memory and not from a cache. A run that converges earlier counts the steps it took. Rules
take turns in one process; a turn that compiles does not count.

The limit: at most 1.2 ns per variable and step with ``second-order`` at 8192 variables.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.benchmarks.bench import Suite
from tools.benchmarks.results import Limit, Results, at_most, made_up, spread, who

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bigsvm.core import smo

RULES = {"mvp": "MVP", "second-order": "SECOND_ORDER", "hmg": "HMG"}
LIMIT, LIMITED_RULE, LIMITED_SIZE = 1.2, "second-order", 8192
C, GAMMA, N_FEATURES, TOL = 10.0, 0.5, 8, 1e-3


class Problem(NamedTuple):
    """A working set of m variables: labels (m,) ±1 float64, and all its kernel rows.

    `rows` is (m, m') float32, m' the length of the solver's arrays; its columns past m are 0.
    """

    labels: NDArray[np.float64]
    rows: NDArray[np.float32]


@functools.cache
def make_problem(size: int) -> Problem:
    """Make two overlapping classes: of 8192 rows five in eight become support vectors."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((size, N_FEATURES), np.float32)
    labels = np.where(x[:, 0] + 0.8 * rng.standard_normal(size) > 0, 1.0, -1.0)
    squares = np.einsum("ij,ij->i", x, x)
    rows = np.zeros((size, len(fresh_state(labels).alpha)), np.float32)
    for start in range(0, size, 1024):
        part = slice(start, start + 1024)
        distances = squares[part, None] + squares - 2 * (x[part] @ x.T)
        rows[part, :size] = np.exp(-GAMMA * np.maximum(distances, 0))
    np.fill_diagonal(rows, 1)
    return Problem(labels, rows)


def fresh_state(labels: NDArray[np.float64]) -> smo.PairState:
    """Lay a C-SVC out from alpha = 0; labels (m,) ±1."""
    import numpy as np

    from bigsvm.core import smo

    upper, lower = np.where(labels > 0, C, 0.0), np.where(labels > 0, 0.0, -C)
    return smo.make_state(np.zeros(len(labels)), labels, lower, upper, np.ones(len(labels)))


def take_steps(job: dict[str, Any]) -> dict[str, Any]:
    """Time one run; nanoseconds per step and variable."""
    import numpy as np

    from bigsvm.core import smo

    size = job["parameters"]["size"]
    problem = make_problem(size)
    state = fresh_state(problem.labels)
    slots = np.full(len(state.alpha), -1, np.int32)
    slots[:size] = np.arange(size)
    used = np.zeros(size, np.int64)
    rule = getattr(smo, RULES[job["who"]])
    started = time.perf_counter()
    status, _ = smo.run(state, problem.rows, slots, used, rule, TOL, job["parameters"]["steps"])
    seconds = time.perf_counter() - started
    if status not in (smo.STEPS_SPENT, smo.CONVERGED):
        raise SystemExit(f"{job['who']} at {size} variables ended with status {status}")
    return {"seconds": seconds, "nanoseconds": 1e9 * seconds / (int(state.counters[0]) * size)}


def limits(results: Results) -> list[Limit]:
    """Hold the usual rule at one size against its limit."""
    return [
        at_most(
            f"{LIMITED_RULE} at {LIMITED_SIZE} variables, ns", row.median("nanoseconds"),
            limit=LIMIT,
        )
        for row in results.rows(LIMITED_RULE)
        if row.case.parameters["size"] == LIMITED_SIZE
    ]  # fmt: skip


SUITE = Suite(
    cases=lambda options: [
        made_up(str(size), size=size, steps=options.steps) for size in options.sizes
    ],
    sizes=(2048, 8192, 16384),
    contestants=tuple(RULES),
    columns=(
        ("variables", lambda row: row.case.parameters["size"]),
        ("rule", who),
        ("ns per variable and step", spread("nanoseconds")),
    ),
    limits=limits,
    do="tools.benchmarks.suites.pair_steps:take_steps",
    one_process=True,
    repeats=5,
    threads=1,
    folder=False,
    more=(("--steps", {"type": int, "default": 10_240}),),
)
