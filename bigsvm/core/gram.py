"""Blocks of a kernel matrix: from rows to products, to kernel values, to weighted sums.

`dense_span` and `sparse_span` do all of this for a span of rows and all tiles of partners, without
the interpreter. The products with a tile stay in the second-level cache while they become kernel
values in place and are used.

A product is one chain of fused multiply-adds over the features in order. Its bits depend on the two
rows alone, not on the place in the block, the size of the block or the width of the processor's
vectors. A BLAS does not promise that. Without it, a resumed run that computes kernel rows in other
batches would have other bits.

* Dense partners are packed once into panels (depth, NR), rows MR at a time; the micro-kernel keeps
  MR x NR sums in registers (BLIS' scheme without its cache blocking: tiles are small enough).
* A tile of p sparse partners has the n_used features that occur in them. It is cut into chunks
  (n_used, CHUNK), one after the other; the last one may be narrower. The sums of a row with a chunk
  stay in registers over all features, and what is read together lies together.

If all values are whole numbers and no product reaches 2²⁴, these chains do not round. Integers then
give the same bits, and a vector of bytes holds four times as many partners as one of float32.
Sparse partners of whole numbers from 0 to 255 are laid out as bytes, in one of two ways, and
`byte_span` is `sparse_span` for them. The dtype of the tiles tells the way:

* uint8: all values of the partners are 0 or 1. A vector of counters counts the features that a row
  of ones has in common with each partner.
* uint32: four features side by side, in the bytes of a word. The processor multiplies four bytes of
  a row with four of a partner and adds the products up. It takes one factor unsigned and the other
  one signed: partners are stored minus 128, and 128 times the sum of the row is added.

Other rows are multiplied in floats, with the same bits as if the partners were floats.

Sparse rows of very many columns have few features in common, and a tile of their features would
exceed the cache. Partners are then laid out in lists, one for each feature, of those partners that
have it: `listed_span`. Its products are the same chains without the zeros.

The exponential is written here because LLVM vectorises it, unlike ``math.exp``.

Kernel codes are LIBSVM's ``-t``: 0 linear, 1 polynomial, 2 rbf, 3 sigmoid, 4 precomputed; and 5
laplacian, which is rbf with absolute distances in place of squared ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from bigsvm.compilation import compiled, inlined, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]
    Floats: TypeAlias = F4 | F8
    Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
    Bytes: TypeAlias = NDArray[np.uint8] | NDArray[np.uint32]

Untyped: TypeAlias = Any
"""Types and values of Numba and LLVM, in functions that generate code."""

LINEAR, POLYNOMIAL, RBF, SIGMOID, PRECOMPUTED, LAPLACIAN = 0, 1, 2, 3, 4, 5
ABSOLUTE = 1
"""A product p such that the sum of two norms less 2 p is the absolute distance. The dot product is
None, so that only one of the two products is compiled."""


class Formula(NamedTuple):
    """How products become kernel values; any other code than those above does not change them."""

    code: int
    gamma: float
    coef0: float
    degree: int
    offset: float


def _features() -> set[str]:
    """Instructions that the compiler may use, as LLVM names them."""
    given = config.CPU_FEATURES  # from NUMBA_CPU_FEATURES
    return set((get_host_cpu_features() if given is None else given).split(","))


def _vector_bytes() -> int:
    if "+avx512f" in _features():
        return 64
    return 32 if "+avx2" in _features() else 16


def _multiplies_bytes() -> bool:
    """Whether the processor has the instruction that multiplies bytes, four at a time."""
    wanted = {64: "+avx512vnni", 32: "+avxvnni"}.get(VECTOR_BYTES)
    return bool(config.DISABLE_JIT) or wanted in _features()


VECTOR_BYTES = _vector_bytes()
MULTIPLIES_BYTES = _multiplies_bytes()
PANEL_VECTORS = 2
# 32 registers of AVX-512 hold 12 x 2 sums, 2 vectors of partners and a broadcast; 16 hold 6 x 2.
MR = 12 if VECTOR_BYTES == 64 else 6
NR32 = PANEL_VECTORS * VECTOR_BYTES // 4
NR64 = PANEL_VECTORS * VECTOR_BYTES // 8
# Eight of AVX2 are as wide as four of AVX-512, and 16 registers hold them and a broadcast.
CHUNK_VECTORS = 4 if VECTOR_BYTES == 64 else 8
CHUNK32 = CHUNK_VECTORS * VECTOR_BYTES // 4
CHUNK64 = CHUNK_VECTORS * VECTOR_BYTES // 8
CHUNK_BYTES = CHUNK_VECTORS * VECTOR_BYTES

LARGEST_BYTE = 255
"""The largest number in a byte, and the largest count of a counter."""
LARGEST_SUM = (2**24 - 1) // LARGEST_BYTE
"""Products of a row of bytes with a larger sum may exceed 2²⁴, where float32 rounds."""


# Reassociation lets sums vectorise; NaN and infinity keep their meaning, unlike under
# fastmath=True.
FAST = {"reassoc", "contract", "arcp", "nsz"}
# A value is rounded as it is written, on every processor: reassociated, `(u + ROUND) - ROUND` would
# be u, and only some processors would contract a product and a sum.
AS_WRITTEN = {"nsz"}

LOG2_E = 1.4426950408889634
LARGEST32 = 3.4028234663852886e38
"""The largest number of float32."""
LOG2_E_REST = 2.0355273740931033e-17
"""What float64 rounds off log2 e."""
LAST_POWER, LAST_POWER64 = 125.0, 1010.0
"""Largest exponents of powers of 2, positive or negative: those beyond ±126 and ±1022 do not fit
the bits of float32 and float64."""


def _broad(  # pragma: no cover (runs in the compiler)
    builder: Untyped, vector: Untyped, value: Untyped
) -> Untyped:
    """Write code for a vector whose elements are all one value."""
    undefined = ir.Constant(vector, ir.Undefined)
    spread = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, spread)


def _vector_at(  # pragma: no cover (runs in the compiler)
    builder: Untyped, base: Untyped, vector: Untyped, v: int
) -> Untyped:
    """Write code for the place of vector v of those that begin at a pointer."""
    pointer = builder.gep(base, [ir.Constant(ir.IntType(64), v * vector.count)])
    return builder.bitcast(pointer, vector.as_pointer())


def _over_entries(  # pragma: no cover (runs in the compiler)
    builder: Untyped, entries: Untyped, chunk: Untyped, initial: Untyped, add: Untyped
) -> list[Untyped]:
    """Write a loop that adds the rows of a chunk up in vectors that stay in registers.

    ``for k in range(first, end): totals = add(k)(totals, chunk[rows[k]])`` with `entries` (rows,
    first, end); returns the totals.
    """
    rows, first, end = entries
    vector, word = initial.type, ir.IntType(64)
    size = VECTOR_BYTES // vector.count
    entry = builder.block
    loop = builder.append_basic_block("entries")
    done = builder.append_basic_block("store")
    builder.cbranch(builder.icmp_signed("<", first, end), loop, done)
    builder.position_at_end(loop)
    k = builder.phi(word)
    k.add_incoming(first, entry)
    sums = [builder.phi(vector) for _ in range(CHUNK_VECTORS)]
    added = add(k)
    place = builder.sext(builder.load(builder.gep(rows, [k])), word)
    at = builder.mul(place, ir.Constant(word, CHUNK_VECTORS * vector.count))
    loaded_row = builder.gep(chunk, [at])
    new = [
        added(total, builder.load(_vector_at(builder, loaded_row, vector, v), align=size))
        for v, total in enumerate(sums)
    ]
    following = builder.add(k, ir.Constant(word, 1))
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)
    totals = [builder.phi(vector) for _ in range(CHUNK_VECTORS)]
    for phis in (sums, totals):
        for phi, total in zip(phis, new, strict=True):
            phi.add_incoming(initial, entry)
            phi.add_incoming(total, loop)
    return totals


if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c`` in more digits, and round the sum."""
        wide = np.add(np.multiply(a, b, dtype=np.longdouble), c)
        return wide.astype(np.asarray(a).dtype)

    def _micro_kernel(rows: Floats, panel: Floats, out: Floats, first: int) -> None:
        part = out[first : first + MR]
        part[:] = 0
        for k in range(rows.shape[0]):
            part[:] = _fma(rows[k][:, None], panel[k], part)

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
            out[i] = _fma(chunk[places[k]], values[k], out[i])

    def _prefetch(values: Untyped, place: int) -> None:
        pass

    def _byte_sums(
        words: Untyped,
        places: Integers,
        start: int,
        stop: int,
        chunk: Untyped,
        first: int,
        sums: Untyped,
    ) -> None:
        total = sums.view(np.uint8 if chunk.itemsize == 1 else np.int32)
        total[:] = first
        for k in range(start, stop):
            others = chunk[places[k]]
            if chunk.itemsize == 1:
                total += others
                continue
            for byte in range(0, 32, 8):
                signed = (others >> np.uint32(byte)).astype(np.int8).astype(np.int32)
                total += signed * np.int32(words[k] >> np.uint32(byte) & np.uint32(255))

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
            for _ in range(MR * PANEL_VECTORS):
                phi = builder.phi(vector)
                phi.add_incoming(zeros, entry)
                sums.append(phi)
            base_b = builder.mul(k, ir.Constant(word, PANEL_VECTORS * lanes))
            partners = []
            for v in range(PANEL_VECTORS):
                at = vector_at(b.data, builder.add(base_b, ir.Constant(word, v * lanes)))
                partners.append(builder.load(at, align=size))
            base_a = builder.mul(k, ir.Constant(word, MR))
            new = []
            for r in range(MR):
                x = builder.load(builder.gep(a.data, [builder.add(base_a, ir.Constant(word, r))]))
                broad = builder.insert_element(undefined, x, zero_index)
                broad = builder.shuffle_vector(broad, undefined, spread)
                new += [
                    builder.call(fma, [broad, partners[v], sums[r * PANEL_VECTORS + v]])
                    for v in range(PANEL_VECTORS)
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
                for v in range(PANEL_VECTORS):
                    at = vector_at(row, ir.Constant(word, v * lanes))
                    builder.store(new[r * PANEL_VECTORS + v], at, align=size)
            return context.get_dummy_value()

        return types.void(rows, panel, out, types.intp), generate

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
            x, rows, a, c = (
                context.make_array(signature.args[n])(context, builder, arguments[n])
                for n in (0, 1, 4, 5)
            )
            fma = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(vector, [vector] * 3),
                f"llvm.fma.v{lanes}f{8 * size}",
            )

            def add(k: Untyped) -> Untyped:
                value = _broad(builder, vector, builder.load(builder.gep(x.data, [k])))
                return lambda total, others: builder.call(fma, [value, others, total])

            zeros = ir.Constant(vector, [0.0] * lanes)
            entries = rows.data, arguments[2], arguments[3]
            totals = _over_entries(builder, entries, a.data, zeros, add)
            stride = cgutils.unpack_tuple(builder, c.strides)[0]
            row = builder.bitcast(c.data, ir.IntType(8).as_pointer())
            row = builder.gep(row, [builder.mul(arguments[6], stride)])
            row = builder.bitcast(row, scalar.as_pointer())
            for v, total in enumerate(totals):
                builder.store(total, _vector_at(builder, row, vector, v), align=size)
            return context.get_dummy_value()

        numbers = types.intp, types.intp
        return types.void(values, places, *numbers, chunk, out, types.intp), generate

    @intrinsic
    def _prefetch(typing_context: Untyped, values: Untyped, place: Untyped) -> Untyped:
        """Ask for ``values[place]``, which is needed soon, from memory."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
            array = context.make_array(values)(context, builder, arguments[0])
            name = "llvm.prefetch.p0i8"
            kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            call = cgutils.get_or_insert_function(builder.module, kind, name)
            at = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
            # To read, keep it in all caches, data.
            builder.call(call, [at, *(ir.Constant(word, n) for n in (0, 3, 1))])
            return context.get_dummy_value()

        return types.void(values, types.intp), generate

    @intrinsic
    def _byte_sums(
        typing_context: Untyped,
        words: Untyped,
        places: Untyped,
        start: Untyped,
        stop: Untyped,
        chunk: Untyped,
        first: Untyped,
        sums: Untyped,
    ) -> Untyped:
        """Set ``sums = first + words[start:stop] @ chunk[places[start:stop]]``, CHUNK_BYTES.

        Words are four unsigned bytes, those of the chunk four signed bytes. With a chunk of bytes
        all words are 1 and are not read.
        """

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            size = 1 if chunk.dtype == types.uint8 else 4
            scalar = ir.IntType(8 * size)
            vector = ir.VectorType(scalar, VECTOR_BYTES // size)
            x, rows, a, c = (
                context.make_array(signature.args[n])(context, builder, arguments[n])
                for n in (0, 1, 4, 6)
            )

            def add(k: Untyped) -> Untyped:
                if size == 1:
                    return builder.add
                value = _broad(builder, vector, builder.load(builder.gep(x.data, [k])))
                dot = cgutils.get_or_insert_function(
                    builder.module,
                    ir.FunctionType(vector, [vector] * 3),
                    f"llvm.x86.avx512.vpdpbusd.{8 * VECTOR_BYTES}",
                )
                return lambda total, others: builder.call(dot, [total, value, others])

            initial = _broad(builder, vector, builder.trunc(arguments[5], scalar))
            entries = rows.data, arguments[2], arguments[3]
            totals = _over_entries(builder, entries, a.data, initial, add)
            for v, total in enumerate(totals):
                builder.store(total, _vector_at(builder, c.data, vector, v), align=size)
            return context.get_dummy_value()

        types_given = words, places, types.intp, types.intp, chunk, types.int64, sums
        return types.void(*types_given), generate


@compiled
def split32(scale: float) -> tuple[np.float32, np.float32]:
    """Split a number into two of float32, of one sign, that add up to it: for `power32`."""
    high = np.float32(scale)
    if abs(np.float64(high)) > abs(scale):
        high = np.nextafter(high, np.float32(0.0))
    return high, np.float32(scale - np.float64(high))


@inlined(fastmath=AS_WRITTEN)
def power32(x: np.float32, high: np.float32, low: np.float32) -> np.float32:
    """Compute 2^(x (high + low)) in float32, for exponents from −LAST_POWER to LAST_POWER.

    high and low are those of `split32`: with one part alone, the rounding of the scale would grow
    with the exponent. The relative error is below 3e-7, and 2^0 is exactly 1.

    It is monotone. The exponent is a whole number k and a rest f in [0, 1]. The polynomial in f has
    positive coefficients, so that no step of it falls where f rises. It ends below 2, by more than
    the rounding, so that no value falls where k rises. Adding k to the bits multiplies by 2^k.
    """
    round_off = np.float32(12582912.0)  # 1.5 · 2^23: a sum with it is rounded to a whole number
    shifted = _fma(x, high, np.float32(-0.5)) + round_off
    f = _fma(x, low, _fma(x, high, round_off - shifted))
    p = _fma(np.float32(0.0019062281353399158), f, np.float32(0.008927430026233196))
    p = _fma(p, f, np.float32(0.055868636816740036))
    p = _fma(p, f, np.float32(0.24014441668987274))
    p = _fma(p, f, np.float32(0.6931530237197876))
    p = np.float32(_fma(p, f, np.float32(1.0)))
    k = np.float32(shifted).view(np.int32) << np.int32(23)
    result: np.float32 = np.int32(p.view(np.int32) + k).view(np.float32)
    return result


@compiled(fastmath=AS_WRITTEN)
def split64(factor: float) -> tuple[float, float]:
    """Split `factor` · log2 e into two numbers, of one sign, that add up to it: for `power64`."""
    high = factor * LOG2_E
    low = _fma(factor, LOG2_E, -high) + factor * LOG2_E_REST
    if low * high < 0.0:
        high = np.nextafter(high, 0.0)
        low = _fma(factor, LOG2_E, -high) + factor * LOG2_E_REST
    return high, low


@inlined(fastmath=AS_WRITTEN)
def power64(x: float, high: float, low: float) -> float:
    """Compute 2^(x (high + low)) in float64, for exponents from −LAST_POWER64 to LAST_POWER64.

    As `power32` does; the relative error is below 1e-15.
    """
    round_off = 6755399441055744.0  # 1.5 · 2^52
    shifted = _fma(x, high, -0.5) + round_off
    f = _fma(x, low, _fma(x, high, round_off - shifted))
    p = _fma(6.12308791682453e-10, f, 6.6344458662488645e-09)
    p = _fma(p, f, 1.0236023803276539e-07)
    p = _fma(p, f, 1.3210583477764907e-06)
    p = _fma(p, f, 1.525299889972845e-05)
    p = _fma(p, f, 0.0001540352121910773)
    p = _fma(p, f, 0.001333355834393728)
    p = _fma(p, f, 0.009618129105151757)
    p = _fma(p, f, 0.05550410866498067)
    p = _fma(p, f, 0.24022650695909673)
    p = _fma(p, f, 0.6931471805599453)
    p = np.float64(_fma(p, f, 1.0))
    k = np.float64(shifted).view(np.int64) << np.int64(52)
    result: float = np.int64(p.view(np.int64) + k).view(np.float64)
    return result


@compiled(fastmath=AS_WRITTEN)
def kernel_values32(products: F4, norms_rows: F4, norms_partners: F4, formula: Formula) -> None:
    """Turn float32 products (m, ≥ p) into kernel values, in place.

    They are added up in another loop, as a vector holds twice as many values for exponentials in
    float32 as for sums in float64.
    """
    code, gamma, coef0, degree = formula.code, formula.gamma, formula.coef0, formula.degree
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    scale, offset = np.float32(gamma), np.float32(coef0)
    to_base_2 = min(gamma * LOG2_E, LARGEST32)
    high, low = split32(-to_base_2)
    far = np.float32(min(LAST_POWER / max(to_base_2, 1e-300), LARGEST32))
    e_high, e_low = split32(LOG2_E)
    end = np.float32(LAST_POWER / LOG2_E)
    added = np.float32(formula.offset)
    m, p = norms_rows.shape[0], norms_partners.shape[0]
    for i in range(m):
        row = products[i]
        if code == RBF or code == LAPLACIAN:
            a = norms_rows[i]
            for j in range(p):
                distance = _fma(row[j], -two, a + norms_partners[j])
                distance = min(max(zero, distance), far)
                row[j] = power32(distance, high, low)
        elif code == POLYNOMIAL:
            for j in range(p):
                base = _fma(scale, row[j], offset)
                power = one
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code == SIGMOID:
            for j in range(p):
                x = max(min(two * _fma(scale, row[j], offset), end), -end)
                row[j] = one - two / (power32(x, e_high, e_low) + one)
        if added != zero:
            for j in range(p):
                row[j] += added


@compiled(fastmath=AS_WRITTEN)
def kernel_values64(products: F8, norms_rows: F8, norms_partners: F8, formula: Formula) -> None:
    """Turn float64 products (m, ≥ p) into kernel values, in place."""
    code, gamma, coef0, degree = formula.code, formula.gamma, formula.coef0, formula.degree
    high, low = split64(-gamma)
    far = LAST_POWER64 / max(gamma * LOG2_E, 1e-300)
    e_high, e_low = split64(1.0)
    end = LAST_POWER64 / LOG2_E
    m, p = norms_rows.shape[0], norms_partners.shape[0]
    for i in range(m):
        row = products[i]
        if code == RBF or code == LAPLACIAN:
            a = norms_rows[i]
            for j in range(p):
                distance = _fma(row[j], -2.0, a + norms_partners[j])
                row[j] = power64(min(max(0.0, distance), far), high, low)
        elif code == POLYNOMIAL:
            for j in range(p):
                base = _fma(gamma, row[j], coef0)
                power = 1.0
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code == SIGMOID:
            for j in range(p):
                x = max(min(2.0 * _fma(gamma, row[j], coef0), end), -end)
                row[j] = 1.0 - 2.0 / (power64(x, e_high, e_low) + 1.0)
        if formula.offset != 0.0:
            for j in range(p):
                row[j] += formula.offset


@compiled
def looked_up(
    rows: Floats, places: NDArray[np.int64], features: NDArray[np.int32], out: Floats
) -> None:
    """Copy the values of rows at `places` (m,) in `features` (p,) to out (m, ≥ p)."""
    for i in range(places.shape[0]):
        row = rows[places[i]]
        for j in range(features.shape[0]):
            out[i, j] = row[features[j]]


@compiled(fastmath=FAST)
def weighted_sums(values: Floats, weights: F8, out: F8) -> None:
    """Add ``Σ_j values_ij weights_j`` to out_i, summed in float64.

    Two rows at a time, so that a weight is loaded half as often. A last single row is added up
    twice by the same loop, so that its bits do not depend on its place.
    """
    m, p = out.shape[0], weights.shape[0]
    for i in range(0, m, 2):
        other = i + 1 if i + 1 < m else i  # `min` would be compiled for it
        first, second = values[i], values[other]
        s0, s1 = 0.0, 0.0
        for j in range(p):
            s0 += np.float64(first[j]) * weights[j]
            s1 += np.float64(second[j]) * weights[j]
        out[i] += s0
        if other != i:
            out[other] += s1


if config.DISABLE_JIT:

    def _kernel_values(
        products: Floats, norms_rows: Floats, norms_partners: Floats, formula: Formula
    ) -> None:
        is_single = products.dtype == np.float32
        (kernel_values32 if is_single else kernel_values64)(
            products, norms_rows, norms_partners, formula
        )

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _kernel_values(
        typing_context: Untyped,
        products: Untyped,
        norms_rows: Untyped,
        norms_partners: Untyped,
        formula: Untyped,
    ) -> Untyped:
        """Call `kernel_values32` or `kernel_values64`, as the dtype of the products requires.

        A function that does so would be compiled with all that it calls once more.
        """
        is_single = products.dtype == types.float32
        code = types.Dispatcher(kernel_values32 if is_single else kernel_values64)
        given = products, norms_rows, norms_partners, formula
        signature = typing_context.resolve_function_type(code, given, {})

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            call = context.get_function(code, signature)
            context.add_linking_libs(call.libs)
            return call(builder, arguments)

        return signature, generate


@inlined
def _use(
    products: Floats,
    low: int,
    norms: Floats,
    norms_partners: Floats,
    formula: Formula,
    weights: F8,
    sums: F8,
    out: Floats,
    slots: NDArray[np.int64],
) -> None:
    """Turn the products (m, ≥ q) with partners from `low` on into kernel values, and use them."""
    q = norms_partners.shape[0]
    _kernel_values(products, norms, norms_partners, formula)
    if weights.shape[0]:
        weighted_sums(products, weights[low : low + q], sums)
    for i in range(slots.shape[0]):
        row, values = out[slots[i], low : low + q], products[i]
        for j in range(q):
            row[j] = values[j]


@inner
def _dense_products(packed: Floats, panels: Floats, out: Floats) -> None:
    """Dot products of packed rows and packed partners.

    packed (groups, d, MR), panels (q, d, NR) with d ≥ 1, out (groups · MR, ≥ q · NR).
    """
    width = panels.shape[2]
    for q in range(panels.shape[0]):
        panel = panels[q]
        part = out[:, q * width : (q + 1) * width]
        for g in range(packed.shape[0]):
            _micro_kernel(packed[g], panel, part, g * MR)


@inner
def _dense_distances(packed: Floats, panels: Floats, out: Floats) -> None:
    """``−½ |a − b|₁`` of packed rows and packed partners, as `_dense_products` takes them.

    This is a product p such that ``norm + norm − 2 p`` is the distance if norms are 0.
    """
    width, depth = panels.shape[2], packed.shape[1]
    half = packed.dtype.type(-0.5)
    for q in range(panels.shape[0]):
        panel = panels[q]
        for g in range(packed.shape[0]):
            for r in range(MR):
                row = out[g * MR + r, q * width : (q + 1) * width]
                for j in range(row.shape[0]):
                    row[j] = 0
                for k in range(depth):
                    a = packed[g, k, r]
                    for j in range(width):
                        row[j] += abs(a - panel[k, j])
                for j in range(width):
                    row[j] *= half


@inner
def _used_entries(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    place: NDArray[np.int32],
    starts: NDArray[np.int64],
    places: NDArray[np.int32],
    values: Floats,
) -> None:
    """Collect the entries of rows whose features are in a tile; those of row i begin at starts_i.

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


@inner
def _narrow_chains(
    values: Floats, places: NDArray[np.int32], start: int, stop: int, chunk: Floats, row: Floats
) -> None:
    """Do what `_chains` does, with fewer partners than a chunk has."""
    for j in range(row.shape[0]):
        row[j] = 0
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


@inner
def _sparse_products(
    values: Floats,
    places: NDArray[np.int32],
    starts: NDArray[np.int64],
    tile: Floats,
    out: Floats,
) -> None:
    """Dot products (m, p) of the entries of m rows with a tile: see `_used_entries`."""
    (m, p), width = out.shape, CHUNK32 if tile.itemsize == 4 else CHUNK64
    n = tile.shape[0] // max(p, 1)
    for low in range(0, p, width):
        high = min(low + width, p)
        chunk = tile[low * n : high * n].reshape(n, high - low)
        block = out[:, low:high]
        for i in range(m):
            if high - low == width:
                _chains(values, places, starts[i], starts[i + 1], chunk, block, i)
            else:
                _narrow_chains(values, places, starts[i], starts[i + 1], chunk, block[i])


@inner
def _sparse_overlaps(
    values: Floats,
    places: NDArray[np.int32],
    starts: NDArray[np.int64],
    tile: Floats,
    out: Floats,
) -> None:
    """Overlaps (m, p) of the entries of m rows with a tile, as `_sparse_products` takes them.

    The overlap p of a and b is ``Σ min(|a_k|, |b_k|)`` over the features
    where both have one sign, so that ``|a|₁ + |b|₁ − 2 p = |a − b|₁``.
    """
    (m, p), width = out.shape, CHUNK32 if tile.itemsize == 4 else CHUNK64
    zero, n = tile.dtype.type(0), tile.shape[0] // max(p, 1)
    for low in range(0, p, width):
        high = min(low + width, p)
        chunk = tile[low * n : high * n].reshape(n, high - low)
        for i in range(m):
            row = out[i, low:high]
            for j in range(row.shape[0]):
                row[j] = 0
            for k in range(starts[i], starts[i + 1]):
                a, others = values[k], chunk[places[k]]
                if a > zero:
                    for j in range(row.shape[0]):
                        row[j] += max(zero, min(a, others[j]))
                else:
                    for j in range(row.shape[0]):
                        row[j] += max(zero, min(-a, -others[j]))


@compiled
def dense_span(
    packed: Floats,
    norms: Floats,
    panels: Floats,
    norms_partners: Floats,
    product: int | None,
    formula: Formula,
    block: Floats,
    weights: F8,
    sums: F8,
    out: Floats,
    slots: NDArray[np.int64],
) -> None:
    """Kernel values of m dense rows with p partners: their weighted sums, or the values.

    All floats except sums and weights have the same dtype; norms are those that the formula needs
    with this product.

    Parameters
    ----------
    packed, panels : (ceil(m / MR), d, MR), (ceil(p / NR), d, NR)
        Rows and partners, packed by `products.pack_rows` and `products.pack_partners`; d ≥ 1.
    product : None or ABSOLUTE
    block : (≥ m, a multiple of NR)
        Scratch, as wide as a tile. It has the values of the last tile afterwards.
    weights, sums : (p,), (m,) float64
        ``Σ_j k_ij weights_j`` is added to sums_i, tile by tile, unless there are no weights.
    out, slots : (n_slots, ≥ p), (m,)
        The values of row i are written to row slots_i of out, unless there are no slots.
    """
    width, p = panels.shape[2], norms_partners.shape[0]
    for low in range(0, p, block.shape[1]):
        high = min(low + block.shape[1], p)
        part = panels[low // width : -(-high // width)]
        if product is None:
            _dense_products(packed, part, block)
        else:
            _dense_distances(packed, part, block)
        _use(block, low, norms, norms_partners[low:high], formula, weights, sums, out, slots)


@compiled(allocates=True)
def sparse_span(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    norms: Floats,
    place: NDArray[np.int32],
    vectors: Floats,
    used: NDArray[np.int32],
    edges: NDArray[np.int64],
    norms_partners: Floats,
    product: int | None,
    formula: Formula,
    block: Floats,
    weights: F8,
    sums: F8,
    out: Floats,
    slots: NDArray[np.int64],
) -> None:
    """Kernel values of m sparse rows with p partners; see `dense_span` for the other parameters.

    A feature that is zero in a partner does not change its products. So their bits do not depend on
    the other partners of the tile. Rows are CSR with sorted indices.

    Parameters
    ----------
    place : (n_features,) int32
        Scratch for the row of each feature in a tile; −1 everywhere before and after.
    vectors : (…,)
        Tiles in chunks, one after the other: the vectors of the partners, transposed and without
        unused features. Fastest if aligned to VECTOR_BYTES.
    used : (…,) int32
        Feature of each row of a tile; all other features are zero in its partners.
    edges : (n_tiles + 1, 3) int64
        Where each tile begins, and the last one ends: partner, place in `used`, place in `vectors`.
    block : (≥ m, partners of the widest tile)
    """
    m, n_entries = norms.shape[0], indptr[-1] - indptr[0]
    starts, places = np.empty(m + 1, np.int64), np.empty(n_entries, np.int32)
    values = np.empty(n_entries, data.dtype)
    for t in range(edges.shape[0] - 1):
        features = used[edges[t, 1] : edges[t + 1, 1]]
        tile = vectors[edges[t, 2] : edges[t + 1, 2]]
        low, high = edges[t, 0], edges[t + 1, 0]
        for r in range(features.shape[0]):
            place[features[r]] = r
        _used_entries(data, indices, indptr, place, starts, places, values)
        for r in range(features.shape[0]):
            place[features[r]] = -1
        products = block[:m, : high - low]
        if product is None:
            _sparse_products(values, places, starts, tile, products)
        else:
            _sparse_overlaps(values, places, starts, tile, products)
        _use(block, low, norms, norms_partners[low:high], formula, weights, sums, out, slots)


@inner
def _listed_entries(
    data: Floats,
    indices: Integers,
    begin: int,
    end: int,
    directory: NDArray[np.int32],
    numbers: NDArray[np.int32],
    values: Floats,
) -> int:
    """Collect the entries ``begin … end - 1`` whose features have lists, and count them.

    numbers and values have space for all of them, and get the numbers of the lists.
    """
    count = 0
    for k in range(begin, end):
        word, bit = np.int64(indices[k]) >> 5, np.int64(indices[k]) & 31
        bits = np.int64(directory[2 * word])
        # How many bits before this one are set.
        x = bits & ((1 << bit) - 1)
        x = x - (x >> 1 & 0x55555555)
        x = (x & 0x33333333) + (x >> 2 & 0x33333333)
        x = (x + (x >> 4) & 0x0F0F0F0F) * 0x01010101 >> 24 & 255
        numbers[count] = directory[2 * word + 1] + x
        values[count] = data[k]
        # Without a branch: about as many features have a list as have none.
        count += int(bits >> bit & 1)
    return count


@inner
def _listed_products(
    firsts: NDArray[np.int32],
    stops: NDArray[np.int32],
    values: Floats,
    count: int,
    partners: NDArray[np.int32],
    others: Floats,
    row: Floats,
) -> None:
    """Dot products (p,) of the first entries of a row with a tile of lists: see `listed_span`."""
    p = row.shape[0]
    for j in range(p):
        row[j] = 0
    for k in range(count):
        value = values[k]
        # Unsigned indices: one that might count from the end takes longer.
        first, stop = np.uint64(firsts[k]), np.uint64(stops[k])
        if stop - first == np.uint64(p):
            full = others[first:stop]
            for j in range(p):
                row[j] = _fma(value, full[j], row[j])
        else:
            for place in range(first, stop):
                one = np.uint64(partners[place])
                row[one] = _fma(value, others[place], row[one])


@compiled(allocates=True)
def listed_span(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    norms: Floats,
    place: NDArray[np.int32],
    vectors: Floats,
    used: NDArray[np.int32],
    edges: NDArray[np.int64],
    norms_partners: Floats,
    product: None,
    formula: Formula,
    block: Floats,
    weights: F8,
    sums: F8,
    out: Floats,
    slots: NDArray[np.int64],
) -> None:
    """Do what `sparse_span` does, with partners in lists, one for each feature of a tile.

    Zeros of partners are not multiplied, which does not change a chain. Where two rows have few
    features in common, that is much less work, and the lists are much smaller than a tile.

    The part of `used` for a tile has the number of words of its directory, the directory, where
    the lists begin, and the partners in them; `vectors` has their values: see `csr.csr_lists`.
    """
    m, most = norms.shape[0], 0
    for i in range(m):
        most = max(most, indptr[i + 1] - indptr[i])
    numbers, values = np.empty(most, np.int32), np.empty(most, data.dtype)
    firsts, stops = np.empty(most, np.int32), np.empty(most, np.int32)
    for t in range(edges.shape[0] - 1):
        others = vectors[edges[t, 2] : edges[t + 1, 2]]
        part = used[edges[t, 1] : edges[t + 1, 1]]
        of_partners = part.shape[0] - others.shape[0]
        directory, lists = part[1:], part[1 + 2 * np.int64(part[0]) : of_partners]
        partners, low, high = part[of_partners:], edges[t, 0], edges[t + 1, 0]
        for i in range(m):
            count = _listed_entries(
                data, indices, indptr[i], indptr[i + 1], directory, numbers, values
            )
            for k in range(count):
                firsts[k], stops[k] = lists[numbers[k]], lists[numbers[k] + 1]
                _prefetch(partners, firsts[k])
                _prefetch(others, firsts[k])
            row = block[i, : high - low]
            _listed_products(firsts, stops, values, count, partners, others, row)
        _use(
            block[:m, : high - low], low, norms, norms_partners[low:high], formula, weights, sums,
            out, slots,
        )  # fmt: skip


@inner
def _is_exact(data: Floats, start: int, stop: int, largest: int) -> bool:
    """Whether a row has only whole numbers up to `largest`, and no product reaches 2²⁴."""
    total = 0.0
    for k in range(start, stop):
        value = data[k]
        if not (value >= 0 and value <= largest and np.floor(value) == value):
            return False
        total += value
    return total <= LARGEST_SUM


@inner
def _packed_rows(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    counts: bool,
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    words: NDArray[np.uint32],
    is_exact: NDArray[np.bool_],
) -> None:
    """Pack rows into words of four features or, if the partners are counted, list their features.

    The entries of row i begin at starts_i: the group or feature in `rows`, and its word in `words`.
    Rows that are not `is_exact` have none.
    """
    count = 0
    for i in range(is_exact.shape[0]):
        starts[i] = count
        is_exact[i] = _is_exact(data, indptr[i], indptr[i + 1], 1 if counts else LARGEST_BYTE)
        if not is_exact[i]:
            continue
        for k in range(indptr[i], indptr[i + 1]):
            feature, value = np.int64(indices[k]), np.int64(data[k])
            if value == 0:
                continue
            if counts:
                rows[count] = feature
                count += 1
                continue
            if count == starts[i] or rows[count - 1] != feature >> 2:
                rows[count] = feature >> 2
                words[count] = 0
                count += 1
            words[count - 1] |= np.uint32(value << 8 * (feature & 3))
    starts[-1] = count


@inner
def _used_words(
    starts: NDArray[np.int64],
    rows: NDArray[np.int32],
    words: NDArray[np.uint32],
    counts: bool,
    place: NDArray[np.int32],
    begins: NDArray[np.int64],
    places: NDArray[np.int32],
    factors: NDArray[np.uint32],
    firsts: NDArray[np.int64],
) -> None:
    """Collect the entries of packed rows that are in a tile; those of row i begin at begins_i.

    firsts_i corrects for partners of words being stored minus 128.
    """
    count = 0
    for i in range(firsts.shape[0]):
        begins[i] = count
        firsts[i] = 0
        for k in range(starts[i], starts[i + 1]):
            r = place[rows[k]]
            if r >= 0:
                places[count] = r
                if not counts:
                    word = np.int64(words[k])
                    factors[count] = word
                    total = (word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)
                    firsts[i] += 128 * total
                count += 1
    begins[-1] = count


@inner
def _float_chains(
    data: Floats,
    indices: Integers,
    start: int,
    stop: int,
    place: NDArray[np.int32],
    chunk: Bytes,
    row: Floats,
) -> None:
    """Multiply any row with a chunk of bytes, with the bits of `_chains` for a chunk of floats."""
    for j in range(row.shape[0]):
        row[j] = 0
    counts = chunk.itemsize == 1
    number = data.dtype.type
    for k in range(start, stop):
        feature = np.int64(indices[k])
        r = place[feature if counts else feature >> 2]
        if r < 0:
            continue
        others, shift = chunk[r], 8 * (feature & 3)
        for j in range(row.shape[0]):
            other = np.int64(others[j])
            if not counts:
                other = (other >> shift & 255) ^ 128
            row[j] = _fma(data[k], number(other), row[j])


@inner
def _byte_products(
    words: NDArray[np.uint32],
    places: NDArray[np.int32],
    begin: int,
    end: int,
    chunk: Bytes,
    first: int,
    sums: Bytes,
    row: Floats,
) -> None:
    """Dot products of the entries of a row with a chunk: see `_used_words`."""
    stop = min(end, begin + LARGEST_BYTE) if chunk.itemsize == 1 else end
    _byte_sums(words, places, begin, stop, chunk, first, sums)
    for j in range(row.shape[0]):
        row[j] = np.int32(sums[j])
    # Counters are emptied before they can overflow.
    while stop < end:
        begin, stop = stop, min(end, stop + LARGEST_BYTE)
        _byte_sums(words, places, begin, stop, chunk, first, sums)
        for j in range(row.shape[0]):
            row[j] += np.int32(sums[j])


@compiled(allocates=True)
def byte_span(
    data: Floats,
    indices: Integers,
    indptr: Integers,
    norms: Floats,
    place: NDArray[np.int32],
    vectors: Bytes,
    used: NDArray[np.int32],
    edges: NDArray[np.int64],
    norms_partners: Floats,
    product: None,
    formula: Formula,
    block: Floats,
    weights: F8,
    sums: F8,
    out: Floats,
    slots: NDArray[np.int64],
) -> None:
    """Do what `sparse_span` does, with partners of bytes; the rows may have any values.

    The tiles in `vectors`, uint8 or uint32, one after the other, are each cut into chunks (n_used,
    CHUNK_BYTES) of some of its partners; the last chunk is filled up. `used` has the feature of
    each row of a tile or, for tiles of words, the group of four features.
    """
    m, n_entries, counts = norms.shape[0], indptr[-1] - indptr[0], vectors.itemsize == 1
    starts, rows = np.empty(m + 1, np.int64), np.empty(n_entries, np.int32)
    begins, places = np.empty(m + 1, np.int64), np.empty(n_entries, np.int32)
    words, factors = np.empty(n_entries, np.uint32), np.empty(n_entries, np.uint32)
    is_exact, firsts = np.empty(m, np.bool_), np.empty(m, np.int64)
    width = CHUNK_BYTES // vectors.itemsize
    chunk_sums = np.empty(width, vectors.dtype)
    _packed_rows(data, indices, indptr, counts, starts, rows, words, is_exact)
    for t in range(edges.shape[0] - 1):
        features = used[edges[t, 1] : edges[t + 1, 1]]
        tile = vectors[edges[t, 2] : edges[t + 1, 2]]
        n, low, high = features.shape[0], edges[t, 0], edges[t + 1, 0]
        for r in range(n):
            place[features[r]] = r
        _used_words(starts, rows, words, counts, place, begins, places, factors, firsts)
        for first in range(0, high - low, width):
            size = min(width, high - low - first)
            chunk = tile[first * n : (first + width) * n].reshape(n, width)
            for i in range(m):
                row = block[i, first : first + size]
                if is_exact[i]:
                    _byte_products(
                        factors, places, begins[i], begins[i + 1], chunk, firsts[i], chunk_sums, row
                    )
                else:
                    _float_chains(data, indices, indptr[i], indptr[i + 1], place, chunk, row)
        for r in range(n):
            place[features[r]] = -1
        _use(block, low, norms, norms_partners[low:high], formula, weights, sums, out, slots)
