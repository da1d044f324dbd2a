"""Write a store of known size from rows in their final order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.data.arrays import ArrayWriter
from bigsvm.data.rows import is_sparse, make_csr, stack_rows
from bigsvm.data.schema import (
    COLUMN,
    CSR,
    DENSE,
    KEY,
    MAX_LABEL_COUNTS,
    StoreAttributes,
    array_specs,
    attributes_to_json,
    fingerprints,
    write_group,
)
from bigsvm.data.statistics import statistics_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.far_workspace import FarWorkspace
    from bigsvm.data.scaler import Scaler
    from bigsvm.data.statistics import Statistics
    from bigsvm.data.workspace import Workspace
    from bigsvm.encoding import Encoding


_BLOCK_BYTES = 4 << 20
"""Rows of which statistics are taken together: much more than Python's overhead for a block, and
little memory. Another size changes the last bits of the statistics, and so the store."""


_OF_COLUMNS = ("statistics", "scaler")
"""Groups of arrays that are written last, as their lengths are not known before."""


class RowBatch(NamedTuple):
    """Some rows with everything that belongs to them.

    values : (m, d) `Rows`; labels : (m,) float64; row : (m,) int64, their numbers in the input;
    weights : (m,) float64 or None.
    """

    values: Any
    labels: NDArray[np.float64]
    row: NDArray[np.int64]
    weights: NDArray[np.float64] | None

    def part(self, start: int, stop: int) -> RowBatch:
        """Rows ``start … stop - 1``, not copied."""
        rows, values = slice(start, stop), self.values
        if is_sparse(values):
            indptr = values.indptr[start : stop + 1]
            entries = slice(indptr[0], indptr[-1])
            values = make_csr(
                values.data[entries], values.indices[entries], indptr - indptr[0], values.shape[1]
            )
        else:
            values = values[rows]
        weights = None if self.weights is None else self.weights[rows]
        return RowBatch(values, self.labels[rows], self.row[rows], weights)


class StoreWriter:
    """Append rows in their final order; `finish` makes the result a store.

    Parameters
    ----------
    work : Workspace or FarWorkspace
        Its `store` is a new directory.
    n_rows, n_columns, n_entries : int
        Size of X; `n_entries` matters for CSR only.
    layout : str
        "dense" or "csr"; rows may come in either form.
    weights : bool
        Whether there are sample weights.
    scaler : Scaler or None
        What the rows that come have been scaled by.
    memory_bytes : int
        Approximate bytes that the writer may take, besides statistics.
    statistics_bytes : int
        Bytes that the statistics of very many columns may take; appending more is refused.

    Attributes
    ----------
    block_rows : int
        Rows that are written together; appended rows are not copied where they begin and end with a
        block.
    """

    def __init__(
        self,
        work: Workspace | FarWorkspace,
        *,
        n_rows: int,
        n_columns: int,
        n_entries: int,
        dtype: np.dtype[Any],
        layout: str,
        weights: bool,
        scaler: Scaler | None = None,
        memory_bytes: int,
        statistics_bytes: int,
    ) -> None:
        self._path = path = work.store
        self._new_array = partial(ArrayWriter, finished=work.finished, is_far=work.is_far)
        write_group(path, {})
        self._shape = (n_rows, n_columns)
        self._dtype = dtype
        self._layout = layout
        self._scaler = scaler
        self._sizes = partial(
            array_specs,
            n_rows,
            n_columns,
            n_entries,
            dtype=dtype,
            layout=layout,
            weights=weights,
            scaled=scaler is not None,
            scaler_columns=None if scaler is None or scaler.columns is None else len(scaler.factor),
        )
        if layout == CSR:
            write_group(
                path / "X",
                {
                    "encoding-type": "csr_matrix",
                    "encoding-version": "0.1.0",
                    "shape": [n_rows, n_columns],
                },
            )
        write_group(path / "statistics", {})
        if scaler is not None:
            write_group(path / "scaler", {})
        # CSR has two large arrays; up to four vectors share the rest.
        self._vector_bytes = memory_bytes // 8
        self._arrays = {
            name: self._new_array(
                path / name,
                spec,
                memory_bytes=memory_bytes // 4
                if name in {"X", "X/data", "X/indices"}
                else self._vector_bytes,
            )
            for name, spec in self._sizes().items()
            if name.split("/")[0] not in _OF_COLUMNS
        }
        # Statistics are taken in blocks of rows that do not depend on how the rows come, so that
        # they are the same to the last bit however the store was made.
        row_bytes = n_columns * dtype.itemsize if layout == DENSE else 12 * n_entries / n_rows
        self.block_rows = max(1, min(int(_BLOCK_BYTES / max(row_bytes, 1)), 1 << 16))
        self._pending: list[RowBatch] = []
        self._n_pending = 0
        self._statistics = statistics_of(
            n_columns, sparse=layout == CSR, dtype=dtype, most_bytes=statistics_bytes
        )
        self._n_entries = 0
        self._labels: dict[float, int] | None = {}
        self._begin()

    def _begin(self) -> None:
        """Write what comes before the rows."""
        if self._layout == CSR:
            self._arrays["X/indptr"].append(np.zeros(1, np.int64))

    def append(self, batch: RowBatch) -> None:
        """Append rows."""
        start = 0
        while start < len(batch.labels):
            n = min(self.block_rows - self._n_pending, len(batch.labels) - start)
            self._pending.append(batch.part(start, start + n))
            self._n_pending += n
            start += n
            if self._n_pending == self.block_rows:
                self._write_block()

    def finish(
        self,
        *,
        shuffled: bool,
        seed: int | None,
        sources: tuple[str, ...],
        first_index: int | None = None,
        feature_names: tuple[str, ...] | None = None,
        class_names: tuple[str, ...] | None = None,
        encoding: Encoding | None = None,
        earlier: tuple[tuple[int, str], ...] | None = None,
    ) -> None:
        """Write the remaining rows, then the attributes."""
        if self._n_pending:
            self._write_block()
        statistics, n_nonzero = self._result()
        listed = None if statistics.columns is None else len(statistics.columns)
        manifest = {name: array.finish() for name, array in self._arrays.items()}
        self._arrays.clear()
        for name, spec in self._sizes(listed_columns=listed).items():
            group, _, of_group = name.partition("/")
            if group in _OF_COLUMNS:
                values = statistics if group == "statistics" else self._scaler
                array = self._new_array(self._path / name, spec, memory_bytes=self._vector_bytes)
                array.append(getattr(values, "columns" if of_group == COLUMN else of_group))
                manifest[name] = array.finish()
        n_rows, n_columns = self._shape
        counts = self._labels
        whole, rows_only = fingerprints(n_rows, n_columns, self._dtype.name, self._layout, manifest)
        attributes = StoreAttributes(
            format_version=self._version(listed) if earlier is None else 4,
            n_rows=n_rows,
            n_columns=n_columns,
            n_nonzero=n_nonzero,
            dtype=self._dtype.name,
            layout=self._layout,
            shuffled=shuffled,
            seed=seed,
            label_counts=None if counts is None else tuple(sorted(counts.items())),
            mean=statistics.total_mean(),
            variance=statistics.total_variance(),
            sources=sources,
            first_index=first_index,
            manifest=manifest,
            fingerprint=whole,
            rows_fingerprint=rows_only,
            scaler=None if self._scaler is None else self._scaler.method,
            feature_names=feature_names,
            class_names=class_names,
            encoding=encoding,
            listed_columns=listed,
            scaler_columns=self._sizes.keywords["scaler_columns"],
            earlier=earlier,
        )
        write_group(self._path, {KEY: attributes_to_json(attributes)})

    def _result(self) -> tuple[Statistics, int]:
        """Return the statistics of all rows, and how many values are not 0."""
        return self._statistics.result(), self._statistics.n_nonzero

    def _version(self, listed: int | None) -> int:
        if listed is not None or self._sizes.keywords["scaler_columns"] is not None:
            return 3
        return 1 if self._scaler is None else 2

    def _write_block(self) -> None:
        pieces, self._pending, self._n_pending = self._pending, [], 0
        for piece in pieces:
            self._arrays["y"].append(piece.labels)
            self._arrays["row"].append(piece.row)
            if piece.weights is not None:
                self._arrays["sample_weight"].append(piece.weights)
            self._count_labels(piece.labels)
        rows = [piece.values for piece in pieces]
        block: Any = self._dense_block(rows) if self._layout == DENSE else self._csr_block(rows)
        self._statistics.add(block)
        if self._layout == DENSE:
            self._arrays["X"].append(block)
            return
        self._arrays["X/data"].append(block.data)
        self._arrays["X/indices"].append(block.indices)
        self._arrays["X/indptr"].append(block.indptr[1:].astype(np.int64) + self._n_entries)
        self._n_entries += block.nnz

    def _dense_block(self, pieces: list[Any]) -> NDArray[Any]:
        block = np.empty((sum(piece.shape[0] for piece in pieces), self._shape[1]), self._dtype)
        n_filled = 0
        for piece in pieces:
            place = block[n_filled : n_filled + piece.shape[0]]
            if is_sparse(piece):
                piece.toarray(out=place)
            else:
                place[...] = piece
            n_filled += len(place)
        return block

    def _csr_block(self, pieces: list[Any]) -> Any:
        rows = [sp.csr_array(piece, dtype=self._dtype) for piece in pieces]
        return stack_rows(rows, self._shape[1], self._dtype, sparse=True)

    def _count_labels(self, labels: NDArray[np.float64]) -> None:
        if self._labels is None:
            return
        for label, n in zip(*np.unique(labels, return_counts=True), strict=True):
            self._labels[float(label)] = self._labels.get(float(label), 0) + int(n)
        if len(self._labels) > MAX_LABEL_COUNTS:
            self._labels = None
