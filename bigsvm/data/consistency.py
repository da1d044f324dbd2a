"""Checks that the arrays and the attributes of a store agree with each other.

Hashes only prove that the bytes are those of the manifest. A forger can change the manifest too, so
these checks run whenever the arrays are read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.data.schema import COLUMN, REMEDY, STATISTICS
from bigsvm.errors import DataCorruptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.data.arrays import VerifiedArray
    from bigsvm.data.schema import StoreAttributes

_CHUNKS_AT_ONCE = 2
"""Chunks of statistics that are read together, 1 MB of each: a read takes Zarr two milliseconds."""
_LABELS_AT_ONCE = 1 << 16
_ROUNDING = 1e-6
"""Relative rounding error allowed in statistics; a sum of 1e12 values has about 1e-10."""
_OVERFLOWS_FROM = 1e150
"""Sums of squares of values above this may overflow."""


def check_indptr(indptr: NDArray[np.int64], n_entries: int, where: str) -> None:
    """Refuse row pointers, (n_rows + 1,), that do not ascend from 0 to the number of entries."""
    if indptr[0] != 0 or indptr[-1] != n_entries or (np.diff(indptr) < 0).any():
        raise DataCorruptionError(
            f"{where}: array 'X/indptr' does not ascend from 0 to {n_entries}; {REMEDY}"
        )


def check_columns_ascend(
    indices: NDArray[np.int32], indptr: NDArray[np.int64], first_row: int, where: str
) -> None:
    """Refuse CSR rows whose columns do not ascend: compiled code relies on their order.

    `indptr`, (m + 1,), goes from 0 to nnz. Messages count rows from `first_row` and call the store
    `where`.
    """
    ascends = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    if not ascends.all():
        entry = int(np.argmin(ascends))
        row = first_row + int(np.searchsorted(indptr, entry, side="right")) - 1
        raise DataCorruptionError(
            f"{where}: the column indices of row {row} do not ascend; {REMEDY}"
        )


def check_permutation(rows: NDArray[np.int64], where: str) -> None:
    """Refuse row numbers, (n_rows,), each below n_rows, unless each occurs once."""
    seen = np.zeros(len(rows), np.bool_)
    seen[rows] = True
    if not seen.all():
        raise DataCorruptionError(
            f"{where}: array 'row' lacks row {int(np.argmin(seen))}; {REMEDY}"
        )


def check_label_counts(
    labels: NDArray[np.float64], attributes: StoreAttributes, where: str
) -> None:
    """Refuse the labels of all rows, (n_rows,), unless their counts are those in the attributes."""
    if attributes.label_counts is None:
        return
    known = np.array([label for label, _ in attributes.label_counts])
    counts = np.zeros(len(known) + 1, np.int64)
    for start in range(0, len(labels), _LABELS_AT_ONCE):
        some = labels[start : start + _LABELS_AT_ONCE]
        place = np.searchsorted(known, some)
        place[known[np.minimum(place, len(known) - 1)] != some] = len(known)
        counts += np.bincount(place, minlength=len(counts))
    if counts[:-1].tolist() != [n for _, n in attributes.label_counts]:
        raise DataCorruptionError(f"{where}: its labels are not those it has counted; {REMEDY}")


def check_class_places(places: NDArray[np.float64], n_names: int, where: str) -> None:
    """Refuse labels that are not places in a list of `n_names` names."""
    if not ((places >= 0) & (places < n_names) & (places == np.floor(places))).all():
        raise DataCorruptionError(
            f"{where}: array 'y' has a value that is no place in its {n_names} class names; "
            f"{REMEDY}"
        )


def check_statistics(
    arrays: Mapping[str, VerifiedArray],
    attributes: StoreAttributes,
    where: str,
    *,
    whole: Mapping[str, NDArray[np.float64]] | None = None,
) -> None:
    """Refuse statistics that no rows can have, or that contradict the attributes.

    Each column has ``minimum ≤ mean ≤ maximum`` and ``0 ≤ variance ≤ (maximum - minimum)² / 4``
    (Popoviciu's inequality). They are read a few chunks at a time, unless `whole` has them.
    """

    def read(name: str, start: int, stop: int) -> NDArray[np.float64]:
        if whole is not None:
            return whole[name][start:stop]
        return arrays[f"statistics/{name}"].read(start, stop)

    spec = arrays["statistics/mean"].spec
    # Only listed columns have statistics: the others are 0 in every row.
    n, step = spec.shape[0], _CHUNKS_AT_ONCE * spec.chunk_rows
    absent = attributes.n_columns - n if attributes.listed_columns is not None else 0
    spans = [(start, min(start + step, n)) for start in range(0, n, step)]
    largest, means, variances = 0.0, 0.0, 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start, stop in spans:
            low, high, mean, variance = (read(name, start, stop) for name in STATISTICS)
            scale = np.maximum(np.abs(low), np.abs(high))
            slack = _ROUNDING * scale
            half = high / 2 - low / 2
            possible = (low - slack <= mean) & (mean <= high + slack)
            possible &= (variance >= 0) & (variance <= half**2 * (1 + _ROUNDING) + slack**2)
            wrong = np.flatnonzero(~((low <= high) & (possible | (scale >= _OVERFLOWS_FROM))))
            if len(wrong):
                column = start + int(wrong[0])
                if absent:
                    [column] = arrays[f"statistics/{COLUMN}"].read(column, column + 1)
                raise DataCorruptionError(
                    f"{where}: no column can have the statistics of column {column}; {REMEDY}"
                )
            largest = max(largest, float(scale.max()))
            means, variances = means + float(mean.sum()), variances + float(variance.sum())
        if largest >= _OVERFLOWS_FROM:
            return
        total_mean = means / attributes.n_columns
        between = absent * total_mean**2
        for start, stop in spans:
            between += float(((read("mean", start, stop) - total_mean) ** 2).sum())
    for name, computed, slack_of_all in (
        ("mean", total_mean, _ROUNDING * largest),
        ("variance", (variances + between) / attributes.n_columns, (_ROUNDING * largest) ** 2),
    ):
        recorded: float = getattr(attributes, name)
        if not math.isclose(recorded, computed, rel_tol=_ROUNDING, abs_tol=slack_of_all):
            raise DataCorruptionError(
                f"{where}: its {name} is {recorded}, but {computed} by the statistics of its "
                f"columns; {REMEDY}"
            )
