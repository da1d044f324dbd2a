"""A parser of little LIBSVM text, by Python and NumPy: nothing has to be compiled or loaded for it.

It reads the same rows as `bigsvm.core.text`, to the same bits, or leaves the text to that one: what
is wrong, for which there are messages there, and what is rare, as ``qid``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.text_rows import MAX_INDEX, TextCounts, TextRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLAIN_BYTES = 1 << 21
"""Most text that is read here: it takes a tenth to a third of a second, less than to import Numba
and to load the compiled parser, and much less than to compile that."""
_WRITTEN = b"0123456789+-.eE: \t\n\v\f\r"
"""Bytes of numbers, entries and white space. Of words of these bytes, `float` reads what the
compiled parser reads as a number, and nothing else."""
_EXACT = 2.0**53
"""Whole numbers of this size may not be those that are written, which is looked at elsewhere."""


def plain_rows(
    text: bytes,
    *,
    dtype: np.dtype[np.float32] | np.dtype[np.float64],
    smallest_index: int,
    largest: float,
    strict: bool,
) -> tuple[TextRows, TextCounts] | None:
    """Parse whole lines; None if the compiled parser has to.

    Parameters
    ----------
    text : bytes
        Ends with a newline.
    smallest_index : int
        Smaller indices are mistakes: 0 or 1.
    largest : float
        Values of at least this size do not fit the type.
    strict : bool
        Whether comments and empty lines are mistakes.
    """
    if b"\0" in text:
        return None
    counts, words, written = TextCounts(), [], []
    for line in text.split(b"\n")[:-1]:
        before, mark, _ = line.partition(b"#")
        counts.comments += bool(mark)
        written.append(before)
        if row := before.split():
            words.append(row)
        elif not mark:
            counts.empty_lines += 1
    if b"".join(written).translate(None, _WRITTEN):
        return None
    if strict and (counts.comments or counts.empty_lines):
        return None
    entries = [word.partition(b":") for row in words for word in row[1:]]
    indices = [entry[0] for entry in entries]
    if not all(map(bytes.isdigit, indices)):
        return None
    try:
        labels = np.array([float(row[0]) for row in words], np.float64)
        columns = np.array([int(index) for index in indices], np.int64)
        exact = np.array([float(entry[2]) for entry in entries], np.float64)
    except (ValueError, OverflowError):  # the latter of an index beyond int64
        return None
    indptr = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.array([len(row) - 1 for row in words], np.int64), out=indptr[1:])
    is_usual = (
        np.abs(labels).max(initial=0.0) < _EXACT
        and np.abs(exact).max(initial=0.0) < largest
        and columns.min(initial=smallest_index) >= smallest_index
        and columns.max(initial=0) <= MAX_INDEX
        and _ascend(columns, indptr)
    )
    if not is_usual:
        return None
    counts.rows, counts.entries = len(labels), len(columns)
    if len(columns):
        counts.smallest_index, counts.largest_index = int(columns.min()), int(columns.max())
    values: Any = exact.astype(dtype)
    return TextRows(labels, indptr, columns.astype(np.int32), values), counts


def _ascend(columns: NDArray[np.int64], indptr: NDArray[np.int64]) -> bool:
    """Whether the columns of each row ascend."""
    ascends = columns[1:] > columns[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(columns))] - 1] = True
    return bool(ascends.all())
