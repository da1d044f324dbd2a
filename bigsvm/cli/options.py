"""Options that several commands share, and the readers of their values."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bigsvm.errors import ParameterError
from bigsvm.files import local_path

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)\s*(s|m|min|h|d)?")


class ZeroBased(StrEnum):
    """Whether the first column of LIBSVM text has index 0."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


def local(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Refuse a URL as the value of an argument or option that takes a local path.

    Raises
    ------
    ParameterError
    """
    if value is None:
        return None
    names = [name for name in param.opts if name.startswith("-")]
    return local_path(value, names[0] if names else str(param.metavar))


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress on standard error, only warnings.")
]
Memory = Annotated[
    str, typer.Option("--memory", metavar="SIZE", help="Memory budget, for example 4GB or 512MiB.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        show_default="all processors it may use",
        help="Threads that compute at once.",
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        callback=local,
        metavar="DIR",
        show_default="the system's",
        help="Folder for temporary files: the store of LIBSVM text, and kernel rows.",
    ),
]
ZeroBasedText = Annotated[
    ZeroBased,
    typer.Option("--zero-based", help="Of LIBSVM text: whether the first column has index 0."),
]


def parse_seconds(text: str, option: str) -> float:
    """Read a duration: ``60``, ``60s``, ``5m``, ``2h``.

    Parameters
    ----------
    text : str
    option : str
        Its name, for the message.

    Raises
    ------
    ParameterError
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    if not seconds > 0:
        raise ParameterError(
            f"{option} {text!r} is not a duration; write 60, 60s, 5m or 2h, and more than 0"
        )
    return seconds


def parse_gamma(text: str) -> float | str:
    """Read ``scale``, ``auto``, ``mean-distance`` or a number."""
    if text in ("scale", "auto", "mean-distance"):
        return text
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


def parse_class_weight(given: list[str]) -> dict[float, float] | str | None:
    """Read ``balanced`` alone, or any number of ``LABEL:WEIGHT``."""
    if not given:
        return None
    if given == ["balanced"]:
        return "balanced"
    weights: dict[float, float] = {}
    for item in given:
        label, colon, weight = item.rpartition(":")
        try:
            if not colon:
                raise ValueError
            is_new = float(label) not in weights
            weights[float(label)] = float(weight)
        except ValueError:
            raise ParameterError(
                f"--class-weight {item!r} is not understood; give 'balanced' alone, or "
                "LABEL:WEIGHT once for each label: --class-weight -1:1 --class-weight +1:5"
            ) from None
        if not is_new:
            raise ParameterError(
                f"--class-weight {item!r} gives the label {float(label):g} a second weight; give "
                "one for each label"
            )
    return weights


def is_given(context: typer.Context, option: str) -> bool:
    """Whether an option was on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
