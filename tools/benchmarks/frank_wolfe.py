"""Minimal enclosing balls beside what frank-wolfe.txt reports of them (its section 5).

    python tools/benchmarks/frank_wolfe.py tables [--data a1a … mnist] [--seeds 5]
    python tools/benchmarks/frank_wolfe.py flat [--rows 10000 … 5000000]
    python tools/benchmarks/frank_wolfe.py speed [--data a9a w8a mnist] [--repeats 3]
    python tools/benchmarks/frank_wolfe.py growth [--figure growth.png]
    python tools/benchmarks/frank_wolfe.py scale [--rows 5000000] [--folder DIR] [--steps]

tables   accuracy and seconds of all solvers, sampled and certified: the paper's tables 2 and 3
flat     time of a step of algorithms 2 and 3 against the number of rows
speed    beside C-SVC, and beside core vector machines that take one point a round, as LibCVM does
growth   seconds and speed-up over those against the number of rows: the paper's figure 3
scale    millions of rows out of core: a sampled ball in less time than reading them twice

`python -m tools.benchmarks sampled_balls` has the paper's own algorithms 1, 2 and 3.

Each is described at the top of its module, ``frank_wolfe_*.py``. Without the data folder the parts
that need it are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import frank_wolfe_paper as paper
from timed_fits import SOLVERS, TIMES_DISTANCE

from bigsvm.budget import parse_bytes
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

WEB = ("w1a", "w3a", "w4a", "w5a", "w6a", "w7a", "w8a")
MODULES = {
    "tables": "frank_wolfe_tables",
    "flat": "frank_wolfe_flat",
    "speed": "frank_wolfe_speed",
    "growth": "frank_wolfe_growth",
    "scale": "frank_wolfe_scale",
}
"""Imported when asked for: the parent of `scale` is to stay small, see `common.py`."""


def _gamma(text: str) -> float | str:
    """Read a gamma, or how it is found."""
    if text in TIMES_DISTANCE:
        return text
    value = float(text)
    if not value > 0:
        raise ValueError(f"{text} is not more than 0")
    return value


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    tables = commands.add_parser("tables")
    names = tuple(paper.ACCURACY)
    tables.add_argument("--data", nargs="+", choices=names, metavar="NAME", default=list(names))
    tables.add_argument("--seeds", type=int, default=5)
    tables.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    tables.add_argument("--patience", type=float, default=120.0, help="seconds of a run")
    tables.add_argument(
        "--validation-rows", type=int, help="choose C with so many rows at most; default: all"
    )

    flat = commands.add_parser("flat")
    flat.add_argument(
        "--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 5_000_000]
    )

    speed = commands.add_parser("speed")
    three = ("a9a", "w8a", "mnist")
    speed.add_argument("--data", nargs="+", choices=three, default=list(three))
    speed.add_argument("--repeats", type=int, default=3)
    speed.add_argument("--C", type=float, help="of all data sets; default: see the module")
    speed.add_argument(
        "--gamma",
        type=_gamma,
        help=f"or one of {', '.join(TIMES_DISTANCE)}; default: see the module",
    )
    speed.add_argument("--give-up", type=float, default=120.0, help="seconds of LibCVM's way")

    growth = commands.add_parser("growth")
    growth.add_argument("--data", nargs="+", choices=WEB, default=list(WEB))
    growth.add_argument("--repeats", type=int, default=3)
    growth.add_argument("--C", type=float, default=64.0)
    growth.add_argument("--give-up", type=float, default=300.0, help="seconds of LibCVM's way")
    growth.add_argument("--figure", type=Path, help="PNG to draw; needs the extra plot")

    scale = commands.add_parser("scale")
    scale.add_argument("--rows", type=int, default=5_000_000)
    scale.add_argument("--folder", type=Path, help="keeps the stores; default: a temporary one")
    scale.add_argument("--memory", default="700MB", help="budget of a run")
    scale.add_argument("--C", type=float, default=8.0)
    scale.add_argument("--give-up", type=float, default=3600.0, help="seconds of a run")
    scale.add_argument("--steps", action="store_true", help="time of a step against n instead")
    scale.add_argument("--most-steps", type=int, default=2_000, help="of a run of --steps")
    scale.add_argument("--repeats", type=int, default=3, help="of --steps")

    for command in (tables, speed, growth, scale):
        command.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    for name in (
        *("seeds", "repeats", "rows", "most_steps", "threads", "C", "give_up", "patience"),
        "validation_rows",
    ):
        value = getattr(options, name, None)
        values = value if isinstance(value, list) else [value]
        if any(number is not None and not number > 0 for number in values):
            parser.error(f"--{name.replace('_', '-')} must be more than 0")
    if options.command == "scale":
        try:
            parse_bytes(options.memory)
        except ParameterError as error:
            parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    return int(importlib.import_module(MODULES[options.command]).run(options))


if __name__ == "__main__":
    sys.exit(main())
