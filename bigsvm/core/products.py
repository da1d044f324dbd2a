"""Dot products of dense rows with packed columns, whose bits depend on these two alone.

Every element is one chain of fused multiply-adds over the features in order, whatever its place in
the block, the size of the block, or the width of the machine's vectors. A BLAS promises none of it
(OpenBLAS' Haswell kernels round a row differently at another position), and a resumed run that
computes its kernel rows in other batches could not repeat its bits. It is also faster where the
BLAS does not know the machine: 260 GFLOP/s of one AVX-512 core, where OpenBLAS 0.3.31 takes an AMD
for a Haswell and reaches 127.

Columns are packed once into panels (depth, NR); rows are packed MR at a time; the micro-kernel
keeps MR x NR sums in registers (BLIS' scheme without its cache blocking: tiles are small enough).
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

Untyped: TypeAlias = Any
"""What Numba and LLVM hand to the functions that write their code."""


def _vector_bytes() -> int:
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx2") else 16


VECTOR_BYTES = _vector_bytes()
VECTORS = 2
# 32 registers of AVX-512 hold 12 x 2 sums, 2 column vectors and a broadcast; 16 hold 6 x 2.
MR = 12 if VECTOR_BYTES == 64 else 6
NR32 = VECTORS * VECTOR_BYTES // 4
NR64 = VECTORS * VECTOR_BYTES // 8

if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        return a * b + c

    def _micro_kernel(rows: Floats, panel: Floats, out: Floats, first: int) -> None:
        out[first : first + MR] = 0
        for k in range(rows.shape[0]):
            out[first : first + MR] += np.multiply.outer(rows[k], panel[k])

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
    def _micro_kernel(
        typing_context: Untyped, rows: Untyped, panel: Untyped, out: Untyped, first: Untyped
    ) -> Untyped:
        """Set ``out[first : first + MR] = rows.T @ panel``; rows (depth, MR), panel (depth, NR)."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            scalar = ir.FloatType() if rows.dtype == types.float32 else ir.DoubleType()
            size = 4 if rows.dtype == types.float32 else 8
            lanes = VECTOR_BYTES // size
            vector = ir.VectorType(scalar, lanes)
            word = ir.IntType(64)
            a, b, c = (
                context.make_array(t)(context, builder, value)
                for t, value in zip(signature.args[:3], arguments[:3], strict=True)
            )
            depth = cgutils.unpack_tuple(builder, a.shape)[0]
            stride = cgutils.unpack_tuple(builder, c.strides)[0]
            fma = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(vector, [vector] * 3),
                f"llvm.fma.v{lanes}f{8 * size}",
            )
            zero_index = ir.Constant(ir.IntType(32), 0)
            spread = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            undefined = ir.Constant(vector, ir.Undefined)
            zeros = ir.Constant(vector, [0.0] * lanes)

            def vector_at(base: Untyped, index: Untyped) -> Untyped:
                pointer = builder.gep(base, [index])
                return builder.bitcast(pointer, vector.as_pointer())

            entry = builder.block
            loop = builder.append_basic_block("depth")
            done = builder.append_basic_block("store")
            builder.branch(loop)
            builder.position_at_end(loop)
            k = builder.phi(word)
            k.add_incoming(ir.Constant(word, 0), entry)
            sums = []
            for _ in range(MR * VECTORS):
                phi = builder.phi(vector)
                phi.add_incoming(zeros, entry)
                sums.append(phi)
            base_b = builder.mul(k, ir.Constant(word, VECTORS * lanes))
            columns = []
            for v in range(VECTORS):
                at = vector_at(b.data, builder.add(base_b, ir.Constant(word, v * lanes)))
                columns.append(builder.load(at, align=size))
            base_a = builder.mul(k, ir.Constant(word, MR))
            new = []
            for r in range(MR):
                x = builder.load(builder.gep(a.data, [builder.add(base_a, ir.Constant(word, r))]))
                broad = builder.insert_element(undefined, x, zero_index)
                broad = builder.shuffle_vector(broad, undefined, spread)
                new += [
                    builder.call(fma, [broad, columns[v], sums[r * VECTORS + v]])
                    for v in range(VECTORS)
                ]
            following = builder.add(k, ir.Constant(word, 1))
            k.add_incoming(following, loop)
            for phi, value in zip(sums, new, strict=True):
                phi.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, depth), loop, done)
            builder.position_at_end(done)
            byte = ir.IntType(8).as_pointer()
            start = builder.mul(arguments[3], stride)
            for r in range(MR):
                offset = builder.add(start, builder.mul(stride, ir.Constant(word, r)))
                row = builder.gep(builder.bitcast(c.data, byte), [offset])
                row = builder.bitcast(row, scalar.as_pointer())
                for v in range(VECTORS):
                    at = vector_at(row, ir.Constant(word, v * lanes))
                    builder.store(new[r * VECTORS + v], at, align=size)
            return context.get_dummy_value()

        return types.void(rows, panel, out, types.intp), generate


@njit(cache=True, nogil=True)
def pack_columns(values: Floats, panels: Floats) -> None:
    """Pack vectors (p, d) into panels (ceil(p / NR), d, NR), filled up with zeros."""
    p, d = values.shape
    width = panels.shape[2]
    for q in range(panels.shape[0]):
        for j in range(width):
            column = q * width + j
            if column < p:
                for k in range(d):
                    panels[q, k, j] = values[column, k]
            else:
                for k in range(d):
                    panels[q, k, j] = 0


@njit(cache=True, nogil=True)
def pack_rows(
    values: Floats, places: NDArray[np.int64], centre: NDArray[np.float64], packed: Floats
) -> None:
    """Pack the rows at `places` (m,) into groups (ceil(m / MR), d, MR), filled up with zeros.

    The centre (d,) is subtracted in float64, before a value is rounded to the dtype of `packed`.
    """
    m, d = places.shape[0], values.shape[1]
    for q in range(packed.shape[0]):
        for r in range(MR):
            i = q * MR + r
            if i < m:
                row = values[places[i]]
                for k in range(d):
                    packed[q, k, r] = row[k] - centre[k]
            else:
                for k in range(d):
                    packed[q, k, r] = 0


@njit(cache=True, nogil=True)
def multiply_packed(packed: Floats, panels: Floats, out: Floats) -> None:
    """Dot products of packed rows and packed columns.

    packed (groups, d, MR), panels (q, d, NR) with d ≥ 1, out (groups · MR, ≥ q · NR).
    """
    width = panels.shape[2]
    for q in range(panels.shape[0]):
        panel = panels[q]
        part = out[:, q * width : (q + 1) * width]
        for g in range(packed.shape[0]):
            _micro_kernel(packed[g], panel, part, g * MR)


@njit(cache=True, nogil=True)
def squared_norms(packed: Floats, out: Floats) -> None:
    """``|x|²`` of packed rows (groups, d, MR), added up as the micro-kernel does.

    The norm of x and the product x·x then have the same bits: the distance of a row to itself, or
    to its duplicate, is exactly 0. Fills the first `len(out)` of the rows.
    """
    for i in range(out.shape[0]):
        out[i] = 0
    for g in range(packed.shape[0]):
        rows = min(MR, out.shape[0] - g * MR)
        part = out[g * MR : g * MR + rows]
        for k in range(packed.shape[1]):
            for r in range(rows):
                part[r] = _fma(packed[g, k, r], packed[g, k, r], part[r])


@njit(cache=True, nogil=True, error_model="numpy")
def distances_packed(packed: Floats, panels: Floats, out: Floats) -> None:
    """``−½ |a − b|₁`` of packed rows and packed columns, as `multiply_packed` takes them.

    Like a product p of which ``norm + norm − 2 p`` is the distance, with norms of 0.
    """
    width, depth = panels.shape[2], packed.shape[1]
    half = packed.dtype.type(-0.5)
    for q in range(panels.shape[0]):
        panel = panels[q]
        for g in range(packed.shape[0]):
            for r in range(MR):
                row = out[g * MR + r, q * width : (q + 1) * width]
                row[:] = 0
                for k in range(depth):
                    a = packed[g, k, r]
                    for j in range(width):
                        row[j] += abs(a - panel[k, j])
                for j in range(width):
                    row[j] *= half
