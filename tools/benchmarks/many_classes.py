"""Many classes beside what crammer-singer.txt reports of them (its sections 6 and 7).

    python tools/benchmarks/many_classes.py tables [--data usps letter … glass] [--chosen FILE]
    python tools/benchmarks/many_classes.py speed [--rows 60000] [--repeats 3]
    python tools/benchmarks/many_classes.py memory [--data letter synthetic] [--folder DIR]

tables   test errors of Crammer-Singer, one-vs-rest and one-vs-one: the paper's table 2 and figure 6
speed    all ten digits of mnist, beside scikit-learn-intelex and ten separate runs
memory   26 and 1000 classes, trained and predicted in a budget

Each is described at the top of its module, ``many_classes_*.py``. Without the data folder the parts
that need it are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from many_classes_common import METHODS, PROBLEMS, WHO

from bigsvm.budget import parse_bytes
from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("tables", "speed", "memory")
"""Their modules are imported when asked for: the parent of `memory` is to stay small, see
`common.py`."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    tables = commands.add_parser("tables")
    names = list(PROBLEMS)
    tables.add_argument("--data", nargs="+", choices=names, metavar="NAME", default=names)
    tables.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    tables.add_argument("--tol", type=float, default=1e-3)
    tables.add_argument(
        "--validated",
        type=int,
        nargs=3,
        metavar=("COARSE", "FINE", "LAST"),
        default=[3000, 6000, 16_000],
        help="most rows that C and gamma are chosen by, of each of the grids",
    )
    tables.add_argument("--folds", type=int, default=5)
    tables.add_argument("--seed", type=int, default=0)
    tables.add_argument(
        "--chosen",
        type=Path,
        metavar="FILE",
        help="JSON of C and gamma; what is missing in it is chosen and added to it",
    )

    speed = commands.add_parser("speed")
    speed.add_argument("--rows", type=int, default=60_000)
    speed.add_argument("--who", nargs="+", choices=WHO, default=list(WHO))
    speed.add_argument("--repeats", type=int, default=3)
    speed.add_argument("--C", type=float, default=8.0)
    speed.add_argument("--gamma", type=float, help="default: 1 / the average squared distance")
    speed.add_argument("--tol", type=float, default=1e-3)
    speed.add_argument("--layout", choices=("dense", "csr"), default="csr", help="of ours")

    memory = commands.add_parser("memory")
    two = ["letter", "synthetic"]
    memory.add_argument("--data", nargs="+", choices=two, default=two)
    memory.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    memory.add_argument("--memory", help="budget of all; default: a table in the module")
    memory.add_argument("--C", type=float, default=8.0)
    memory.add_argument("--classes", type=int, default=1000, help="of the synthetic set")
    memory.add_argument("--rows-per-class", type=int, default=20)
    memory.add_argument("--folder", type=Path, help="keeps stores and models")

    for command in (tables, speed, memory):
        command.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    check(options, parser)
    return options


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that mean nothing."""
    names = ("tol", "rows", "repeats", "C", "gamma", "rows_per_class", "threads")
    for name in names:
        value = getattr(options, name, None)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be more than 0")
    for name, least in (("folds", 2), ("classes", 3), ("seed", 0)):
        if getattr(options, name, least) < least:
            parser.error(f"--{name} must be at least {least}")
    if min(getattr(options, "validated", [1])) < 1:
        parser.error("--validated must be more than 0")
    if getattr(options, "memory", None) is not None:
        try:
            parse_bytes(options.memory)
        except ParameterError as error:
            parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    module = importlib.import_module(f"many_classes_{options.command}")
    return int(module.run(options))


if __name__ == "__main__":
    sys.exit(main())
