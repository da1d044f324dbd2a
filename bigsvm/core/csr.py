"""Sparse rows: taken, laid out in tiles for `bigsvm.core.gram`, and their norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numba import config
from numba.extending import intrinsic

from bigsvm.compilation import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
    Bytes: TypeAlias = NDArray[np.uint8] | NDArray[np.uint32]

Untyped: TypeAlias = Any
"""Types and values of Numba and LLVM, in functions that generate code."""

FOUR_ZEROS = 0x80808080
"""A word of four numbers 0, each stored minus 128."""


if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c`` in more digits, and round the sum."""
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


@compiled
def csr_squared_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|²`` of sparse rows, added up as the products are.

    The norm of x and the product x·x then have the same bits: the distance of a row to itself, or
    to its duplicate, is exactly 0. Data and out (m,) are of one dtype.
    """
    for i in range(out.shape[0]):
        out[i] = 0
        for k in range(indptr[i], indptr[i + 1]):
            out[i] = _fma(data[k], data[k], out[i])


@compiled
def csr_absolute_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|₁`` of sparse rows, added up as the overlaps are; data and out (m,) of one dtype."""
    for i in range(out.shape[0]):
        out[i] = 0
        for k in range(indptr[i], indptr[i + 1]):
            out[i] += abs(data[k])


@compiled(allocates=True)
def csr_take(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    places: NDArray[np.int64],
) -> tuple[Floats, Integers, NDArray[np.int64]]:
    """Copy rows at `places`: scipy takes 50 µs for as many as a batch of kernel rows has."""
    # Unsigned indices: one that might count from the end takes twice the time here.
    one, n = np.uint64(1), np.uint64(places.shape[0])
    starts = np.zeros(places.shape[0] + 1, np.int64)
    for i in range(n):
        place = np.uint64(places[i])
        starts[i + one] = starts[i] + indptr[place + one] - indptr[place]
    values, features = np.empty(starts[-1], data.dtype), np.empty(starts[-1], indices.dtype)
    count = np.uint64(0)
    for i in range(n):
        place = np.uint64(places[i])
        for k in range(np.uint64(indptr[place]), np.uint64(indptr[place + one])):
            values[count], features[count] = data[k], indices[k]
            count += one
    return values, features, starts


@compiled(allocates=True)
def csr_take_centred(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    places: NDArray[np.int64],
    columns: NDArray[np.int64],
    centre: NDArray[np.float64],
) -> tuple[NDArray[np.float64], Integers, NDArray[np.int64]]:
    """Copy rows at `places` less a centre, in float64: data, sorted indices and indptr.

    The centre is `centre` (q,) in `columns` (q,), ascending, and 0 in all others; see
    `bigsvm.data.statistics.far_columns`. Every row has an entry in all of these columns afterwards.
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


@compiled
def csr_features(indices: Integers, indptr: Integers, occurs: NDArray[np.bool_]) -> None:
    """Note which features occur in CSR rows; occurs (n_features,), False before."""
    for k in range(indptr[0], indptr[-1]):
        occurs[indices[k]] = True


@compiled
def csr_tile(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    used: NDArray[np.int32],
    place: NDArray[np.int32],
    width: int,
    tile: Floats,
) -> None:
    """Lay CSR rows out as the partners of a tile, in chunks of `width`.

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


@compiled
def csr_counts(indices: Integers, indptr: Integers, counts: NDArray[np.int32]) -> None:
    """Count in how many CSR rows each feature occurs; counts (n_features,), 0 before."""
    for k in range(indptr[0], indptr[-1]):
        counts[indices[k]] += 1


@compiled
def csr_lists(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    used: NDArray[np.int32],
    starts: NDArray[np.int32],
    place: NDArray[np.int32],
    directory: NDArray[np.uint32],
    partners: NDArray[np.int32],
    values: Floats,
) -> None:
    """List the p CSR rows, the partners of a tile, that have each feature, for `gram.listed_span`.

    The list of feature used_r is ``partners[starts[r]:starts[r + 1]]``, ascending, with the values
    beside them; starts (n_used + 1,) is given. A list of length p has all partners, with zeros.
    The directory (n_words, 2), 0 before, has for each 32 features a bit of each one used, and how
    many are used before. values are 0 before; `place` is scratch, (n_features,).
    """
    n, p, one = used.shape[0], indptr.shape[0] - 1, np.uint32(1)
    for r in range(n):
        directory[used[r] >> 5, 0] |= one << np.uint32(used[r] & 31)
    r = 0
    for word in range(directory.shape[0]):
        directory[word, 1] = r
        while r < n and used[r] >> 5 == word:
            r += 1
    for r in range(n):
        place[used[r]] = starts[r]
    for j in range(p):
        for k in range(indptr[j], indptr[j + 1]):
            at = place[indices[k]]
            partners[at], values[at] = j, data[k]
            place[indices[k]] = at + 1
    for r in range(n):
        first, count = starts[r], place[used[r]] - starts[r]
        if starts[r + 1] - first == p:
            # From the last one on, each moves to its own place.
            for j in range(p - 1, -1, -1):
                value = values.dtype.type(0)
                if count > 0 and partners[first + count - 1] == j:
                    count -= 1
                    value = values[first + count]
                partners[first + j], values[first + j] = j, value


@compiled
def csr_survey(
    data: Floats, indices: Integers, indptr: Integers, places: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Find the largest value of CSR rows at `places`, and count entries and groups of four.

    The largest is −1 if a value is no whole number from 0 to 255, and 0 if there is none.
    """
    largest, n_entries, n_groups, one = 0.0, 0, 0, np.uint64(1)
    for i in range(np.uint64(places.shape[0])):
        place, are_bytes, last = np.uint64(places[i]), True, np.int64(-1)
        for k in range(np.uint64(indptr[place]), np.uint64(indptr[place + one])):
            value, group = data[k], np.int64(indices[k]) >> 2
            are_bytes &= (value >= 0) & (value <= 255) & (np.floor(value) == value)
            largest = max(largest, np.float64(value))
            n_groups += group != last
            last = group
        if not are_bytes:
            return -1, n_entries, n_groups
        n_entries += indptr[place + one] - indptr[place]
    return int(largest), n_entries, n_groups


@compiled
def csr_byte_tile(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    used: NDArray[np.int32],
    place: NDArray[np.int32],
    width: int,
    tile: Bytes,
) -> None:
    """Lay CSR rows of whole numbers from 0 to 255 out as `csr_tile` does, for `gram.byte_span`.

    used (n,) are features or, of a tile of words, groups of four; all chunks are of `width`; tile
    is overwritten.
    """
    n, p = used.shape[0], indptr.shape[0] - 1
    counts = tile.itemsize == 1
    for r in range(n):
        place[used[r]] = r
    for k in range(tile.shape[0]):
        tile[k] = 0 if counts else FOUR_ZEROS
    for j in range(p):
        first = j // width * width * n + j % width
        for k in range(indptr[j], indptr[j + 1]):
            feature, value = np.int64(indices[k]), np.int64(data[k])
            if counts:
                tile[first + place[feature] * width] = value
            else:
                at = first + place[feature >> 2] * width
                tile[at] ^= np.uint32(value << 8 * (feature & 3))
