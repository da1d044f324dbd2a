"""The rows of any container that a user may give: the choice of the right source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bigsvm.data.containers import Reading, rows_of_container
from bigsvm.data.row_source import RowSource
from bigsvm.data.rows import is_instance, refuse_masked
from bigsvm.data.schema import KEY
from bigsvm.data.store import Store, open_store
from bigsvm.data.store_part import StorePart
from bigsvm.errors import DataError


def as_store(X: Any) -> Store | StorePart | None:
    """Store that `X` is or refers to, or chosen rows of one; None if `X` is another container.

    A path that is not one of a store is refused.
    """
    if isinstance(X, Store | StorePart):
        return X
    if isinstance(X, RowSource):
        return None
    path = X if isinstance(X, str | os.PathLike) else _path_of_store(X)
    return None if path is None else open_store(path)


def _path_of_store(X: Any) -> Path | None:
    """Path of a bigsvm store that was opened as a Zarr group; None for anything else.

    A store that is not on a local disk is refused.
    """
    if not is_instance(X, "zarr", "Group") or KEY not in X.attrs:
        return None
    group: Any = X
    root = getattr(group.store, "root", None)
    if not isinstance(root, Path):
        raise DataError(
            f"X is a bigsvm store in a {type(group.store).__name__}; copy it to a local folder, "
            "and give the path of that"
        )
    return root / str(group.path)


def as_row_source(
    X: Any,
    *,
    memory: int | None = None,
    once: bool = False,
    allow_missing: bool = False,
    client: Any = None,
) -> RowSource:
    """Rows of any container that a user may give.

    X is a `RowSource`, a `Store`, a `StorePart`, the path of a store, or a container: an array or a
    scipy.sparse matrix; a data frame of pandas, Polars, Arrow or Dask; an array of Dask, Zarr or
    h5py; a group of Zarr or h5py that is CSR in anndata's encoding; an AnnData.

    Parameters
    ----------
    memory : int, optional
        Bytes that a run may take. Containers that are not used as one array are read in blocks
        that fit; if no block fits, the container is refused.
    once : bool
        Whether rows are read in a single pass, for which chunks may be decoded several times.
    allow_missing : bool
        Whether to take Zarr arrays that lack chunks.
    client : distributed.Client, optional
        Computes blocks of Dask arrays and data frames; see `DaskRows`.
    """
    if isinstance(X, RowSource):
        return X
    refuse_masked(X, "X")
    store = as_store(X)
    if store is not None:
        return store.rows
    return rows_of_container(X, Reading(memory, once, allow_missing, client))
