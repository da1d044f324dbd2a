"""Equal rows: a hash of each row, and whether two rows are the same.

The hash is multilinear, ``Σ_j bits(x_j) · key_j`` modulo 2⁶⁴ with odd random keys: zeros add
nothing, so that dense and sparse rows are treated alike, and the sum vectorises. Equal hashes are a
hint; only a comparison of all bits makes two rows equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits: TypeAlias = NDArray[np.uint32] | NDArray[np.uint64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


@compiled
def hash_dense(bits: Bits, keys: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Hash rows given by the bits of their values, (m, d); keys (d,), out (m,)."""
    for i in range(out.shape[0]):
        row = bits[i]
        total = np.uint64(0)
        for j in range(keys.shape[0]):
            total += np.uint64(row[j]) * keys[j]
        out[i] = total


@compiled
def hash_sparse(
    bits: Bits,
    indices: Integers,
    indptr: Integers,
    keys: NDArray[np.uint64],
    out: NDArray[np.uint64],
) -> None:
    """Hash CSR rows, the values by their bits; keys (d,), out (m,)."""
    for i in range(out.shape[0]):
        total = np.uint64(0)
        for k in range(indptr[i], indptr[i + 1]):
            total += np.uint64(bits[k]) * keys[indices[k]]
        out[i] = total


@compiled
def same_dense(bits: Bits, first: Integers, second: Integers, out: NDArray[np.bool_]) -> None:
    """Compare rows `first` with rows `second`, pair by pair; all (p,)."""
    for p in range(out.shape[0]):
        a, b = bits[first[p]], bits[second[p]]
        equal = True
        for j in range(a.shape[0]):
            if a[j] != b[j]:
                equal = False
                break
        out[p] = equal


@compiled
def same_sparse(
    bits: Bits,
    indices: Integers,
    indptr: Integers,
    first: Integers,
    second: Integers,
    out: NDArray[np.bool_],
) -> None:
    """Compare CSR rows with sorted indices `first` with rows `second`, pair by pair; all (p,)."""
    for p in range(out.shape[0]):
        a, b = indptr[first[p]], indptr[second[p]]
        length = indptr[first[p] + 1] - a
        equal = length == indptr[second[p] + 1] - b
        if equal:
            for k in range(length):
                if indices[a + k] != indices[b + k] or bits[a + k] != bits[b + k]:
                    equal = False
                    break
        out[p] = equal
