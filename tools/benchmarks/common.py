"""What the programs use that are not suites yet: parts of the harness, and checks of their own.

Programs here are run by their paths: `frank_wolfe.py`, `many_classes.py`, `working_sets.py`,
`disk_tier.py` and their modules. A program that becomes a suite takes these from `bench.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.benchmarks.bench import TINY_ROWS
from tools.benchmarks.children import (
    FIT_BEGAN,
    REPOSITORY,
    THREAD_VARIABLES,
    Finished,
    bigsvm_command,
    environment,
    machine,
    peak_so_far,
    run_checked,
    run_child,
)
from tools.benchmarks.contestants import CACHE_MEGABYTES, dual_objective
from tools.benchmarks.results import (
    FAILS,
    HOLDS,
    exponent,
    median_range,
    megabytes,
    memory_limit,
    noise,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CACHE_MEGABYTES", "FIT_BEGAN", "REPOSITORY", "THREAD_VARIABLES", "TINY_ROWS", "Check",
    "Finished", "bigsvm_command", "dual_objective", "environment", "exponent", "fit_once",
    "installed", "machine", "median_range", "megabytes", "memory_limit", "noise", "peak_so_far",
    "round_ratios", "run_checked", "run_child", "table", "verdicts",
]  # fmt: skip


class Check(NamedTuple):
    """One thing that must hold: what was found, and the limit it was held against."""

    name: str
    found: str
    limit: str
    holds: bool


def verdicts(checks: Sequence[Check]) -> str:
    """Lay out what was checked."""
    rows = [[c.name, c.found, c.limit, HOLDS if c.holds else FAILS] for c in checks]
    return table(["check", "found", "limit", ""], rows)


def round_ratios(rounds: Sequence[Mapping[str, float]], over: str, under: str) -> list[float]:
    """Per round in which both ran, the seconds of `over` ÷ the seconds of `under`."""
    return [r[over] / r[under] for r in rounds if over in r and under in r]


def fit_once(*arguments: object, threads: int) -> Finished:
    """Run `fit_once.py` in a process of its own."""
    script = Path(__file__).with_name("fit_once.py")
    return run_checked([sys.executable, str(script), *map(str, arguments)], threads=threads)


def installed(peers: Sequence[str]) -> list[str]:
    """Leave out, and say so, what cannot be imported here."""
    found = []
    for peer in peers:
        if peer == "sklearnex" and importlib.util.find_spec("sklearnex") is None:
            print("skipped sklearnex: scikit-learn-intelex is not installed", file=sys.stderr)
        else:
            found.append(peer)
    return found
