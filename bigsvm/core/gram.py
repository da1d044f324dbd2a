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
from numba import config, njit
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
# A value is rounded as it is written: reassociated, `(u + ROUND) - ROUND` would be u.
AS_WRITTEN = {"contract", "nsz"}

LOG2_E = 1.4426950408889634
LARGEST32 = 3.4028234663852886e38
"""The largest number of float32."""
LAST_POWER = 125.0
"""Powers of 2 end here, on both sides: beyond 2^-126 the exponent does not fit the bits."""

if config.DISABLE_JIT:

    def _fma(a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        if isinstance(a, np.float32):  # the product of two float32 is exact in float64
            return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
        return a * b + c

else:  # pragma: no cover (runs in the compiler, whose results have tests)

    @intrinsic
    def _fma(typing_context: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Untyped:
        """Compute ``a * b + c``, rounded once."""

        def generate(
            context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
        ) -> Untyped:
            return builder.fma(*arguments)

        return a(a, b, c), generate


@njit(cache=True)
def split32(scale: float) -> tuple[np.float32, np.float32]:
    """Split a number into two of float32, of one sign, that add up to it: for `power32`."""
    high = np.float32(scale)
    if abs(np.float64(high)) > abs(scale):
        high = np.nextafter(high, np.float32(0.0))
    return high, np.float32(scale - np.float64(high))


@njit(cache=True, fastmath=AS_WRITTEN, inline="always")
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
    power = np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52)).view(np.float64)
    result: float = p * power
    return result


@njit(cache=True, nogil=True, fastmath=AS_WRITTEN, error_model="numpy")
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
    zero, one, two = np.float32(0.0), np.float32(1.0), np.float32(2.0)
    scale, offset = np.float32(gamma), np.float32(coef0)
    to_base_2 = min(gamma * LOG2_E, LARGEST32)
    high, low = split32(-to_base_2)
    far = np.float32(min(LAST_POWER / max(to_base_2, 1e-300), LARGEST32))
    e_high, e_low = split32(LOG2_E)
    end = np.float32(LAST_POWER / LOG2_E)
    m, p = products.shape[0], norms_columns.shape[0]
    for i in range(m):
        row = products[i]
        if code == RBF or code == LAPLACIAN:
            a = norms_rows[i]
            for j in range(p):
                distance = min(max(zero, a + norms_columns[j] - two * row[j]), far)
                row[j] = power32(distance, high, low)
        elif code == POLYNOMIAL:
            for j in range(p):
                base = scale * row[j] + offset
                power = one
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code != LINEAR and code != PRECOMPUTED:
            for j in range(p):
                x = max(min(two * (scale * row[j] + offset), end), -end)
                row[j] = one - two / (power32(x, e_high, e_low) + one)


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
