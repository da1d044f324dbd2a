"""Run a benchmark: ``python -m tools.benchmarks SUITE``, from the root of the repository.

    python -m tools.benchmarks --list
    python -m tools.benchmarks peers --data a9a w8a --repeats 3

`suites` has the suites and says how to add one. What is printed ends with limits, where a suite has
some, and the exit code is 1 where one of them does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import pkgutil
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools.benchmarks import bench, suites
from tools.benchmarks.data import DATA_SETS, FAMILIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

LAYOUTS = ("dense", "csr")
MAY_BE_ZERO = ("peer_rows", "seed")
"""Options of suites that may be 0; all other numbers are more than 0."""


def names() -> list[str]:
    """Name the suites."""
    return sorted(module.name for module in pkgutil.iter_modules(suites.__path__))


def module_of(name: str) -> ModuleType:
    """Import a suite."""
    return importlib.import_module(f"{suites.__name__}.{name}")


def suite_of(name: str, arguments: Sequence[str] = ()) -> bench.Suite:
    """Find a suite: that of a module, or the part of it that ``--part`` names."""
    module = module_of(name)
    if not hasattr(module, "PARTS"):
        return module.SUITE  # type: ignore[no-any-return]
    parser = argparse.ArgumentParser(prog=f"python -m tools.benchmarks {name}", add_help=False)
    parser.add_argument("--part", choices=module.PARTS, required=True)
    return module.PARTS[parser.parse_known_args(arguments)[0].part]  # type: ignore[no-any-return]


def parser_of(name: str, module: ModuleType, suite: bench.Suite) -> argparse.ArgumentParser:
    """Make the options of a suite: those that mean something to it."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    if hasattr(module, "PARTS"):
        add("--part", choices=module.PARTS, required=True)
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
        words = "seconds after which a fit is stopped"
        if suite.patience is not None:
            words = "see above"
        add("--give-up", type=float, default=suite.give_up, help=words)
    if suite.base:
        add("--base", type=Path, metavar="CHECKOUT", help="whose bigsvm takes turns with this one")
    for flag, given in suite.more:
        add(flag, **given)
    if suite.folder:
        add("--folder", type=Path, default=None, help="for the data; default: a temporary one")
    add("--output", type=Path, help="file to which what is printed is appended")
    return parser


def parse(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options of a suite, and refuse those that mean nothing."""
    from bigsvm.budget import parse_bytes
    from bigsvm.errors import ParameterError

    module = module_of(name)
    if {"-h", "--help"} & set(arguments) and "--part" not in arguments and hasattr(module, "PARTS"):
        print(module.__doc__)
        raise SystemExit(0)
    suite = suite_of(name, arguments)
    parser = parser_of(name, module, suite)
    options = parser.parse_args(arguments)
    for flag, value in vars(options).items():
        numbers = [n for n in (value if isinstance(value, list) else [value])
                   if isinstance(n, int | float)]  # fmt: skip
        if flag not in MAY_BE_ZERO and not all(n > 0 for n in numbers if n is not False):
            parser.error(f"--{flag.replace('_', '-')} must be more than 0")
    if hasattr(options, "sizes"):
        options.sizes = sorted(set(options.sizes))
    if getattr(options, "memory", None) is not None:
        try:
            parse_bytes(options.memory)
        except ParameterError as error:
            parser.error(str(error))
    if hasattr(options, "base") and not (options.base / "bigsvm").is_dir():
        parser.error(f"--base {options.base} has no folder bigsvm")
    try:
        suite.cases(options)
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
    suite, printed = suite_of(name, given[1:]), io.StringIO()
    with contextlib.redirect_stdout(_Both(printed)):
        if suite.program is not None:
            code = suite.program(options)
        else:
            text, holds = bench.run(suite, options)
            code = 0 if holds else 1
            if text:
                print(text)
    if printed.getvalue() and hasattr(options, "output"):
        with options.output.open("a") as file:
            file.write(f"$ python -m tools.benchmarks {shlex.join(given)}\n{printed.getvalue()}\n")
    return code


class _Both(io.TextIOBase):
    """Standard output, which also goes to a file."""

    def __init__(self, other: io.StringIO) -> None:
        self._files = (sys.stdout, other)

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()


if __name__ == "__main__":
    sys.exit(main())
