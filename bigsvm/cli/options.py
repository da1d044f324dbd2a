"""Options that several commands share or parameters make, and the readers of their values."""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from bigsvm.cli.failures import in_options
from bigsvm.cli.panels import HELP_ALL, MOST_IN_HELP, TABLES
from bigsvm.errors import ParameterError
from bigsvm.files import is_url, local_path
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import (
    BALL,
    CRAMMER_SINGER,
    choices_of,
    declaration_of,
    help_of,
    option_of,
    spelled,
    types_of,
)
from bigsvm.report.text import label_text

if TYPE_CHECKING:
    from dataclasses import Field

TABLE_OPTIONS = ("label", "weight", "columns", "rows", "categories", "missing")
"""Options that say that columns of rows have names."""
ENCODE_OPTIONS = ("categories", "max_categories", "missing", "missing_indicator", "unknown")
"""Options of words and of missing values."""
COLUMN_OPTIONS = ("label", "weight", "columns", "rows", *ENCODE_OPTIONS)
"""All options for such rows."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)\s*(s|m|min|h|d)?")


def given(default: Any, text: str, *names: str, **others: Any) -> Any:  # noqa: ANN401 (of any type)
    """Declare an option, with its help: a field of an `OptionGroup`.

    Its names are by default the field's, of a bool without a second one for False; other arguments
    are those of `typer.Option`.
    """
    metadata = {"names": names, "settings": {"help": text, "case_sensitive": False, **others}}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class OptionGroup:
    """Options that belong together; a command takes an object of the group.

    A subclass is a dataclass, and each field is an option: its type has one, or it is declared by
    `given`. `with_flat_options` makes what Typer reads. Fields in `without` are no options, and
    stay at their defaults. `panel` is the heading of those that `given` declares.
    """

    without: ClassVar[tuple[str, ...]] = ()
    panel: ClassVar[str | None] = None

    @classmethod
    def options(cls) -> list[inspect.Parameter]:
        """Return the options as arguments, by the names that the class is called with."""
        types, made = get_type_hints(cls, include_extras=True), []
        for field in dataclasses.fields(cls):
            kind, declared = types[field.name], field.metadata
            if declared:
                names = declared["names"] or (f"--{field.name.replace('_', '-')}",)
                settings = {"rich_help_panel": cls.panel, **declared["settings"]}
                kind = Annotated[kind, typer.Option(*names, **settings)]
            if field.name not in cls.without:
                keyword = inspect.Parameter.KEYWORD_ONLY
                made.append(
                    inspect.Parameter(field.name, keyword, default=field.default, annotation=kind)
                )
        return made


def with_flat_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command that takes each option of its groups by itself, as Typer needs.

    If they are many, it also takes ``--help-all``, and its help leaves out those that few need.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    flat: list[inspect.Parameter] = []
    for name, argument in signature.parameters.items():
        kind = argument.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[name] = kind
            flat += kind.options()
        else:
            flat.append(argument)
    if len(flat) > MOST_IN_HELP:
        flat.append(HELP_ALL)

    @wraps(command)
    def called(**values: Any) -> None:  # noqa: ANN401 (of any option)
        values.pop(HELP_ALL.name, None)
        for name, group in groups.items():
            values[name] = group(**{made.name: values.pop(made.name) for made in group.options()})
        command(**values)

    flat = [argument.replace(kind=inspect.Parameter.KEYWORD_ONLY) for argument in flat]
    called.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    return called


class ZeroBased(StrEnum):
    """Whether the first column of LIBSVM text has index 0."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


def local(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Refuse a URL as the value of an argument or option that takes a local path."""
    if value is None:
        return None
    names = [name for name in param.opts if name.startswith("-")]
    return local_path(value, names[0] if names else str(param.metavar))


def local_or_url(param: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse what is neither a local path nor a URL that names a file."""
    if value is None or is_url(value):
        return value
    path = local(param, Path(value))
    return value if path is None else str(path)


ROWS = typer.Argument(
    metavar="STORE", help="A store, or LIBSVM text, which becomes a temporary store."
)
Rows = Annotated[str, ROWS]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress on standard error, only warnings.")
]
ZeroBasedText = Annotated[
    ZeroBased,
    typer.Option(
        "--zero-based",
        case_sensitive=False,
        help="Of LIBSVM text: whether the first column has index 0.",
    ),
]


@dataclasses.dataclass(frozen=True)
class ColumnOptions(OptionGroup):
    """Which columns are read of files with named columns or arrays."""

    panel: ClassVar[str | None] = TABLES
    label: str | None = given(
        None,
        "Of Parquet, Arrow, CSV, HDF5, h5ad, npy, npz and Zarr: the column or array of labels.",
        metavar="COLUMN",
    )
    weight: str | None = given(None, "The same for the weights of rows.", metavar="COLUMN")
    columns: str | None = given(
        None,
        "Columns that are used, with commas between them; without it all others.",
        metavar="NAMES",
    )
    rows: str | None = given(
        None,
        "Of HDF5 and Zarr: the array or group of rows, as layers/counts; without it X.",
        metavar="NAME",
    )

    @property
    def features(self) -> list[str] | None:
        """Names of the columns that are used."""
        return None if self.columns is None else self.columns.split(",")


@dataclasses.dataclass(frozen=True)
class ReadOptions(ColumnOptions):
    """How rows are read that are no store: LIBSVM text, or files with named columns."""

    zero_based: ZeroBasedText = ZeroBased.AUTO
    categories: str | None = given(
        None,
        "Of tables: make columns of words a column of 0 and 1 for each word.",
        metavar="<onehot>",
    )
    max_categories: int = given(100, "Most words of a column.")
    missing: str | None = given(
        None,
        "Of tables: what missing values become, the mean or median of their column, or 0.",
        metavar="<mean|median|zero>",
    )
    missing_indicator: bool = given(
        False, "Add a column of 0 and 1 for each column that lacks values."
    )
    unknown: str = given(
        "refuse",
        "What becomes of words that the training data lack: an error, or 0 in all columns.",
        metavar="<refuse|zeros>",
    )

    @property
    def encode(self) -> dict[str, Any]:
        """What becomes of words and missing values, as `bigsvm.write_store` takes it."""
        return {name: getattr(self, name) for name in ENCODE_OPTIONS}

    @property
    def names_columns(self) -> bool:
        """Whether the rows have columns with names."""
        defaults = {field.name: field.default for field in dataclasses.fields(ReadOptions)}
        return any(getattr(self, name) != defaults[name] for name in COLUMN_OPTIONS)


def parse_seconds(text: str, option: str) -> float:
    """Read a duration: ``60``, ``60s``, ``5m``, ``2h``."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if not seconds > 0:
        raise ParameterError(
            f"{option} {text!r} is not a duration; write 60, 60s, 5m or 2h, and more than 0"
        )
    return seconds


GAMMAS = ("scale", "auto", "mean-distance")


def parse_gamma(text: str) -> float | str:
    """Read ``scale``, ``auto``, ``mean-distance`` or a number."""
    if text.lower() in GAMMAS:
        return text.lower()
    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            f"--gamma {text!r} is not a number, 'scale', 'auto' or 'mean-distance'"
        ) from None


def parse_sampling(text: str) -> float | str:
    """Read a number of rows, a share of them (with a point), or ``all``."""
    try:
        return text if text == "all" else float(text) if "." in text else int(text)
    except ValueError:
        raise ParameterError(
            f"--sampling {text!r} is not a number of rows, a share of them like 0.1, or 'all'"
        ) from None


def _label(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def parse_class_weight(words: list[str]) -> dict[float | str, float] | str | None:
    """Read ``balanced`` alone, or any number of ``LABEL:WEIGHT``; a label may be a word."""
    if not words:
        return None
    if words == ["balanced"]:
        return "balanced"
    weights: dict[float | str, float] = {}
    for item in words:
        word, colon, weight = item.rpartition(":")
        label = _label(word)
        is_new = label not in weights
        try:
            if not (colon and word):
                raise ValueError
            weights[label] = float(weight)
        except ValueError:
            raise ParameterError(
                f"--class-weight {item!r} is not understood; give 'balanced' alone, or "
                "LABEL:WEIGHT once for each label: --class-weight -1:1 --class-weight +1:5"
            ) from None
        if not is_new:
            raise ParameterError(
                f"--class-weight {item!r} gives the label {label_text(label)} a second weight; "
                "give one for each label"
            )
    return weights


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "gamma": lambda text, option: parse_gamma(text),
    "sampling": lambda text, option: parse_sampling(text),
    "checkpoint_every": parse_seconds,
    "max_seconds": parse_seconds,
}
"""Readers of the parameters that are given as text: from it and the option's name to the value."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "gamma": {"autocompletion": lambda: GAMMAS},
    "class_weight": {"autocompletion": lambda: ["balanced"]},
    "threads": {"min": 1, "show_default": "all processors it may use"},
    "cache_dir": {"show_default": "the system's"},
}
"""What else is said of an option."""


def option(name: str) -> inspect.Parameter:
    """Make the option of a parameter, as an argument of a command."""
    field = FIELDS[name]
    declared, choices, [kind, *_] = declaration_of(field), choices_of(field), types_of(field)
    names, metavar, callback = [option_of(field)], declared.metavar, None
    if choices:
        kind, metavar, callback = str, f"<{'|'.join(choices)}>", _word(field)
    elif name in _READERS:
        kind, callback = str, _read(_READERS[name])
    elif name == "class_weight":  # repeated, and so read by the command
        kind = list[str]
    elif metavar == "SIZE":
        kind = str
    elif metavar == "DIR":
        kind, callback = Path, local
    elif kind is bool:
        names = [f"{names[0]}/--no-{names[0].removeprefix('--')}"]
    default = _default(field)
    made = typer.Option(
        *names, help=_help(field), metavar=metavar, callback=callback,
        rich_help_panel=declared.panel,
        **(_SETTINGS.get(name) or ({"autocompletion": lambda: choices} if choices else {})),
    )  # fmt: skip
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind | None if default is None else kind, made],
    )


_OPTIONS = {name: option_of(field) for name, field in FIELDS.items()}


def _help(field: "Field[Any]") -> str:
    """First paragraph of a parameter's text, with options for names, and who uses it if few do."""
    declared, text = declaration_of(field), in_options(help_of(field), _OPTIONS)
    names = declared.formulations
    if declared.panel in (BALL, CRAMMER_SINGER) or names is None or len(names) > 3:
        return text
    return f"{text} For {', '.join(names)}."


def _default(field: "Field[Any]") -> Any:  # noqa: ANN401 (of any type)
    """Default of the option of a parameter, as it would be given."""
    value, choices = field.default, choices_of(field)
    if value is None:
        return "none" if "none" in choices else None
    if value == math.inf:
        return None
    if declaration_of(field).metavar == "TIME":
        return f"{value:g}s"
    return str(value) if str in types_of(field) else value


def _word(field: "Field[Any]") -> Callable[..., Any]:
    """Make the callback of an option that is one of some words."""
    known = choices_of(field)

    def callback(value: str | None) -> str | None:
        word: str | None = spelled(field, None if value is None else value.lower())
        if word is not None and word not in known:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, known))}.")
        return word

    return callback


def _read(reader: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """Make the callback of an option whose text is read."""

    def callback(param: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401 (of the reader)
        return None if value is None else reader(value, param.opts[0])

    return callback


Formulation = option("formulation").annotation
Memory = option("memory").annotation
Threads = option("threads").annotation
CacheDir = option("cache_dir").annotation
CacheDirOfUrl = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        callback=local,
        metavar="DIR",
        show_default="the system's",
        help="Folder for temporary files of a store at a URL.",
    ),
]


def is_given(context: typer.Context, option: str) -> bool:
    """Whether an option was on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
