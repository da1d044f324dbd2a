"""Models of a store that go on with the store that it became."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bigsvm.data.sources import as_store
from bigsvm.data.store import Store
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from bigsvm.models import KernelExpansion


def continued(model: KernelExpansion, X: Any) -> KernelExpansion:
    """Return a model to start a fit of all rows of a store from.

    The model was trained on the store before rows were appended: its support vectors keep their
    places, and new rows have none. If X is no store, or the model is of as many rows, it is
    returned as it is.

    Raises
    ------
    DataError
        The first rows of the store are not those that the model was trained on.
    """
    store, n_rows = as_store(X), model.provenance.get("n_rows")
    if not isinstance(store, Store) or n_rows in (None, len(store)):
        return model
    if (n_rows, model.provenance.get("data")) not in (store.attributes.earlier or ()):
        raise DataError(
            f"the model to start from was trained on {n_rows} rows, which are not the first rows "
            f"of {store}; give the model of a store that became this one by append, or start anew"
        )
    return replace(model, provenance={**model.provenance, "n_rows": len(store)})
