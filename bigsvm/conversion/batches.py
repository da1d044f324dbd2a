"""Rows with labels that come in batches, and the store that is made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.conversion.labels import Labels, weight_values
from bigsvm.conversion.writing import ConversionProgress, choose_layout, write_spool
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.rows import bytes_of, place_not_finite
from bigsvm.data.schema import DENSE
from bigsvm.data.shuffle import Spool, bits_for
from bigsvm.data.store_writer import RowBatch
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.conversion.writing import DType, Layout, OnProgress
    from bigsvm.data.far_workspace import FarWorkspace
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.scaler import Scaler
    from bigsvm.data.workspace import Workspace
    from bigsvm.encoding import Encoding

UNKNOWN_SIZE = 16
"""Budgets that a source of unknown size is taken to be as large as: more files do little harm."""


class Batch(NamedTuple):
    """Some rows, as a source has them: X (m, d), dense or sparse, and y (m,), numbers or words."""

    X: Any
    y: Any
    weight: Any = None


class Batches(ABC):
    """Rows with labels, in batches of bounded size, which are read once.

    Attributes
    ----------
    name : str
        What messages call the source.
    dtype : numpy.dtype
        float32 or float64: what the values are kept in.
    is_sparse : bool
        Whether batches are CSR.
    class_names : tuple of str or None
        What labels are places of, if they are words and have been numbered.
    encoding : dict or None
        How columns were made from those of a table; see `bigsvm.encoding`.
    scaler : Scaler or None
        What the rows have been scaled by.
    size : int or None
        Bytes of the rows, about; None where that is not known.
    weighted : bool
        Whether batches have weights.
    """

    name: str
    n_columns: int
    dtype: np.dtype[Any]
    is_sparse: bool = False
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    scaler: Scaler | None = None
    size: int | None = None
    weighted: bool = False

    @abstractmethod
    def batches(self, memory: int) -> Iterator[Batch]:
        """Yield the batches, in the order of the source, two of which take `memory`.

        The message of a `DataError` names the file, and the row or column.
        """

    def prepare(self, budget: int, report: Callable[[], None]) -> None:  # noqa: B027 (few need it)
        """Learn what a first pass must tell; `report` is called now and then."""

    def layout(self, wanted: Layout, n_entries: int, n_rows: int) -> str:
        """Return "dense" or "csr": what is wanted, or as the rows are; dense where few are 0."""
        if wanted == "auto" and not self.is_sparse:
            return DENSE
        form: str = choose_layout(
            wanted, n_entries=n_entries, n_rows=n_rows, n_columns=self.n_columns
        )
        return form

    def in_memory(self, memory: int) -> RowSource:
        """Rows without their labels, in memory."""
        parts = [batch.X for batch in self.batches(memory)]
        if not parts:
            raise DataError(f"{self.name}: there are no rows; check the source")
        rows = ArrayRows(sp.vstack(parts, "csr") if self.is_sparse else np.concatenate(parts))
        rows.feature_names, rows.encoding = self.feature_names, self.encoding
        return rows

    def write(
        self,
        work: Workspace | FarWorkspace,
        *,
        dtype: DType | None = None,
        layout: Layout = "auto",
        seed: int | None = 0,
        budget: int,
        report: OnProgress = lambda _: None,
    ) -> None:
        """Write them as a store: rows are scattered over files, and each file is sorted.

        The seed is that of the random order; None keeps the order of the source. What the library
        that reads the format takes is not in the budget.
        """
        self.prepare(budget, lambda: report(ConversionProgress("read", 0, self.size)))
        kind, labels, size = np.dtype(dtype or self.dtype), Labels("y"), self.size
        bits = bits_for(UNKNOWN_SIZE * budget if size is None else size, budget)
        with Spool(work.path / "spool", seed=seed, bits=bits, memory_bytes=budget // 2) as spool:
            done = 0
            for X, y, weight in self.batches(budget // 8):
                first = spool.n_rows
                y = np.zeros(X.shape[0]) if y is None else y
                values = converted(X, kind, first, self.feature_names)
                if layout == "sparse" and not self.is_sparse:
                    values = sp.csr_array(values)
                if weight is not None:
                    weight = weight_values(np.asarray(weight), first)
                row = np.arange(first, first + values.shape[0])
                spool.append(RowBatch(values, labels.numbers(y, first), row, weight))
                done += bytes_of(values)
                report(ConversionProgress("read", done if size is None else min(done, size), size))
            if not spool.n_rows:
                raise DataError(f"{self.name}: there are no rows; check the source")
            class_names, places = labels.class_names()
            write_spool(
                spool, work, n_columns=self.n_columns, first_index=None,
                layout=self.layout(layout, spool.n_entries, spool.n_rows), dtype=kind,
                weights=self.weighted, scaler=self.scaler, feature_names=self.feature_names,
                seed=seed, sources=(), budget=budget, report=report,
                class_names=self.class_names or class_names, places=places,
                encoding=self.encoding,
            )  # fmt: skip


def converted(
    values: Any, dtype: np.dtype[Any], first_row: int, names: tuple[str, ...] | None = None
) -> Any:
    """Rows in the type of the store; a value that is not finite is refused by row and column."""
    rows = values
    if values.dtype != dtype:
        with np.errstate(over="ignore"):
            rows = values.astype(dtype)
    place = place_not_finite(rows)
    if place is None:
        return rows
    row, column = place
    which = f"column {column}" if names is None else f"column {names[column]!r}"
    value, remedy = values[row, column], "remove the row, or put a number in its place"
    if np.isfinite(value):
        remedy = f"it is too large for {dtype}: use dtype='float64', or rescale it"
    raise DataError(f"X has {value} in row {first_row + row}, {which} (from 0); {remedy}")
