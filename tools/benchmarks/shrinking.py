"""What shrinking saves: kernel values and CPU seconds by rule and cache, with and without it.

    python tools/benchmarks/shrinking.py [--rows 6000] [--rules hmg second-order mvp]

The first caches are those of table 5 of Glasmachers and Igel, "Maximum-gain working set selection
for SVMs" (2006), which is of connect-4 and with LIBSVM's shrinking; larger ones follow. Here it is
the first --rows rows of mnist, CSR, 0 to 4 against 5 to 9, C 50, sigma 3500, and spambase with
caches up to that of table 2. All rows are one working set, on one thread, so that counts are the
same whenever it runs. Kernel values are all of a run, those that bring rows back and those of the
certificate included.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from common import Check, machine, table, verdicts
from data_sets import is_skipped
from whole_runs import RULES, Problem, sparse, train, warm_up
from working_sets import MNIST, PAPER_CONNECT_4, SPAMBASE, SPAMBASE_CACHE, spambase

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGE_CACHES = (0.15, 0.25, 0.5)
SPAMBASE_CACHES = (0.03, 0.1, 0.2, SPAMBASE_CACHE)
SAME_OBJECTIVE = 1e-6
"""Largest relative difference of two objectives at a tolerance of 0.001."""


class Case(NamedTuple):
    """One problem with a cache, solved by a rule without shrinking and with it.

    Attributes
    ----------
    steps, values : tuple of int
        Pair steps, and kernel values computed.
    seconds, objectives : tuple of float
        CPU seconds, and dual objectives.
    """

    name: str
    share: float
    rule: str
    steps: tuple[int, int]
    rows: tuple[int, int]
    values: tuple[int, int]
    seconds: tuple[float, float]
    objectives: tuple[float, float]


def measure(name: str, problem: Problem, share: float, rule: str) -> Case:
    """Train without shrinking, then with it."""
    kernel_rows = max(round(share * len(problem.y)), 8)
    runs, seconds = [], []
    for shrinking in (False, True):
        began = time.process_time()
        runs.append(
            train(problem, selection=rule, kernel_rows=kernel_rows, threads=1, shrinking=shrinking)
        )
        seconds.append(time.process_time() - began)
    without, having = (run.certificate for run in runs)
    case = Case(
        name, share, rule, *(
            (without[key], having[key]) for key in ("n_iter", "row_misses", "n_kernel_evaluations")
        ),
        (seconds[0], seconds[1]), (without["objective"], having["objective"]),
    )  # fmt: skip
    print(f"  {case}", file=sys.stderr, flush=True)
    return case


def report(cases: Sequence[Case]) -> str:
    """Lay out the cases; ratios are of without and with."""
    lines = [
        [
            case.name, f"{case.share:.2%}", case.rule,
            *(f"{a} / {b}" for a, b in (case.steps, case.rows)),
            f"{case.values[0] / 1e6:.1f} / {case.values[1] / 1e6:.1f}",
            f"{case.values[0] / case.values[1]:.2f}",
            f"{case.seconds[0]:.2f} / {case.seconds[1]:.2f}",
            f"{case.seconds[0] / case.seconds[1]:.2f}",
        ]
        for case in cases
    ]  # fmt: skip
    header = [
        "rows", "cache", "rule", "steps without / with", "kernel rows fetched",
        "million kernel values", "ratio", "CPU seconds", "ratio",
    ]  # fmt: skip
    return table(header, lines)


def check(cases: Sequence[Case]) -> list[Check]:
    """Check the optimum of all, and kernel values of HMG."""
    off = max(abs(a / b - 1) for a, b in (case.objectives for case in cases))
    checks = [
        Check("largest relative difference of objectives", f"{off:.1e}", f"<= {SAME_OBJECTIVE:.0e}",
              off <= SAME_OBJECTIVE)
    ]  # fmt: skip
    hmg = [
        case
        for case in cases
        if case.rule == "hmg" and case.name == MNIST.name and case.share in PAPER_CONNECT_4
    ]
    if hmg:
        fewer = sum(case.values[1] < case.values[0] for case in hmg)
        checks.append(
            Check(
                "mnist, caches of table 5 in which HMG computes fewer kernel values with shrinking",
                f"{fewer} of {len(hmg)}",
                ">= 3 of 4",
                fewer >= 0.75 * len(hmg),
            )
        )
    return checks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=6000, help="of mnist")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    names = (MNIST.name, SPAMBASE.name)
    parser.add_argument("--data", nargs="+", choices=names, default=names)
    options = parser.parse_args(arguments)
    print(machine(1), flush=True)
    cases: list[Case] = []
    if MNIST.name in options.data and not is_skipped(MNIST):
        warm_up(MNIST.n_columns, threads=1, sparse=True)
        problem = sparse(MNIST, options.rows)
        cases += [
            measure(MNIST.name, problem, share, rule)
            for rule in options.rules
            for share in (*PAPER_CONNECT_4, *LARGE_CACHES)
        ]
    if SPAMBASE.name in options.data and not is_skipped(SPAMBASE):
        warm_up(SPAMBASE.n_columns, threads=1)
        problem = spambase()
        cases += [
            measure(SPAMBASE.name, problem, share, rule)
            for rule in options.rules
            for share in SPAMBASE_CACHES
        ]
    if cases:
        print(f"\n{report(cases)}\n\n{verdicts(check(cases))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
