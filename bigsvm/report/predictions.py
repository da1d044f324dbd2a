"""Predictions as text, one row a line, in the order of the original input."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.errors import DataError
from bigsvm.files import written
from bigsvm.report.text import label_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    from numpy.typing import NDArray


_LINES_AT_ONCE = 1 << 16


class ValuesFile:
    """Values of functions or classes, which may be more than memory holds, in a file.

    The file is open as long as this is in use, without a buffer.
    """

    def __init__(self, file: FileIO, shape: tuple[int, int]) -> None:
        self._file, self.shape = file, shape
        self._row_bytes = shape[1] * np.dtype(np.float64).itemsize

    def __setitem__(self, rows: slice, values: NDArray[np.float64]) -> None:
        """Keep values (m, k) of a slice of rows."""
        left = np.ascontiguousarray(values, np.float64).data.cast("B")
        try:
            self._file.seek(rows.start * self._row_bytes)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise DataError(f"cannot keep values beside the predictions: {error}") from error

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Values of rows (m,) that have been kept: (m, k)."""
        values = np.empty((len(rows), self.shape[1]))
        for place, row in enumerate(rows.tolist()):
            values[place] = np.frombuffer(
                os.pread(self._file.fileno(), self._row_bytes, row * self._row_bytes)
            )
        return values


def write_values(
    path: Path, values: NDArray[np.float64] | ValuesFile, original_rows: NDArray[np.int64]
) -> None:
    """Write decision values or predicted targets to a file, whole or not at all, device or pipe.

    Values (n,) or (n, n_functions) are in the order of a store; those of several functions become
    one line. `original_rows` (n,) are the numbers in the input.
    """
    write_lines(path, _value_lines(values, np.argsort(original_rows, kind="stable")))


def write_labels(
    path: Path,
    codes: NDArray[np.int64],
    original_rows: NDArray[np.int64],
    *,
    classes: Sequence[float] | Sequence[str],
    probabilities: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None,
) -> None:
    """Write labels to a file, whole or not at all, or to a device or pipe.

    Codes (n,) are places in `classes`, in the order of a store; `original_rows` (n,) are the
    numbers in the input. The probabilities (m, k) of rows (m,) are written after each label, below
    a line with the names of the classes, as LIBSVM's programs write them.
    """
    order = np.argsort(original_rows, kind="stable")
    names = [label_text(label, sys.maxsize) for label in classes]
    if probabilities is None:
        write_lines(
            path, (f"{names[code]}\n" for part in _parts(order) for code in codes[part].tolist())
        )
    else:
        header = f"labels {' '.join(names)}"
        write_lines(path, lines_with_probabilities(header, names, codes, order, probabilities))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, whole or not at all, or to a device or pipe."""
    try:
        with written(path) as file:
            file.writelines(lines)
    except BrokenPipeError:
        return  # the reader has closed the pipe
    except OSError as error:
        raise DataError(f"cannot write the predictions to {path}: {error}") from error


def _parts(order: NDArray[np.int64], width: int = 1) -> Iterator[NDArray[np.int64]]:
    step = max(1, _LINES_AT_ONCE // max(width, 1))
    for start in range(0, len(order), step):
        yield order[start : start + step]


def _value_lines(
    values: NDArray[np.float64] | ValuesFile, order: NDArray[np.int64]
) -> Iterator[str]:
    width = math.prod(values.shape[1:])
    for part in _parts(order, width):
        for row in values[part].reshape(len(part), width).tolist():
            yield " ".join([repr(value) for value in row]) + "\n"


def lines_with_probabilities(
    header: str,
    names: Sequence[str],
    codes: NDArray[np.int64],
    order: NDArray[np.int64],
    probabilities: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    show: Callable[[float], str] = repr,
) -> Iterator[str]:
    """Yield a header, and for each row the name of its class and the probabilities of all."""
    yield f"{header}\n"
    for part in _parts(order, len(names)):
        for code, row in zip(codes[part].tolist(), probabilities(part).tolist(), strict=True):
            yield " ".join([names[code], *map(show, row)]) + "\n"
