"""Run a benchmark: ``python -m tools.benchmarks SUITE``, from the root of the repository.

    python -m tools.benchmarks --list
    python -m tools.benchmarks peers --data a9a w8a --repeats 3

`suites` has the suites and says how to add one. What is printed ends with limits, where a suite has
some, and the exit code is 1 where one of them does not hold.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.benchmarks import bench, suites
from tools.benchmarks.data import DATA_SETS, FAMILIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

LAYOUTS = ("dense", "csr")


def names() -> list[str]:
    """Name the suites."""
    return sorted(module.name for module in pkgutil.iter_modules(suites.__path__))


def module_of(name: str) -> ModuleType:
    """Import a suite."""
    return importlib.import_module(f"{suites.__name__}.{name}")


def parser_of(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Make the options of a suite: those that mean something to it."""
    suite: bench.Suite = module.SUITE
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    if suite.data:
        made = ", ".join(f"{family}-N" for family in FAMILIES)
        words = f"as {', '.join(DATA_SETS)}, names of files, or made: {made}"
        add("--data", nargs="+", metavar="NAME", default=list(suite.data), help=words)
    if suite.sizes:
        add("--sizes", type=int, nargs="+", metavar="ROWS", default=list(suite.sizes))
    if suite.contestants:
        choices = [*suite.contestants, *suite.guests]
        add("--contestants", nargs="+", choices=choices, default=list(suite.contestants))
    if suite.layout == "best":
        add("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    if suite.program is None:
        add("--repeats", type=int, default=suite.repeats, help="turns")
    add("--threads", type=int, default=suite.threads)
    if suite.memory is not None:
        add("--memory", default=suite.memory, help="budget of our fits")
    if suite.give_up is not None:
        words = "a fit is stopped after so many seconds"
        if suite.patience is not None:
            words = "see above"
        add("--give-up", type=float, default=suite.give_up, help=words)
    if suite.base:
        add("--base", type=Path, metavar="CHECKOUT", help="whose bigsvm takes turns with this one")
    for flag, given in suite.more:
        add(flag, **given)
    add("--folder", type=Path, default=None, help="for the data; default: a temporary one")
    if suite.program is None:
        add("--output", type=Path, help="file to which what is printed is appended")
    return parser


def parse(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options of a suite, and refuse those that mean nothing."""
    from bigsvm.budget import parse_bytes
    from bigsvm.errors import ParameterError

    module = module_of(name)
    parser = parser_of(name, module)
    options = parser.parse_args(arguments)
    for flag in ("sizes", "repeats", "threads", "give_up"):
        value = getattr(options, flag, 1)
        if not min(value if isinstance(value, list) else [value]) > 0:
            parser.error(f"--{flag.replace('_', '-')} must be more than 0")
    if hasattr(options, "sizes"):
        options.sizes = sorted(set(options.sizes))
    if hasattr(options, "memory"):
        try:
            parse_bytes(options.memory)
        except ParameterError as error:
            parser.error(str(error))
    if hasattr(options, "base") and not (options.base / "bigsvm").is_dir():
        parser.error(f"--base {options.base} has no folder bigsvm")
    try:
        module.SUITE.cases(options)
    except ValueError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given in (["--list"], []):
        for name in names():
            print(f"{name:16}{(module_of(name).__doc__ or '').splitlines()[0]}")
        return 0
    name = given[0]
    if name in ("-h", "--help") or name not in names():
        print(__doc__, f"Suites: {', '.join(names())}", sep="\n", file=sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    options = parse(name, given[1:])
    suite: bench.Suite = module_of(name).SUITE
    if suite.program is not None:
        return suite.program(options)
    text, holds = bench.run(suite, options)
    if text:
        print(text)
    if text and hasattr(options, "output"):
        with options.output.open("a") as file:
            file.write(f"$ python -m tools.benchmarks {' '.join(given)}\n{text}\n\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
