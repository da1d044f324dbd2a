"""Results as text: two columns for a person, one JSON object for a program."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from bigsvm.errors import HIDDEN, MOST_SHOWN, shortened, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def as_json(record: Mapping[str, Any]) -> str:
    """One line of strict JSON; a number that is not finite becomes null, as JSON has none."""
    text = json.dumps(_plain(record), allow_nan=False, ensure_ascii=False)
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(value: Any) -> Any:  # noqa: ANN401 (anything a record may hold)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def as_columns(lines: Iterable[tuple[str, object]]) -> str:
    """Names and values below each other; lines without a value (None) are left out."""
    kept = [(name, shown(str(value))) for name, value in lines if value is not None]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in kept)


def number(value: float | None, digits: int = 6) -> str:
    """`value` with this number of significant digits; a dash if it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{digits}g}"


def count(value: int) -> str:
    """Show an integer with its thousands apart."""
    return f"{value:,}".replace(",", " ")


def plural(n: int, what: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count(n)} {what}{'' if n == 1 else 's'}"


def label_text(label: float | str, most: int = MOST_SHOWN) -> str:
    """Format a label as in LIBSVM text, on one line: whole numbers without a point.

    A word is cut to `most` characters before it is escaped.
    """
    if isinstance(label, str):
        return shown(shortened(label, most))
    return str(int(label)) if float(label).is_integer() else repr(float(label))
