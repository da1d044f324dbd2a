"""Models of a store that start a fit of the store that it became."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.data.shuffle import shuffle_keys
from bigsvm.data.sources import as_store
from bigsvm.data.store import Store
from bigsvm.errors import DataError
from bigsvm.interruption import checked_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.models import KernelExpansion

_BLOCK_BYTES = 16 << 20


def continued(model: KernelExpansion, X: Any) -> KernelExpansion:
    """Return a model from which a fit of all rows of a store can start.

    Where rows were appended to the store of the model, its support vectors have kept their places.
    Other stores are read once, to find the rows that they are. If X is no store, or the model is of
    as many rows, it is returned as it is.

    Raises
    ------
    DataError
        No support vector is a row of the store.
    """
    store, trained_on = as_store(X), model.provenance.get("n_rows")
    if not isinstance(store, Store) or trained_on == len(store) or model.kernel.product == "lookup":
        return model
    given: Any = model
    if (trained_on, model.provenance.get("data")) not in (store.attributes.earlier or ()):
        rows = _rows_of(model.support_vectors, store)
        found = np.flatnonzero(rows >= 0)
        if not len(found):
            raise DataError(
                "the model to start from was trained on other rows: none of its support vectors is "
                f"a row of {store}; start anew"
            )
        found = found[np.argsort(rows[found])]
        given = replace(
            given, support=rows[found], support_vectors=given.support_vectors[found],
            coefficients=given.coefficients[found],
            bounds=None if given.bounds is None else given.bounds[found],
        )  # fmt: skip
    started: KernelExpansion = replace(given, provenance={**model.provenance, "n_rows": len(store)})
    return started


def _rows_of(vectors: Any, store: Store) -> NDArray[np.int64]:
    """Row of a store that each vector is, (m,); -1 of none. Equal vectors are different rows."""
    wanted = _hashes(vectors)
    sought, rows = np.unique(wanted), np.full(len(wanted), -1)
    found: dict[int, deque[int]] = defaultdict(deque)
    for start, values in checked_between(store.rows.blocks(_BLOCK_BYTES)):
        hashes = _hashes(values)
        for row in np.flatnonzero(np.isin(hashes, sought)).tolist():
            found[int(hashes[row])].append(start + row)
    for i, key in enumerate(wanted.tolist()):
        if found[key]:
            rows[i] = found[key].popleft()
    return rows


def _hashes(rows: Any) -> NDArray[np.uint64]:
    """Hash of the columns and values of each row, (m,), zeros left out."""
    rows = sp.csr_array(rows)
    bits = rows.data.astype(np.float64).view(np.uint64)
    keys = shuffle_keys(0, rows.indices.astype(np.int64))
    sums = np.zeros(rows.nnz + 1, np.uint64)
    np.cumsum(shuffle_keys(1, (bits ^ keys).view(np.int64)), out=sums[1:])
    hashes: NDArray[np.uint64] = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    return hashes
