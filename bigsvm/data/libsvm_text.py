"""LIBSVM text, ``label index:value …``, as its programs write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

LIBSVM_DIGITS = 8
"""Significant digits of the values in LIBSVM's files."""
_VALUES_AT_ONCE = 1 << 16
"""Values that are words at the same time: as objects they take thirty times their bytes."""
_DIGITS = {"float32": 9, "float64": 17}
"""Significant digits with which every number of a type reads back to the same bits."""


def shortest(values: NDArray[Any]) -> list[str]:
    """Write numbers with 8 digits, as LIBSVM does, and with more where these are too few.

    Parameters
    ----------
    values : (m,) float32 or float64

    Returns
    -------
    list of str
        That read back to the same numbers of the type of `values`.
    """
    numbers = values.tolist()
    words = [f"{number:.{LIBSVM_DIGITS}g}" for number in numbers]
    digits = _DIGITS[values.dtype.name]
    for place in np.flatnonzero(np.array(words, np.float64).astype(values.dtype) != values):
        words[place] = f"{numbers[place]:.{digits}g}"
    return words


def text_lines(labels: NDArray[Any], rows: Rows, first_index: int) -> Iterator[str]:
    """Write rows as lines of text; zeros of an array are left out.

    Parameters
    ----------
    labels : (m,) float64, or str in an array of objects
    rows : (m, n_columns) array or CSR
    first_index : int
        Index of column 0.
    """
    step = max(1, _VALUES_AT_ONCE // max(rows.shape[1], 1))
    if not isinstance(rows, np.ndarray):
        step = max(1, _VALUES_AT_ONCE * len(labels) // max(rows.nnz, 1))
    for start in range(0, len(labels), step):
        some = slice(start, start + step)
        yield from _lines(labels[some].tolist(), rows[some], first_index)


def _lines(labels: list[Any], rows: Any, first_index: int) -> Iterator[str]:
    if isinstance(rows, np.ndarray):
        counts, columns = np.count_nonzero(rows, axis=1), np.nonzero(rows)[1]
        values = rows[rows != 0]
    else:
        counts, columns, values = np.diff(rows.indptr), rows.indices, rows.data
    indices, words = (columns + first_index).tolist(), shortest(values)
    start = 0
    for label, count in zip(labels, counts.tolist(), strict=True):
        stop = start + count
        entries = map("%d:%s".__mod__, zip(indices[start:stop], words[start:stop], strict=True))
        word = label
        if not isinstance(label, str):
            word = str(int(label)) if label.is_integer() else repr(label)
        yield " ".join([word, *entries]) + "\n"
        start = stop
