"""Files of svm-scale: the smallest and largest values of columns, and the values they map to.

    x
    lower upper
    index minimum maximum        for each column that is not constant, indices ascending

``svm-scale -s`` writes such a file and ``svm-scale -r`` reads it. Columns that are not listed
become 0.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from bigsvm.conversion.text_rows import MAX_INDEX
from bigsvm.data.scaler import Scaler, choose_scaler
from bigsvm.data.statistics import Statistics, is_listed
from bigsvm.errors import DataError, ParameterError
from bigsvm.files import local_path, open_regular

if TYPE_CHECKING:
    import os
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

STARTS = (b"x\n", b"y\n", b"x\r\n", b"y\r\n")
"""First bytes of these files."""
_MOST_LINE_BYTES = 4096
"""Longest line in bytes: three numbers take about a hundred."""


class Range(NamedTuple):
    """Contents of a file of svm-scale, whose hash is `digest`.

    `indices`, (m,), are columns, as LIBSVM's text counts them. Their smallest and largest values,
    `low` and `high`, (m,), are mapped to `lower` and `upper`. `targets` are the ends of the range
    of the targets, and their smallest and largest value; None if these are not scaled.
    """

    path: Path
    lower: float
    upper: float
    indices: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    digest: str
    targets: tuple[float, float, float, float] | None = None

    def n_columns(self, first_index: int) -> int:
        """Count the columns up to the last listed one, if column 0 has the index `first_index`."""
        return int(self.indices.max(initial=first_index - 1)) - first_index + 1

    def scaler(self, n_columns: int, first_index: int) -> Scaler:
        """Make the scaler of rows with these columns; column 0 has the index `first_index`."""
        if self.n_columns(first_index) > n_columns or self.indices.min(initial=2**31) < first_index:
            raise DataError(
                f"{self.path}: the indices {self.indices[0]} to {self.indices[-1]} are scaled, but "
                f"the rows have the indices {first_index} to {first_index + n_columns - 1}; give "
                f"rows with these columns (--features {self.n_columns(first_index)})"
            )
        places = self.indices - first_index
        if is_listed(len(places), n_columns):
            limits = Statistics(self.low, self.high, self.low, self.low, n_columns, places)
        else:
            low, high = np.zeros(n_columns), np.zeros(n_columns)
            low[places], high[places] = self.low, self.high
            limits = Statistics(low, high, low, low, n_columns)
        try:
            return choose_scaler(limits, "minmax", lower=self.lower, upper=self.upper)
        except (DataError, ParameterError) as error:
            raise DataError(f"{self.path}: {error}") from None


def is_range_file(path: Path) -> bool:
    """Whether a file begins as svm-scale's do.

    A model's begins with the size of its header, which may have the bytes of such text; more of its
    bytes are 0.
    """
    with open_regular(path, follow_links=True) as file:
        beginning = file.read(8)
    return beginning.startswith(STARTS) and 0 not in beginning


def read_range(path: str | os.PathLike[str], *, with_targets: bool = False) -> Range:
    """Read a file of svm-scale; nothing in it is trusted.

    One that scales targets too is refused unless `with_targets`.
    """
    place = local_path(path, "range_file")
    try:
        with open_regular(place, follow_links=True) as file:
            return _read(file, place, with_targets=with_targets)
    except OSError as error:
        raise DataError(f"cannot read {place}: {error.strerror}; check the path") from error


def _read(file: BinaryIO, path: Path, *, with_targets: bool) -> Range:
    hasher = xxhash.xxh3_128()
    indices, low, high = array("q"), array("d"), array("d")
    limits: tuple[float, ...] = ()
    targets: tuple[float, ...] = ()
    number, first = 0, 1  # of the line x
    while line := file.readline(_MOST_LINE_BYTES):
        number += 1
        hasher.update(line)
        if not line.endswith(b"\n"):
            raise DataError(f"{path}:{number}: no newline at the end; the file may be cut off")
        words = line.split()
        if number == 1 and words == [b"y"]:
            if not with_targets:
                raise DataError(
                    f"{path}: scales targets too (svm-scale -y), which stores and models do not; "
                    "scale the text by `bigsvm svm-scale -r`"
                )
            first = 4
        elif number < first:
            targets += _numbers(path, number, words, 2)
        if number == first and words != [b"x"]:
            raise DataError(f"{path}: does not begin with x, as the files of svm-scale do")
        if number == first + 1:
            limits = _numbers(path, number, words, 2)
            if not limits[0] < limits[1]:
                raise DataError(f"{path}:{number}: {limits[0]:g} is not below {limits[1]:g}")
        if number > first + 1:
            index, smallest, largest = _numbers(path, number, words, 3)
            last = indices[-1] if indices else -1
            if not (words[0].isdigit() and last < index <= MAX_INDEX):
                raise DataError(
                    f"{path}:{number}: the index must be a whole number above {last}, "
                    f"{MAX_INDEX} at most"
                )
            if not smallest < largest:
                raise DataError(f"{path}:{number}: {smallest:g} is not below {largest:g}")
            indices.append(int(index))
            low.append(smallest)
            high.append(largest)
    if number < first + 1:
        raise DataError(f"{path}: has no limits in line {first + 1}; the file may be cut off")
    return Range(
        path, limits[0], limits[1], np.array(indices, np.int64), np.array(low), np.array(high),
        hasher.hexdigest(), (targets[0], targets[1], targets[2], targets[3]) if targets else None,
    )  # fmt: skip


def _numbers(path: Path, line: int, words: list[bytes], count: int) -> tuple[float, ...]:
    """Read finite numbers."""
    try:
        numbers = tuple(float(word) for word in words if b"_" not in word)
    except ValueError:
        numbers = ()
    if len(words) != count or len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise DataError(f"{path}:{line}: a line of {count} finite numbers must stand here")
    return numbers
