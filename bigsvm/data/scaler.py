"""Scaler: an affine map of each column, ``x' = (x - offset) * factor``, and how it is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.data.rows import is_sparse
from bigsvm.declared import ascend_below
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows
    from bigsvm.data.statistics import Statistics

Method: TypeAlias = Literal["minmax", "standard", "maxabs"]
METHODS = ("minmax", "standard", "maxabs")

_VALUES_AT_ONCE = 1 << 17
"""Values scaled together: 1 MiB of float64, which stays in the L2 cache between the operations."""
_SMALLEST_FACTOR = np.finfo(np.float64).tiny
"""Factors below it, and above its inverse, have fewer than 53 bits, or no inverse: an exported
model divides by them."""


@dataclass(frozen=True, eq=False)
class Scaler:
    """What each column is scaled by; equal to another if offsets and factors are.

    A column with factor 0 becomes 0. It was constant in the rows that the scaler was chosen for;
    svm-scale leaves such a column out too.

    Attributes
    ----------
    method : str
        How it was chosen: "minmax", "standard" or "maxabs".
    offset, factor : (m,) float64
        Finite; the offset of a column with factor 0 does not matter.
    columns : (m,) integers or None
        Columns of `offset` and `factor`, ascending; all others have factor 0. None for all columns.
    width : int or None
        Number of all columns, with `columns` only.
    """

    method: str
    offset: NDArray[np.float64]
    factor: NDArray[np.float64]
    columns: NDArray[np.integer[Any]] | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DataError(f"rows scaled by {self.method!r}; known are {', '.join(METHODS)}")
        for array in (self.offset, self.factor):
            if array.dtype != np.float64 or array.ndim != 1 or not np.isfinite(array).all():
                raise DataError("a scaler's offsets and factors must be finite float64 numbers")
        if self.offset.shape != self.factor.shape:
            raise DataError(
                f"{len(self.offset)} offsets and {len(self.factor)} factors of a scaler"
            )
        if (self.columns is None) != (self.width is None):
            raise DataError("a scaler lists columns but not how many there are, or the opposite")
        if self.columns is not None and not (
            self.columns.shape == self.offset.shape and ascend_below(self.columns, self.width or 0)
        ):
            raise DataError(f"a scaler's columns do not ascend from 0 to {self.width}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scaler) or self.n_columns != other.n_columns:
            return False
        if (self.columns is None) == (other.columns is None):
            mine: tuple[Any, ...] = (self.columns, self.offset, self.factor)
            others: tuple[Any, ...] = (other.columns, other.offset, other.factor)
        else:
            mine, others = self._used(), other._used()
        return all(map(np.array_equal, mine, others))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equal arrays have no hash

    def widened(self, more: int) -> Scaler:
        """Add columns after the last; they become 0."""
        if self.width is not None:
            return replace(self, width=self.width + more)
        pads = np.zeros(more)
        offset, factor = (np.concatenate([array, pads]) for array in (self.offset, self.factor))
        return Scaler(self.method, offset, factor)

    @property
    def n_columns(self) -> int:
        """Columns of the rows it scales."""
        return len(self.offset) if self.width is None else self.width

    @property
    def ignored_columns(self) -> int:
        """Columns that become 0."""
        return self.n_columns - int(np.count_nonzero(self.factor))

    def moved_columns(self) -> NDArray[np.int64]:
        """Columns in which 0 does not stay 0, (m,) int64."""
        columns, offset, _ = self._used()
        moved: NDArray[np.int64] = columns[offset != 0]
        return moved

    def _used(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Columns whose factor is not 0, their offsets and factors."""
        places = np.flatnonzero(self.factor)
        columns = places if self.columns is None else self.columns[places].astype(np.int64)
        return columns, self.offset[places], self.factor[places]

    def used(self) -> Iterator[tuple[int, float, float]]:
        """Columns whose factor is not 0, ascending, with offset and factor."""
        columns, offset, factor = self._used()
        return zip(columns.tolist(), offset.tolist(), factor.tolist(), strict=True)

    def of_all_columns(self) -> Scaler:
        """Return the same scaler with offsets and factors of all columns, 16 bytes a column."""
        if self.columns is None:
            return self
        offset, factor = np.zeros(self.n_columns), np.zeros(self.n_columns)
        offset[self.columns], factor[self.columns] = self.offset, self.factor
        return Scaler(self.method, offset, factor)

    def _factors(self, columns: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Factors of columns, in any order."""
        if self.columns is None:
            every: NDArray[np.float64] = self.factor[columns]
            return every
        if not len(self.columns):
            return np.zeros(len(columns))
        places = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
        factors: NDArray[np.float64] = self.factor[places]
        factors[self.columns[places] != columns] = 0.0
        return factors

    def apply(self, rows: Rows) -> Rows:
        """Scale rows (m, d), in float64; they come back in their type.

        A value that the type cannot hold becomes infinite. Sparse rows stay sparse, entry by entry,
        if no column is moved; else they become dense.
        """
        values: Any = rows
        with np.errstate(over="ignore", invalid="ignore"):
            if is_sparse(values) and not len(self.moved_columns()):
                data = np.empty_like(values.data)
                for start in range(0, len(data), _VALUES_AT_ONCE):
                    part = slice(start, start + _VALUES_AT_ONCE)
                    data[part] = values.data[part] * self._factors(values.indices[part])
                return sp.csr_array((data, values.indices, values.indptr), shape=values.shape)
            every = self.of_all_columns()
            out = np.empty(values.shape, values.dtype)
            step = max(1, _VALUES_AT_ONCE // max(self.n_columns, 1))
            for start in range(0, len(out), step):
                part = slice(start, start + step)
                some = values[part].toarray() if is_sparse(values) else values[part]
                out[part] = (some - every.offset) * every.factor
        return out


def choose_scaler(
    statistics: Statistics,
    method: str = "minmax",
    *,
    lower: float | None = None,
    upper: float | None = None,
) -> Scaler:
    """Choose the scaler of some rows from their statistics.

    "minmax" maps each column's minimum and maximum to `lower` and `upper`, by default -1 and 1;
    "standard" its mean to 0 and its variance to 1; "maxabs" its largest absolute value to 1 and 0
    to 0. A column whose values are too near each other or too far apart for float64 is refused by
    name.
    """
    if method not in METHODS:
        raise ParameterError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
    if method != "minmax" and (lower, upper) != (None, None):
        raise ParameterError(f"lower and upper are limits of minmax; {method} has none")
    lower, upper = -1.0 if lower is None else lower, 1.0 if upper is None else upper
    if not (lower < upper and math.isfinite(upper - lower)):
        raise ParameterError(f"lower is {lower}, upper {upper}; lower must be less, both finite")
    low, high = statistics.minimum, statistics.maximum
    with np.errstate(all="ignore"):
        if method == "minmax":
            # Halves, as the difference may overflow. This offset is exactly 0 where it should be.
            factor = (upper / 2 - lower / 2) / (high / 2 - low / 2)
            offset = low * (upper / (upper - lower)) - high * (lower / (upper - lower))
        elif method == "standard":
            factor, offset = 1 / np.sqrt(statistics.variance), statistics.mean
        else:
            factor, offset = 1 / np.maximum(-low, high), np.zeros_like(low)
        varies = low < high
        # What is not a number compares as false.
        usable = (factor >= _SMALLEST_FACTOR) & (factor <= 1 / _SMALLEST_FACTOR)
        usable &= np.isfinite(low - offset) & np.isfinite(high - offset)
    wrong = np.flatnonzero(varies & ~usable)
    if len(wrong):
        place = int(wrong[0])
        column = place if statistics.columns is None else int(statistics.columns[place])
        raise DataError(
            f"column {column} (from 0) has values from {low[place]} to {high[place]}, which "
            f"{method} cannot scale in double precision; remove it, or give it in another unit"
        )
    offset, factor = np.where(varies, offset, 0.0), np.where(varies, factor, 0.0)
    if statistics.columns is None:
        return Scaler(method, offset, factor)
    return Scaler(method, offset, factor, statistics.columns, statistics.n_columns)
