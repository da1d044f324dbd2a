"""How a parameter is declared: type, default, check, text, and who uses it, in one place.

`parameter` makes a dataclass field with a `Declaration`; the other functions read it. Light to
import, as the command line makes its options from it.
"""

import dataclasses
import functools
import math
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import Field
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from bigsvm.errors import ParameterError, brief

PROBLEM, KERNEL, RESOURCES = "Problem", "Kernel", "Resources"
STOPPING, MANY_CLASSES, PAPERS = "Stopping", "Many classes", "As in the papers"
BALL, CRAMMER_SINGER = "Ball (l2-svc, l2-one-class)", "Crammer-Singer"
PANELS = (PROBLEM, KERNEL, MANY_CLASSES, STOPPING, RESOURCES, BALL, CRAMMER_SINGER, PAPERS)
"""Headings of the help of ``bigsvm train``, in their order."""


class Rule(NamedTuple):
    """What a value must be, beyond its type."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Rule(lambda value: math.isfinite(value) and value > 0, "a finite number > 0")
NOT_NEGATIVE = Rule(lambda value: math.isfinite(value) and value >= 0, "a finite number >= 0")
ABOVE_0 = Rule(lambda value: value > 0, "> 0")
AT_LEAST_0 = Rule(lambda value: value >= 0, ">= 0")
AT_LEAST_1 = Rule(lambda value: value >= 1, "at least 1")


class Kind(NamedTuple):
    """What a value must be an instance of; what messages and documentation call that."""

    types: tuple[type, ...]
    words: str
    documented: str


SIZE = Kind((Real, str), "a number of bytes, or a size like '4GB'", "int or str")
PATH = Kind((str,), "a path", "path")
_KINDS = {
    float: Kind((Real,), "a number", "float"),
    int: Kind((Integral,), "a whole number", "int"),
    bool: Kind((bool,), "True or False", "bool"),
    str: Kind((str,), "a word", "str"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """What is known of a parameter besides its name, type and default.

    Attributes
    ----------
    text : str
        Documentation. The first paragraph is also the help of the option.
    panel : str or None
        Heading under which help lists the option; None if there is no option.
    formulations, kernels : tuple of str or None
        Formulations that use the parameter, None for all; kernels, if it is one of a kernel.
    recorded : bool
        Whether a checkpoint records it, and is not resumed with another value.
    kind, in_estimators, option
        Its kind, its name in the estimators and its option, where the field does not say them.
    metavar : str or None
        What the help shows for a value that is no word of a list.
    """

    text: str
    panel: str | None = None
    formulations: tuple[str, ...] | None = None
    recorded: bool = False
    kernels: tuple[str, ...] | None = None
    rule: Rule | None = None
    kind: Kind | None = None
    in_estimators: str | None = None
    option: str | None = None
    metavar: str | None = None

    def is_used_by(self, formulation: str) -> bool:
        """Whether a formulation uses the parameter."""
        return self.formulations is None or formulation in self.formulations


def parameter(default: Any, text: str, **others: Any) -> Any:
    """Declare a parameter: a field of a dataclass, with its `Declaration`."""
    declared = Declaration(text=text, **others)
    return dataclasses.field(default=default, metadata={"declaration": declared})


def declaration_of(field: "Field[Any]") -> Declaration:
    """Return the declaration of a field."""
    declared: Declaration = field.metadata["declaration"]
    return declared


def option_of(field: "Field[Any]") -> str:
    """Name of the option on the command line."""
    return declaration_of(field).option or f"--{field.name.replace('_', '-')}"


def help_of(field: "Field[Any]") -> str:
    """First paragraph of the text, without marks of code."""
    return " ".join(_clean(field).split("\n\n")[0].split()).replace("``", "").replace("`", "")


@functools.cache
def types_of(field: "Field[Any]") -> tuple[Any, ...]:
    """Types of the values besides None."""
    return tuple(kind for kind in _union(field) if kind is not NoneType)


@functools.cache
def may_be_none(field: "Field[Any]") -> bool:
    """Whether None is a value of the parameter."""
    return NoneType in _union(field)


@functools.cache
def choices_of(field: "Field[Any]") -> tuple[str, ...]:
    """Words that the parameter may be, in the order of its `Literal`."""
    return tuple(
        word for kind in _union(field) if get_origin(kind) is Literal for word in get_args(kind)
    )


def spelled(field: "Field[Any]", value: Any) -> Any:
    """Give a word its one spelling, ``fixed_point`` for ``fixed-point``; other values stay."""
    for choice in choices_of(field):
        if isinstance(value, str) and value.replace("-", "_") == choice.replace("-", "_"):
            return choice
    return value


def is_too_large(value: object) -> bool:
    """Whether this is a whole number that float64 does not hold."""
    return isinstance(value, int) and abs(value) >= 1 << 1023


def check_value(field: "Field[Any]", value: Any) -> None:
    """Refuse a value of another type, one that is no choice, or one against the rule."""
    if value is None and may_be_none(field):
        return
    declared, kind = declaration_of(field), _kind(field)
    choices = choices_of(field) if declared.kind is None else ()
    called = f" ({declared.in_estimators})" if declared.in_estimators else ""
    words = None
    # NumPy's bool is not a subclass of Python's, and this module does not import NumPy.
    is_bool = bool in kind.types and type(value).__name__ in ("bool", "bool_")
    if not (is_bool or isinstance(value, kind.types)):
        words = f"{kind.words}{' or None' if may_be_none(field) else ''}"
    elif is_too_large(value):
        words = "a number that float64 holds"
    elif choices and value not in choices:
        words = f"one of {', '.join(choices)}{', or None' if may_be_none(field) else ''}"
    elif declared.rule is not None and not declared.rule.holds(value):
        words = declared.rule.words
    if words is not None:
        raise ParameterError(f"{field.name}{called} is {brief(value)}; it must be {words}")


def documentation(fields: Iterable["Field[Any]"]) -> str:
    """Write the entries of a numpydoc Parameters section."""
    return "\n".join(
        f"{field.name} : {_documented(field)}\n{textwrap.indent(_clean(field), '    ')}"
        for field in fields
    )


def _documented(field: "Field[Any]") -> str:
    kind = _kind(field).documented
    if declaration_of(field).kind is None and choices_of(field):
        kind = f"{{{', '.join(map(_quoted, choices_of(field)))}}}"
    none = " or None" if may_be_none(field) else ""
    default = _quoted(field.default) if isinstance(field.default, str) else repr(field.default)
    return f"{kind}{none}, default {default}"


def _quoted(word: str) -> str:
    return f'"{word}"'


def _clean(field: "Field[Any]") -> str:
    return textwrap.dedent(declaration_of(field).text).strip()


def _union(field: "Field[Any]") -> tuple[Any, ...]:
    """Return the members of a type that is a union; a type that is none alone."""
    # Where annotations are not evaluated, the type is that of the field declared first.
    kind: Any = field.metadata["type"] if isinstance(field.type, str) else field.type
    return get_args(kind) if get_origin(kind) not in (None, Literal) else (kind,)


@functools.cache
def _kind(field: "Field[Any]") -> Kind:
    declared = declaration_of(field)
    if declared.kind is not None:
        return declared.kind
    return _KINDS[str if choices_of(field) else types_of(field)[0]]
