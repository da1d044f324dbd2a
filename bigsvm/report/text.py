"""Results as text: two columns for a person, one JSON object for a program.

The last functions say what a process has used, and what files take.
"""

from __future__ import annotations

import json
import math
import os
import resource
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.errors import HIDDEN, MOST_SHOWN, shortened, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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


def as_table(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> str:
    """Rows of words below each other; numbers, in all columns but the first, end at one place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    others = str.rjust if numbers else str.ljust
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(others, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join(lines if numbers else map(str.rstrip, lines))


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


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far.

    Linux's own high-water mark where there is one: the figure of `getrusage` starts at the memory
    of the process that started this one.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_on_disk(folder: Path) -> int:
    """Bytes of all files of a folder."""
    total = 0
    for parent, _, names in os.walk(folder):  # passes over folders that go away meanwhile
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue  # removed meanwhile by a run that is under way
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total
