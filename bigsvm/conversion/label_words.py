"""Words as labels of LIBSVM text, which are taken out before its numbers are parsed."""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.data.schema import MOST_CLASS_NAMES
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LABEL = re.compile(rb"^[ \t\r\v\f]*([^\s#]+)", re.MULTILINE)
"""First token of a line that is neither empty nor a comment."""
_WORD = re.compile(rb"[A-Za-z_\x80-\xff][^\s#:,\x00-\x1f\x7f]*")
"""Begins with a letter; colons belong to entries, commas to several labels."""
_NUMBERS = frozenset({b"nan", b"inf", b"infinity"})
"""Words that are read as numbers elsewhere; as labels they are mistakes."""


def is_word(label: bytes) -> bool:
    """Whether a label is a word, in UTF-8, that may name a class."""
    if _WORD.fullmatch(label) is None or label.lower() in _NUMBERS:
        return False
    try:
        label.decode()
    except UnicodeDecodeError:
        return False
    return True


def first_label(text: bytes | memoryview) -> bytes | None:
    """Label of the first row of a text; None if it has no row."""
    match = _LABEL.search(text)
    return None if match is None else match[1]


class Words(NamedTuple):
    """Labels of some rows: distinct words as they come, and which of them each row has, (m,)."""

    distinct: list[bytes]
    of_rows: NDArray[np.int32]


def without_words(text: bytes | memoryview) -> tuple[bytes, Words]:
    """Replace words as labels by zeros, as many as they have bytes; and these words.

    Labels that are no words stay, and so do the places of all other bytes.
    """
    known: dict[bytes, int] = {}
    of_rows = array("i")

    def replaced(match: re.Match[bytes]) -> bytes:
        label = match[1]
        if label not in known:
            if not is_word(label):
                return match[0]
            known[label] = len(known)
        of_rows.append(known[label])
        return match[0][: -len(label)] + b"0" * len(label)

    without = _LABEL.sub(replaced, text)
    return without, Words(list(known), np.array(of_rows, np.int32))


def place_of_number(text: bytes | memoryview) -> int:
    """Offset of the first label that is no word; the text must have one."""
    return next(match.start(1) for match in _LABEL.finditer(text) if not is_word(match[1]))


class ClassNames:
    """Words numbered as they come, as which of them are classes is known at the end of the text."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def numbers(self, words: Words, where: str) -> NDArray[np.float64]:
        """Numbers of the labels of some rows, (m,); messages name the source `where`."""
        known = self._numbers
        numbers = np.array([known.setdefault(word, len(known)) for word in words.distinct], float)
        if len(known) > MOST_CLASS_NAMES:
            raise DataError(
                f"{where}: has more than {MOST_CLASS_NAMES} different words as labels; give each "
                "row its class, not its name"
            )
        return numbers[words.of_rows]

    def sorted(self) -> tuple[tuple[str, ...] | None, NDArray[np.float64] | None]:
        """All words in order, and the place that each number has in them; None without words."""
        if not self._numbers:
            return None, None
        words = [word.decode() for word in self._numbers]
        order = sorted(range(len(words)), key=words.__getitem__)
        places = np.empty(len(words))
        places[order] = np.arange(len(words))
        return tuple(words[number] for number in order), places
