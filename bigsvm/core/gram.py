"""Blocks of kernel values: dot products in, kernel values or their weighted row sums out.

The dot products come from `bigsvm.core.products` (dense rows) or from `csr_products` (sparse rows);
the functions here then make one pass over the block. The exponential is our own because LLVM vectorises it,
unlike ``math.exp``: 0.5 ns instead of 4 ns per value on two AVX-512 cores.

Kernel codes are LIBSVM's ``-t``: 0 linear, 1 polynomial, 2 rbf, 3 sigmoid.
"""

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

LINEAR, POLYNOMIAL, RBF = 0, 1, 2

# Reassociation lets sums vectorise; NaN and infinity keep their meaning, unlike under fastmath=True.
FAST = {"reassoc", "contract", "arcp", "nsz"}

if config.DISABLE_JIT:

    def _float32_of_bits(bits):
        return np.int32(bits).view(np.float32)

    def _float64_of_bits(bits):
        return np.int64(bits).view(np.float64)

else:

    @intrinsic
    def _float32_of_bits(typing_context, bits):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], ir.FloatType())

        return types.float32(types.int32), generate

    @intrinsic
    def _float64_of_bits(typing_context, bits):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], ir.DoubleType())

        return types.float64(types.int64), generate


@njit(cache=True, fastmath=FAST, inline="always")
def exp32(x):
    """exp(x) in float32, relative error below 1.3e-7 on [-87, 88], clamped outside.

    Cody-Waite reduction by ln 2 in two parts and a polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2].
    """
    x = max(min(x, np.float32(88.0)), np.float32(-87.0))
    whole = np.floor(x * np.float32(1.44269504088896341) + np.float32(0.5))
    r = x - whole * np.float32(0.693359375)
    r = r - whole * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * _float32_of_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@njit(cache=True, fastmath=FAST, inline="always")
def exp64(x):
    """exp(x) in float64, relative error below 1e-15 on [-700, 700], clamped outside."""
    x = max(min(x, 700.0), -700.0)
    whole = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - whole * 6.93147180369123816490e-01
    r = r - whole * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.0876756987868099e-09
    p = p * r + 2.5052108385441720e-08
    p = p * r + 2.7557319223985888e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.4801587301587302e-05
    p = p * r + 1.9841269841269841e-04
    p = p * r + 1.3888888888888889e-03
    p = p * r + 8.3333333333333332e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    return p * _float64_of_bits(np.int64((np.int64(whole) + np.int64(1023)) << np.int64(52)))


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def kernel_values32(products, norms_rows, norms_columns, code, gamma, coef0, degree):
    """Turn float32 dot products (m, p) into kernel values, in place."""
    one, two = np.float32(1.0), np.float32(2.0)
    gamma, coef0 = np.float32(gamma), np.float32(coef0)
    m, p = products.shape
    for i in range(m):
        row = products[i]
        if code == RBF:
            a = norms_rows[i]
            for j in range(p):
                row[j] = exp32(-gamma * max(np.float32(0.0), a + norms_columns[j] - two * row[j]))
        elif code == POLYNOMIAL:
            for j in range(p):
                base = gamma * row[j] + coef0
                power = one
                for _ in range(degree):
                    power = power * base
                row[j] = power
        elif code != LINEAR:
            for j in range(p):
                row[j] = one - two / (exp32(two * (gamma * row[j] + coef0)) + one)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def kernel_values64(products, norms_rows, norms_columns, code, gamma, coef0, degree):
    """Turn float64 dot products (m, p) into kernel values, in place."""
    m, p = products.shape
    for i in range(m):
        row = products[i]
        if code == RBF:
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
        elif code != LINEAR:
            for j in range(p):
                row[j] = 1.0 - 2.0 / (exp64(2.0 * (gamma * row[j] + coef0)) + 1.0)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def rbf_sums32(products, norms_rows, norms_columns, weights, gamma, out):
    """Add ``Σ_j k_rbf(i, j) weights_j`` to out_i without storing the kernel values.

    products (m, p) float32, weights (p,) float32, out (m,) float64; summed in float64.
    """
    two, gamma = np.float32(2.0), np.float32(gamma)
    m, p = products.shape
    for i in range(m):
        a = norms_rows[i]
        total = 0.0
        for j in range(p):
            d = max(np.float32(0.0), a + norms_columns[j] - two * products[i, j])
            total += exp32(-gamma * d) * weights[j]
        out[i] += total


@njit(cache=True, nogil=True, fastmath=FAST)
def weighted_sums(values, weights, out):
    """Add ``Σ_j values_ij weights_j`` to out_i, summed in float64."""
    m, p = values.shape
    for i in range(m):
        total = 0.0
        for j in range(p):
            total += np.float64(values[i, j]) * np.float64(weights[j])
        out[i] += total


@njit(cache=True, nogil=True, fastmath=FAST)
def csr_products(data, indices, indptr, local, tile, out):
    """Dot products of sparse rows with the columns of a tile: ``out[i] = x_i @ tile``.

    Parameters
    ----------
    data, indices, indptr : arrays
        The rows, CSR.
    local : (n_columns,) int32
        Row of `tile` that belongs to a column of the data, or -1 where the tile has only zeros.
    tile : (n_used, p)
        The columns' vectors, transposed and without their unused rows.
    out : (m, p)
    """
    m, p = out.shape
    longest = 0
    for i in range(m):
        longest = max(longest, indptr[i + 1] - indptr[i])
    rows = np.empty(longest, np.int32)
    values = np.empty(longest, data.dtype)
    for i in range(m):
        count = 0
        for k in range(indptr[i], indptr[i + 1]):
            r = local[indices[k]]
            if r >= 0:
                rows[count] = r
                values[count] = data[k]
                count += 1
        row = out[i]
        row[:] = 0
        # Four at a time, so that the row of `out` is passed over a quarter as often.
        fours = count // 4 * 4
        for c in range(0, fours, 4):
            v0, v1, v2, v3 = values[c], values[c + 1], values[c + 2], values[c + 3]
            t0, t1, t2, t3 = tile[rows[c]], tile[rows[c + 1]], tile[rows[c + 2]], tile[rows[c + 3]]
            for j in range(p):
                row[j] += v0 * t0[j] + v1 * t1[j] + v2 * t2[j] + v3 * t3[j]
        for c in range(fours, count):
            v0 = values[c]
            t0 = tile[rows[c]]
            for j in range(p):
                row[j] += v0 * t0[j]
