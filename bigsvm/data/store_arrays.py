"""Open the arrays of a store: all that is checked before rows are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.arrays import VerifiedArray
from bigsvm.data.metadata import MAX_ARRAY_JSON, check_array, check_files, read_attributes
from bigsvm.data.place import Folder
from bigsvm.data.schema import NAME, REMEDY, array_specs
from bigsvm.data.workspace import put_back
from bigsvm.errors import DataCorruptionError, StoreError

if TYPE_CHECKING:
    from bigsvm.data.place import Place
    from bigsvm.data.schema import StoreAttributes


def open_arrays(
    place: Place, fingerprint: str | None = None
) -> tuple[StoreAttributes, dict[str, VerifiedArray]]:
    """Read and check the attributes of a store and the metadata of its arrays.

    If a process was killed while it replaced the store, the store gets its name back first. With a
    fingerprint, that of a store which is opened again, a store with another one is refused.
    """
    if isinstance(place, Folder):
        put_back(place.path)
    try:
        attributes = read_attributes(place)
        if isinstance(place, Folder):
            check_files(place.path)
        expected = _expected(attributes)
        for name in expected:
            if name not in attributes.manifest:
                raise DataCorruptionError(f"{place}: the manifest lacks array {name!r}; {REMEDY}")
        metadata = place.read_each([f"{name}/{NAME}" for name in expected], MAX_ARRAY_JSON)
    except OSError as error:
        raise StoreError(f"{place}: cannot be read ({error.strerror or error})") from error
    if fingerprint not in (None, attributes.fingerprint):
        raise StoreError(f"{place}: was replaced by a store with other content since it was opened")
    arrays = {}
    for (name, spec), data in zip(expected.items(), metadata, strict=True):
        hashes, where = attributes.manifest[name], f"{place}: array {name!r}"
        spec = check_array(where, data, spec, len(hashes))
        arrays[name] = VerifiedArray(place / name, where, spec, hashes)
    return attributes, arrays


def _expected(attributes: StoreAttributes) -> dict[str, Any]:
    return array_specs(
        attributes.n_rows,
        attributes.n_columns,
        attributes.n_nonzero,
        dtype=np.dtype(attributes.dtype),
        layout=attributes.layout,
        weights=attributes.has_weights,
        scaled=attributes.scaler is not None,
        listed_columns=attributes.listed_columns,
        scaler_columns=attributes.scaler_columns,
    )
