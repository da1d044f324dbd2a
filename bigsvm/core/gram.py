"""Blocks of kernel values: dot products in, kernel values or their weighted row sums out.

The dot products come from `bigsvm.core.products` (dense rows) or `bigsvm.core.csr` (sparse
rows); the functions here then pass over the block. The exponential is our own because LLVM
vectorises it, unlike ``math.exp``: 0.5 ns instead of 4 ns per value on two AVX-512 cores.

Kernel codes are LIBSVM's ``-t``: 0 linear, 1 polynomial, 2 rbf, 3 sigmoid, 4 precomputed; and 5
laplacian, which is rbf with absolute distances in place of squared ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    F4: TypeAlias = NDArray[np.float32]
    F8: TypeAlias = NDArray[np.float64]
    Floats: TypeAlias = F4 | F8

Untyped: TypeAlias = Any
"""What Numba and LLVM hand to the functions that write their code."""

LINEAR, POLYNOMIAL, RBF, PRECOMPUTED, LAPLACIAN = 0, 1, 2, 4, 5

# Reassociation lets sums vectorise; NaN and infinity keep their meaning, unlike under
# fastmath=True.
FAST = {"reassoc", "contract", "arcp", "nsz"}

if config.DISABLE_JIT:

    def _float32_of_bits(bits: Untyped) -> np.float32:
        return np.int32(bits).view(np.float32)

    def _float64_of_bits(bits: Untyped) -> np.float64:
        return np.int64(bits).view(np.float64)

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        return a * b + c

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _float32_of_bits(typing_context: Untyped, bits: Untyped) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.bitcast(arguments[0], ir.FloatType())

        return types.float32(types.int32), generate

    @intrinsic
    def _float64_of_bits(typing_context: Untyped, bits: Untyped) -> Untyped:
        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.bitcast(arguments[0], ir.DoubleType())

        return types.float64(types.int64), generate

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate


@njit(cache=True, fastmath=FAST, inline="always")
def exp32(x: np.float32) -> np.float32:
    """Compute exp(x) in float32, monotone, relative error below 1e-7; clamped to [-87, 88].

    Cody-Waite reduction by ln 2 in two parts and a polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2].
    The multiply-adds are explicit: a caller that may reassociate would add the two parts of ln 2 up
    to one, and treble the error.
    """
    x = max(min(x, np.float32(88.0)), np.float32(-87.0))
    whole = np.floor(x * np.float32(1.44269504088896341) + np.float32(0.5))
    r = _fma(whole, np.float32(-0.693359375), x)
    r = _fma(whole, np.float32(2.12194440e-4), r)
    p = np.float32(1.9875691500e-4)
    p = _fma(p, r, np.float32(1.3981999507e-3))
    p = _fma(p, r, np.float32(8.3334519073e-3))
    p = _fma(p, r, np.float32(4.1665795894e-2))
    p = _fma(p, r, np.float32(1.6666665459e-1))
    p = _fma(p, r, np.float32(5.0000001201e-1))
    p = _fma(p * r, r, r) + np.float32(1.0)
    power = _float32_of_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    result: np.float32 = p * power
    return result


@njit(cache=True, fastmath=FAST, inline="always")
def exp64(x: float) -> float:
    """Compute exp(x) in float64, relative error below 1e-15; x is clamped to [-700, 700]."""
    x = max(min(x, 700.0), -700.0)
    whole = np.floor(x * 1.4426950408889634 + 0.5)
    r = _fma(whole, -6.93147180369123816490e-01, x)
    r = _fma(whole, -1.90821492927058770002e-10, r)
    p = 1.6059043836821613e-10
    p = _fma(p, r, 2.0876756987868099e-09)
    p = _fma(p, r, 2.5052108385441720e-08)
    p = _fma(p, r, 2.7557319223985888e-07)
    p = _fma(p, r, 2.7557319223985893e-06)
    p = _fma(p, r, 2.4801587301587302e-05)
    p = _fma(p, r, 1.9841269841269841e-04)
    p = _fma(p, r, 1.3888888888888889e-03)
    p = _fma(p, r, 8.3333333333333332e-03)
    p = _fma(p, r, 4.1666666666666664e-02)
    p = _fma(p, r, 1.6666666666666666e-01)
    p = _fma(p, r, 0.5)
    p = _fma(p * r, r, r) + 1.0
    result: float = p * _float64_of_bits(
        np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52))
    )
    return result


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def kernel_values32(
    products: F4,
    norms_rows: F4,
    norms_columns: F4,
    code: int,
    gamma: float,
    coef0: float,
    degree: int,
) -> None:
    """Turn float32 dot products (m, ≥ p) into kernel values, in place.

    Not added up at once: exponentials in float32 and sums in float64, which have half as many to a
    vector, took 0.30 ns a value in one loop and 0.17 + 0.05 in two.
    """
    one, two = np.float32(1.0), np.float32(2.0)
    scale, offset = np.float32(gamma), np.float32(coef0)
    m, p = products.shape[0], norms_columns.shape[0]
    for i in range(m):
        row = products[i]
        if code == RBF or code == LAPLACIAN:
            a = norms_rows[i]
            for j in range(p):
                row[j] = exp32(-scale * max(np.float32(0.0), a + norms_columns[j] - two * row[j]))
        elif code == POLYNOMIAL:
            for j in range(p):
                base = scale * row[j] + offset
                power = one
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code != LINEAR and code != PRECOMPUTED:
            for j in range(p):
                row[j] = one - two / (exp32(two * (scale * row[j] + offset)) + one)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def kernel_values64(
    products: F8,
    norms_rows: F8,
    norms_columns: F8,
    code: int,
    gamma: float,
    coef0: float,
    degree: int,
) -> None:
    """Turn float64 dot products (m, ≥ p) into kernel values, in place."""
    m, p = products.shape[0], norms_columns.shape[0]
    for i in range(m):
        row = products[i]
        if code == RBF or code == LAPLACIAN:
            a = norms_rows[i]
            for j in range(p):
                row[j] = exp64(-gamma * max(0.0, a + norms_columns[j] - 2.0 * row[j]))
        elif code == POLYNOMIAL:
            for j in range(p):
                base = gamma * row[j] + coef0
                power = 1.0
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code != LINEAR and code != PRECOMPUTED:
            for j in range(p):
                row[j] = 1.0 - 2.0 / (exp64(2.0 * (gamma * row[j] + coef0)) + 1.0)


@njit(cache=True, nogil=True)
def looked_up(
    rows: Floats, places: NDArray[np.int64], columns: NDArray[np.int32], out: Floats
) -> None:
    """Copy the values of rows at `places` (m,) in `columns` (p,) to out (m, ≥ p)."""
    for i in range(places.shape[0]):
        row = rows[places[i]]
        for j in range(columns.shape[0]):
            out[i, j] = row[columns[j]]


@njit(cache=True, nogil=True, fastmath=FAST)
def weighted_sums(values: Floats, weights: Floats, out: F8) -> None:
    """Add ``Σ_j values_ij weights_j`` to out_i, summed in float64."""
    m, p = values.shape[0], weights.shape[0]
    for i in range(m):
        total = 0.0
        for j in range(p):
            total += np.float64(values[i, j]) * np.float64(weights[j])
        out[i] += total
