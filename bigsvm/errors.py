"""The one family of exceptions, and a warning: all name what was wrong, where, and the remedy.

What a message repeats may come from a file that somebody else has written. It is cut where it is
long, and `shown` escapes what a terminal would obey.
"""

import re
from typing import Any

MOST_SHOWN = 60
"""Characters of a label, a word or a number that a message or a table repeats."""
_LONG = re.compile(r"'[^']{256,}'|[^\s/]{256,}")
"""What is in quotes, or one word. A part of a path is shorter; paths may be long."""
_MOST_MESSAGE = 1 << 13
HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, line separators, marks of text direction, and surrogates."""


def shown(text: str) -> str:
    """One line of `text` for a terminal, with control characters escaped.

    Labels, paths and sources come from files. A forged one could move the cursor, hide the text
    after it, or look like a second line.
    """
    return HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """Cut the middle out of a text that is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - most // 2 :]}"


def brief(value: object) -> str:
    """``repr`` of a value, which may be of any size, for a message."""
    try:
        return shortened(repr(value))
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"


def _message(text: object) -> object:
    """Shorten what a message repeats."""
    if not isinstance(text, str):
        return text
    return shortened(_LONG.sub(lambda match: shortened(match[0]), text), _MOST_MESSAGE)


class BigsvmError(Exception):
    """Base of every error that bigsvm raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_message, args))

    def __reduce__(self) -> str | tuple[Any, ...]:
        # Defined here, as tblib, which Dask uses, cannot restore errors with two bases without it.
        return super().__reduce__()


class ParameterError(BigsvmError, ValueError):
    """A parameter or a combination of them has no meaning; names it and what would be right."""


class DataError(BigsvmError, ValueError):
    """Rows, labels or weights that no model can be trained on or applied to; names the row."""


class ParseError(DataError):
    """A line of LIBSVM text that cannot be read; names file, line, column, text and remedy."""


class StoreError(BigsvmError):
    """A path that is no store, is incomplete, of a newer format, or that the system cannot read."""


class UnreachableError(StoreError):
    """Files of a store on another machine that could not be read for a while; try again later."""


class DataCorruptionError(StoreError):
    """Bytes of a store that are not those written: missing, truncated, swapped or flipped."""


class CheckpointError(BigsvmError):
    """A checkpoint that is damaged, in use by another process, or belongs to another problem."""


class ModelError(BigsvmError):
    """A file that is not a bigsvm model, is damaged, or has a newer format."""


class MemoryBudgetError(BigsvmError, MemoryError):
    """A run that would not fit the memory budget; gives the projected bytes of each part."""


class ClusterError(BigsvmError):
    """A cluster that cannot compute: it has no workers, or other versions; names the address."""


class AdviceWarning(UserWarning):
    """A fit that converged, but whose model is of little use; says what to change.

    See Also
    --------
    SVC : ``certificate_["advice"]`` has the sentences.

    Examples
    --------
    >>> import warnings
    >>> import bigsvm
    >>> warnings.simplefilter("ignore", bigsvm.AdviceWarning)
    """
