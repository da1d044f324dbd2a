"""The public surface is frozen: parameters of classes, functions and methods, and CLI options.

A change of the surface that is meant is written to the frozen file by
``python tests/test_public_surface.py``; the diff of that file is then part of the commit.
"""

import difflib
import inspect
from enum import Enum
from pathlib import Path

import pytest
import typer

import bigsvm
from bigsvm.cli import app

FROZEN = Path(__file__).with_name("public_surface.txt")
KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.VAR_POSITIONAL: "any number",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "any keyword",
}


def parameters_of(name, function):
    """One line for each parameter of a function, keywords by name; one line if it has none."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    parameters.sort(key=lambda p: p.name if p.kind == p.KEYWORD_ONLY else "")
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        default = f" = {parameter.default!r}" if has_default else ""
        yield f"{name} | {parameter.name}{default} | {KINDS[parameter.kind]}"
    if not parameters:
        yield f"{name} | no parameters"


def members_of(name, public):
    """Lines of the public methods and properties that bigsvm defines for a class."""
    for member in sorted(dir(public)):
        if member.startswith("_"):
            continue
        value = inspect.getattr_static(public, member)
        if isinstance(value, property):
            yield f"{name}.{member} | property"
            continue
        value = inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(value) and value.__module__.startswith("bigsvm"):
            yield from parameters_of(f"{name}.{member}", value)


def python_surface():
    for name in sorted(bigsvm.__all__):
        public = getattr(bigsvm, name)
        if inspect.isclass(public) and issubclass(public, Warning):
            yield f"bigsvm.{name} | {public.__base__.__name__}"
            continue
        yield from parameters_of(f"bigsvm.{name}", public)
        if inspect.isclass(public):
            yield from members_of(f"bigsvm.{name}", public)


def plain(value):
    return value.value if isinstance(value, Enum) else value


def in_command_line(parameter):
    """An argument or option: its spellings, choices and default."""
    spellings = " ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        spellings = parameter.metavar
    # Typer has had its own types since it no longer uses Click's.
    kind = parameter.type_descriptor if hasattr(parameter, "type_descriptor") else parameter.type
    choices = [str(plain(choice)) for choice in getattr(kind, "choices", None) or ()]
    if not choices and str(parameter.metavar).startswith("<"):
        choices = parameter.metavar.strip("<>").split("|")
    chosen = f" {{{', '.join(choices)}}}" if choices else ""
    needed = "required" if parameter.required else f"default {plain(parameter.default)!r}"
    repeated = " | may be repeated" if getattr(parameter, "multiple", False) else ""
    return f"{spellings}{chosen} | {needed}{repeated}"


def command_surface():
    """One line for each argument, in order, and each option of each command."""
    commands = typer.main.get_command(app).commands
    for name, command in sorted(commands.items()):
        kinds = {"argument": [], "option": []}
        for parameter in command.params:
            kinds[parameter.param_type_name].append(in_command_line(parameter))
        for line in [*kinds["argument"], *sorted(kinds["option"])]:
            yield f"bigsvm {name} | {line}"


SURFACES = {"Python": python_surface, "command line": command_surface}


def is_of(kind, line):
    return line.startswith("bigsvm.") == (kind == "Python")


@pytest.mark.parametrize("kind", SURFACES)
def test_the_public_surface_is_as_it_was_frozen(kind):
    frozen = [line for line in FROZEN.read_text().splitlines() if is_of(kind, line)]
    now = list(SURFACES[kind]())
    changes = "\n".join(difflib.unified_diff(frozen, now, "frozen", "now", n=0, lineterm=""))
    assert not changes, f"the public surface ({kind}) has changed:\n{changes}"


def test_the_frozen_file_has_every_public_name():
    frozen = FROZEN.read_text().splitlines()
    for name in bigsvm.__all__:
        assert any(line.startswith(f"bigsvm.{name} |") for line in frozen)


if __name__ == "__main__":
    FROZEN.write_text("".join(f"{line}\n" for make in SURFACES.values() for line in make()))
