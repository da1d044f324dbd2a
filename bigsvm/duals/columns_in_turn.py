"""Columns of arrays (n, k), one after the other, contiguous where many looks at each follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8


COLUMNS_AT_ONCE = 8
"""A cache line of float64: to read one column alone brings all of them from memory."""
COPIED_ROWS = 1 << 16
"""Up to so many rows columns are copied, 4 MB of each array; of more, the parts that are looked at
together are copied by what is computed from them."""


def columns_in_turn(*arrays: F8) -> Iterator[tuple[int, list[F8]]]:
    """Yield each column's number and its values, (n,), in each of the arrays (n, k); not to write.

    A look at one of 1000 columns of 20 000 rows takes a cache miss for each row, many times over.
    """
    n, k = arrays[0].shape
    for low in range(0, k, COLUMNS_AT_ONCE):
        some = [array[:, low : low + COLUMNS_AT_ONCE].T for array in arrays]
        if n <= COPIED_ROWS:
            some = [np.ascontiguousarray(part) for part in some]
        for c in range(len(some[0])):
            yield low + c, [part[c] for part in some]
