"""Sparse rows: taken, laid out in tiles for `bigsvm.core.gram`, and their norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numba import config, njit
from numba.extending import intrinsic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

Untyped: TypeAlias = Any
"""What Numba and LLVM hand to the functions that write their code."""


if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute it in more digits, and round the sum."""
        wide = np.add(np.multiply(a, b, dtype=np.longdouble), c)
        return wide.astype(np.asarray(a).dtype)

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate


@njit(cache=True, nogil=True)
def csr_squared_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|²`` of sparse rows, added up as the products are.

    The norm of x and the product x·x then have the same bits: the distance of a row to itself, or
    to its duplicate, is exactly 0. Data and out (m,) are of one dtype.
    """
    for i in range(out.shape[0]):
        out[i] = 0
        for k in range(indptr[i], indptr[i + 1]):
            out[i] = _fma(data[k], data[k], out[i])


@njit(cache=True, nogil=True)
def csr_absolute_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|₁`` of sparse rows, added up as the overlaps are; data and out (m,) of one dtype."""
    for i in range(out.shape[0]):
        out[i] = 0
        for k in range(indptr[i], indptr[i + 1]):
            out[i] += abs(data[k])


@njit(cache=True, nogil=True)
def csr_take(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    places: NDArray[np.int64],
) -> tuple[Floats, Integers, NDArray[np.int64]]:
    """Copy rows at `places`: scipy takes 50 µs for as many as a batch of kernel rows has."""
    starts = np.empty(len(places) + 1, np.int64)
    starts[0] = 0
    for i in range(len(places)):
        starts[i + 1] = starts[i] + indptr[places[i] + 1] - indptr[places[i]]
    values, features = np.empty(starts[-1], data.dtype), np.empty(starts[-1], indices.dtype)
    for i in range(len(places)):
        shift = starts[i] - indptr[places[i]]
        for k in range(indptr[places[i]], indptr[places[i] + 1]):
            values[k + shift] = data[k]
            features[k + shift] = indices[k]
    return values, features, starts


@njit(cache=True, nogil=True)
def csr_features(indices: Integers, indptr: Integers, occurs: NDArray[np.bool_]) -> None:
    """Note which features occur in CSR rows; occurs (n_features,), False before."""
    for k in range(indptr[0], indptr[-1]):
        occurs[indices[k]] = True


@njit(cache=True, nogil=True)
def csr_tile(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    used: NDArray[np.int32],
    place: NDArray[np.int32],
    width: int,
    tile: Floats,
) -> None:
    """Lay CSR rows out as the columns of a tile, in chunks of `width`.

    tile (n_used · p,), 0 before; `place` is scratch, (n_features,).
    """
    n, p = used.shape[0], indptr.shape[0] - 1
    for r in range(n):
        place[used[r]] = r
    for low in range(0, p, width):
        high = min(low + width, p)
        chunk = tile[low * n : high * n].reshape(n, high - low)
        for j in range(low, high):
            for k in range(indptr[j], indptr[j + 1]):
                chunk[place[indices[k]], j - low] = data[k]
