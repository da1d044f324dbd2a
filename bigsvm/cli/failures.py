"""Errors of a command: one line on standard error that names its options, and an exit code."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from bigsvm.cli.libsvm_words import PARAMETERS, in_letters
from bigsvm.cli.signals import Interrupted
from bigsvm.cli.streams import discard_output
from bigsvm.errors import BigsvmError, shown
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import declaration_of, option_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXIT_CODE = 2
"""Exit code for wrong usage, bad input, and requests that the system refuses."""
AS_JSON = "bigsvm.json"
"""Whether errors are JSON objects, in what Click keeps of a command line."""
_UsageError: Any = typer.BadParameter.__bases__[0]  # typer does not export it
_KINDS = {"int": "a whole number", "float": "a number", "bool": "yes or no"}

_CALLED = {"n_features": "--features"}
for _name, _field in FIELDS.items():
    _called = declaration_of(_field).in_estimators
    if _called is not None:
        _CALLED |= dict.fromkeys((_called, f"{_name} ({_called})"), option_of(_field))
"""Options whose names differ from their Python parameters."""
_ELSEWHERE = {
    "dtype": ("--dtype", "convert"),
    "layout": ("--layout", "convert"),
    "n_features": ("--features", "convert"),
    "range_file": ("--range", "predict"),
}
"""Parameters that only one command has an option for: the option and the command."""
_LIKE_LIBSVMS = {f"bigsvm {name}": f"svm-{name}" for name in ("train", "predict", "scale")}
"""Commands that take the options of LIBSVM's programs, by the commands of our own options."""


@contextmanager
def reported(context: Any = None, group: Any = None) -> Iterator[None]:  # noqa: ANN401 (Click's)
    """Turn errors into one line on standard error and an exit code; with ``--json`` into an object.

    The context is that of the command group, which knows the invoked command.
    """

    def fail(message: str) -> typer.Exit:
        command = group and group.get_command(context, context.invoked_subcommand or "")
        options = options_of(command) if command else {}
        message = in_options(message, options)
        if command and command.name == "svm-train":
            message = in_letters(message)
        one_line = shown(" ".join(message.split()))
        if context is not None and context.meta.get(AS_JSON):
            _tell(json.dumps({"error": one_line, "exit_code": EXIT_CODE}, ensure_ascii=False))
        else:
            _tell(f"bigsvm: error: {one_line}")
        return typer.Exit(EXIT_CODE)

    try:
        yield
    except BigsvmError as error:
        raise fail(str(error)) from error
    except _UsageError as error:
        raise fail(_usage(error, context)) from error
    except Interrupted as error:
        _tell(f"bigsvm: {error}")
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error
    except MemoryError as error:
        what = f" ({error})" if str(error) else ""
        raise fail(f"the system has no more memory{what}; free some, or lower memory") from error
    except BrokenPipeError as error:
        discard_output()
        raise typer.Exit(0) from error  # the reader has closed the pipe
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise fail(f"{where}{error.strerror or error}; check the path and its disk") from error


def _tell(line: str) -> None:
    if sys.stderr is not None:  # None in a program without standard error
        print(line, file=sys.stderr)


def options_of(command: Any) -> dict[str, str]:  # noqa: ANN401 (of Click)
    """Options of a command by the names of their Python parameters."""
    if command.name == "svm-train":
        return {name: f"-{letter}" for letter, name in PARAMETERS.items()} | {"memory": "-m"}
    options = {}
    for parameter in command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if long:
            options[parameter.name] = long[0]
    known = set(options.values())
    return options | {name: option for name, option in _CALLED.items() if option in known}


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Replace the Python parameters in a message by options, which are from `options_of`."""
    names = {name: option for name, (option, _) in _ELSEWHERE.items()} | dict(options)
    # The longest name first: "seed (random_state)" before "seed".
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    alone = r"(?<![\w./'-])"

    def option(name: str, value: str = "") -> str:
        words = f"{names[name]} {value}".strip()
        if names[name] in options.values():
            return words
        return f"{words} of `bigsvm {_ELSEWHERE[name][1]}`"

    def with_value(match: re.Match[str]) -> str:
        value = match[2].strip("'")
        return option(match[1], "" if value == "True" else value)

    message = re.sub(rf"{alone}({words})=('[^']*'|[^\s;,()]+)", with_value, message)
    # Most names are ordinary words too, like "memory": replace them only before a verb or a value.
    said = rf"(^|; )({words})(?= (?:is |['0-9-]))"
    message = re.sub(said, lambda m: m[1] + option(m[2]), message)
    advised = rf"\b((?:raise|lower|larger|smaller) )({words})(?![\w./'-])"
    message = re.sub(advised, lambda m: m[1] + option(m[2]), message)
    telling = "|".join(re.escape(name) for name in names if "_" in name)
    return re.sub(rf"{alone}({telling})(?![\w./'-])", lambda m: option(m[1]), message)


def _usage(error: Any, group: Any) -> str:  # noqa: ANN401 (of Click)
    """Describe a usage error, and name the help of the command."""
    details = getattr(error.__cause__, "errors", None)
    if details is not None:  # from Pydantic, with which typer reads values
        error.message = _value_sentence(details()[0])
    words = ["bigsvm", group and group.invoked_subcommand]
    path = " ".join(filter(None, words)) if error.ctx is None else error.ctx.command_path
    said = error.format_message().rstrip(".")
    option = getattr(error, "option_name", "")
    if re.fullmatch("-[a-z]", option) and path in _LIKE_LIBSVMS:
        said += f"; `bigsvm {_LIKE_LIBSVMS[path]}` takes LIBSVM's options"
    if group and option.removeprefix("--") in group.command.commands:
        said += f"; there is a command `bigsvm {option.removeprefix('--')}`"
    return f"{said}; see `{path} --help`"


def _value_sentence(detail: Mapping[str, Any]) -> str:
    """Describe in plain words why a value was refused."""
    value, limits = detail["input"], detail.get("ctx", {})
    kind, _, problem = str(detail["type"]).partition("_")
    if kind in _KINDS and problem in ("parsing", "type", "from_float", "parsing_size"):
        return f"{value!r} is not {_KINDS[kind]}"
    for name, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most")):
        if name in limits:
            return f"{value!r} must be {words} {limits[name]}"
    return str(detail["msg"]).removeprefix("Value error, ")
