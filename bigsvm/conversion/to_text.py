"""From a store back to LIBSVM text, ``label index:value …``, in bounded memory and input order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.errors import MemoryBudgetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.data.store import Store

LIBSVM_DIGITS = 8
"""Significant digits of the values in LIBSVM's files."""
_VALUES_AT_ONCE = 1 << 16
"""Values that are words at the same time: as objects they take thirty times their bytes."""
_DIGITS = {"float32": 9, "float64": 17}
"""Significant digits with which every number of a type reads back to the same bits."""


def shortest(values: NDArray[Any]) -> list[str]:
    """Write numbers with 8 digits, as LIBSVM does, and with more where these are too few.

    They read back to the same numbers of the type of `values`, (m,) float32 or float64.
    """
    numbers = values.tolist()
    words = [f"{number:.{LIBSVM_DIGITS}g}" for number in numbers]
    digits = _DIGITS[values.dtype.name]
    for place in np.flatnonzero(np.array(words, np.float64).astype(values.dtype) != values):
        words[place] = f"{numbers[place]:.{digits}g}"
    return words


def text_lines(labels: NDArray[Any], rows: Rows, first_index: int) -> Iterator[str]:
    """Write rows as lines of text; zeros of an array are left out.

    Labels are (m,) float64, or str in an array of objects. `first_index` is the index of column 0.
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


ROW_BYTES = 32
"""Bytes of each row for the whole time: number in the input, order, label, and those of a part."""
COPIES = 4
"""Copies of the rows that are written together: as read, joined, in order, and the blocks read."""


def lines_of_store(
    store: Store,
    *,
    memory: str | int = "1GB",
    on_progress: Callable[[int], None] = lambda done: None,
) -> Iterator[str]:
    """Yield the rows of a store as LIBSVM text, in the order of the store's input.

    Values are written with the digits that they need to be read back as they are. Those of a scaled
    store are the scaled ones. Weights have no place in the text. A shuffled store is read once for
    each part of its rows that fits in memory, beside the numbers of all rows. `on_progress` is told
    the number of rows done.
    """
    n_rows, budget = len(store), parse_bytes(memory)
    left = budget - ROW_BYTES * n_rows
    at_once = int(left / COPIES / max(store.rows.bytes_per_row, 1))
    if at_once < 1:
        raise MemoryBudgetError(
            f"memory is {budget} bytes, too little for {n_rows} rows, whose numbers and labels "
            f"take {ROW_BYTES * n_rows}; give at least twice as much"
        )
    labels, order = store.labels(), np.argsort(store.original_rows(), kind="stable")
    first_index = 1 if store.first_index is None else store.first_index
    for start in range(0, n_rows, at_once):
        numbers = order[start : start + at_once]
        ascending = np.argsort(numbers)
        rows: Any = store.rows.rows_with(numbers[ascending], left // COPIES)
        yield from text_lines(labels[numbers], rows[np.argsort(ascending)], first_index)
        on_progress(start + len(numbers))
