"""Sparse rows: their products with columns laid out in tiles, and what is needed to lay them out.

A product is one chain of fused multiply-adds over the features of the row in order, whatever the
rest of the tile and the width of the machine's vectors: its bits depend on the two vectors alone.

A tile of p columns over the features that occur in them, n_used, is cut into chunks (n_used, CHUNK)
that lie one after the other; the last one is as narrow as what is left. The sums of a row with a
chunk stay in registers over all of its features, and what is read at once is near each other: rows
of 150 features took 3.4 ns a value, of 14 and 12 features 0.23 and 0.11, where sums in memory and a
tile of one chunk took 5.2, 0.34 and 0.15 (one AVX-512 core; mnist, a9a, w8a). Eight vectors a chunk
took 4.1, two or four rows at once no less than one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

Untyped: TypeAlias = Any
"""What Numba and LLVM hand to the functions that write their code."""


def _vector_bytes() -> int:
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx2") else 16


VECTOR_BYTES = _vector_bytes()
# Eight of AVX2 are as wide as four of AVX-512, and 16 registers hold them and a broadcast.
VECTORS = 4 if VECTOR_BYTES == 64 else 8
CHUNK32 = VECTORS * VECTOR_BYTES // 4
CHUNK64 = VECTORS * VECTOR_BYTES // 8

if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        return a * b + c

    def _chains(
        values: Floats,
        places: Integers,
        start: int,
        stop: int,
        chunk: Floats,
        out: Floats,
        i: int,
    ) -> None:
        out[i] = 0
        for k in range(start, stop):
            out[i] += values[k] * chunk[places[k]]

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate

    @intrinsic
    def _chains(
        typing_context: Untyped,
        values: Untyped,
        places: Untyped,
        start: Untyped,
        stop: Untyped,
        chunk: Untyped,
        out: Untyped,
        i: Untyped,
    ) -> Untyped:
        """Set ``out[i] = values[start:stop] @ chunk[places[start:stop]]``, (CHUNK,)."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            scalar = ir.FloatType() if values.dtype == types.float32 else ir.DoubleType()
            size = 4 if values.dtype == types.float32 else 8
            lanes = VECTOR_BYTES // size
            vector = ir.VectorType(scalar, lanes)
            word = ir.IntType(64)
            x, rows, a, c = (
                context.make_array(signature.args[n])(context, builder, arguments[n])
                for n in (0, 1, 4, 5)
            )
            first, end = arguments[2], arguments[3]
            fma = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(vector, [vector] * 3),
                f"llvm.fma.v{lanes}f{8 * size}",
            )
            zero_index = ir.Constant(ir.IntType(32), 0)
            spread = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            undefined = ir.Constant(vector, ir.Undefined)
            zeros = ir.Constant(vector, [0.0] * lanes)

            def vector_at(base: Untyped, v: int) -> Untyped:
                pointer = builder.gep(base, [ir.Constant(word, v * lanes)])
                return builder.bitcast(pointer, vector.as_pointer())

            entry = builder.block
            loop = builder.append_basic_block("entries")
            done = builder.append_basic_block("store")
            builder.cbranch(builder.icmp_signed("<", first, end), loop, done)
            builder.position_at_end(loop)
            k = builder.phi(word)
            k.add_incoming(first, entry)
            sums = [builder.phi(vector) for _ in range(VECTORS)]
            value = builder.load(builder.gep(x.data, [k]))
            broad = builder.insert_element(undefined, value, zero_index)
            broad = builder.shuffle_vector(broad, undefined, spread)
            place = builder.sext(builder.load(builder.gep(rows.data, [k])), word)
            at = builder.mul(place, ir.Constant(word, VECTORS * lanes))
            columns = builder.gep(a.data, [at])
            new = [
                builder.call(fma, [broad, builder.load(vector_at(columns, v), align=size), total])
                for v, total in enumerate(sums)
            ]
            following = builder.add(k, ir.Constant(word, 1))
            k.add_incoming(following, loop)
            for phi, total in zip(sums, new, strict=True):
                phi.add_incoming(zeros, entry)
                phi.add_incoming(total, loop)
            builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
            builder.position_at_end(done)
            totals = [builder.phi(vector) for _ in range(VECTORS)]
            for phi, total in zip(totals, new, strict=True):
                phi.add_incoming(zeros, entry)
                phi.add_incoming(total, loop)
            stride = cgutils.unpack_tuple(builder, c.strides)[0]
            row = builder.bitcast(c.data, ir.IntType(8).as_pointer())
            row = builder.gep(row, [builder.mul(arguments[6], stride)])
            row = builder.bitcast(row, scalar.as_pointer())
            for v, total in enumerate(totals):
                builder.store(total, vector_at(row, v), align=size)
            return context.get_dummy_value()

        numbers = types.intp, types.intp
        return types.void(values, places, *numbers, chunk, out, types.intp), generate


@njit(cache=True, nogil=True)
def csr_squared_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|²`` of sparse rows, added up as `csr_products` does.

    The norm of x and the product x·x then have the same bits: the distance of a row to itself, or
    to its duplicate, is exactly 0. Data and out (m,) are of one dtype.
    """
    for i in range(out.shape[0]):
        out[i] = 0
        for k in range(indptr[i], indptr[i + 1]):
            out[i] = _fma(data[k], data[k], out[i])


@njit(cache=True, nogil=True)
def csr_absolute_norms(data: Floats, indptr: Integers, out: Floats) -> None:
    """``|x|₁`` of sparse rows, added up as `csr_overlaps` does; data and out (m,) of one dtype."""
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
    tile: Floats,
) -> None:
    """Lay CSR rows out as the columns of a tile, as `csr_products` takes them.

    tile (n_used · p,), 0 before; `place` is scratch, (n_features,).
    """
    n, p = used.shape[0], indptr.shape[0] - 1
    for r in range(n):
        place[used[r]] = r
    width = CHUNK32 if tile.itemsize == 4 else CHUNK64
    for low in range(0, p, width):
        high = min(low + width, p)
        chunk = tile[low * n : high * n].reshape(n, high - low)
        for j in range(low, high):
            for k in range(indptr[j], indptr[j + 1]):
                chunk[place[indices[k]], j - low] = data[k]


@njit(cache=True, nogil=True)
def _used_entries(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    place: NDArray[np.int32],
    starts: NDArray[np.int64],
    places: NDArray[np.int32],
    values: Floats,
) -> None:
    """Entries of rows whose feature has a place in a tile, in order; row i has those from starts_i.

    starts (m + 1,); places and values have space for all entries.
    """
    count = 0
    for i in range(starts.shape[0] - 1):
        starts[i] = count
        for k in range(indptr[i], indptr[i + 1]):
            r = place[indices[k]]
            if r >= 0:
                places[count] = r
                values[count] = data[k]
                count += 1
    starts[-1] = count


@njit(cache=True, nogil=True)
def csr_overlaps(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    parts: NDArray[np.int64],
    used: NDArray[np.int32],
    place: NDArray[np.int32],
    vectors: Floats,
    out: Floats,
) -> None:
    """Overlaps of sparse rows with the columns of tiles, as `csr_products` takes them.

    The overlap p of a and b is what they have in common, ``Σ min(|a_k|, |b_k|)`` over the features
    where both have one sign, so that ``|a|₁ + |b|₁ − 2 p = |a − b|₁``.
    """
    zero = data.dtype.type(0)
    m, n_entries = out.shape[0], indptr[-1] - indptr[0]
    starts, places = np.empty(m + 1, np.int64), np.empty(n_entries, np.int32)
    values = np.empty(n_entries, data.dtype)
    width = CHUNK32 if vectors.itemsize == 4 else CHUNK64
    for t in range(parts.shape[0] - 1):
        features = used[parts[t, 1] : parts[t + 1, 1]]
        tile = vectors[parts[t, 2] : parts[t + 1, 2]]
        n, stop = features.shape[0], parts[t + 1, 0]
        for r in range(n):
            place[features[r]] = r
        _used_entries(data, indices, indptr, place, starts, places, values)
        for low in range(parts[t, 0], stop, width):
            high = min(low + width, stop)
            first = (low - parts[t, 0]) * n
            chunk = tile[first : first + (high - low) * n].reshape(n, high - low)
            for i in range(m):
                row = out[i, low:high]
                row[:] = 0
                for k in range(starts[i], starts[i + 1]):
                    a, others = values[k], chunk[places[k]]
                    if a > zero:
                        for j in range(row.shape[0]):
                            row[j] += max(zero, min(a, others[j]))
                    else:
                        for j in range(row.shape[0]):
                            row[j] += max(zero, min(-a, -others[j]))
        for r in range(n):
            place[features[r]] = -1


@njit(cache=True, nogil=True)
def _narrow_chains(
    values: Floats, places: NDArray[np.int32], start: int, stop: int, chunk: Floats, row: Floats
) -> None:
    """Do what `_chains` does with fewer columns than a chunk has."""
    row[:] = 0
    # Four at a time, so that the row is passed over a quarter as often.
    fours = start + (stop - start) // 4 * 4
    for c in range(start, fours, 4):
        v0, v1, v2, v3 = values[c], values[c + 1], values[c + 2], values[c + 3]
        t0, t1 = chunk[places[c]], chunk[places[c + 1]]
        t2, t3 = chunk[places[c + 2]], chunk[places[c + 3]]
        for j in range(row.shape[0]):
            total = _fma(v1, t1[j], _fma(v0, t0[j], row[j]))
            row[j] = _fma(v3, t3[j], _fma(v2, t2[j], total))
    for c in range(fours, stop):
        v0 = values[c]
        t0 = chunk[places[c]]
        for j in range(row.shape[0]):
            row[j] = _fma(v0, t0[j], row[j])


@njit(cache=True, nogil=True)
def csr_products(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    parts: NDArray[np.int64],
    used: NDArray[np.int32],
    place: NDArray[np.int32],
    vectors: Floats,
    out: Floats,
) -> None:
    """Dot products of sparse rows with the columns of tiles: ``out[i] = x_i @ tile``.

    Features that are zero in a column change nothing, so its bits do not depend on those that the
    rest of the tile has.

    Parameters
    ----------
    data, indices, indptr : arrays
        The rows, CSR with sorted indices; data of the dtype of vectors and out.
    parts : (n_tiles + 1, 3) int64
        Where each tile begins, and the last one ends: column, place in `used`, place in `vectors`.
    used : (…,) int32
        Feature of each row of a tile; all other features are zero in every column of it.
    place : (n_features,) int32
        Scratch, −1 everywhere before and after: the row of a feature in a tile.
    vectors : (…,)
        Tiles in chunks, one after the other: the columns' vectors, transposed and without their
        unused rows. Fastest where it begins at a multiple of VECTOR_BYTES.
    out : (m, ≥ p)
    """
    m, n_entries = out.shape[0], indptr[-1] - indptr[0]
    starts, places = np.empty(m + 1, np.int64), np.empty(n_entries, np.int32)
    values = np.empty(n_entries, data.dtype)
    width = CHUNK32 if vectors.itemsize == 4 else CHUNK64
    for t in range(parts.shape[0] - 1):
        features = used[parts[t, 1] : parts[t + 1, 1]]
        tile = vectors[parts[t, 2] : parts[t + 1, 2]]
        n, stop = features.shape[0], parts[t + 1, 0]
        for r in range(n):
            place[features[r]] = r
        _used_entries(data, indices, indptr, place, starts, places, values)
        for low in range(parts[t, 0], stop, width):
            high = min(low + width, stop)
            first = (low - parts[t, 0]) * n
            chunk = tile[first : first + (high - low) * n].reshape(n, high - low)
            block = out[:, low:high]
            for i in range(m):
                if high - low == width:
                    _chains(values, places, starts[i], starts[i + 1], chunk, block, i)
                else:
                    _narrow_chains(values, places, starts[i], starts[i + 1], chunk, block[i])
        for r in range(n):
            place[features[r]] = -1
