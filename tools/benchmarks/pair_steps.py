"""Nanoseconds of a pair step, per variable of the working set, by selection rule.

    python tools/benchmarks/pair_steps.py [--sizes 2048 8192 16384] [--steps 10240] [--repeats 5]
                                          [--check]

One thread takes `--steps` pair steps from zero on a made-up problem of two classes with an rbf
kernel, all of whose kernel rows are in memory before the clock starts: nothing is measured but
selecting pairs, moving along them and reading their rows, which at 8192 variables (256 MB of rows)
come from memory and not from a cache. A run that converges earlier counts the steps it took.
Compilation is not in it: each rule takes a few steps on a tiny problem first. Rules take turns
within each repeat, so that a change of the machine's mood meets all of them.

The limit: at most 1.2 ns per variable and step with ``second-order`` at 8192 variables. It is
printed whether it holds, by the median; with ``--check`` the script ends with 1 where it does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from common import machine, median_range, table

from bigsvm.core import smo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RULES = {"mvp": smo.MVP, "second-order": smo.SECOND_ORDER, "hmg": smo.HMG}

LIMIT = 1.2
LIMITED_RULE, LIMITED_SIZE = "second-order", 8192

C, GAMMA, N_FEATURES, TOL = 10.0, 0.5, 8, 1e-3

READ_BYTES = 256 << 20
"""What is read to see how noisy the machine is: as much as the rows of 8192 variables."""


class Problem(NamedTuple):
    """A working set of m variables: labels (m,) ±1 float64, and all its kernel rows.

    `rows` is (m, m') float32, m' the length of the solver's arrays; its columns past m are 0.
    """

    labels: NDArray[np.float64]
    rows: NDArray[np.float32]


def make_problem(size: int) -> Problem:
    """Make two overlapping classes: of 8192 rows five in eight become support vectors."""
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
    upper, lower = np.where(labels > 0, C, 0.0), np.where(labels > 0, 0.0, -C)
    return smo.make_state(np.zeros(len(labels)), labels, lower, upper, np.ones(len(labels)))


def nanoseconds(problem: Problem, rule: int, steps: int) -> float:
    """Time one run; nanoseconds per step and variable."""
    state = fresh_state(problem.labels)
    size = len(problem.labels)
    slots = np.full(len(state.alpha), -1, np.int32)
    slots[:size] = np.arange(size)
    used = np.zeros(size, np.int64)
    started = time.perf_counter()
    status, _ = smo.run(state, problem.rows, slots, used, rule, TOL, steps)
    seconds = time.perf_counter() - started
    if status not in (smo.STEPS_SPENT, smo.CONVERGED):
        raise SystemExit(f"rule {rule} at {size} variables ended with status {status}")
    return 1e9 * seconds / (int(state.counters[0]) * size)


def read_memory(data: NDArray[np.int32]) -> float:
    """Time one pass over `data`, in seconds."""
    started = time.perf_counter()
    data.max()
    return time.perf_counter() - started


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 8192, 16384])
    parser.add_argument("--steps", type=int, default=5 * smo.REFRESH)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail where the limit does not hold")
    options = parser.parse_args(arguments)
    if min(*options.sizes, options.steps, options.repeats) < 1:
        parser.error("--sizes, --steps and --repeats must be at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    print(machine(1), end="\n\n")
    tiny = make_problem(64)
    for rule in RULES.values():
        nanoseconds(tiny, rule, 10)
    data = np.ones(READ_BYTES // 4, np.int32)
    read_memory(data)
    reading, lines, limited = [], [], []
    for size in options.sizes:
        problem = make_problem(size)
        taken: dict[str, list[float]] = {name: [] for name in RULES}
        for _ in range(options.repeats):
            for name, rule in RULES.items():
                reading.append(read_memory(data))
                taken[name].append(nanoseconds(problem, rule, options.steps))
        lines += [[size, name, median_range(values)] for name, values in taken.items()]
        if size == LIMITED_SIZE:
            limited = taken[LIMITED_RULE]
    print(table(["variables", "rule", "ns per variable and step"], lines))
    milliseconds = [1e3 * seconds for seconds in reading]
    print(
        f"\nnoise: reading {READ_BYTES >> 20} MB before each run took "
        f"{median_range(milliseconds, digits=0)} ms, "
        f"spread {max(reading) / statistics.median(reading) - 1:.0%} over the median"
    )
    if not limited:
        return 0
    holds = statistics.median(limited) <= LIMIT
    print(
        f"limit: {LIMITED_RULE} at {LIMITED_SIZE} variables, at most {LIMIT} ns: "
        f"{'holds' if holds else 'does not hold'}"
    )
    return int(options.check and not holds)


if __name__ == "__main__":
    sys.exit(main())
