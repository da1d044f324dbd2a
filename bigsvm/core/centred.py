"""Sparse rows taken with a sparse centre subtracted; see `bigsvm.data.statistics.far_columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


@compiled
def csr_take_centred(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    places: NDArray[np.int64],
    columns: NDArray[np.int64],
    centre: NDArray[np.float64],
) -> tuple[NDArray[np.float64], Integers, NDArray[np.int64]]:
    """Copy rows at `places` less a centre, in float64: data, sorted indices and indptr.

    The centre is `centre` (q,) in `columns` (q,), ascending, and 0 in all others. Every row has an
    entry in all of these columns afterwards.
    """
    q = columns.shape[0]
    starts = np.empty(len(places) + 1, np.int64)
    starts[0] = 0
    most = 0
    for i in range(len(places)):
        most += indptr[places[i] + 1] - indptr[places[i]] + q
    values, features = np.empty(most, np.float64), np.empty(most, indices.dtype)
    at = 0
    for i in range(len(places)):
        c = 0
        for k in range(indptr[places[i]], indptr[places[i] + 1]):
            while c < q and columns[c] < indices[k]:
                values[at], features[at] = -centre[c], columns[c]
                at, c = at + 1, c + 1
            values[at], features[at] = np.float64(data[k]), indices[k]
            if c < q and columns[c] == indices[k]:
                values[at] -= centre[c]
                c += 1
            at += 1
        while c < q:
            values[at], features[at] = -centre[c], columns[c]
            at, c = at + 1, c + 1
        starts[i + 1] = at
    return values[:at], features[:at], starts
