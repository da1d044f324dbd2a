"""Batches that a user's own function makes, such as what reads a format of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.batches import Batch, Batches
from bigsvm.data.frames import frame_names, frame_type, is_frame
from bigsvm.data.rows import as_csr, float_type, is_sparse
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = "(X, y) or (X, y, weight)"


class CalledBatches(Batches):
    """Batches of an iterator that a callable returns.

    It yields ``(X, y)`` or ``(X, y, weight)``: X is an array, a scipy.sparse matrix or a data frame
    of the rows of a batch, y has their labels. The first batch is read at once.
    """

    name = "the batches"

    def __init__(self, make: Callable[[], Any]) -> None:
        self._batches = iter(make())
        first = next(self._batches, None)
        if first is None:
            raise DataError("the batches: there are none; the callable must return an iterator")
        parts = self._parts(first, 0)
        X = parts[0]
        self.feature_names = frame_names(X)
        self.n_columns = int(X.shape[1])
        self.dtype = frame_type(X) if is_frame(X) else float_type(X.dtype)
        self.weighted = len(parts) == 3 and parts[2] is not None
        self.is_sparse = is_sparse(X)
        self._first = parts

    def batches(self, memory: int) -> Iterator[Batch]:
        """Yield the batches; their size is the callable's choice."""
        number, n_rows = 0, 0
        parts: Any = self._first
        while parts is not None:
            batch = self._batch(parts, number, n_rows)
            yield batch
            n_rows += batch.X.shape[0]
            number += 1
            given = next(self._batches, None)
            parts = None if given is None else self._parts(given, number)

    def _parts(self, given: Any, number: int) -> tuple[Any, ...]:
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise DataError(
                f"batch {number} (from 0) is a {type(given).__name__}; it must be {PARTS}"
            )
        X = given[0] if hasattr(given[0], "shape") else np.asarray(given[0])
        if len(X.shape) != 2:
            raise DataError(
                f"X of batch {number} (from 0) has {len(X.shape)} dimensions; it must have two: "
                "rows and columns"
            )
        return (X, *given[1:])

    def _batch(self, parts: tuple[Any, ...], number: int, n_rows: int) -> Batch:
        X, y, *rest = parts
        where = f"batch {number} (from 0)"
        weight = rest[0] if rest else None
        if (weight is not None) != self.weighted:
            some = "no weights" if self.weighted else "weights"
            raise DataError(f"{where} has {some}, unlike the first one")
        if X.shape[1] != self.n_columns or frame_names(X) != self.feature_names:
            raise DataError(f"{where} has other columns than the first one")
        if is_sparse(X) != self.is_sparse:
            other = "dense" if self.is_sparse else "sparse"
            raise DataError(f"{where} is {other}, unlike the first one")
        y = np.asarray(y)
        for name, values in (("y", y), ("weight", weight)):
            if values is not None and np.shape(values) != (X.shape[0],):
                raise DataError(
                    f"{name} of {where} has shape {np.shape(values)}; X has {X.shape[0]} rows"
                )
        return Batch(as_rows(X, self.dtype), y, weight)


def as_rows(X: Any, dtype: np.dtype[Any]) -> Any:
    """Rows of a container in memory as an array, or as CSR."""
    if is_sparse(X):
        return as_csr(X, dtype)
    source = as_row_source(X)
    return np.asarray(source.read(0, source.n_rows), dtype)
