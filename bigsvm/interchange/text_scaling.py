"""LIBSVM text with scaled columns, as svm-scale writes it, in two passes and bounded memory.

A column that is not constant is mapped linearly, its smallest value to `lower` and its largest to
`upper`; entries that are left out are zeros, and count. Constant columns become 0. Targets are
scaled in the same way, if that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.conversion.libsvm import LibsvmReader
from bigsvm.errors import DataError, MemoryBudgetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.conversion.text_rows import TextRows
    from bigsvm.interchange.range_file import Range

MOST_COLUMNS = 1 << 25
"""Most columns: their limits, counts and one row take 1 GiB."""


class TextScaling:
    """What the columns of LIBSVM text are scaled by: from `low` and `high` to `lower` and `upper`.

    The former are the smallest and largest value of each index, from 0, (n,). `targets` are the
    ends of the range of the targets, and their smallest and largest value. `n_read` and `n_written`
    count the entries of the lines that were scaled so far, before and after.
    """

    def __init__(
        self,
        lower: float,
        upper: float,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        targets: tuple[float, float, float, float] | None = None,
    ) -> None:
        self.lower, self.upper, self.low, self.high = lower, upper, low, high
        self.targets = targets
        self.n_read = self.n_written = 0

    @classmethod
    def of_text(
        cls, path: str, *, lower: float, upper: float, targets: tuple[float, float] | None = None
    ) -> TextScaling:
        """Find the limits of the columns of a text; `targets` are the ends for the targets."""
        low, high, counts = np.empty(0), np.empty(0), np.empty(0, np.int64)
        n_rows, least, largest = 0, np.inf, -np.inf
        for part in _parts(path):
            n_rows += len(part.labels)
            least = min(least, part.labels.min(initial=np.inf))
            largest = max(largest, part.labels.max(initial=-np.inf))
            more = int(part.indices.max(initial=-1)) + 1 - len(low)
            if more > 0:
                _check_columns(len(low) + more)
                low = np.pad(low, (0, more), constant_values=np.inf)
                high = np.pad(high, (0, more), constant_values=-np.inf)
                counts = np.pad(counts, (0, more))
            np.minimum.at(low, part.indices, part.values)
            np.maximum.at(high, part.indices, part.values)
            counts += np.bincount(part.indices, minlength=len(counts))
        has_zeros = counts < n_rows
        low[has_zeros] = np.minimum(low[has_zeros], 0)
        high[has_zeros] = np.maximum(high[has_zeros], 0)
        ends = None if targets is None else (*targets, float(least), float(largest))
        return cls(lower, upper, low, high, ends)

    @classmethod
    def of_range(cls, ranges: Range, n_columns: int) -> TextScaling:
        """Use the limits of a file of svm-scale; columns that it lacks become 0."""
        n = max(n_columns, ranges.n_columns(0))
        _check_columns(n)
        low, high = np.zeros(n), np.zeros(n)
        low[ranges.indices], high[ranges.indices] = ranges.low, ranges.high
        return cls(ranges.lower, ranges.upper, low, high, ranges.targets)

    def range_text(self) -> str:
        """Give the contents of the file that ``svm-scale -s`` writes."""
        lines = []
        if self.targets is not None:
            y_lower, y_upper, y_low, y_high = self.targets
            lines += ["y", f"{y_lower:.17g} {y_upper:.17g}", f"{y_low:.17g} {y_high:.17g}"]
        lines += ["x", f"{self.lower:.17g} {self.upper:.17g}"]
        used = np.flatnonzero(self.low != self.high)
        lines += [
            f"{index} {low:.17g} {high:.17g}"
            for index, low, high in zip(
                used.tolist(), self.low[used].tolist(), self.high[used].tolist(), strict=True
            )
            if index > 0  # svm-scale stores no smaller ones
        ]
        return "\n".join(lines) + "\n"

    def lines(self, path: str) -> Iterator[str]:
        """Yield the scaled lines of a text."""
        zeros = self._scaled(np.arange(len(self.low)), np.zeros(len(self.low)))
        filled = bool(zeros.any())
        for part in _parts(path):
            self.n_read += int(np.count_nonzero(part.values))
            values = self._scaled(part.indices, part.values)
            targets = self._targets(part.labels)
            for row, target in enumerate(targets.tolist()):
                span = slice(part.indptr[row], part.indptr[row + 1])
                of_row = values[span]
                indices: NDArray[np.integer] = part.indices[span]
                if filled:
                    whole = zeros.copy()
                    whole[indices] = of_row
                    indices = np.flatnonzero(whole)
                    of_row = whole[indices]
                else:
                    used = of_row != 0
                    of_row, indices = of_row[used], indices[used]
                self.n_written += len(of_row)
                entries = map("%d:%g ".__mod__, zip(indices.tolist(), of_row.tolist(), strict=True))
                yield f"{target:.17g} {''.join(entries)}\n"

    def _scaled(self, indices: NDArray[np.integer], values: NDArray[np.floating]) -> F8:
        low, high = self.low[indices], self.high[indices]
        scaled = _mapped(values, low, high, self.lower, self.upper)
        scaled[low == high] = 0
        return scaled

    def _targets(self, labels: F8) -> F8:
        if self.targets is None:
            return labels
        lower, upper, low, high = self.targets
        return _mapped(labels, np.array(low), np.array(high), lower, upper)


def _mapped(values: NDArray[np.floating], low: F8, high: F8, lower: float, upper: float) -> F8:
    """Map values linearly, low ones to `lower` and high ones to `upper`, where these differ."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled: F8 = (upper - lower) * (values - low) / (high - low)
    scaled += lower
    scaled[values == high] = upper
    scaled[values == low] = lower
    return scaled


def largest_index(path: str) -> int:
    """Largest index that occurs in a text; -1 if there is none."""
    return max((int(part.indices.max(initial=-1)) for part in _parts(path)), default=-1)


def _parts(path: str) -> Iterator[TextRows]:
    """Yield the rows of a text, whose labels must be numbers."""
    reader = LibsvmReader([path], dtype=np.dtype(np.float64))
    for part in reader:
        words, _ = reader.class_names.sorted()
        if words is not None:
            raise DataError(
                f"{path}: the label {words[0]!r} is a word, and LIBSVM's files have numbers; map "
                "words to numbers first, or convert the text and scale the store by `bigsvm scale`"
            )
        yield part


def _check_columns(n_columns: int) -> None:
    if n_columns > MOST_COLUMNS:
        raise MemoryBudgetError(
            f"the text has {n_columns} columns, and scaling text takes at most {MOST_COLUMNS}; "
            "convert it, and scale the store by `bigsvm scale --method maxabs`"
        )
